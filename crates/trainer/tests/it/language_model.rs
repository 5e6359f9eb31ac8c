//! Language models in training: what they learn, where a run may stop, what it leaves.

use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{load_published, read_tensors};
use cloze_tokenizer::Tokenizer;
use cloze_trainer::Result;
use cloze_trainer::config::LanguageModelConfig;
use cloze_trainer::engine::{FolderConfig, Outcome, RunOptions};
use cloze_trainer::language_model::{figure, train_language_model};
use cloze_trainer::metrics::progress::{RunProgress, Silent, Status};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

const CONFIG: &str = r#"
objective.kind = "left-to-right"
tokenizer.kind = "train-characters"
blocks.seq_len = 24
model = { n_layers = 1, d_model = 32, n_heads = 2, max_positions = 32, init_std = 0.1 }
train = { steps = 8, batch_size = 4 }
optimizer.lr = 5e-3
schedule.kind = "constant"
eval = { every = 4, heldout_fraction = 0.2, max_blocks = 40 }
log.every = 1
"#;

/// A folder with a text and the runs on it.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut text = String::new();
        for i in 0..150 {
            writeln!(text, "The ship number {i} sailed.\nNo ship sank.\n").unwrap();
        }
        std::fs::write(folder.path().join("text.txt"), text).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn config(&self, sets: &[&str]) -> LanguageModelConfig {
        let path = self.path("config.toml");
        let files = format!("corpus.files = [{:?}]\n", self.path("text.txt"));
        std::fs::write(&path, files + CONFIG).unwrap();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        LanguageModelConfig::load(&path, &sets).unwrap_or_else(|error| panic!("{error}"))
    }

    fn run(&self, out: &str, sets: &[&str]) -> Result<Outcome> {
        self.run_with(out, sets, false, &AtomicBool::new(false), &mut Silent)
    }

    fn run_with(
        &self,
        out: &str,
        sets: &[&str],
        resume: bool,
        stop: &AtomicBool,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        let options = RunOptions::new(Device::flex(), self.path(out))
            .cache(self.path("cache"))
            .resume(resume)
            .stop(stop);
        train_language_model(&self.config(sets), &options, progress)
    }

    /// The model's file, bit for bit.
    fn weights(&self, out: &str) -> Vec<u8> {
        std::fs::read(self.path(out).join("model/model.safetensors")).unwrap()
    }
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

#[test]
fn a_stopped_run_ends_with_the_same_bits() {
    let _generator = crate::generator();
    let bench = Bench::new();
    for (number, sets) in [
        vec!["model.hidden_dropout=0.1", "model.attention_dropout=0.1"],
        vec!["blocks.order=random", "blocks.documents=apart", "train.precision=bf16", "train.accumulate=2"],
        vec!["model.shape=llama", "model.n_kv_heads=1", "train.recompute=true", "train.workers=2"],
    ]
    .into_iter()
    .enumerate()
    {
        let [whole, parted] = ["whole", "parted"].map(|name| format!("{name}-{number}"));
        bench.run(&whole, &sets).unwrap();
        let stop = AtomicBool::new(false);
        let stopped = bench.run_with(&parted, &sets, false, &stop, &mut StopAfter(3, &stop)).unwrap();
        assert_eq!(stopped, Outcome::Stopped { step: 3 });
        bench.run_with(&parted, &sets, true, &AtomicBool::new(false), &mut Silent).unwrap();
        assert!(bench.weights(&whole) == bench.weights(&parted), "{sets:?}");
        // Another seed gives other weights.
        let other = [&sets[..], &["run.seed=7"]].concat();
        bench.run(&format!("other-{number}"), &other).unwrap();
        assert!(bench.weights(&whole) != bench.weights(&format!("other-{number}")), "{sets:?}");
    }
}

#[test]
fn a_model_learns_its_text_and_is_gone_on_with() {
    let _generator = crate::generator();
    let bench = Bench::new();
    let loss = |outcome: &Outcome, name| outcome.figures("heldout").unwrap().get(name).unwrap();
    let done = bench.run("first", &["train.steps=120", "eval.every=200", "optimizer.lr=1e-2"]).unwrap();
    let after = loss(&done, figure::LOSS);
    assert!(after < 1.0, "{after}");
    assert!((loss(&done, figure::PERPLEXITY) - after.exp()).abs() < 1e-9);
    // Every token is a character of one byte, but the end of each text.
    let bits = loss(&done, figure::BITS_PER_BYTE);
    assert!((bits - loss(&done, figure::BITS_PER_CHARACTER)).abs() < 1e-9);
    assert!((1.0..1.1).contains(&(bits / (after / std::f64::consts::LN_2))), "{bits} bits, {after} nats");

    // What the run leaves is a folder in Hugging Face's format.
    let folder = bench.path("first/model");
    let (config, model, report) =
        load_published::<GptConfig>(&folder, &mut ParamInit::new(&Device::flex(), 1)).unwrap();
    assert!(report.unexpected.is_empty() && config.tied);
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let end = tokenizer.token_to_id("<|endoftext|>").unwrap();
    assert_eq!(config.end_token_id, Some(end as usize));
    let ids: Vec<i32> =
        tokenizer.encode("No ship ", false).unwrap().ids.iter().map(|id| *id as i32).collect();
    let logits = model.logits(&[&ids[..]].into_iter().collect(), &Device::flex());
    let next = logits.narrow(0, ids.len() - 1, 1).argmax(1).into_scalar::<i32>();
    assert_eq!(tokenizer.id_to_token(next as u32), Some("s"));

    // A second run begins where the first one ended.
    let path = format!("model={{ path = {folder:?} }}");
    let sets = [&path, "tokenizer={ kind = \"checkpoint\" }", "train.steps=1", "optimizer.lr=1e-9"];
    let more = bench.run("second", &sets).unwrap();
    assert!((loss(&more, figure::LOSS) - after).abs() < 1e-4);
    let before = read_tensors(&folder.join("model.safetensors")).unwrap();
    let again = read_tensors(&bench.path("second/model").join("model.safetensors")).unwrap();
    assert!(before.keys().eq(again.keys()));

    let refused = |sets: &[&str]| bench.run("third", sets).unwrap_err().to_string();
    let long = [&path, "tokenizer={ kind = \"checkpoint\" }", "blocks.seq_len=40"];
    assert_eq!(refused(&long), "`blocks.seq_len` is 40; expected at most 32, the positions of `model.path`");
}

#[test]
fn what_cannot_be_trained_is_refused_in_one_line() {
    let _generator = crate::generator();
    let bench = Bench::new();
    let message = |sets: &[&str]| bench.run("refused", sets).unwrap_err().to_string();
    let no_piece = message(&["blocks.end=\"<end>\""]);
    assert_eq!(no_piece, "`blocks.end` is \"<end>\"; expected a piece of the tokenizer");
    let large = bench.config(&["model.d_model=65536", "model.n_layers=1000"]);
    let options = RunOptions::new(Device::flex(), bench.path("large")).memory(Some(1 << 30));
    let error = train_language_model(&large, &options, &mut Silent).unwrap_err().to_string();
    assert!(error.contains("`model.d_model` (65536)"), "{error}");
    assert!(!Path::new(&bench.path("large")).exists(), "{}", large.to_toml());
}
