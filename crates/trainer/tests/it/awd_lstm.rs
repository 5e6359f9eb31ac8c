//! AWD-LSTMs in training on streams of text, and ULMFiT's classifiers with their encoders.

use crate::stop_after::StopAfter;
use burn::tensor::Device;
use cloze_model::huggingface::read_tensors;
use cloze_trainer::Result;
use cloze_trainer::awd_lstm::train_awd_lstm;
use cloze_trainer::config::AwdLstmRunConfig;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::finetune::{EvaluationData, FineTuneConfig, Predictor, fine_tune};
use cloze_trainer::generate::{GenerateConfig, Generator};
use cloze_trainer::metrics::progress::Silent;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

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

/// A folder with a text, rows that are good or bad by one word of theirs, and the runs on them.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let words = [("dull", "bad"), ("weak", "bad"), ("fine", "good"), ("great", "good")];
        let row = |i: usize| {
            let (word, label) = words[i * 7 % 4];
            let thing = ["ship", "film", "story", "sea", "song"][i * 3 % 5];
            (format!("the {thing} was {word}"), label)
        };
        let mut text = String::new();
        (0..200).for_each(|i| writeln!(text, "{}\n", row(i).0).unwrap());
        std::fs::write(folder.path().join("text.txt"), text).unwrap();
        for (name, range) in [("train.tsv", 0..120), ("dev.tsv", 120..160)] {
            let mut rows = "text\tlabel\n".to_owned();
            range.map(row).for_each(|(text, label)| writeln!(rows, "{text}\t{label}").unwrap());
            std::fs::write(folder.path().join(name), rows).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn options(&self, out: &str) -> RunOptions<'static> {
        RunOptions::new(Device::flex(), self.path(out)).cache(self.path("cache"))
    }

    fn config(&self, sets: &[&str]) -> AwdLstmRunConfig {
        let path = self.path("config.toml");
        let files = format!("corpus.files = [{:?}]\n", self.path("text.txt"));
        std::fs::write(&path, files + CONFIG).unwrap();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        AwdLstmRunConfig::load(&path, &sets).unwrap_or_else(|error| panic!("{error}"))
    }

    fn run(&self, out: &str, sets: &[&str]) -> Result<Outcome> {
        train_awd_lstm(&self.config(sets), &self.options(out), &mut Silent)
    }

    /// Stops a run after its third step, and goes on with it.
    fn interrupted(&self, out: &str, sets: &[&str]) {
        let (config, stop) = (self.config(sets), AtomicBool::new(false));
        let options = self.options(out).stop(&stop);
        let stopped = train_awd_lstm(&config, &options, &mut StopAfter(3, &stop)).unwrap();
        assert_eq!(stopped, Outcome::Stopped { step: 3 });
        train_awd_lstm(&config, &self.options(out).resume(true), &mut Silent).unwrap();
    }

    fn task(&self, sets: &[&str]) -> FineTuneConfig {
        let path = self.path("task.toml");
        let [train, dev] = ["train.tsv", "dev.tsv"].map(|name| self.path(name));
        let data = format!(
            "data = {{ train = {{ files = [{train:?}] }}, dev = [{dev:?}], max_len = 64 }}\nmodel.path = {:?}\n",
            self.path("lm/model")
        );
        std::fs::write(&path, data + TASK).unwrap();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        FineTuneConfig::load(&path, &sets).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The model's file, bit for bit.
    fn weights(&self, out: &str) -> Vec<u8> {
        std::fs::read(self.path(out).join("model/model.safetensors")).unwrap()
    }
}

fn figure(outcome: &Outcome, split: &str, name: &str) -> f64 {
    outcome.figures(split).unwrap().get(name).unwrap()
}

#[test]
fn a_run_learns_and_its_model_writes() {
    let _generator = crate::generator();
    let bench = Bench::new();
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
    let mut config = GenerateConfig::default();
    config.decoding.settings.max_new = Some(6);
    let generator = Generator::load(&bench.path("lm/model"), config, &Device::flex()).unwrap();
    let written = generator.generate(&["the story was "], None).unwrap().next().unwrap().unwrap();
    let next = written[0].text.chars().next().unwrap();
    assert!("dwfg".contains(next), "{written:?}");
}

#[test]
fn a_run_is_the_same_wherever_it_is_stopped() {
    let _generator = crate::generator();
    let bench = Bench::new();
    for (name, sets) in [
        ("plain", &[][..]),
        (
            "regularised",
            &[
                "regularisation={ activation = 2.0, temporal = 1.0 }",
                "average={ kind = \"ema\", decay = 0.5 }",
            ],
        ),
        ("sampled", &["model.output={ kind = \"sampled\", samples = 5 }"]),
        ("adaptive", &["model.output={ kind = \"adaptive\", cutoffs = [6, 12], divisor = 2.0 }"]),
        // Several epochs.
        ("epochs", &["streams.seq_len=500", "train.workers=2"]),
    ] {
        let whole = format!("{name}-whole");
        bench.run(&whole, sets).unwrap();
        bench.interrupted(name, sets);
        assert!(bench.weights(&whole) == bench.weights(name), "{name}: other weights after a stop");
    }
    bench.run("other", &["run.seed=7"]).unwrap();
    assert!(bench.weights("other") != bench.weights("plain"));
}

#[test]
fn training_goes_on_from_a_checkpoint_with_slower_lower_layers() {
    let _generator = crate::generator();
    let bench = Bench::new();
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
    let bench = Bench::new();
    bench.run("lm", &["train.steps=200", "eval.every=1000"]).unwrap();
    let sets = ["model.layer_decay=0.3846", "model.gradual_unfreezing=true"];
    let config = bench.task(&sets);
    let tuned = fine_tune(&config, &bench.options("tuned"), &mut Silent).unwrap();
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
    let options = bench.options("stopped");
    let stopped = fine_tune(&config, &options.clone().stop(&stop), &mut StopAfter(37, &stop)).unwrap();
    assert_eq!(stopped, Outcome::Stopped { step: 37 });
    fine_tune(&config, &options.resume(true), &mut Silent).unwrap();
    assert!(bench.weights("stopped") == bench.weights("tuned"), "other weights after a stop");
}

#[test]
fn a_classifier_leaves_an_adaptive_output_behind() {
    let _generator = crate::generator();
    let bench = Bench::new();
    let sets = ["train.steps=200", "eval.every=1000", "model.output={ kind = \"adaptive\", cutoffs = [8] }"];
    let untrained = figure(&bench.run("untrained", &["train.steps=1"]).unwrap(), "heldout", "loss");
    let trained = figure(&bench.run("lm", &sets).unwrap(), "heldout", "loss");
    assert!(trained < 0.7 * untrained, "{trained} from {untrained}");
    let names = |out: &str| -> Vec<String> {
        read_tensors(&bench.path(out).join("model/model.safetensors")).unwrap().into_keys().collect()
    };
    assert!(names("lm").iter().any(|name| name.starts_with("adaptive.")), "{:?}", names("lm"));
    let tuned = fine_tune(&bench.task(&["train.epochs=1"]), &bench.options("tuned"), &mut Silent).unwrap();
    assert!(matches!(tuned, Outcome::Done { .. }));
    assert!(names("tuned").iter().all(|name| !name.starts_with("adaptive.")), "{:?}", names("tuned"));
}

#[test]
fn layers_are_unfrozen_one_epoch_after_another() {
    let _generator = crate::generator();
    let bench = Bench::new();
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
        let config = bench.task(&["model.gradual_unfreezing=true", &epochs, "data.dev=[]"]);
        fine_tune(&config, &bench.options(&out), &mut Silent).unwrap();
        let after = read_tensors(&bench.path(&out).join("model/model.safetensors")).unwrap();
        let names = ["encoder.embedding.weight", "encoder.layers.0.recurrent", "encoder.layers.1.recurrent"];
        assert_eq!(names.map(|name| after[name] != before[name]), moved, "{epochs}");
    }
}

#[test]
fn what_a_classifier_does_not_have_is_refused() {
    let _generator = crate::generator();
    let bench = Bench::new();
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
        let config = bench.task(&[set]);
        let error =
            fine_tune(&config, &bench.options(&set.replace(['.', '='], "-")), &mut Silent).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let path = bench.path("lm/model");
    let mut options = GenerateConfig::default();
    options.int8 = true;
    let error = Generator::load(&path, options, &Device::flex()).unwrap_err().to_string();
    assert!(error.contains("`int8` is true; expected false: the model is recurrent"), "{error}");
}
