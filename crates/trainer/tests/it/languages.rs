//! Several languages: where a run may stop, what it leaves, and what is refused.

use crate::notes::Notes;
use crate::stop_after::StopAfter;
use burn::tensor::Device;
use cloze_model::huggingface::{Family, PretrainedFolder};
use cloze_trainer::Result;
use cloze_trainer::config::RunConfig;
use cloze_trainer::engine::{Outcome, Plan, RunOptions};
use cloze_trainer::metrics::progress::{RunProgress, Silent};
use cloze_trainer::pretraining::pretrain;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// A folder with texts of two languages, their translations, and the runs on them.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        for (name, words) in [
            ("en", ["the ship", "sails home", "and rests"]),
            ("de", ["das Schiff", "fährt heim", "und ruht"]),
        ] {
            let line = |i: usize| format!("{} {i} {}, {}.", words[0], words[1], words[2]);
            write(name, (0..120).map(|i| line(i) + "\n\n").collect());
            write(&format!("pairs.{name}"), (0..80).map(|i| line(i) + "\n").collect());
        }
        write("empty", "\n\n".into());
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn config(&self, sets: &[&str]) -> RunConfig {
        let [en, de, pairs_en, pairs_de] = ["en", "de", "pairs.en", "pairs.de"].map(|name| self.path(name));
        let text = format!(
            r#"
            objective.kind = "translation-language-model"
            objective.parallel = [{{ languages = ["en", "de"], text = {{ source = [{pairs_en:?}], target = [{pairs_de:?}] }} }}]
            corpus.languages = [{{ name = "en", files = [{en:?}] }}, {{ name = "de", files = [{de:?}] }}]
            tokenizer = {{ kind = "train-wordpiece", vocab_size = 120, lowercase = false }}
            examples = {{ seq_len = 32, pairs.kind = "full-sentences" }}
            model = {{ n_layers = 1, d_model = 32, n_heads = 2, d_ff = 64, max_positions = 32, language_embeddings = true }}
            train = {{ steps = 8, batch_size = 4 }}
            optimizer.lr = 5e-3
            schedule.kind = "constant"
            eval = {{ every = 4, heldout_fraction = 0.2, max_examples = 20 }}
            log.every = 1
            "#
        );
        let path = self.path("config.toml");
        std::fs::write(&path, text).unwrap();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        RunConfig::load(&path, &sets).unwrap_or_else(|error| panic!("{error}"))
    }

    fn run(&self, out: &str, sets: &[&str], resume: bool, progress: &mut dyn RunProgress) -> Result<Outcome> {
        self.run_with(out, sets, resume, &AtomicBool::new(false), progress)
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
        pretrain(&self.config(sets), &options, progress)
    }

    /// The model's file, bit for bit.
    fn weights(&self, out: &str) -> Vec<u8> {
        std::fs::read(self.path(out).join("model/model.safetensors")).unwrap()
    }
}

#[test]
fn a_stopped_run_ends_with_the_same_bits() {
    let _generator = crate::generator();
    let bench = Bench::new();
    for (number, sets) in [
        vec!["train.accumulate=2"],
        vec!["model.language_embeddings=false", "train.workers=2", "corpus.sampling_alpha=0.3"],
        vec!["objective.kind=masked", "train.precision=bf16"],
    ]
    .into_iter()
    .enumerate()
    {
        let [whole, parted] = ["whole", "parted"].map(|name| format!("{name}-{number}"));
        bench.run(&whole, &sets, false, &mut Silent).unwrap();
        let stop = AtomicBool::new(false);
        let stopped = bench.run_with(&parted, &sets, false, &stop, &mut StopAfter(3, &stop)).unwrap();
        assert!(matches!(stopped, Outcome::Stopped { step: 3 }), "{stopped:?}");
        bench.run(&parted, &sets, true, &mut Silent).unwrap();
        assert!(bench.weights(&whole) == bench.weights(&parted), "{sets:?}");
    }
}

#[test]
fn a_run_tells_what_was_drawn_and_saves_a_row_for_each_language() {
    let _generator = crate::generator();
    let bench = Bench::new();
    let mut notes = Notes::default();
    bench.run("run", &["train.steps=40"], false, &mut notes).unwrap();
    let words = notes.0.split_whitespace().collect::<Vec<_>>().join(" ");
    for heading in
        ["language ┆ documents ┆ held out", "translations ┆ pairs", "trained on ┆ examples ┆ tokens"]
    {
        assert!(words.contains(heading), "{}", notes.0);
    }
    // Two languages of as many sentences: each is drawn half of the time, and every second batch is of translations.
    assert!(words.contains("50.0 % ┆ 50.0 %") && words.contains("│ en-de ┆ "), "{}", notes.0);
    let saved = PretrainedFolder::open(&bench.path("run/model")).unwrap().config;
    assert_eq!(saved.encoder.n_token_types, 2);
    assert_eq!(saved.languages, ["en", "de"]);

    // It is gone on with where the languages are as many.
    let path = format!("model={{ path = {:?}, language_embeddings = true }}", bench.path("run/model"));
    bench.run("on", &[&path, "tokenizer.kind=checkpoint", "train.steps=2"], false, &mut Silent).unwrap();
    let en = bench.path("en");
    let one = format!("corpus.languages=[{{ name = \"en\", files = [{en:?}] }}]");
    let sets = [path.as_str(), "tokenizer.kind=checkpoint", "objective.kind=masked", &one];
    let error = bench.run("one", &sets, false, &mut Silent).unwrap_err().to_string();
    assert_eq!(
        error,
        "`model.language_embeddings` is true; expected false, or as many languages in `corpus.languages` as the checkpoint \
         has token types: 2, not 1"
    );
}

/// With `model.family = "xlm"` the folder is an XLM's, which is gone on with.
#[test]
fn an_xlm_is_saved_as_one() {
    let _generator = crate::generator();
    let bench = Bench::new();
    let xlm = ["model.family=xlm", "model.d_ff=128", "train.steps=2"];
    bench.run("xlm", &xlm, false, &mut Silent).unwrap();
    let saved = || PretrainedFolder::open(&bench.path("xlm/model")).unwrap().config;
    assert_eq!(saved().family, Family::XLM);
    assert_eq!(saved().architectures, ["XLMWithLMHeadModel"]);
    assert_eq!((saved().encoder.n_token_types, saved().encoder.language), (2, Some(0)));
    assert_eq!(saved().languages, ["en", "de"]);
    let path = format!("model={{ path = {:?}, language_embeddings = true }}", bench.path("xlm/model"));
    bench.run("on", &[&path, "tokenizer.kind=checkpoint", "train.steps=2"], false, &mut Silent).unwrap();
    let on = PretrainedFolder::open(&bench.path("on/model")).unwrap().config;
    assert_eq!((on.encoder, on.languages), (saved().encoder, saved().languages));
}

#[test]
fn translations_are_inputs_of_the_run_and_make_its_data() {
    let bench = Bench::new();
    let inputs = bench.config(&[]).inputs().unwrap();
    let names: Vec<&str> =
        inputs.iter().filter_map(|input| Path::new(&input.path).file_name()?.to_str()).collect();
    assert_eq!(names, ["en", "de", "pairs.en", "pairs.de"]);
}

#[test]
fn a_language_without_text_is_named() {
    let bench = Bench::new();
    let (en, empty) = (bench.path("en"), bench.path("empty"));
    let set = format!(
        "corpus.languages=[{{ name = \"en\", files = [{en:?}] }}, {{ name = \"de\", files = [{empty:?}] }}]"
    );
    let error = bench.run("none", &[&set], false, &mut Silent).unwrap_err().to_string();
    assert!(
        error.starts_with("\"de\" of `corpus.languages` has no text: ")
            && error.ends_with("or leave the language out"),
        "{error}"
    );
}
