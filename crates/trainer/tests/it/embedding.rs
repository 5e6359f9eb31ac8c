//! Sentence encoders, from a small checkpoint to a folder that `embed` reads.

use crate::stop_after::StopAfter;
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, SaveConfig, SentenceConfig, read_tensors, save_pretrained};
use cloze_tokenizer::train::WordPieceTrainer;
use cloze_trainer::embed::{EmbedConfig, Embedder};
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::finetune::{FineTuneConfig, Predictor, fine_tune};
use cloze_trainer::metrics::progress::{RunProgress, Silent};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// A folder with a checkpoint of random weights and pairs whose texts are alike where they have a word in common.
struct Bench {
    folder: tempfile::TempDir,
}

const TOPICS: [&str; 6] = ["ships", "films", "dogs", "trains", "bread", "rain"];
const PLAIN: [&str; 8] = ["the", "a", "of", "was", "and", "in", "some", "old"];

impl Bench {
    fn new() -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        let sentence = |topic: usize, i: usize| {
            let words: Vec<&str> = (0..3).map(|j| PLAIN[(i * 3 + j * 5 + i / 8) % 8]).collect();
            format!("{} {} {} {}", words[0], TOPICS[topic % 6], words[1], words[2])
        };
        let mut texts = Vec::new();
        for (name, n, shift) in [("train.tsv", 120, 0), ("dev.tsv", 48, 1_000)] {
            let mut lines = "text\tpair\tother\tscore\tclass\tfits\n".to_owned();
            for i in 0..n {
                let alike = i % 2 == 0;
                let (topic, other) = (i / 2 % 6, (i / 2 + 1 + i / 12 % 4) % 6);
                let second = if alike { topic } else { other };
                let [a, b, c] = [
                    sentence(topic, shift + 3 * i),
                    sentence(second, shift + 3 * i + 1),
                    sentence(other, shift + 3 * i + 2),
                ];
                let (score, class) = if alike { (4.0, "same") } else { (1.0, "other") };
                // Of the second text alone, which so small a model learns from scratch.
                let fits = u8::from(second < 3);
                lines += &format!("{a}\t{b}\t{c}\t{score}\t{class}\t{fits}\n");
                texts.extend([a, b, c]);
            }
            fs::write(bench.path(name), lines).unwrap();
        }
        let model = bench.path("model");
        fs::create_dir(&model).unwrap();
        let trainer = WordPieceTrainer { vocab_size: 120, ..Default::default() };
        let tokenizer = trainer.train(texts.iter().map(String::as_str)).unwrap();
        tokenizer.save(&model).unwrap();
        let config = BertConfig::new(tokenizer.vocab_size(), 2, 32)
            .with_d_ff(64)
            .with_n_heads(2)
            .with_max_positions(32);
        let encoder = config.init_encoder(&mut ParamInit::new(&Device::flex(), 3).with_std(0.1));
        save_pretrained(&model, &encoder, &config, &SaveConfig::new(Architecture::Encoder)).unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn try_config(&self, task: &str, columns: &str, sets: &[&str]) -> cloze_trainer::Result<FineTuneConfig> {
        let [model, train, dev] = ["model", "train.tsv", "dev.tsv"].map(|name| self.path(name));
        let text = format!(
            "task = {{ kind = \"embedding\", {task} }}\nmodel.path = {model:?}\n\
             train = {{ epochs = 6, batch_size = 8 }}\n\
             data = {{ train = {{ files = [{train:?}], columns = {{ {columns} }} }}, dev = [{dev:?}], max_len = 32 }}\n\
             optimizer.lr = 3e-3\nschedule = {{ kind = \"linear\", warmup_steps = 5 }}\nlog.every = 5\n"
        );
        let path = self.path("config.toml");
        fs::write(&path, text).unwrap();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        FineTuneConfig::load(&path, &sets)
    }

    fn config(&self, task: &str, columns: &str, sets: &[&str]) -> FineTuneConfig {
        self.try_config(task, columns, sets).unwrap()
    }

    fn run(
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

    fn run_whole(&self, name: &str, config: &FineTuneConfig) -> Outcome {
        self.run(name, config, false, &mut Silent, &AtomicBool::new(false)).unwrap()
    }

    fn error(&self, task: &str, columns: &str) -> String {
        let run = |config| self.run("error", &config, false, &mut Silent, &AtomicBool::new(false));
        self.try_config(task, columns, &[]).and_then(run).unwrap_err().to_string()
    }
}

const SCORED: &str = "pair = \"pair\", label = \"score\"";
const CLASSIFIED: &str = "pair = \"pair\", label = \"score\", class = \"class\"";
const TRIPLETS: &str = "pair = \"pair\", negatives = \"other\"";

#[test]
fn each_loss_of_scores_learns_and_the_folder_embeds() {
    let _held = crate::generator();
    let bench = Bench::new();
    for (name, task) in [
        ("cosent", "loss = { kind = \"cosent\" }, normalize = true"),
        ("cosine", "loss = { kind = \"cosine\", max_score = 5.0 }"),
        ("in-batch", "loss = { kind = \"in-batch-negatives\" }, min_score = 4.0, chunk = 5"),
    ] {
        let config = bench.config(task, SCORED, &["train.epochs=12"]);
        let outcome = bench.run_whole(name, &config);
        let dev = outcome.figures("dev").unwrap().clone();
        assert!(dev.get("spearman").unwrap() > 0.6, "{name}: {dev}");
        let Outcome::Done { model, .. } = outcome else { panic!("not stopped") };
        let saved = SentenceConfig::load(&model).unwrap().unwrap();
        assert_eq!((saved.max_len, saved.similarity.as_deref()), (Some(32), Some("cosine")));
        let embedder = Embedder::load(&model, EmbedConfig::default(), &Device::flex()).unwrap();
        assert_eq!(embedder.normalizes(), name == "cosent");
        let found = embedder.embed(&["the ships was old", "a ships of some", "the bread was old"]).unwrap();
        let rows: Vec<&[f32]> = found.values.chunks(embedder.width()).collect();
        let cosine = |a: &[f32], b: &[f32]| {
            let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            product(a, b) / (product(a, a) * product(b, b)).sqrt()
        };
        assert!(cosine(rows[0], rows[1]) > cosine(rows[0], rows[2]), "{name}");
        let asked = Predictor::load(&model, &Device::flex(), false).unwrap_err().to_string();
        assert!(asked.contains("cloze embed"), "{asked}");
    }
}

#[test]
fn classes_of_pairs_teach_an_encoder_and_leave_no_classifier() {
    let _held = crate::generator();
    let bench = Bench::new();
    let config = bench.config("loss = { kind = \"softmax\" }", CLASSIFIED, &["train.epochs=12"]);
    let outcome = bench.run_whole("softmax", &config);
    let dev = outcome.figures("dev").unwrap().clone();
    assert!(dev.get("spearman").unwrap() > 0.5, "{dev}");
    let Outcome::Done { model, .. } = outcome else { panic!("not stopped") };
    let names = |folder: &Path| -> Vec<String> {
        read_tensors(&folder.join("model.safetensors")).unwrap().into_keys().collect()
    };
    assert_eq!(names(&model), names(&bench.path("model")));
    Embedder::load(&model, EmbedConfig::default(), &Device::flex()).unwrap();
}

#[test]
fn triplets_and_pairs_have_figures_of_their_own() {
    let _held = crate::generator();
    let bench = Bench::new();
    let triplet = "loss = { kind = \"triplet\", distance = \"cosine\", margin = 0.5 }";
    let figures = bench.run_whole("triplets", &bench.config(triplet, TRIPLETS, &[])).figures("dev").cloned();
    assert_eq!(figures.unwrap().main().0, "accuracy");
    let pairs = "loss = { kind = \"guided-negatives\" }, matryoshka = { dims = [32, 8] }";
    let config = bench.config(pairs, "pair = \"pair\"", &["train.epochs=1"]);
    let figures = bench.run_whole("pairs", &config).figures("dev").cloned();
    assert_eq!(figures.unwrap().main().0, "mrr");
}

#[test]
fn another_model_guides_or_teaches() {
    let _held = crate::generator();
    let bench = Bench::new();
    let model = bench.path("model");
    let guided = format!("loss = {{ kind = \"guided-negatives\", guide = {model:?} }}");
    bench.run_whole("guided", &bench.config(&guided, TRIPLETS, &["train.epochs=1"]));
    // Without dropout a model that is its own teacher begins without a loss.
    let taught = format!("loss = {{ kind = \"distillation\", teacher = {model:?} }}");
    let sets =
        ["model.dropout.hidden=0", "model.dropout.attention=0", "train.epochs=1", "optimizer.weight_decay=0"];
    bench.run_whole("taught", &bench.config(&taught, SCORED, &sets));
    let log = fs::read_to_string(bench.path("taught").join("metrics.jsonl")).unwrap();
    let losses = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["loss"].as_f64());
    let losses: Vec<f64> = losses.collect();
    assert!(losses.first().is_some_and(|loss| *loss < 1e-6), "{losses:?}");
}

#[test]
fn a_cross_encoder_learns_and_its_folder_says_what_its_number_is() {
    let _held = crate::generator();
    let bench = Bench::new();
    let task = |loss: &str| format!("task={{ kind = \"regression\", loss = \"{loss}\" }}");
    let binary = task("binary-cross-entropy");
    let columns = "pair = \"pair\", label = \"fits\"";
    let config = bench.config("loss = { kind = \"cosent\" }", columns, &[&binary, "train.epochs=20"]);
    let Outcome::Done { model, .. } = bench.run_whole("cross-encoder", &config) else {
        panic!("not stopped")
    };
    let log = fs::read_to_string(bench.path("cross-encoder/metrics.jsonl")).unwrap();
    let records = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let losses: Vec<f64> = records
        .filter(|record| record["event"] == "train")
        .filter_map(|record| record["loss"].as_f64())
        .collect();
    let [first, .., last] = losses[..] else { panic!("{losses:?}") };
    assert!(last < 0.8 * first && first < 1.5, "{losses:?}");

    let json = fs::read_to_string(model.join("config.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let activation = &json["sentence_transformers"]["activation_fn"];
    assert_eq!(activation, "torch.nn.modules.activation.Sigmoid");
    let line = r#"{"text": "the ships was old", "pair": "a ships of some"}"#;
    let value = |model: &Path| {
        let predictor = Predictor::load(model, &Device::flex(), false).unwrap();
        predictor.predict(&[line], &mut |_| {}).unwrap().values[0]["value"].as_f64().unwrap()
    };
    let with_task = value(&model);
    assert!((0.0..=1.0).contains(&with_task), "{with_task}");
    // What sentence-transformers leaves says it too.
    fs::remove_file(model.join("task.json")).unwrap();
    assert!((value(&model) - with_task).abs() < 1e-6);

    let scores = "pair = \"pair\", label = \"score\"";
    let config = bench.config("loss = { kind = \"cosent\" }", scores, &[&binary]);
    let error = bench.run("error", &config, false, &mut Silent, &AtomicBool::new(false)).unwrap_err();
    let expected = "`task.loss` is \"binary-cross-entropy\"; expected labels from 0 to 1";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn an_interrupted_run_ends_with_the_same_bits() {
    let _held = crate::generator();
    let bench = Bench::new();
    let sets = ["train.epochs=2", "checkpoint.every=7"];
    for (kind, columns) in [("simcse", SCORED), ("softmax", CLASSIFIED)] {
        let task = format!("loss = {{ kind = \"{kind}\" }}, chunk = 6");
        let config = bench.config(&task, columns, &sets);
        let whole = format!("{kind}-whole");
        bench.run_whole(&whole, &config);
        let tensors = |run: &str| read_tensors(&bench.path(run).join("model/model.safetensors")).unwrap();
        for at in [3, 20] {
            let name = format!("{kind}-stopped-{at}");
            let stop = AtomicBool::new(false);
            let outcome = bench.run(&name, &config, false, &mut StopAfter(at, &stop), &stop).unwrap();
            assert_eq!(outcome, Outcome::Stopped { step: at });
            bench.run(&name, &config, true, &mut Silent, &AtomicBool::new(false)).unwrap();
            assert_eq!(tensors(&name), tensors(&whole), "{kind} stopped after step {at}");
        }
    }
}

#[test]
fn mistakes_are_one_line() {
    let bench = Bench::new();
    let scored_with_negatives = format!("{SCORED}, negatives = \"other\"");
    for (task, columns, expected) in [
        (
            "loss = { kind = \"cosent\" }",
            scored_with_negatives.as_str(),
            "`data.train.columns.negatives` is given; expected none with `task.loss.kind` = \"cosent\"",
        ),
        (
            "loss = { kind = \"cosent\" }",
            CLASSIFIED,
            "`data.train.columns.class` is given; expected none with `task.loss.kind` = \"cosent\"",
        ),
        ("loss = { kind = \"softmax\" }", SCORED, "`data.train.columns.class` is missing"),
        (
            "loss = { kind = \"softmax\" }",
            "pair = \"pair\", class = \"class\"",
            "`data.train.columns.label` is missing",
        ),
        (
            "loss = { kind = \"softmax\" }, matryoshka = { dims = [8] }",
            CLASSIFIED,
            "`task.matryoshka` is given; expected none with a classifier",
        ),
        ("loss = { kind = \"cosent\" }", "pair = \"pair\"", "`data.train.columns.label` is missing"),
        ("loss = { kind = \"triplet\" }", "pair = \"pair\"", "`data.train.columns.negatives` is missing"),
        ("loss = { kind = \"cosent\", temperature = 0.0 }", SCORED, "`task.loss.temperature` is 0"),
        ("loss = { kind = \"cosine\" }", SCORED, "`task.loss.max_score` is 1"),
        (
            "loss = { kind = \"cosent\" }, matryoshka = { dims = [64] }",
            SCORED,
            "`task.matryoshka.dims` is 64; expected at most 32",
        ),
        ("loss = { kind = \"cosent\" }, chunk = 0", SCORED, "`task.chunk` is 0"),
        ("loss = { kind = \"cosent\" }, min_score = nan", SCORED, "`task.min_score` is NaN"),
        ("loss = { kind = \"cosent\" }", "pair = \"pair\", label = \"text\"", "expected a finite number"),
    ] {
        let error = bench.error(task, columns);
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
    for kind in ["in-batch-negatives", "guided-negatives", "simcse"] {
        let task = format!("loss = {{ kind = \"{kind}\" }}");
        let error = bench.try_config(&task, SCORED, &["train.batch_size=1"]).unwrap_err().to_string();
        assert!(error.contains("`train.batch_size` is 1; expected 2 or more"), "{error}");
        bench.config(&task, SCORED, &["train.batch_size=2"]);
    }
    let with_negatives = "loss = { kind = \"in-batch-negatives\" }";
    bench.config(with_negatives, TRIPLETS, &["train.batch_size=1"]);
}
