//! `cloze train`.

use std::path::PathBuf;

use anyhow::Result;

use crate::device::{self, DeviceName};

/// Pretrain a model as a configuration file says.
///
/// Reads the corpus, trains or loads the tokenizer, prepares the data and trains; the run's folder
/// receives the resolved configuration, metrics, checkpoints and, at the end, the model as a
/// Hugging Face folder with its tokenizer.
///
/// Ctrl-C saves a checkpoint and ends; a second one ends at once. --resume goes on from the last
/// checkpoint, however the run ended, to the same weights as a run that was never interrupted.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cloze train configs/bert-tiny-sample.toml
  cloze train configs/bert-tiny-sample.toml --set train.steps=500 --out runs/short
  cloze train configs/bert-base.toml --device cuda:0 --out runs/base
  cloze train configs/bert-base.toml --device cuda:0 --out runs/base --resume")]
pub struct Args {
    /// The run's configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Override a key of the configuration, such as train.steps=500; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<String>,
    #[arg(long, value_name = "DEVICE", help = device::HELP)]
    device: Option<DeviceName>,
    /// The run's folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on from the last good checkpoint in the run's folder.
    #[arg(long)]
    resume: bool,
}

/// `KEY=VALUE`; the trainer checks both against the configuration.
fn setting(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("expected KEY=VALUE, such as train.steps=500".to_owned()),
    }
}

pub fn run(args: &Args) -> Result<()> {
    let _ = args;
    todo_wire()
}
