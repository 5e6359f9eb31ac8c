//! Pruning a fine-tuned model, and fine-tuning with masks.

use crate::finetuning::{Bench, parameters};
use crate::stop_after::StopAfter;
use burn::tensor::Device;
use cloze_model::huggingface::{Family, PretrainedFolder};
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::finetune::{FineTuneConfig, Predictor, PruneConfig, PruneReport, prune};
use cloze_trainer::metrics::progress::Silent;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const TASK: &str = "{ kind = \"classification\" }";

fn scores(model: &Path) -> Vec<f64> {
    let predictor = Predictor::load(model, &Device::flex(), false).unwrap();
    let lines = ["\"the great film was a story\"", "\"a dull story of ships\"", "\"fine\""];
    let predicted = predictor.predict(&lines, &mut |_| {}).unwrap().values;
    predicted.iter().map(|value| value["scores"]["good"].as_f64().unwrap()).collect()
}

fn pruned(
    bench: &Bench,
    config: &FineTuneConfig,
    model: &str,
    out: &str,
    change: impl FnOnce(&mut PruneConfig),
) -> cloze_trainer::Result<PruneReport> {
    let mut pruning = PruneConfig::default();
    change(&mut pruning);
    let options = RunOptions::new(Device::flex(), bench.path(&format!("{out}-work")));
    prune(config, &bench.path(model), &bench.path(out), &pruning, &options, &mut Silent)
}

#[test]
fn a_smaller_model_computes_what_zeros_compute() {
    let bench = Bench::new();
    let config = bench.config(TASK, "label", &["train.epochs=3"]);
    bench.run_whole("run", &config);
    let take =
        |padded: bool| move |of: &mut PruneConfig| (of.heads, of.neurons, of.padded) = (0.5, 0.5, padded);
    let report = pruned(&bench, &config, "run/model", "small", take(false)).unwrap();
    let count = |lists: &[Vec<usize>]| lists.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(count(&report.removal.heads), [1, 1], "each layer keeps a head");
    assert_eq!(count(&report.removal.neurons), [32, 32]);
    // A tenth of 64 neurons a round.
    assert_eq!(report.rounds, 32_usize.div_ceil(6));
    let [before, after] = report.figures.as_ref().unwrap();
    assert!(before.main().1 > 0.9 && after.main().1 > 0.3, "{before:?} {after:?}");
    let same = pruned(&bench, &config, "run/model", "padded", take(true)).unwrap();
    assert_eq!(same.removal, report.removal);
    assert_eq!(same.parameters[0], same.parameters[1]);
    assert!(report.parameters[1] < report.parameters[0]);
    let [small, padded] = ["small", "padded"].map(|name| scores(&bench.path(name)));
    for (small, padded) in small.iter().zip(&padded) {
        assert!((small - padded).abs() < 1e-5, "{small} {padded}");
    }
    let encoder = PretrainedFolder::open(&bench.path("small")).unwrap().config.encoder;
    assert_eq!((encoder.pruned_heads, encoder.d_ff), (report.removal.heads.clone(), 32));
    assert_eq!(encoder.hidden_dropout, 0.1, "the model's own");

    // The smaller model is trained on, and pruned on.
    let again = bench.config(TASK, "label", &["train.epochs=2"]);
    let mut again = again;
    again.kind.model.path = bench.path("small");
    let Outcome::Done { figures, .. } = bench.run_whole("again", &again) else { panic!("not stopped") };
    assert!(figures[0].1.main().1 > 0.9, "{figures:?}");
    let error = pruned(&bench, &config, "again/model", "none", |of| of.heads = 0.5).unwrap_err().to_string();
    assert!(error.contains("`--heads` is 0.5; expected at most 0.0000: that is 0 of 2 heads"), "{error}");
    let fewer = pruned(&bench, &config, "run/model", "one-layer", |of| of.n_layers = Some(1)).unwrap();
    assert_eq!((fewer.layers.len(), fewer.layer_losses.len()), (1, 1));
    assert_eq!(PretrainedFolder::open(&bench.path("one-layer")).unwrap().config.encoder.n_layers, 1);
}

#[test]
fn what_cannot_be_pruned_is_told() {
    let bench = Bench::new();
    let config = bench.config(TASK, "label", &["train.epochs=1"]);
    let error = |config: &FineTuneConfig, change: fn(&mut PruneConfig)| {
        pruned(&bench, config, "run/model", "none", change).unwrap_err().to_string()
    };
    // A checkpoint without a head.
    let headless = pruned(&bench, &config, "model", "none", |of| of.heads = 0.5).unwrap_err().to_string();
    assert!(headless.contains("classifier"), "{headless}");
    bench.run_whole("run", &config);
    for (change, expected) in [
        (
            (|of| of.heads = 1.0) as fn(&mut PruneConfig),
            "`--heads` is 1; expected a share of 0 or more and below 1",
        ),
        (
            |of| of.heads = 0.9,
            "`--heads` is 0.9; expected at most 0.5000: that is 2 of 4 heads, and each of 2 layers keeps one",
        ),
        (|of| of.neurons = 0.999, "expected less: a layer has 64 neurons"),
        (|of| of.n_layers = Some(3), "`--n-layers` is 3; expected at most 2"),
        (|of| of.layers = Some(vec![2]), "`--layers` is [2]; expected layers from 0 to 1"),
    ] {
        let found = error(&config, change);
        assert!(found.contains(expected), "{found}");
    }
    let no_dev = bench.config(TASK, "label", &["data.dev=[]"]);
    assert!(
        error(&no_dev, |of| of.n_layers = Some(1)).contains("expected `data.dev` or `data.dev_fraction`")
    );
    let other = bench.config("{ kind = \"regression\" }", "score", &[]);
    let found = error(&other, |of| of.heads = 0.5);
    assert!(
        found.contains("`task.kind` is regression; expected classification, the task of the model"),
        "{found}"
    );

    let albert = Bench::of(Family::ALBERT);
    let config = albert.config(TASK, "label", &["train.epochs=1"]);
    albert.run_whole("run", &config);
    let found = pruned(&albert, &config, "run/model", "none", |of| of.neurons = 0.5).unwrap_err().to_string();
    assert!(found.contains("expected none: the model's layers share their parameters"), "{found}");
    let mpnet = Bench::of(Family::MPNET);
    let config = mpnet.config(TASK, "label", &["train.epochs=1"]);
    mpnet.run_whole("run", &config);
    let found = pruned(&mpnet, &config, "run/model", "none", |of| of.heads = 0.5).unwrap_err().to_string();
    assert!(found.contains("expected none: each head has its own part of the bias by distance"), "{found}");
    pruned(&mpnet, &config, "run/model", "neurons", |of| of.neurons = 0.5).unwrap();
}

/// The share of zeros of the layers' linear maps, by weight.
fn zeros(model: &Path) -> f64 {
    let maps = ["query", "key", "value", "dense"];
    let of = |name: &String| {
        name.contains("encoder.layer") && maps.iter().any(|map| name.ends_with(&format!("{map}.weight")))
    };
    let all: Vec<f32> = parameters(model)
        .iter()
        .filter(|(name, _)| of(name))
        .flat_map(|(_, data)| data.iter::<f32>().collect::<Vec<_>>())
        .collect();
    all.iter().filter(|value| **value == 0.0).count() as f64 / all.len() as f64
}

#[test]
fn masks_are_resumed_with_the_same_bits() {
    let bench = Bench::new();
    // 20 steps an epoch.
    let cases = [
        ("pruning={ kind=\"magnitude\", sparsity=0.4, per_round=0.2, rewind=3 }", 0.4, 45),
        ("pruning={ kind=\"random\", sparsity=0.3, per_round=0.3, scope=\"matrix\" }", 0.3, 41),
        ("pruning={ kind=\"movement\", left=0.3, warmup=0.2, cooldown=0.3 }", 0.7, 25),
        ("pruning={ kind=\"movement\", left=0.3, scope=\"global\" }", 0.7, 25),
        ("pruning={ kind=\"movement\", threshold=0.49, penalty=500.0 }", f64::NAN, 25),
        ("pruning={ kind=\"movement\", granularity=\"heads\", left=0.5 }", f64::NAN, 25),
        ("pruning={ kind=\"movement\", granularity=\"neurons\", left=0.5 }", f64::NAN, 25),
        ("pruning={ kind=\"gates\", penalty=0.1 }", f64::NAN, 25),
    ];
    for (number, (section, share, stop_at)) in cases.into_iter().enumerate() {
        let config = bench.config(TASK, "label", &[section, "train.epochs=2", "train.accumulate=1"]);
        let [whole, stopped] = ["whole", "stopped"].map(|name| format!("{name}-{number}"));
        bench.run_whole(&whole, &config);
        let stop = AtomicBool::new(false);
        let made = bench.run(&stopped, &config, false, &mut StopAfter(stop_at, &stop), &stop).unwrap();
        assert!(matches!(made, Outcome::Stopped { step } if step == stop_at), "{made:?}");
        bench.run(&stopped, &config, true, &mut Silent, &AtomicBool::new(false)).unwrap();
        let [whole, stopped] = [whole, stopped].map(|name| bench.path(&name).join("model"));
        assert_eq!(parameters(&whole), parameters(&stopped), "{section}");
        let found = zeros(&whole);
        assert!(share.is_nan() || (found - share).abs() < 0.002, "{section}: {found} of the weights are 0");
    }
}

#[test]
fn heads_without_weights_are_taken_out_first() {
    let bench = Bench::new();
    let section = "pruning={ kind=\"movement\", granularity=\"neurons\", left=0.5, cooldown=0.5 }";
    let config = bench.config(TASK, "label", &[section, "train.epochs=3"]);
    bench.run_whole("run", &config);
    pruned(&bench, &config, "run/model", "small", |of| of.neurons = 0.5).unwrap();
    let [whole, small] = ["run/model", "small"].map(|name| scores(&bench.path(name)));
    for (whole, small) in whole.iter().zip(&small) {
        assert!((whole - small).abs() < 1e-5, "{whole} {small}");
    }
}

#[test]
fn settings_of_masks_are_checked() {
    let bench = Bench::new();
    let load = |sets: &[&str]| {
        let path = bench.path("config.toml");
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        FineTuneConfig::load(&path, &sets).unwrap_err().to_string()
    };
    bench.config(TASK, "label", &[]);
    let magnitude = "pruning={ kind=\"magnitude\" }";
    let movement = "pruning={ kind=\"movement\" }";
    for (sets, expected) in [
        (&["pruning={ kind=\"magnitude\", sparsity=1.0 }"][..], "pruning.sparsity"),
        (&["pruning={ kind=\"magnitude\", per_round=0.0 }"], "pruning.per_round"),
        (&["pruning={ kind=\"movement\", left=0 }"], "pruning.left"),
        (
            &["pruning={ kind=\"movement\", warmup=0.6, cooldown=0.6 }"],
            "at most 1 together with `pruning.warmup`",
        ),
        (&["pruning={ kind=\"movement\", threshold=1.5 }"], "pruning.threshold"),
        (&["pruning={ kind=\"gates\", penalty=-1.0 }"], "pruning.penalty"),
        (&["pruning={ kind=\"gates\", lr=0.0 }"], "pruning.lr"),
        (&["pruning={ kind=\"gates\", granularity=\"heads\" }"], "granularity"),
        (&[movement, "model.lora={ rank=2 }"], "model.lora"),
        (&[movement, "train.precision=f16"], "train.precision"),
        (&[movement, "average={ kind=\"ema\", decay=0.9 }"], "a mean of models has the zeros of none"),
        (&[magnitude, "train.batch_tokens=100"], "train.batch_tokens"),
        (&[magnitude, "model.gradual_unfreezing=true"], "model.gradual_unfreezing"),
        (&[magnitude, "eval.patience=2"], "eval.patience"),
    ] {
        let found = load(sets);
        assert!(found.contains(expected), "{sets:?}: {found}");
    }
    let config = bench.config(TASK, "label", &["pruning={ kind=\"random\", rewind=200 }"]);
    let error =
        bench.run("late", &config, false, &mut Silent, &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(
        error.contains("`pruning.rewind` is 200; expected less than 120, the steps of a round"),
        "{error}"
    );
}
