//! Every run in `configs/` resolves, reads back as itself, and says what its file claims.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use cloze_data::DenoisingConfig;
use cloze_trainer::Place;
use cloze_trainer::captions::CaptionRun;
use cloze_trainer::config::{
    AwdLstmRun, ConfigFile, DenoisingRun, DenoisingRunConfig, ElmoRun, FolderConfig, LanguageModelRun,
    ModelPreset, PermutationRun, Pretraining, RunConfig,
};
use cloze_trainer::engine::Plan;
use cloze_trainer::engine::schedule::Schedule;
use cloze_trainer::finetune::FineTuneRun;
use cloze_trainer::images::{ContrastiveViewsRun, ImageRun, MaskedPatchesRun};
use cloze_trainer::probing::ProbeConfig;
use cloze_trainer::runs::{KINDS, RunKind, plan_of};
use cloze_trainer::translation::TranslationRun;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

fn paths() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

fn load(name: &str) -> RunConfig {
    RunConfig::load(folder().join(name), &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// The names of all configs of a kind. Each resolves, has its file's name, and reads back as itself.
fn read_back<K: RunKind + PartialEq + Debug>() -> Vec<String> {
    let mut names = Vec::new();
    for path in paths() {
        let file = ConfigFile::open(&path).unwrap();
        if !K::is_of(&file) || file.has("probe") {
            continue;
        }
        let config = K::read(&file, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap(), config.name());
        let resolved = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(&resolved, config.to_toml()).unwrap();
        let again = ConfigFile::open(resolved.path()).and_then(|file| K::read(&file, &[]));
        let again = again.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again, config);
        assert_eq!(again.fingerprint(), config.fingerprint());
        names.push(config.name().to_owned());
    }
    names.sort();
    names
}

#[test]
fn every_config_resolves_and_reads_back_as_itself() {
    let encoders = read_back::<Pretraining>();
    let expected = [
        "albert-mini-corpus",
        "bert-base",
        "bert-mini-corpus",
        "bert-tiny-sample",
        "distil-mini-corpus",
        "domain-mlm",
        "electra-mini-corpus",
        "modernbert-mini-corpus",
        "roberta-base",
        "spanbert-mini-corpus",
        "unilm-mini-corpus",
        "xlm-mini-multi30k",
    ];
    let (tuned, translating) = (read_back::<FineTuneRun>(), read_back::<TranslationRun>());
    assert_eq!(encoders, expected);
    let left_to_right = read_back::<LanguageModelRun>();
    let expected = ["gpt-char-sample", "gpt-mini-corpus", "gpt-shakespeare-char", "llama-mini-corpus"];
    assert_eq!(left_to_right, expected);
    let denoising = read_back::<DenoisingRun>();
    assert_eq!(denoising, ["bart-mini-corpus", "t5-mini-corpus"]);
    let others = [
        read_back::<AwdLstmRun>(),
        read_back::<ElmoRun>(),
        read_back::<PermutationRun>(),
        read_back::<ImageRun>(),
        read_back::<CaptionRun>(),
        read_back::<MaskedPatchesRun>(),
        read_back::<ContrastiveViewsRun>(),
        tuned,
        translating,
    ];
    assert!(others.iter().all(|names| !names.is_empty()), "{others:?}");
    let mut probes = 0;
    for path in paths() {
        let file = ConfigFile::open(&path).unwrap();
        if file.has("probe") {
            probes += 1;
            continue;
        }
        // Whatever the order of the kinds, one takes the file.
        let mut kinds = KINDS;
        let plan = plan_of(&file, &[], &kinds).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap(), plan.name());
        kinds.reverse();
        let plan = plan_of(&file, &[], &kinds).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap(), plan.name());
    }
    let named = [encoders.len(), left_to_right.len(), denoising.len()].iter().sum::<usize>();
    let named = named + others.iter().map(Vec::len).sum::<usize>();
    assert_eq!(named + probes, paths().len());
}

#[test]
fn an_objective_that_no_kind_has_is_told_with_all_that_there_are() {
    let text = "[objective]\nkind = \"left-to-rigth\"\n[blocks]\nseq_len = 8\n";
    let file = ConfigFile::parse(text, "x", &Place::file(Path::new("x.toml"))).unwrap();
    let Err(error) = plan_of(&file, &[], &KINDS) else { panic!("it is taken") };
    let message = error.to_string();
    assert!(
        message.starts_with("x.toml:2: `objective.kind` is \"left-to-rigth\"; expected one of"),
        "{message}"
    );
    assert!(message.ends_with("did you mean \"left-to-right\"?"), "{message}");
}

#[test]
fn a_task_that_no_kind_has_is_told_with_all_that_there_are() {
    let text = "[task]\nkind = \"image-clasification\"\n";
    let file = ConfigFile::parse(text, "x", &Place::file(Path::new("x.toml"))).unwrap();
    let Err(error) = plan_of(&file, &[], &KINDS) else { panic!("it is taken") };
    let message = error.to_string();
    assert!(
        message.starts_with("x.toml:2: `task.kind` is \"image-clasification\"; expected one of"),
        "{message}"
    );
    assert!(message.contains("\"tagging\"") && message.contains("\"classification\""), "{message}");
    assert!(message.ends_with("did you mean \"image-classification\"?"), "{message}");
}

#[test]
fn the_denoising_configs_have_the_papers_noise() {
    let load = |name: &str| {
        DenoisingRunConfig::load(folder().join(name), &[]).unwrap_or_else(|error| panic!("{error}"))
    };
    assert_eq!(load("bart-mini-corpus.toml").denoising, DenoisingConfig::default());
    let t5 = load("t5-mini-corpus.toml");
    assert!(
        matches!(t5.denoising, DenoisingConfig::T5 { density: 0.15, mean_span: 3.0 }),
        "{:?}",
        t5.denoising
    );
}

#[test]
fn every_probing_config_resolves_and_reads_back_as_itself() {
    let is_probe = |path: &PathBuf| ConfigFile::open(path).unwrap().has("probe");
    let paths: Vec<PathBuf> = paths().into_iter().filter(is_probe).collect();
    assert!(!paths.is_empty());
    for path in paths {
        let config = ProbeConfig::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap(), config.run.name.as_str());
        let resolved = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(&resolved, config.to_toml()).unwrap();
        assert_eq!(ProbeConfig::load(resolved.path(), &[]).unwrap(), config);
    }
}

#[test]
fn bert_base_is_the_papers() {
    let config = load("bert-base.toml");
    let model = config.model.as_new().unwrap();
    assert_eq!(model.preset, Some(ModelPreset::Base));
    assert_eq!((model.n_layers, model.d_model, model.n_heads, model.d_ff), (12, 768, 12, 3072));
    assert_eq!(config.train.batch_size * config.train.accumulate, 256);
    // Half-way down the decay, at step (1,000,001 + 10,000) / 2, the rate is half the peak.
    let rate = config.common.schedule.learning_rate(config.common.optimizer.lr, 505_000, config.train.steps);
    assert!((rate - 0.5e-4).abs() < 1e-9, "{rate}");
}

#[test]
fn roberta_base_is_the_papers() {
    let config = load("roberta-base.toml");
    assert_eq!(config.train.batch_size * config.train.accumulate, 8_192);
    assert_eq!((config.common.optimizer.beta2, config.common.optimizer.clip_norm), (0.98, 0.0));
    assert_eq!(
        config.common.schedule,
        Schedule::Linear { warmup_steps: 24_000, warmup_fraction: None, final_fraction: 0.0 }
    );
}

#[test]
fn the_default_run_needs_nothing_from_outside_the_repository() {
    for file in &load("bert-tiny-sample.toml").corpus.files {
        let path = folder().join("..").join(file);
        assert!(path.is_file(), "{} is missing", path.display());
    }
}
