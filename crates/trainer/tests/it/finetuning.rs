//! Fine-tuning runs on texts, from a small checkpoint to the saved model.

use crate::stop_after::StopAfter;
use burn::tensor::Device;
use cloze_evaluation::figures::Figures;
use cloze_evaluation::seeds::Seeds;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, Family, PretrainedFolder, SaveConfig, save_pretrained};
use cloze_model::ops::IntegerMatrix;
use cloze_model::weights::NamedTensors;
use cloze_tokenizer::train::WordPieceTrainer;
use cloze_trainer::engine::{Outcome, OverSeeds, RunOptions, train_seeds};
use cloze_trainer::finetune::{EvaluationData, FineTuneConfig, Predictor, TaskFile, fine_tune};
use cloze_trainer::metrics::progress::{RunProgress, Silent, Status};
use cloze_trainer::quantization::{QuantizeConfig, Ranges, WeightFormat, quantize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A folder with a checkpoint of random weights and texts that are good or bad by one word of theirs.
pub struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Self::of(Family::BERT)
    }

    /// With a checkpoint of this family.
    pub fn of(family: Family) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        fs::create_dir(&model).unwrap();
        let (train, dev) = (rows(160, 1), rows(60, 2));
        let trainer = WordPieceTrainer { vocab_size: 120, ..Default::default() };
        let texts = train.iter().map(|(text, ..)| text.as_str());
        let tokenizer = trainer.train(texts).unwrap();
        tokenizer.save(&model).unwrap();
        crate::frame_for(family, &model);
        let device = Device::flex();
        let config = BertConfig::new(tokenizer.vocab_size(), 2, 32)
            .with_d_ff(64)
            .with_n_heads(2)
            .with_max_positions(32)
            .with_d_embedding((family == Family::ALBERT).then_some(24));
        let config = family.encoder(config);
        let encoder = config.init_encoder(&mut ParamInit::new(&device, 3).with_std(0.1));
        let save = SaveConfig::new(Architecture::Encoder).with_family(family);
        save_pretrained(&model, &encoder, &config, &save).unwrap();
        for (name, rows) in [("train.tsv", &train), ("dev.tsv", &dev)] {
            let lines: String =
                rows.iter().map(|(text, label, score)| format!("{text}\t{label}\t{score}\n")).collect();
            fs::write(folder.path().join(name), format!("text\tlabel\tscore\n{lines}")).unwrap();
        }
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Another checkpoint of random weights, with one layer of this width and this many heads.
    fn one_layer(&self, name: &str, d_model: usize, n_heads: usize) -> PathBuf {
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap();
        let tokenizer = cloze_tokenizer::Tokenizer::load(self.path("model")).unwrap();
        tokenizer.save(&folder).unwrap();
        let config = BertConfig::new(tokenizer.vocab_size(), 1, d_model)
            .with_d_ff(32)
            .with_n_heads(n_heads)
            .with_max_positions(32);
        let encoder = config.init_encoder(&mut ParamInit::new(&Device::flex(), 4).with_std(0.1));
        save_pretrained(&folder, &encoder, &config, &SaveConfig::new(Architecture::Encoder)).unwrap();
        folder
    }

    pub fn config(&self, task: &str, label: &str, sets: &[&str]) -> FineTuneConfig {
        let [model, train, dev] = ["model", "train.tsv", "dev.tsv"].map(|name| self.path(name));
        let text = format!(
            "task = {task}\nmodel.path = {model:?}\ntrain = {{ epochs = 6, batch_size = 8 }}\n\
             data = {{ train = {{ files = [{train:?}], columns = {{ label = {label:?} }} }}, dev = [{dev:?}], max_len = 32 }}\n\
             optimizer.lr = 3e-3\nschedule = {{ kind = \"linear\", warmup_steps = 5 }}\nlog.every = 5\n"
        );
        let path = self.path("config.toml");
        fs::write(&path, text).unwrap();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        FineTuneConfig::load(&path, &sets).unwrap()
    }

    pub fn run(
        &self,
        name: &str,
        config: &FineTuneConfig,
        resume: bool,
        progress: &mut dyn RunProgress,
        stop: &AtomicBool,
    ) -> cloze_trainer::Result<Outcome> {
        let options = RunOptions::new(Device::flex(), self.path(name))
            .cache(self.path("cache"))
            .resume(resume)
            .stop(stop);
        fine_tune(config, &options, progress)
    }

    pub fn run_whole(&self, name: &str, config: &FineTuneConfig) -> Outcome {
        self.run(name, config, false, &mut Silent, &AtomicBool::new(false)).unwrap()
    }
}

/// Texts with their class and a number, from a seed.
pub fn rows(n: usize, seed: u64) -> Vec<(String, &'static str, f64)> {
    let mut state = seed;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let plain = ["the", "film", "was", "a", "story", "of", "ships", "and", "sea"];
    let told = [("dull", "bad", 1.0), ("weak", "bad", 2.0), ("fine", "good", 3.5), ("great", "good", 5.0)];
    (0..n)
        .map(|_| {
            let (word, label, score) = told[random(4)];
            let mut words: Vec<&str> = (0..2 + random(9)).map(|_| plain[random(plain.len())]).collect();
            words.insert(random(words.len() + 1), word);
            (words.join(" "), label, score)
        })
        .collect()
}

pub fn parameters(model: &Path) -> NamedTensors {
    let tensors = cloze_model::huggingface::read_tensors(&model.join("model.safetensors")).unwrap();
    assert!(!tensors.is_empty());
    tensors
}

#[test]
fn classes_are_learnt_and_the_folder_says_them() {
    let _held = crate::generator();
    let bench = Bench::new();
    let config = bench.config("{ kind = \"classification\" }", "label", &[]);
    let outcome = bench.run_whole("run", &config);
    let (dev, test) = (outcome.figures("dev").unwrap().clone(), outcome.figures("test"));
    let Outcome::Done { model, .. } = outcome.clone() else { panic!("not stopped") };
    assert!(dev.get("accuracy").unwrap() > 0.9, "{dev}");
    assert_eq!(test, None);
    let pretrained = PretrainedFolder::open(&model).unwrap();
    assert_eq!(pretrained.config.architecture, Architecture::SequenceClassification);
    assert_eq!(pretrained.config.labels, ["bad", "good"]);
    assert_eq!(<TaskFile>::read(&model).unwrap().unwrap().max_len, 32);
    let report = bench.path("run/report/dev");
    for file in ["report.html", "figures.json", "predictions.tsv", "worst.tsv", "confusion.tsv"] {
        assert!(report.join(file).exists(), "{file}");
    }
    assert_eq!(fs::read_to_string(report.join("predictions.jsonl")).unwrap().lines().count(), 60);
}

#[test]
fn every_family_learns_classes() {
    let _held = crate::generator();
    let of_texts = |family: &&Family| family.has_class(Architecture::SequenceClassification);
    for &family in Family::ALL.iter().filter(of_texts) {
        let bench = Bench::of(family);
        let config = bench.config("{ kind = \"classification\" }", "label", &[]);
        let outcome = bench.run_whole("run", &config);
        let dev = outcome.figures("dev").unwrap().clone();
        let Outcome::Done { model, .. } = outcome else { panic!("not stopped") };
        assert!(dev.get("accuracy").unwrap() > 0.9, "{family}: {dev}");
        let pretrained = PretrainedFolder::open(&model).unwrap();
        let found = (pretrained.config.family, pretrained.config.architecture);
        assert_eq!(found, (family, Architecture::SequenceClassification));
        // What was saved computes what was measured.
        let predictor = Predictor::load(&model, &Device::flex(), false).unwrap();
        let files = [bench.path("dev.tsv").display().to_string()];
        let again = predictor.evaluate(&config, EvaluationData::Files(&files), &mut |_| {}).unwrap();
        assert_eq!(again.figures.get("accuracy"), dev.get("accuracy"), "{family}");
    }
}

#[test]
fn texts_are_of_the_language_that_the_config_says() {
    let _held = crate::generator();
    let bench = Bench::of(Family::XLM);
    // The same checkpoint with three languages.
    let names = ["en", "de", "fr"].map(String::from);
    let config = PretrainedFolder::open(&bench.path("model")).unwrap().config.encoder.with_n_token_types(3);
    let encoder = config.init_encoder(&mut ParamInit::new(&Device::flex(), 3).with_std(0.1));
    let save = SaveConfig::new(Architecture::Encoder).with_family(Family::XLM).with_languages(names.to_vec());
    save_pretrained(&bench.path("model"), &encoder, &config, &save).unwrap();
    let table = |model: &Path| parameters(model)["transformer.lang_embeddings.weight"].clone();
    let rows = |model: &Path| -> Vec<Vec<f32>> {
        table(model).iter::<f32>().collect::<Vec<_>>().chunks(32).map(<[f32]>::to_vec).collect()
    };
    let before: Vec<Vec<f32>> = {
        let tensors = parameters(&bench.path("model"));
        let values: Vec<f32> = tensors["lang_embeddings.weight"].iter::<f32>().collect();
        values.chunks(32).map(<[f32]>::to_vec).collect()
    };
    // Weights that no example has a gradient for would decay otherwise.
    let sets = ["train.epochs=1", "optimizer.weight_decay=0.0"];
    for (language, number) in [(None, 0), (Some("data.language=de"), 1), (Some("data.language=\"2\""), 2)] {
        let sets: Vec<&str> = sets.into_iter().chain(language).collect();
        let config = bench.config("{ kind = \"classification\" }", "label", &sets);
        let outcome = bench.run_whole(&format!("run-{number}"), &config);
        let dev = outcome.figures("dev").unwrap().clone();
        let Outcome::Done { model, .. } = outcome else { panic!("not stopped") };
        let saved = PretrainedFolder::open(&model).unwrap().config;
        assert_eq!((saved.encoder.language, &saved.languages[..]), (Some(number), &names[..]));
        // Only the vector of this language was trained.
        for (row, (before, after)) in before.iter().zip(rows(&model)).enumerate() {
            assert_eq!(*before != after, row == number, "{language:?}, {row}");
        }
        // And the model that was saved knows its language.
        let predictor = Predictor::load(&model, &Device::flex(), false).unwrap();
        let files = [bench.path("dev.tsv").display().to_string()];
        let again = predictor.evaluate(&config, EvaluationData::Files(&files), &mut |_| {}).unwrap();
        assert_eq!(again.figures.get("accuracy"), dev.get("accuracy"));
    }
    let unknown = bench.config("{ kind = \"classification\" }", "label", &["data.language=es"]);
    let error = bench.run("unknown", &unknown, false, &mut Silent, &AtomicBool::new(false)).unwrap_err();
    assert_eq!(error.to_string(), r#"`data.language` is "es"; expected "en", "de" or "fr""#);
}

/// The second text has the word that decides, and the first has none.
#[test]
fn xlnet_is_tuned_on_pairs() {
    let _held = crate::generator();
    let bench = Bench::of(Family::XLNET);
    let told = ["dull", "weak", "fine", "great"];
    for (name, n, seed) in [("train.tsv", 160, 5), ("dev.tsv", 60, 6)] {
        let rows = rows(n, seed + 10).into_iter().zip(rows(n, seed));
        let lines: String = rows
            .map(|((first, ..), (second, label, _))| {
                let words = first.split(' ').filter(|word| !told.contains(word));
                format!("{}\t{second}\t{label}\n", words.collect::<Vec<_>>().join(" "))
            })
            .collect();
        fs::write(bench.path(name), format!("text\tpair\tlabel\n{lines}")).unwrap();
    }
    let columns = "data.train.columns={ text = \"text\", pair = \"pair\", label = \"label\" }";
    let config = bench.config("{ kind = \"classification\" }", "label", &[columns, "train.epochs=10"]);
    let outcome = bench.run_whole("run", &config);
    let dev = outcome.figures("dev").unwrap().clone();
    assert!(dev.get("accuracy").unwrap() > 0.9, "{dev}");
    let Outcome::Done { model, .. } = outcome else { panic!("not stopped") };
    let saved = PretrainedFolder::open(&model).unwrap();
    assert_eq!(saved.config.architectures, ["XLNetForSequenceClassification"]);
    let predictor = Predictor::load(&model, &Device::flex(), false).unwrap();
    let lines = told.map(|word| format!(r#"{{"text": "the sea", "pair": "a story was {word}"}}"#));
    let values = predictor.predict(&lines, &mut |_| {}).unwrap().values;
    let labels: Vec<&str> = values.iter().filter_map(|value| value["label"].as_str()).collect();
    assert_eq!(labels, ["bad", "bad", "good", "good"]);
    // The one dropout that the class has.
    let both = bench.config("{ kind = \"classification\" }", "label", &[columns, "model.dropout.hidden=0.2"]);
    bench.run_whole("hidden", &both);
    let other =
        bench.config("{ kind = \"classification\" }", "label", &[columns, "model.dropout.attention=0.2"]);
    let error = bench.run("attention", &other, false, &mut Silent, &AtomicBool::new(false)).unwrap_err();
    let expected = "`model.dropout.attention` is 0.2; expected none: XLNet has one dropout for all";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn numbers_are_learnt() {
    let _held = crate::generator();
    let bench = Bench::new();
    let config = bench.config("{ kind = \"regression\", pooling = \"mean\" }", "score", &["train.epochs=25"]);
    let dev = bench.run_whole("run", &config).figures("dev").cloned();
    let dev = dev.unwrap();
    assert!(dev.get("pearson").unwrap() > 0.9, "{dev}");
}

#[test]
fn an_interrupted_run_ends_with_the_same_bits() {
    let _held = crate::generator();
    let bench = Bench::new();
    let sets = ["train.epochs=2", "checkpoint.every=7"];
    let config = bench.config("{ kind = \"classification\" }", "label", &sets);
    bench.run_whole("whole", &config);
    for at in [3, 20, 39] {
        let name = format!("stopped-{at}");
        let stop = AtomicBool::new(false);
        let outcome = bench.run(&name, &config, false, &mut StopAfter(at, &stop), &stop).unwrap();
        assert_eq!(outcome, Outcome::Stopped { step: at });
        let outcome = bench.run(&name, &config, true, &mut Silent, &AtomicBool::new(false)).unwrap();
        assert!(matches!(outcome, Outcome::Done { .. }));
        let models = [name.as_str(), "whole"].map(|run| parameters(&bench.path(run).join("model")));
        assert_eq!(models[0], models[1], "stopped after step {at}");
    }
}

#[test]
fn recomputed_layers_are_tuned_to_the_same_bits() {
    let _held = crate::generator();
    let bench = Bench::new();
    let drops = ["train.epochs=1", "model.dropout.hidden=0.2", "model.dropout.attention=0.2"];
    for (name, set) in [
        ("whole", "model.layer_decay=0.9"),
        ("first", "model.freeze_layers=1"),
        ("head", "model.freeze=[\"bert.*\"]"),
        ("lora", "model.lora={ rank = 2, alpha = 4.0, dropout = 0.1 }"),
    ] {
        let [kept, again] = ["false", "true"].map(|recompute| {
            let run = format!("{name}-{recompute}");
            let recompute = format!("train.recompute={recompute}");
            let sets = [&drops[..], &[set, &recompute]].concat();
            bench.run_whole(&run, &bench.config("{ kind = \"classification\" }", "label", &sets));
            parameters(&bench.path(&run).join("model"))
        });
        assert!(kept == again, "{name}: the tuned parameters differ");
    }
}

#[test]
fn what_is_frozen_stays_and_adapters_are_merged() {
    let _held = crate::generator();
    let bench = Bench::new();
    let before = parameters(&bench.path("model"));
    let encoder = |name: &str| {
        let all = parameters(&bench.path(name).join("model"));
        let find = |suffix: &str| {
            all.iter().find(|(name, _)| name.ends_with(suffix)).map(|(_, data)| data.clone()).unwrap()
        };
        [
            "embeddings.word_embeddings.weight",
            "layer.0.attention.self.query.weight",
            "layer.1.output.dense.weight",
        ]
        .map(find)
    };
    let was = |suffix: &str| before.iter().find(|(name, _)| name.ends_with(suffix)).unwrap().1.clone();
    let (words, query, output) = (
        was("embeddings.word_embeddings.weight"),
        was("layer.0.attention.self.query.weight"),
        was("layer.1.output.dense.weight"),
    );
    let task = "{ kind = \"classification\" }";
    let frozen = bench.config(task, "label", &["model.freeze=[\"bert.*\"]", "train.epochs=1"]);
    bench.run_whole("frozen", &frozen);
    assert_eq!(encoder("frozen"), [words.clone(), query.clone(), output.clone()]);
    let first = bench.config(task, "label", &["model.freeze_layers=1", "train.epochs=1"]);
    bench.run_whole("first", &first);
    let [a, b, c] = encoder("first");
    assert_eq!([a, b], [words.clone(), query.clone()]);
    assert_ne!(c, output);
    // One more layer each epoch, the last model being the result.
    for (epochs, moved) in [(1, [false, false, false]), (2, [false, false, true]), (3, [false, true, true])] {
        let (name, epochs) = (format!("gradual-{epochs}"), format!("train.epochs={epochs}"));
        let sets = ["model.gradual_unfreezing=true", "model.layer_decay=0.5", "data.dev=[]", &epochs];
        bench.run_whole(&name, &bench.config(task, "label", &sets));
        let [a, b, c] = encoder(&name);
        assert_eq!([a != words, b != query, c != output], moved, "{name}");
    }
    let lora = bench.config(task, "label", &["model.lora={ rank = 2, alpha = 4.0 }", "train.epochs=3"]);
    bench.run_whole("lora", &lora);
    let [a, b, c] = encoder("lora");
    assert_eq!([a, c], [words, output], "adapters are on queries and values");
    assert_ne!(b, query);
}

#[test]
fn an_untrained_network_has_nothing_of_the_checkpoint() {
    let _held = crate::generator();
    let bench = Bench::new();
    let sets = ["model.untrained=true", "model.freeze=[\"bert.*\"]", "train.epochs=1"];
    let config = bench.config("{ kind = \"classification\" }", "label", &sets);
    bench.run_whole("a", &config);
    bench.run_whole("b", &config);
    let [before, a, b] = ["model", "a/model", "b/model"].map(|name| parameters(&bench.path(name)));
    assert_eq!(a, b, "the seed decides");
    let words = |all: &NamedTensors| {
        all.iter().find(|(name, _)| name.ends_with("word_embeddings.weight")).unwrap().1.clone()
    };
    assert_ne!(words(&a), words(&before));
}

#[test]
fn patience_ends_a_run_and_the_best_model_stays() {
    let _held = crate::generator();
    let bench = Bench::new();
    // So high a rate learns nothing: an evaluation is not beaten for long.
    let sets = ["optimizer.lr=1.0", "eval.patience=2", "eval.per_epoch=4", "train.epochs=20"];
    let config = bench.config("{ kind = \"classification\" }", "label", &sets);
    let mut notes = Notes::default();
    let run = bench.run("run", &config, false, &mut notes, &AtomicBool::new(false)).unwrap();
    let dev = run.figures("dev").cloned();
    let end = "ended early, after 2 evaluations without improvement";
    assert_eq!(notes.0.iter().filter(|note| note.ends_with(end)).count(), 1, "{:?}", notes.0);
    let metrics = fs::read_to_string(bench.path("run/metrics.jsonl")).unwrap();
    // Between equally accurate ones the loss decides.
    let values: Vec<[f64; 2]> = metrics
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|record| record["event"] == "evaluation")
        .map(|record| ["accuracy", "loss"].map(|name| record["figures"]["figures"][name].as_f64().unwrap()))
        .map(|[accuracy, loss]| [accuracy, -loss])
        .collect();
    assert!(values.len() < 80, "{}", values.len());
    let best = values.iter().copied().fold([f64::NEG_INFINITY; 2], |a, b| if b > a { b } else { a });
    assert_eq!(dev.unwrap().get("accuracy"), Some(best[0]));
    assert_eq!(values.iter().position(|value| *value == best), Some(values.len() - 3));
}

#[test]
fn settings_that_do_not_fit_the_data() {
    let _held = crate::generator();
    let bench = Bench::new();
    let error = |task: &str, sets: &[&str]| {
        let config = bench.config(task, "label", sets);
        // A folder without a step stands in nobody's way.
        bench.run("run", &config, false, &mut Silent, &AtomicBool::new(false)).unwrap_err().to_string()
    };
    assert_eq!(
        error("{ kind = \"classification\", class_weights = [1.0, 2.0, 3.0] }", &[]),
        "`task.class_weights` is 3 numbers; expected 2: one for each of bad, good"
    );
    assert_eq!(
        error("{ kind = \"classification\", positive = \"fine\" }", &[]),
        "`task.positive` is \"fine\"; expected one of bad, good"
    );
    assert_eq!(
        error("{ kind = \"classification\" }", &["eval.metric=\"recal\"", "train.epochs=1"])
            .split(';')
            .next(),
        Some("this evaluation has no figure `recal`")
    );
    assert_eq!(
        error("{ kind = \"classification\" }", &["model.freeze_layers=3"]),
        "`model.freeze_layers` is 3; expected at most 2, the checkpoint's layers"
    );
    assert_eq!(
        error("{ kind = \"classification\" }", &["model.freeze=[\"*\"]"]),
        "`model.freeze` is *; expected patterns that do not freeze everything"
    );
    let wide = error("{ kind = \"classification\" }", &["model.lora={ rank = 33, alpha = 1.0 }"]);
    assert_eq!(wide, "`model.lora.rank` is 33; expected at most 32, the encoder's width");
    let long = error("{ kind = \"classification\" }", &["train.epochs=9223372036854775807"]);
    assert!(long.starts_with("`train.epochs` is 9223372036854775807; expected at most "), "{long}");
    let no_number = error("{ kind = \"regression\" }", &[]);
    assert!(no_number.contains("train.tsv") && no_number.contains("expected a finite number"), "{no_number}");
    assert_eq!(
        error("{ kind = \"classification\" }", &["data.dev=[\"absent.tsv\"]"]),
        "`data.dev` is \"absent.tsv\"; expected an existing file or folder, or a pattern that matches files"
    );
    let one = bench.path("one.tsv");
    fs::write(&one, "text\tlabel\na\tgood\nb\tgood\n").unwrap();
    let one = error("{ kind = \"classification\" }", &[&format!("data.train.files=[\"{}\"]", one.display())]);
    assert!(
        one.starts_with("`data.train.files` is examples of the single label \"good\"; expected two"),
        "{one}"
    );
}

#[test]
fn patience_needs_something_to_be_patient_with() {
    let _held = crate::generator();
    let bench = Bench::new();
    bench.config("{ kind = \"classification\" }", "label", &[]);
    let error = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        FineTuneConfig::load(bench.path("config.toml"), &sets).unwrap_err().to_string()
    };
    let none = error(&["eval.patience=0"]);
    assert!(none.ends_with("`eval.patience` is 0; expected a whole number of 1 or more"), "{none}");
    let unmeasured = error(&["eval.patience=2", "data.dev=[]"]);
    assert!(
        unmeasured.contains("`eval.patience` is 2; expected it to be absent: it requires `data.dev`"),
        "{unmeasured}"
    );
}

/// Keeps what is noted.
#[derive(Default)]
struct Notes(Vec<String>);

impl RunProgress for Notes {
    fn note(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
}

/// Counts steps, and stops the run after so many.
struct Counted<'a> {
    steps: u64,
    last: u64,
    stop: &'a AtomicBool,
}

impl RunProgress for Counted<'_> {
    fn step(&mut self, _: &Status) {
        self.steps += 1;
        if self.steps == self.last {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn several_seeds_go_on_where_they_were_and_equal_separate_runs() {
    let _held = crate::generator();
    let bench = Bench::new();
    let task = "{ kind = \"classification\" }";
    let sets = ["train.epochs=2", "eval.per_epoch=2"];
    let config = bench.config(task, "label", &sets);
    let seeds = [5, 3, 9];
    let run = |last| {
        let stop = AtomicBool::new(false);
        let mut counted = Counted { steps: 0, last, stop: &stop };
        let (device, folder, cache) = (Device::flex(), bench.path("all"), bench.path("cache"));
        let options = RunOptions::new(device, folder).cache(cache).stop(&stop);
        let outcome = train_seeds(&config, &seeds, &options, &mut counted).unwrap();
        (outcome, counted.steps)
    };
    // Two epochs of 20 steps: the second seed is interrupted in its second epoch, and then the third after its first.
    assert_eq!(run(67), (OverSeeds::Stopped { seed: 3, step: 27 }, 67));
    assert_eq!(run(33), (OverSeeds::Stopped { seed: 9, step: 20 }, 33));
    assert!(!bench.path("all/seeds.json").exists());
    let (outcome, steps) = run(u64::MAX);
    assert_eq!(steps, 20);
    let OverSeeds::Done { best, model, .. } = &outcome else { panic!("not stopped") };
    assert_eq!(run(u64::MAX), (outcome.clone(), 0));

    let mut separate = Seeds::default();
    for seed in seeds {
        let set = format!("run.seed={seed}");
        let config = bench.config(task, "label", &[&sets[..], &[&set]].concat());
        let name = format!("alone-{seed}");
        let outcome = bench.run_whole(&name, &config);
        let dev = outcome.figures("dev").cloned();
        let Outcome::Done { model, .. } = outcome else { panic!("not stopped") };
        separate.push(seed, dev.unwrap());
        assert_eq!(parameters(&model), parameters(&bench.path(&format!("all/seed-{seed}/model"))));
    }
    assert_eq!((outcome.figures("dev"), outcome.figures("test")), (Some(&separate), None));
    assert_eq!(Some(*best), separate.best().map(|run| run.seed));
    assert_eq!(model, &bench.path(&format!("all/seed-{best}/model")));
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(bench.path("all/seeds.json")).unwrap()).unwrap();
    assert_eq!((&json["best"], &json["dev"]), (&(*best).into(), &separate.to_json()));
    let page = fs::read_to_string(bench.path("all/seeds.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);

    // Another config is not taken for this one.
    let other = bench.config(task, "label", &["train.epochs=1", "eval.per_epoch=2"]);
    let stop = AtomicBool::new(false);
    let (device, folder, cache) = (Device::flex(), bench.path("all"), bench.path("cache"));
    let options = RunOptions::new(device, folder).cache(cache).stop(&stop);
    let error = train_seeds(&other, &seeds, &options, &mut Silent).unwrap_err().to_string();
    assert!(error.contains("train.epochs: 2 became 1"), "{error}");
    let error = train_seeds(&config, &[1, 1], &options, &mut Silent).unwrap_err().to_string();
    assert_eq!(error, "`seeds` is 1,1; expected distinct numbers, at least one");
}

#[test]
fn figures_of_two_data_sets_do_not_meet_in_one_table() {
    let _held = crate::generator();
    let bench = Bench::new();
    let config = bench.config("{ kind = \"classification\" }", "label", &["train.epochs=1"]);
    let run = |seeds: &[u64]| {
        let stop = AtomicBool::new(false);
        let (device, folder, cache) = (Device::flex(), bench.path("all"), bench.path("cache"));
        let options = RunOptions::new(device, folder).cache(cache).stop(&stop);
        train_seeds(&config, seeds, &options, &mut Silent).map_err(|error| error.to_string())
    };
    run(&[1]).unwrap();
    let table = fs::read(bench.path("all/seeds.json")).unwrap();
    // The training tokens stay as they are, so the checkpoints do not notice.
    for (file, name) in [("dev.tsv", "dev.tsv"), ("model/config.json", "config.json")] {
        let path = bench.path(file);
        let before = fs::read_to_string(&path).unwrap();
        let after = match name {
            "dev.tsv" => before.lines().take(30).collect::<Vec<_>>().join("\n"),
            _ => before.replacen("gelu", "relu", 1),
        };
        assert_ne!(before, after);
        fs::write(&path, after).unwrap();
        let error = run(&[1, 2]).unwrap_err();
        assert!(error.contains(&format!("{} has changed since the run in", path.display())), "{error}");
        assert!(error.contains("seed-1 was started: restore the files"), "{error}");
        assert_eq!(fs::read(bench.path("all/seeds.json")).unwrap(), table);
        fs::write(&path, before).unwrap();
    }
    run(&[1, 2]).unwrap();
}

#[test]
fn a_run_does_not_go_on_over_other_development_data() {
    let _held = crate::generator();
    let bench = Bench::new();
    let config = bench.config("{ kind = \"classification\" }", "label", &["train.epochs=2"]);
    let stop = AtomicBool::new(false);
    let mut counted = Counted { steps: 0, last: 25, stop: &stop };
    let stopped = bench.run("run", &config, false, &mut counted, &stop).unwrap();
    assert_eq!(stopped, Outcome::Stopped { step: 25 });
    let dev = fs::read_to_string(bench.path("dev.tsv")).unwrap();
    fs::write(bench.path("dev.tsv"), dev.lines().take(30).collect::<Vec<_>>().join("\n")).unwrap();
    let go_on = || bench.run("run", &config, true, &mut Silent, &AtomicBool::new(false));
    let error = go_on().unwrap_err().to_string();
    assert!(error.contains("dev.tsv has changed since the run in"), "{error}");
    fs::write(bench.path("dev.tsv"), dev).unwrap();
    assert!(matches!(go_on().unwrap(), Outcome::Done { .. }));
}

#[test]
fn what_is_held_out_and_how_it_went_is_in_the_folder() {
    let _held = crate::generator();
    let bench = Bench::new();
    let sets = ["data.dev=[]", "data.dev_fraction=0.2", "train.epochs=1"];
    let config = bench.config("{ kind = \"regression\" }", "score", &sets);
    let dev = bench.run_whole("run", &config).figures("dev").cloned();
    let read = |name: &str| fs::read_to_string(bench.path("run").join(name)).unwrap();
    let held: Vec<usize> = serde_json::from_str(&read("held-out.json")).unwrap();
    assert_eq!(held.len(), dev.unwrap().examples());
    let train = fs::read_to_string(bench.path("train.tsv")).unwrap();
    let lines: Vec<&str> = train.lines().skip(1).collect();
    let predicted = read("report/dev/predictions.tsv");
    for (place, row) in held.iter().zip(predicted.lines().skip(1)) {
        let text = lines[*place].split('\t').next().unwrap();
        assert!(row.contains(text), "{row}: not {text}");
        // The first line is the header.
        assert!(row.starts_with(&format!("{}\t", place + 2)), "{row}: not named by its line {place} + 2");
    }
    let curve = read("curve.svg");
    assert!(curve.contains("pearson, dev"), "{curve}");
    let page = read("report/dev/report.html");
    assert!(page.contains("<svg") && page.contains("href=\"../../index.html\""), "{page}");
    assert!(page.contains("that of the baseline, the mean"), "{page}");
    let index = read("index.html");
    for link in
        ["report/dev/report.html", "model/", "curve.svg", "config.toml", "held-out.json", "checkpoints/"]
    {
        assert!(index.contains(&format!("href=\"{link}\"")), "{link} is missing in {index}");
    }
}

#[test]
fn what_a_frozen_encoder_makes_of_texts_is_worked_out_once() {
    let _held = crate::generator();
    let bench = Bench::new();
    for (task, label) in [
        ("{ kind = \"classification\" }", "label"),
        ("{ kind = \"classification\", pooling = \"mean\" }", "label"),
        ("{ kind = \"regression\", pooling = \"max\" }", "score"),
    ] {
        // Dropout so rare that it drops nothing keeps the encoder in every step.
        let [once, always] = ["0.0", "1e-12"].map(|dropout| {
            let dropout =
                format!("model.dropout={{ hidden = {dropout}, attention = {dropout}, head = 0.0 }}");
            let sets = ["model.freeze=[\"bert.*\"]", "train.epochs=3", "checkpoint.every=7", &dropout];
            bench.config(task, label, &sets)
        });
        let mut told = Notes::default();
        let go = AtomicBool::new(false);
        let mut measured = Vec::new();
        for (name, config) in [("once", &once), ("always", &always)] {
            let _ = fs::remove_dir_all(bench.path(name));
            let outcome = bench.run(name, config, false, &mut told, &go).unwrap();
            let dev = outcome.figures("dev").cloned();
            let Outcome::Done { model, .. } = outcome else { panic!("not stopped") };
            measured.push((parameters(&model), dev.unwrap().main().1));
        }
        let lines = told.0.iter().filter(|line| line.contains("220 examples encoded once"));
        assert_eq!(lines.count(), 1, "{:?}", told.0);
        let [(a, figure), (b, other)] = &measured[..] else { panic!("two runs") };
        assert!((figure - other).abs() < 0.02, "{task}: {figure} and {other}");
        for (name, data) in a {
            let pairs = data.iter::<f32>().zip(b[name].iter::<f32>());
            pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-3, "{task}: {name} of {a} and {b}"));
        }

        let stop = AtomicBool::new(false);
        let _ = fs::remove_dir_all(bench.path("stopped"));
        bench.run("stopped", &once, false, &mut StopAfter(33, &stop), &stop).unwrap();
        bench.run("stopped", &once, true, &mut Silent, &go).unwrap();
        assert_eq!(parameters(&bench.path("stopped/model")), *a, "{task}: stopped and resumed");
    }
}

#[test]
fn several_labels_are_learnt_and_a_stopped_run_ends_with_the_same_bits() {
    let _held = crate::generator();
    let bench = Bench::new();
    for (name, rows) in [("train.jsonl", rows(160, 1)), ("dev.jsonl", rows(60, 2))] {
        let lines = rows.iter().map(|(text, label, score)| {
            let strong = (*score == 1.0 || *score == 5.0).then_some("strong");
            let labels: Vec<&str> = (*label == "good").then_some("good").into_iter().chain(strong).collect();
            serde_json::json!({ "text": text, "labels": labels }).to_string() + "\n"
        });
        fs::write(bench.path(name), lines.collect::<String>()).unwrap();
    }
    let [train, dev] = ["train.jsonl", "dev.jsonl"].map(|name| bench.path(name));
    let sets = [format!("data.train={{ files = [{train:?}] }}"), format!("data.dev=[{dev:?}]")];
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let config = bench.config("{ kind = \"multi-label\" }", "labels", &sets);
    let outcome = bench.run_whole("whole", &config);
    let figures = outcome.figures("dev").expect("development data");
    assert!(figures.get("f1_micro").unwrap() > 0.95, "{}", figures.line());
    assert!(figures.get("average_precision").unwrap() > 0.95, "{}", figures.line());

    let model = bench.path("whole/model");
    let config_file: serde_json::Value =
        serde_json::from_slice(&fs::read(model.join("config.json")).unwrap()).unwrap();
    assert_eq!(config_file["problem_type"], "multi_label_classification");
    assert_eq!(config_file["id2label"], serde_json::json!({"0": "good", "1": "strong"}));
    let predictor = Predictor::load(&model, &Device::flex(), false).unwrap();
    let asked = ["\"the film was great\"", "\"the film was dull\"", "\"the film was weak\""];
    let values = predictor.predict(&asked, &mut |_| {}).unwrap().values;
    let labels: Vec<&serde_json::Value> = values.iter().map(|value| &value["labels"]).collect();
    assert_eq!(serde_json::json!(labels), serde_json::json!([["good", "strong"], ["strong"], []]));

    let stop = AtomicBool::new(false);
    let stopping = &mut StopAfter(40, &stop);
    bench.run("stopped", &config, false, stopping, &stop).unwrap();
    bench.run("stopped", &config, true, &mut Silent, &AtomicBool::new(false)).unwrap();
    assert_eq!(parameters(&bench.path("stopped/model")), parameters(&model));
}

#[test]
fn a_head_for_other_labels_is_made_anew_and_the_run_says_so() {
    let _held = crate::generator();
    let bench = Bench::new();
    // Three classes, from a checkpoint with two; then two from three.
    let three: String = rows(160, 1)
        .iter()
        .map(|(text, label, score)| {
            let label = if *score == 2.0 { "middling" } else { label };
            format!("{text}\t{label}\n")
        })
        .collect();
    fs::write(bench.path("three.tsv"), format!("text\tlabel\n{three}")).unwrap();
    let task = "{ kind = \"classification\" }";
    let of_three = [
        format!("data.train.files=[{:?}]", bench.path("three.tsv")),
        "data.dev=[]".into(),
        "train.epochs=1".into(),
    ];
    let of_three: Vec<&str> = of_three.iter().map(String::as_str).collect();
    bench.run_whole("three", &bench.config(task, "label", &of_three));
    let start = format!("model.path={:?}", bench.path("three/model"));
    let config = bench.config(task, "label", &[&start]);
    let mut notes = Notes(Vec::new());
    let outcome = bench.run("two", &config, false, &mut notes, &AtomicBool::new(false)).unwrap();
    let said = notes.0.join(" ");
    let said = said.replace(['│', '┆'], " ");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("new classifier.bias, classifier.weight"), "{said}");
    assert!(said.contains("not used classifier.bias, classifier.weight"), "{said}");
    assert!(outcome.figures("dev").unwrap().get("accuracy").unwrap() > 0.9);
    // The same labels: the head is kept.
    let start = format!("model.path={:?}", bench.path("two/model"));
    let mut notes = Notes(Vec::new());
    let config = bench.config(task, "label", &[&start, "train.epochs=1"]);
    bench.run("again", &config, false, &mut notes, &AtomicBool::new(false)).unwrap();
    let said = notes.0.join(" ");
    assert!(!said.contains("classifier.weight"), "{said}");
    // A model that is asked, and not trained, must have what its folder says.
    let path = bench.path("two/model/task.json");
    let file = fs::read_to_string(&path).unwrap();
    fs::write(&path, file.replace("\"good\"\n", "\"good\", \"x\"\n")).unwrap();
    assert!(Predictor::load(&bench.path("two/model"), &Device::flex(), false).is_err());
}

#[test]
fn a_student_is_drawn_to_its_teacher() {
    let _held = crate::generator();
    let bench = Bench::new();
    let task = "{ kind = \"classification\" }";
    let teacher = bench.config(task, "label", &[]);
    bench.run_whole("taught", &teacher);
    let path = bench.path("taught/model").display().to_string();
    let of = |name: &str, sets: &[&str]| {
        let teacher = format!("distillation.teacher={path:?}");
        let sets = [&["model.layers=[1]", "train.epochs=2", &teacher], sets].concat();
        let config = bench.config(task, "label", &sets);
        bench.run_whole(name, &config);
        parameters(&bench.path(name).join("model"))
    };
    // Of two layers one is left, and its folder says so.
    let alone = of("teacher-alone", &["distillation.soft=1"]);
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(bench.path("teacher-alone/model/config.json")).unwrap()).unwrap();
    assert_eq!(config["num_hidden_layers"], 1);
    assert!(alone.keys().all(|name| !name.contains("layer.1.")));
    let metrics = fs::read_to_string(bench.path("teacher-alone/metrics.jsonl")).unwrap();
    assert!(metrics.contains("\"teacher\"") && metrics.contains("\"labels\""), "{metrics}");
    // The labels are not read where they do not count: other ones give the same bits.
    let train = fs::read_to_string(bench.path("train.tsv")).unwrap();
    let swapped =
        train.replace("\tbad\t", "\t-\t").replace("\tgood\t", "\tbad\t").replace("\t-\t", "\tgood\t");
    fs::write(bench.path("train.tsv"), swapped).unwrap();
    let other = of("other-labels", &["distillation.soft=1"]);
    assert_eq!(alone, other);
    let both = of("both", &["distillation.soft=0.5"]);
    assert!(both != alone);
    fs::write(bench.path("train.tsv"), train).unwrap();
    // Without weight the teacher changes nothing.
    let plain = bench.config(task, "label", &["model.layers=[1]", "train.epochs=2"]);
    bench.run_whole("plain", &plain);
    assert_eq!(of("unheard", &["distillation.soft=0"]), parameters(&bench.path("plain/model")));
}

#[test]
fn a_teachers_outputs_are_kept_for_the_next_run() {
    let _held = crate::generator();
    let bench = Bench::new();
    let task = "{ kind = \"classification\" }";
    bench.run_whole("taught", &bench.config(task, "label", &[]));
    bench.run_whole("other", &bench.config(task, "label", &["run.seed=5"]));
    let run = |name: &str, teacher: &str, cache: bool| {
        let teacher = format!("distillation.teacher={:?}", bench.path(teacher).display().to_string());
        let cache = format!("distillation.cache={cache}");
        let config = bench.config(task, "label", &["train.epochs=2", &teacher, &cache]);
        bench.run_whole(name, &config);
        parameters(&bench.path(name).join("model"))
    };
    let kept = || {
        let entries = fs::read_dir(bench.path("cache")).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|of| of == "scores")).collect::<Vec<_>>()
    };
    let asked = run("asked", "taught/model", false);
    assert!(kept().is_empty());
    let first = run("first", "taught/model", true);
    assert_eq!(kept().len(), 1);
    assert_eq!(run("second", "taught/model", true), first);
    // A damaged file is made anew, and another teacher has a file of its own.
    fs::write(&kept()[0], b"damaged").unwrap();
    assert_eq!(run("third", "taught/model", true), first);
    assert!(run("fourth", "other/model", true) != first);
    assert_eq!(kept().len(), 2);
    // Computed in other batches, the outputs are the same to rounding.
    for (name, data) in &asked {
        let (a, b) = (data.iter::<f32>(), first[name].iter::<f32>());
        assert!(a.zip(b).all(|(a, b)| (a - b).abs() < 1e-3), "{name}");
    }
}

#[test]
fn a_recurrent_student_learns_from_a_teacher_with_other_pieces() {
    let _held = crate::generator();
    let bench = Bench::new();
    let task = "{ kind = \"classification\" }";
    bench.run_whole("taught", &bench.config(task, "label", &[]));
    let teacher = format!("distillation.teacher={:?}", bench.path("taught/model").display().to_string());
    let student = "model={ recurrent = { d_embedding = 16, d_model = 24, dropout = 0.1, \
                   tokenizer = { kind = \"train-wordpiece\", vocab_size = 60 } } }";
    let sets = [student, "train.epochs=8", "optimizer.lr=1e-2", "distillation.soft=1", &teacher];
    let outcome = bench.run_whole("student", &bench.config(task, "label", &sets));
    let dev = outcome.figures("dev").unwrap();
    assert!(dev.get("accuracy").unwrap() > 0.9, "{dev}");
}

#[test]
fn labels_of_a_teacher_are_matched_by_their_names() {
    let _held = crate::generator();
    let bench = Bench::new();
    let task = |labels: &str| format!("{{ kind = \"classification\", labels = {labels} }}");
    bench.run_whole("one", &bench.config(&task("[\"bad\", \"good\"]"), "label", &[]));
    let model = bench.path("one/model");
    let student = |name: &str, labels: &str, teacher: &Path| {
        let teacher = format!("distillation.teacher={:?}", teacher.display().to_string());
        let sets = ["train.epochs=1", "distillation.soft=1", &teacher];
        let config = bench.config(&task(labels), "label", &sets);
        bench.run(name, &config, false, &mut Silent, &AtomicBool::new(false))
    };
    // The same teacher with its classes the other way round.
    let turned = bench.path("turned");
    fs::create_dir(&turned).unwrap();
    for entry in fs::read_dir(&model).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), turned.join(entry.file_name())).unwrap();
    }
    let mut tensors = parameters(&model);
    for name in ["classifier.weight", "classifier.bias"] {
        let data = &tensors[name];
        let (mut values, shape) = (data.iter::<f32>().collect::<Vec<_>>(), data.shape().to_vec());
        let half = values.len() / 2;
        values.rotate_left(half);
        tensors.insert(name.into(), burn::tensor::TensorData::new(values, shape));
    }
    cloze_model::huggingface::write_tensors(&turned.join("model.safetensors"), &tensors, &[]).unwrap();
    for file in ["config.json", "task.json"] {
        let text = fs::read_to_string(turned.join(file)).unwrap();
        let text = text.replace("bad", "-").replace("good", "bad").replace("\"-\"", "\"good\"");
        fs::write(turned.join(file), text).unwrap();
    }
    student("straight", "[\"bad\", \"good\"]", &model).unwrap();
    student("crossed", "[\"bad\", \"good\"]", &turned).unwrap();
    let of = |name: &str| parameters(&bench.path(name).join("model"));
    assert_eq!(of("straight"), of("crossed"));
    let error = student("third", "[\"bad\", \"fair\", \"good\"]", &model).unwrap_err().to_string();
    assert!(error.contains("expected a model with the label \"fair\": its labels are bad, good"), "{error}");
}

/// A narrower student learns states through learnt maps, and scores and relations, of a teacher's layers. What it saves
/// has no maps, and a stop changes no bit.
#[test]
fn a_student_learns_from_inside_its_teacher() {
    let _held = crate::generator();
    let bench = Bench::new();
    let task = "{ kind = \"classification\" }";
    bench.run_whole("taught", &bench.config(task, "label", &[]));
    let student = format!("model.path={:?}", bench.one_layer("narrow", 16, 2).display().to_string());
    let teacher = format!("distillation.teacher={:?}", bench.path("taught/model").display().to_string());
    let config = |inner: &str| {
        let inner = format!("distillation.inner={{ {inner} }}");
        let alone = ["distillation.soft=0", "distillation.hard=0", "log.every=1"];
        let sets = [&[&*student, &teacher, &inner], &alone[..]].concat();
        bench.config(task, "label", &sets)
    };
    // The mean of a term over the first steps, and over the last ones.
    let means = |run: &str, term: &str| {
        let lines = fs::read_to_string(bench.path(run).join("metrics.jsonl")).unwrap();
        let records = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let values: Vec<f64> = records.filter_map(|record| record["losses"][term].as_f64()).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        assert!(values.len() > 40, "{run}: {term} in {lines}");
        (mean(&values[..10]), mean(&values[values.len() - 10..]))
    };
    let cases = [
        ("tiny", "embeddings = 1, states = 1, scores = 1", &["embeddings", "states", "scores"][..]),
        ("distil", "cosine = 1", &["cosine"]),
        ("mini", "attention = 1, values = 1, layer = 0", &["attention", "values"]),
        ("mini2", "queries = 1, keys = 1, values = 1, heads = 4", &["queries", "keys", "values"]),
    ];
    for (name, inner, terms) in cases {
        bench.run_whole(name, &config(inner));
        for term in terms {
            let (first, last) = means(name, term);
            assert!(first > 0.0 && last < 0.9 * first, "{name}: {term} from {first} to {last}");
        }
        let saved = parameters(&bench.path(name).join("model"));
        assert!(saved.keys().all(|path| !path.contains("maps")), "{name}");
    }
    let stop = AtomicBool::new(false);
    bench.run("stopped", &config(cases[0].1), false, &mut StopAfter(33, &stop), &stop).unwrap();
    bench.run("stopped", &config(cases[0].1), true, &mut Silent, &AtomicBool::new(false)).unwrap();
    let [whole, stopped] = ["tiny/model", "stopped/model"].map(|run| parameters(&bench.path(run)));
    assert_eq!(whole, stopped);

    let error = |inner: &str, sets: &[&str]| {
        let mut config = config(inner);
        for set in sets {
            let model = bench.path(set);
            config.kind.model.path = model;
        }
        bench.run("failed", &config, false, &mut Silent, &AtomicBool::new(false)).unwrap_err().to_string()
    };
    let expected = "`distillation.inner.layers` is [2]; expected layers of the teacher, 0 to 1";
    assert!(error("states = 1, layers = [2]", &[]).contains(expected));
    let told = error("keys = 1, heads = 3", &[]);
    assert!(told.contains("`distillation.inner.heads` is 3; expected a divisor of 16, the width"), "{told}");
    bench.one_layer("four", 16, 4);
    let told = error("scores = 1", &["four"]);
    assert!(
        told.contains("the student has 4, the teacher has 2; expected models with equally many"),
        "{told}"
    );
    let told = error("values = 1", &["four"]);
    assert!(told.contains("expected a number of relation heads"), "{told}");
    let refused = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        FineTuneConfig::load(bench.path("config.toml"), &sets).unwrap_err().to_string()
    };
    let told = refused(&[&teacher, "distillation.inner={ layer = 1 }"]);
    assert!(told.contains("expected a weight above 0 of at least one of `embeddings`"), "{told}");
    let told = refused(&[&teacher, "distillation.inner={ cosine = 1 }", "train.recompute=true"]);
    assert!(told.contains("`train.recompute` is true; expected false"), "{told}");
}

/// A student with other pieces than its teacher learns the means of the parts that both have in common.
#[test]
fn a_student_with_another_vocabulary_learns_from_inside_its_teacher() {
    let _held = crate::generator();
    let bench = Bench::new();
    let task = "{ kind = \"classification\" }";
    bench.run_whole("taught", &bench.config(task, "label", &[]));
    // Its pieces are letters and a few joined ones.
    let folder = bench.one_layer("spelled", 16, 2);
    let texts = rows(160, 1);
    let trainer = WordPieceTrainer { vocab_size: 60, ..Default::default() };
    let tokenizer = trainer.train(texts.iter().map(|(text, ..)| text.as_str())).unwrap();
    tokenizer.save(&folder).unwrap();
    let student = format!("model.path={:?}", folder.display().to_string());
    let teacher = format!("distillation.teacher={:?}", bench.path("taught/model").display().to_string());
    let config = |inner: &str| {
        let inner = format!("distillation.inner={{ {inner} }}");
        let alone = ["distillation.soft=0", "distillation.hard=0", "log.every=1"];
        bench.config(task, "label", &[&[&*student, &teacher, &inner], &alone[..]].concat())
    };
    let inner = "embeddings = 1, states = 1, cosine = 1";
    let cases = [
        ("whole", inner, &["embeddings", "states", "cosine"][..]),
        ("related", "queries = 1, keys = 1, values = 1, heads = 4", &["queries", "keys", "values"]),
    ];
    for (name, inner, terms) in cases {
        bench.run_whole(name, &config(inner));
        let lines = fs::read_to_string(bench.path(name).join("metrics.jsonl")).unwrap();
        let records: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for term in terms {
            let values: Vec<f64> =
                records.iter().filter_map(|record| record["losses"][*term].as_f64()).collect();
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            let (first, last) = (mean(&values[..10]), mean(&values[values.len() - 10..]));
            assert!(first > 0.0 && last < 0.9 * first, "{name}: {term} from {first} to {last}");
        }
    }
    let stop = AtomicBool::new(false);
    bench.run("stopped", &config(inner), false, &mut StopAfter(33, &stop), &stop).unwrap();
    bench.run("stopped", &config(inner), true, &mut Silent, &AtomicBool::new(false)).unwrap();
    let [whole, stopped] = ["whole/model", "stopped/model"].map(|run| parameters(&bench.path(run)));
    assert_eq!(whole, stopped);
    let error =
        bench.run("failed", &config("scores = 1"), false, &mut Silent, &AtomicBool::new(false)).unwrap_err();
    let expected = "`distillation.inner.scores` compares single tokens";
    assert!(error.to_string().contains(expected), "{error}");
}

/// A run with rounding saves numbers of its format, which `cloze quantize` stores as they are, and learns with them; a stop
/// changes no bit.
#[test]
fn a_model_learns_with_rounded_weights_and_inputs() {
    let _held = crate::generator();
    let bench = Bench::new();
    let task = "{ kind = \"classification\" }";
    for format in ["int8", "q4_0"] {
        let section = format!("quantization.weights={format}");
        let config = bench.config(task, "label", &[&section]);
        let outcome = bench.run_whole(format, &config);
        let accuracy = outcome.figures("dev").unwrap().get("accuracy").unwrap();
        assert!(accuracy > 0.9, "{format}: {accuracy}");
        let saved = parameters(&bench.path(format).join("model"));
        let name = "bert.encoder.layer.1.intermediate.dense.weight";
        let shape = saved[name].shape();
        let dims = [shape[0], shape[1]];
        let numbers: Vec<f32> = saved[name].iter::<f32>().collect();
        let matrix = match format {
            "int8" => IntegerMatrix::int8(&numbers, dims, i8::MAX),
            _ => IntegerMatrix::q4_0(&numbers, dims),
        };
        let far = numbers.iter().zip(matrix.unwrap().dequantized()).map(|(a, b)| (a - b).abs());
        let far = far.fold(0.0, f32::max);
        assert!(far < 1e-6, "{format}: {far} from the format's numbers");
        let stop = AtomicBool::new(false);
        let stopped = format!("{format}-stopped");
        bench.run(&stopped, &config, false, &mut StopAfter(33, &stop), &stop).unwrap();
        bench.run(&stopped, &config, true, &mut Silent, &AtomicBool::new(false)).unwrap();
        assert_eq!(parameters(&bench.path(&stopped).join("model")), saved, "{format}");
        // The inputs' rounding is a part of what is learnt.
        let exact = bench.config(task, "label", &[&section, "quantization.inputs=exact"]);
        bench.run_whole(&format!("{format}-exact"), &exact);
        assert!(parameters(&bench.path(&format!("{format}-exact/model"))) != saved, "{format}");
    }
    let refused = |sets: &[&str]| {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        FineTuneConfig::load(bench.path("config.toml"), &sets).unwrap_err().to_string()
    };
    let told = refused(&["quantization.weights=int8", "quantization.range_lr=0.1"]);
    assert!(told.contains("`quantization.range_lr` is 0.1; expected it to be absent"), "{told}");
    let told = refused(&["quantization.weights=q4_0", "train.recompute=true"]);
    assert!(told.contains("`train.recompute` is true; expected false with `[quantization]`"), "{told}");
    let told = refused(&["quantization.weights=q4_0", "pruning.kind=random"]);
    assert!(told.contains("expected none with `[quantization]`: prune first, then round"), "{told}");
}

/// Ranges that training finds are kept, change no bit of a resumed run, and are those that the quantised model rounds by.
#[test]
fn a_model_learns_the_ranges_of_its_inputs() {
    let _held = crate::generator();
    let bench = Bench::new();
    let task = "{ kind = \"classification\" }";
    let ranges = |run: &str| -> BTreeMap<String, [f32; 2]> {
        let text = fs::read_to_string(bench.path(run).join("model/input_ranges.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let mut all = Vec::new();
    for inputs in ["running", "learnt"] {
        let set = format!("quantization={{ weights = \"int8\", inputs = {inputs:?} }}");
        let config = bench.config(task, "label", &[&set]);
        let outcome = bench.run_whole(inputs, &config);
        let accuracy = outcome.figures("dev").unwrap().get("accuracy").unwrap();
        assert!(accuracy > 0.9, "{inputs}: {accuracy}");
        let found = ranges(inputs);
        assert!(found.len() == 12 && found.contains_key("encoder.layers.1.feed_forward.up"), "{found:?}");
        let stop = AtomicBool::new(false);
        let stopped = format!("{inputs}-stopped");
        bench.run(&stopped, &config, false, &mut StopAfter(33, &stop), &stop).unwrap();
        bench.run(&stopped, &config, true, &mut Silent, &AtomicBool::new(false)).unwrap();
        assert_eq!(ranges(&stopped), found, "{inputs}");
        let model = bench.path(inputs).join("model");
        assert_eq!(parameters(&bench.path(&stopped).join("model")), parameters(&model), "{inputs}");
        // The file for other programs has no tensor of ours.
        assert!(parameters(&model).keys().all(|name| !name.contains("range")), "{inputs}");

        let mut how = QuantizeConfig::new(WeightFormat::Int8);
        how.ranges = Some(Ranges::Trained);
        let small = bench.path(&format!("{inputs}-int8"));
        fs::create_dir(&small).unwrap();
        quantize(&model, &small, &how, [], &Device::flex(), |_| ()).unwrap();
        for entry in fs::read_dir(&model).unwrap() {
            let name = entry.unwrap().file_name();
            if !small.join(&name).exists() && name != "model.safetensors" {
                fs::copy(model.join(&name), small.join(&name)).unwrap();
            }
        }
        let predictor = Predictor::load(&small, &Device::flex(), false).unwrap();
        let dev = EvaluationData::Files(&config.data.dev);
        let measured = predictor.evaluate(&config, dev, &mut |_| ()).unwrap();
        let loss = |figures: &Figures| figures.get("loss").unwrap();
        let (found, trained) = (loss(&measured.figures), loss(outcome.figures("dev").unwrap()));
        assert!((found - trained).abs() < 1e-3, "{inputs}: {found} in integers, {trained} in training");
        all.push(ranges(inputs));
    }
    assert_ne!(all[0], all[1]);
    // The ranges' own learning rate holds whatever the layers' rates are.
    let found = [1e-9, 0.05].map(|lr| {
        let learnt = format!("quantization={{ weights = \"int8\", inputs = \"learnt\", range_lr = {lr} }}");
        let sets = [&*learnt, "model.layer_decay=0.5", "train.epochs=1"];
        bench.run_whole(&format!("rate-{lr}"), &bench.config(task, "label", &sets));
        ranges(&format!("rate-{lr}"))
    });
    assert_ne!(found[0], found[1]);
    // A model that was not trained so has none.
    bench.run_whole("plain", &bench.config(task, "label", &["train.epochs=1"]));
    let mut how = QuantizeConfig::new(WeightFormat::Int8);
    how.ranges = Some(Ranges::Trained);
    let out = bench.path("plain-int8");
    fs::create_dir(&out).unwrap();
    let told =
        quantize(&bench.path("plain").join("model"), &out, &how, [], &Device::flex(), |_| ()).unwrap_err();
    assert!(told.to_string().contains("was not trained with `quantization.inputs`"), "{told}");
}

#[test]
fn a_teacher_that_cannot_teach_is_told_by_name() {
    let _held = crate::generator();
    let bench = Bench::new();
    let [classes, numbers] = ["{ kind = \"classification\" }", "{ kind = \"regression\" }"];
    bench.run_whole("numbers", &bench.config(numbers, "score", &["train.epochs=1"]));
    let error = |task: &str, label: &str, teacher: &str, sets: &[&str]| {
        let teacher = format!("distillation.teacher={:?}", bench.path(teacher).display().to_string());
        let config = bench.config(task, label, &[&[&*teacher], sets].concat());
        bench.run("failed", &config, false, &mut Silent, &AtomicBool::new(false)).unwrap_err().to_string()
    };
    let told = error(classes, "label", "numbers/model", &[]);
    assert!(
        told.contains("expected a model for the task `classification`: this one is for `regression`"),
        "{told}"
    );
    let told = error(numbers, "score", "model", &[]);
    assert!(told.contains("model"), "{told}");
    let embedding = "{ kind = \"embedding\", loss = { kind = \"simcse\" } }";
    let refused = |task: &str| {
        let text = format!(
            "task = {task}\nmodel.path = \"model\"\ntrain = {{ epochs = 1, batch_size = 8 }}\n\
             data.train.files = [\"train.tsv\"]\noptimizer.lr = 1e-3\nschedule.kind = \"linear\"\n\
             distillation.teacher = \"model\"\n"
        );
        let place = cloze_trainer::Place::file(Path::new("config.toml"));
        FineTuneConfig::parse(&text, "run", &place, &[]).unwrap_err().to_string()
    };
    assert!(refused(embedding).contains("a teacher of embeddings is `task.loss"), "{}", refused(embedding));
    let told = error(numbers, "score", "numbers/model", &["model.layers=[0, 2]"]);
    assert!(told.contains("`model.layers` is [0, 2]; expected layers from 0 to 1"), "{told}");
}
