//! AWD-LSTMs in training on streams of text, and ULMFiT's classifiers with their encoders.

use crate::bench::Bench;
use burn::tensor::Device;
use cloze_model::huggingface::read_tensors;
use cloze_trainer::config::AwdLstmRunConfig;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::finetune::{EvaluationData, FineTuneConfig, Predictor, fine_tune};
use cloze_trainer::generate::{GenerateConfig, Generator};
use cloze_trainer::metrics::progress::{RunProgress, Silent, Status};
use std::sync::atomic::{AtomicBool, Ordering};

const CONFIG: &str = r#"
objective.kind = "left-to-right"
tokenizer.kind = "train-characters"
streams.seq_len = 16
model = { d_embedding = 24, d_hidden = 32, n_layers = 2, dropout.weight = 0.2, dropout.input = 0.1, dropout.hidden = 0.1, dropout.output = 0.1 }
train = { steps = 9, batch_size = 2, accumulate = 2 }
optimizer.lr = 1e-2
schedule.kind = "constant"
eval = { every = 4, heldout_fraction = 0.2, max_blocks = 60, batch_size = 3 }
log.every = 1
"#;

const TASK: &str = r#"
task.kind = "classification"
train = { epochs = 8, batch_size = 8 }
optimizer = { lr = 1e-2, beta1 = 0.7, beta2 = 0.99 }
schedule = { kind = "slanted-triangular", warmup_steps = 10 }
log.every = 5
"#;

/// A text that is good or bad by one word of it.
fn row(i: usize) -> (String, &'static str) {
    let (word, label) = [("dull", "bad"), ("weak", "bad"), ("fine", "good"), ("great", "good")][i * 7 % 4];
    let thing = ["ship", "film", "story", "sea", "song"][i * 3 % 5];
    (format!("the {thing} was {word}"), label)
}

type Runs = Bench<AwdLstmRunConfig>;

fn bench() -> Runs {
    Bench::new(CONFIG, |i| row(i).0 + "\n")
}

fn options(bench: &Runs, out: &str) -> RunOptions<'static> {
    RunOptions::new(Device::flex(), bench.path(out)).cache(bench.path("cache"))
}

/// A classifier that begins with the language model of the run `lm`.
fn task(bench: &Runs, sets: &[&str]) -> FineTuneConfig {
    for (name, range) in [("train.tsv", 0..120), ("dev.tsv", 120..160)] {
        let rows = range.map(row).map(|(text, label)| format!("{text}\t{label}\n"));
        std::fs::write(bench.path(name), "text\tlabel\n".to_owned() + &rows.collect::<String>()).unwrap();
    }
    let [train, dev, model] = ["train.tsv", "dev.tsv", "lm/model"].map(|name| bench.path(name));
    let data = format!(
        "data = {{ train = {{ files = [{train:?}] }}, dev = [{dev:?}], max_len = 64 }}\nmodel.path = {model:?}\n"
    );
    let path = bench.path("task.toml");
    std::fs::write(&path, data + TASK).unwrap();
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    FineTuneConfig::load(&path, &sets).unwrap_or_else(|error| panic!("{error}"))
}

/// Asks the run to stop after a step.
struct StopAfter<'a>(u64, &'a AtomicBool);

impl RunProgress for StopAfter<'_> {
    fn step(&mut self, status: &Status) {
        if status.step == self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

fn figure(outcome: &Outcome, split: &str, name: &str) -> f64 {
    outcome.figures(split).unwrap().get(name).unwrap()
}

#[test]
fn a_run_learns_and_its_model_writes() {
    let _generator = crate::generator();
    let bench = bench();
    let sets = ["train.steps=200", "eval.every=1000"];
    let long = [&sets[..], &["regularisation={ activation = 2.0, temporal = 1.0 }"]].concat();
    let untrained = figure(&bench.run("short", &["train.steps=1"]).unwrap(), "heldout", "loss");
    for (out, sets) in [("lm", &sets[..]), ("regularised", &long)] {
        let trained = figure(&bench.run(out, sets).unwrap(), "heldout", "loss");
        assert!(trained < 0.7 * untrained, "{out}: {trained} from {untrained}");
    }
    let metrics = std::fs::read_to_string(bench.path("regularised/metrics.jsonl")).unwrap();
    let train: serde_json::Value = serde_json::from_str(metrics.lines().nth(1).unwrap()).unwrap();
    let terms = &train["losses"];
    let sum = ["loss", "activation", "temporal"].map(|term| terms[term].as_f64().unwrap());
    let expected = sum[0] + 2.0 * sum[1] + sum[2];
    assert!(
        sum[1] > 0.0 && sum[2] > 0.0 && (train["loss"].as_f64().unwrap() - expected).abs() < 1e-5,
        "{train}"
    );
    // What is remembered of the streams is no part of the result.
    let tensors = read_tensors(&bench.path("lm/model/model.safetensors")).unwrap();
    assert!(tensors.keys().all(|name| !name.contains("memory")), "{:?}", tensors.keys());
    let config = GenerateConfig { max_new: 6, ..GenerateConfig::default() };
    let generator = Generator::load(&bench.path("lm/model"), config, &Device::flex()).unwrap();
    let written = generator.generate(&["the story was "], None).unwrap().next().unwrap().unwrap();
    let next = written[0].text.chars().next().unwrap();
    assert!("dwfg".contains(next), "{written:?}");
}

#[test]
fn a_run_is_the_same_wherever_it_is_stopped() {
    let _generator = crate::generator();
    let bench = bench();
    let regularised = "regularisation={ activation = 2.0, temporal = 1.0 }";
    bench.assert_same_bits_after_a_stop("plain", &[]);
    bench.assert_same_bits_after_a_stop(
        "regularised",
        &[regularised, "average={ kind = \"ema\", decay = 0.5 }"],
    );
    // Several epochs.
    bench.assert_same_bits_after_a_stop("epochs", &["streams.seq_len=500", "train.workers=2"]);
}

#[test]
fn training_goes_on_from_a_checkpoint_with_slower_lower_layers() {
    let _generator = crate::generator();
    let bench = bench();
    bench.run("lm", &["train.steps=2"]).unwrap();
    let model = bench.path("lm/model");
    let path = format!("model={{ path = {model:?}, layer_decay = 0.1 }}");
    bench
        .run(
            "more",
            &[&path, "tokenizer={ kind = \"checkpoint\" }", "train.steps=1", "optimizer.weight_decay=0"],
        )
        .unwrap();
    let [before, after] =
        ["lm", "more"].map(|out| read_tensors(&bench.path(out).join("model/model.safetensors")).unwrap());
    let moved = |name: &str| {
        let steps = before[name].iter::<f64>().zip(after[name].iter::<f64>());
        steps.map(|(before, after)| (before - after).abs()).fold(0.0, f64::max)
    };
    // Adam's first step is the learning rate, whatever the gradient.
    for (name, rate) in [
        ("output_bias", 1e-2),
        ("encoder.layers.1.input.bias", 1e-3),
        ("encoder.layers.0.input.bias", 1e-4),
        ("encoder.embedding.weight", 1e-5),
    ] {
        assert!((moved(name) / rate - 1.0).abs() < 0.05, "{name} moved by {}", moved(name));
    }
}

#[test]
fn a_classifier_begins_with_the_language_model() {
    let _generator = crate::generator();
    let bench = bench();
    bench.run("lm", &["train.steps=200", "eval.every=1000"]).unwrap();
    let sets = ["model.layer_decay=0.3846", "model.gradual_unfreezing=true"];
    let config = task(&bench, &sets);
    let tuned = fine_tune(&config, &options(&bench, "tuned"), &mut Silent).unwrap();
    assert!(figure(&tuned, "dev", "accuracy") > 0.9, "{:?}", tuned.figures("dev"));
    // The saved model says what the run said, and answers.
    let Outcome::Done { model, .. } = &tuned else { panic!("stopped") };
    let predictor = Predictor::load(model, &Device::flex(), false).unwrap();
    let files = EvaluationData::Files(&config.data.dev);
    let measured = predictor.evaluate(&config, files, &mut |_| {}).unwrap().figures;
    assert_eq!(measured.get("accuracy"), tuned.figures("dev").unwrap().get("accuracy"));
    let answers =
        predictor.predict(&["\"the song was dull\"", "\"the film was great\""], &mut |_| {}).unwrap();
    assert_eq!([&answers.values[0]["label"], &answers.values[1]["label"]], ["bad", "good"]);
    // Stopped in the epoch of the second layer, and gone on with.
    let stop = AtomicBool::new(false);
    let options = options(&bench, "stopped");
    let stopped = fine_tune(&config, &options.clone().stop(&stop), &mut StopAfter(37, &stop)).unwrap();
    assert_eq!(stopped, Outcome::Stopped { step: 37 });
    fine_tune(&config, &options.resume(true), &mut Silent).unwrap();
    assert!(bench.weights("stopped") == bench.weights("tuned"), "other weights after a stop");
}

#[test]
fn layers_are_unfrozen_one_epoch_after_another() {
    let _generator = crate::generator();
    let bench = bench();
    bench.run("lm", &["train.steps=1"]).unwrap();
    let before = read_tensors(&bench.path("lm/model/model.safetensors")).unwrap();
    for (epochs, moved) in [
        (1, [false, false, false]),
        (2, [false, false, true]),
        (3, [false, true, true]),
        (4, [true, true, true]),
    ] {
        let out = format!("epochs-{epochs}");
        let epochs = format!("train.epochs={epochs}");
        // Without development data the last model is the result.
        let config = task(&bench, &["model.gradual_unfreezing=true", &epochs, "data.dev=[]"]);
        fine_tune(&config, &options(&bench, &out), &mut Silent).unwrap();
        let after = read_tensors(&bench.path(&out).join("model/model.safetensors")).unwrap();
        let names = ["encoder.embedding.weight", "encoder.layers.0.recurrent", "encoder.layers.1.recurrent"];
        assert_eq!(names.map(|name| after[name] != before[name]), moved, "{epochs}");
    }
}

#[test]
fn what_a_classifier_does_not_have_is_refused() {
    let _generator = crate::generator();
    let bench = bench();
    bench.run("lm", &["train.steps=1"]).unwrap();
    for (set, expected) in [
        (
            "model.dropout.hidden=0.1",
            "`model.dropout.hidden` is 0.1; expected none, but `model.dropout.head`: `model.path` is an AWD-LSTM",
        ),
        ("model.lora.rank=2", "`model.lora` is a table; expected none: `model.path` is an AWD-LSTM"),
        ("task.pooling=mean", "`task.pooling` is Mean; expected none"),
        ("train.recompute=true", "`train.recompute` is true; expected false"),
    ] {
        let config = task(&bench, &[set]);
        let error =
            fine_tune(&config, &options(&bench, &set.replace(['.', '='], "-")), &mut Silent).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let path = bench.path("lm/model");
    let options = GenerateConfig { int8: true, ..GenerateConfig::default() };
    let error = Generator::load(&path, options, &Device::flex()).unwrap_err().to_string();
    assert!(error.contains("`int8` is true; expected false: the model is recurrent"), "{error}");
}
