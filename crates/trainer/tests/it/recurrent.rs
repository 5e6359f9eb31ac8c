//! Recurrent classifiers and taggers: trained from scratch, saved and loaded.

use crate::stop_after::StopAfter;
use burn::tensor::Device;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::finetune::{EvaluationData, FineTuneConfig, Predictor, fine_tune};
use cloze_trainer::metrics::progress::{RunProgress, Silent};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Random numbers below `n`.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    }
}

const PLAIN: [&str; 9] = ["the", "film", "was", "a", "story", "of", "ships", "and", "sea"];

/// Texts that are good or bad by one word of theirs.
fn texts(n: usize, seed: u64) -> String {
    let mut random = random(seed);
    let told = [("dull", "bad"), ("weak", "bad"), ("fine", "good"), ("great", "good")];
    let row = |_| {
        let (word, label) = told[random(4)];
        let mut words: Vec<&str> = (0..2 + random(9)).map(|_| PLAIN[random(PLAIN.len())]).collect();
        words.insert(random(words.len() + 1), word);
        format!("{}\t{label}\n", words.join(" "))
    };
    std::iter::once("text\tlabel\n".to_string()).chain((0..n).map(row)).collect()
}

/// Sentences in which a name is what follows a title.
fn sentences(n: usize, seed: u64) -> String {
    let mut random = random(seed);
    let mut all = String::new();
    for _ in 0..n {
        for _ in 0..1 + random(4) {
            all.push_str(&format!("{} O\n", PLAIN[random(PLAIN.len())]));
        }
        let name = ["story", "ships", "sea"][random(3)];
        all.push_str(&format!("captain O\n{name} B-PER\n{} I-PER\n\n", ["film", "a"][random(2)]));
    }
    all
}

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("train.tsv", texts(160, 1)),
            ("dev.tsv", texts(60, 2)),
            ("train.conll", sentences(120, 3)),
            ("dev.conll", sentences(40, 4)),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self, task: &str, data: &str, sets: &[&str]) -> cloze_trainer::Result<FineTuneConfig> {
        let [train, dev] = ["train", "dev"].map(|split| self.path(&format!("{split}.{data}")));
        let text = format!(
            "task = {task}\ntrain = {{ epochs = 8, batch_size = 8 }}\n\
             data = {{ train = {{ files = [{train:?}] }}, dev = [{dev:?}], max_len = 64 }}\n\
             optimizer.lr = 1e-2\nschedule = {{ kind = \"linear\", warmup_steps = 5 }}\nlog.every = 5\n\
             [model.recurrent]\nd_embedding = 16\nd_model = 24\ndropout = 0.1\n\
             tokenizer = {{ kind = \"train-wordpiece\", vocab_size = 120 }}\n"
        );
        let path = self.path("config.toml");
        fs::write(&path, text).unwrap();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        FineTuneConfig::load(&path, &sets)
    }

    fn run(
        &self,
        name: &str,
        config: &FineTuneConfig,
        resume: bool,
        progress: &mut dyn RunProgress,
        stop: &AtomicBool,
    ) -> Outcome {
        let options = RunOptions::new(Device::flex(), self.path(name)).resume(resume).stop(stop);
        fine_tune(config, &options, progress).unwrap()
    }
}

/// What the saved model says of its development data is what the run said of it.
fn check(config: &FineTuneConfig, outcome: &Outcome, figure: &str) -> Predictor {
    let dev = outcome.figures("dev").unwrap().clone();
    let Outcome::Done { model, .. } = outcome else { panic!("stopped") };
    assert!(dev.get(figure).unwrap() > 0.9, "{dev}");
    let predictor = Predictor::load(model, &Device::flex(), false).unwrap();
    let files = EvaluationData::Files(&config.data.dev);
    let measured = predictor.evaluate(config, files, &mut |_| {}).unwrap().figures;
    assert_eq!(measured.get(figure), dev.get(figure));
    predictor
}

const CLASSES: &str = "{ kind = \"classification\" }";

#[test]
fn classes_are_learnt_and_asked_for() {
    let _held = crate::generator();
    let bench = Bench::new();
    for pooling in ["last", "max", "mean", "attention"] {
        let pooling_set = format!("model.recurrent.pooling={pooling}");
        let config = bench.load(CLASSES, "tsv", &[&pooling_set]).unwrap();
        let outcome = bench.run(pooling, &config, false, &mut Silent, &AtomicBool::new(false));
        let predictor = check(&config, &outcome, "accuracy");
        let lines = [r#""a great film of ships""#, r#"{"text": "the story was dull"}"#];
        let values = predictor.predict(&lines, &mut |_| {}).unwrap().values;
        assert_eq!((&values[0]["label"], &values[1]["label"]), (&"good".into(), &"bad".into()), "{pooling}");
    }
}

#[test]
fn tags_are_learnt_with_a_field_and_without() {
    let _held = crate::generator();
    let bench = Bench::new();
    for (crf, cell) in [(true, "lstm"), (false, "gru")] {
        let task = format!("{{ kind = \"tagging\", crf = {crf}, crf_lr_scale = 10.0 }}");
        let cell = format!("model.recurrent.cell={cell}");
        let config = bench.load(&task, "conll", &[&cell]).unwrap();
        let outcome = bench.run(&format!("tags-{crf}"), &config, false, &mut Silent, &AtomicBool::new(false));
        let predictor = check(&config, &outcome, "f1");
        let values = predictor.predict(&[r#""the captain sea film""#], &mut |_| {}).unwrap().values;
        assert_eq!(values[0]["tags"], serde_json::json!(["O", "O", "B-PER", "I-PER"]));
    }
}

/// Every file of a model's folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_resumed_run_leaves_the_same_bytes() {
    let _held = crate::generator();
    let bench = Bench::new();
    let config = bench.load(CLASSES, "tsv", &["train.epochs=3"]).unwrap();
    let whole = bench.run("whole", &config, false, &mut Silent, &AtomicBool::new(false));
    let stop = AtomicBool::new(false);
    let stopped = bench.run("stopped", &config, false, &mut StopAfter(33, &stop), &stop);
    assert!(matches!(stopped, Outcome::Stopped { .. }));
    let resumed = bench.run("stopped", &config, true, &mut Silent, &AtomicBool::new(false));
    let [whole, resumed] = [whole, resumed].map(|outcome| match outcome {
        Outcome::Done { model, .. } => files(&model),
        Outcome::Stopped { .. } => panic!("stopped"),
    });
    assert_eq!(whole, resumed);
}

#[test]
fn what_does_not_fit_is_refused_with_its_key() {
    let _held = crate::generator();
    let bench = Bench::new();
    let refused = |task: &str, sets: &[&str]| bench.load(task, "tsv", sets).unwrap_err().to_string();
    for (set, expected) in [
        ("model.path=some/model", "`model.path` is some/model; expected none with `[model.recurrent]`"),
        ("model.recurrent.d_model=25", "`model.recurrent.d_model` is 25; expected an even number"),
        ("model.untrained=true", "`model.untrained` is true; expected nothing with `[model.recurrent]`"),
        (
            "model.recurrent.tokenizer.kind=checkpoint",
            "is checkpoint; expected train-wordpiece, train-byte-bpe or load",
        ),
    ] {
        let error = refused(CLASSES, &[set]);
        assert!(error.contains(expected), "{set}: {error}");
    }
    let error = refused("{ kind = \"answers\" }", &[]);
    assert!(error.contains("`task.kind`"), "{error}");
    let error = refused("{ kind = \"tagging\" }", &["model.recurrent.pooling=max"]);
    assert!(error.contains("`model.recurrent.pooling` is max; expected none of a tagger"), "{error}");

    // A model that cannot be what the folder's task says, and 8 bits.
    let config = bench.load(CLASSES, "tsv", &["train.epochs=1"]).unwrap();
    let Outcome::Done { model, .. } = bench.run("run", &config, false, &mut Silent, &AtomicBool::new(false))
    else {
        panic!("stopped")
    };
    let load = |int8| Predictor::load(&model, &Device::flex(), int8).unwrap_err().to_string();
    assert_eq!(load(true), "`int8` is true; expected false: the model is recurrent");
    let task = model.join("task.json");
    let text = fs::read_to_string(&task).unwrap();
    fs::write(&task, text.replace("\"bad\",", "\"bad\", \"so so\",")).unwrap();
    assert!(load(false).contains("a task of 3 outputs; expected 2, the model's"), "{}", load(false));
    fs::remove_file(&task).unwrap();
    assert!(load(false).contains("missing; expected the task of a recurrent model"));
}
