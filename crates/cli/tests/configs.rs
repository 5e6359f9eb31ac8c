//! Every config runs for a few steps, and so do the README's commands for fine-tuning.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

#[cfg(feature = "hub")]
#[allow(dead_code, reason = "the hub's own tests have bad days too")]
#[path = "../../hub/tests/hub/server.rs"]
mod server;
mod workplace;

use std::path::Path;
use std::process::Command;
use workplace::Workplace;

/// What makes a pretraining run a matter of seconds: few steps of few sequences …
const SHORT: [&str; 5] = [
    "train.steps=2",
    "train.batch_size=2",
    "schedule.warmup_steps=1",
    "eval.max_examples=8",
    "eval.heldout_fraction=0.2",
];
/// … and, where there is no checkpoint to go on with, a vocabulary that the stand-in has words for and a network
/// of the same kind but small.
const SMALL: [&str; 5] =
    ["tokenizer.vocab_size=400", "model.d_model=32", "model.n_layers=2", "model.n_heads=2", "model.d_ff=64"];

#[test]
fn every_config_runs() {
    let place = Workplace::new();
    let configs = place.configs();
    let is_fine_tuning = |name: &String| configs[name].contains_key("task");
    // Some begin with what others leave.
    let (tuning, pretraining): (Vec<_>, Vec<_>) = configs.keys().partition(|name| is_fine_tuning(name));
    assert!(!tuning.is_empty() && !pretraining.is_empty());
    for name in pretraining.into_iter().chain(tuning) {
        let config = format!("configs/{name}.toml");
        let mut args = vec!["train", &config];
        let has = |section: &str, key: &str| configs[name][section].get(key).is_some();
        let mut sets = if is_fine_tuning(name) { vec!["train.epochs=1"] } else { SHORT.to_vec() };
        sets.extend(has("train", "accumulate").then_some("train.accumulate=2"));
        sets.extend(SMALL.iter().filter(|_| !is_fine_tuning(name) && !has("model", "path")));
        args.extend(sets.into_iter().flat_map(|set| ["--set", set]));
        let ran =
            Command::new(env!("CARGO_BIN_EXE_cloze")).args(&args).current_dir(place.root()).output().unwrap();
        assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
        let model = place.root().join("runs").join(name).join("model/model.safetensors");
        assert!(model.is_file(), "{name} leaves no model");
    }
}

/// The commands of a section of the README.
#[cfg(feature = "hub")]
fn commands(heading: &str) -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let section = readme.split("\n### ").find(|section| section.starts_with(heading)).unwrap();
    let blocks = section.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

#[test]
#[cfg(all(unix, feature = "hub"))]
fn the_readmes_commands_for_fine_tuning_run() {
    let place = Workplace::new();
    let model = place.root().join(workplace::CHECKPOINT);
    let files = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
    let bytes = files.map(|name| std::fs::read(model.join(name)).unwrap());
    let files: Vec<(&str, &[u8])> = files.into_iter().zip(bytes.iter().map(Vec::as_slice)).collect();
    let server = server::Server::new(&[("sentence-transformers/all-MiniLM-L6-v2", &files)]);
    let program = Path::new(env!("CARGO_BIN_EXE_cloze")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let commands = commands("Fine-tuning");
    assert!(commands.len() >= 3, "{commands:?}");
    for command in commands {
        let ran = Command::new("sh")
            .args(["-c", &command])
            .current_dir(place.root())
            .env("PATH", &path)
            .env("HF_HOME", place.root().join("hf"))
            .env("HF_ENDPOINT", &server.url)
            .env_remove("HF_HUB_OFFLINE")
            .output()
            .unwrap();
        assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}
