//! Every run in `configs/` resolves, reads back as itself, and says what its file claims.

use std::path::{Path, PathBuf};

use cloze_trainer::config::{FolderConfig, ModelPreset, RunConfig};
use cloze_trainer::finetune::FineTuneConfig;
use cloze_trainer::schedule::Schedule;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

fn load(name: &str) -> RunConfig {
    RunConfig::load(folder().join(name), &[]).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_config_resolves_and_reads_back_as_itself() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(path.extension().unwrap(), "toml", "configs/ holds configs only: {path:?}");
        if FineTuneConfig::is_at(&path).unwrap() {
            continue;
        }
        let config = RunConfig::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap(), config.run.name.as_str());

        let resolved = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(&resolved, config.to_toml()).unwrap();
        let again = RunConfig::load(resolved.path(), &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again, config);
        assert_eq!(again.fingerprint(), config.fingerprint());
        names.push(config.run.name);
    }
    names.sort();
    assert_eq!(names, ["bert-base", "bert-mini-corpus", "bert-tiny-sample", "domain-mlm", "roberta-base"]);
}

#[test]
fn every_fine_tuning_config_resolves_and_reads_back_as_itself() {
    let paths = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let paths: Vec<PathBuf> = paths.filter(|path| FineTuneConfig::is_at(path).unwrap()).collect();
    assert!(!paths.is_empty());
    for path in paths {
        let config = FineTuneConfig::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(path.file_stem().unwrap(), config.run.name.as_str());
        let resolved = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(&resolved, config.to_toml()).unwrap();
        let again = FineTuneConfig::load(resolved.path(), &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again, config);
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
    let rate = config.schedule.learning_rate(config.optimizer.lr, 505_000, config.train.steps);
    assert!((rate - 0.5e-4).abs() < 1e-9, "{rate}");
}

#[test]
fn roberta_base_is_the_papers() {
    let config = load("roberta-base.toml");
    assert_eq!(config.train.batch_size * config.train.accumulate, 8_192);
    assert_eq!((config.optimizer.beta2, config.optimizer.clip_norm), (0.98, 0.0));
    assert_eq!(config.schedule, Schedule::Linear { warmup_steps: 24_000, final_fraction: 0.0 });
}

#[test]
fn the_default_run_needs_nothing_from_outside_the_repository() {
    for file in load("bert-tiny-sample.toml").corpus.files {
        let path = folder().join("..").join(file);
        assert!(path.is_file(), "{} is missing", path.display());
    }
}
