//! `cloze probe`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cloze_trainer::metrics::progress::StderrProgress;
use cloze_trainer::probing::{self, ProbeConfig};

use super::train::RUNS;
use crate::compute;
use crate::device::DeviceName;
use crate::failure::WrongUsage;
use crate::model;
use crate::output::{Output, say};

/// Probe what each layer of an encoder encodes, as set in a configuration file.
///
/// Computes the states of words in a treebank (CoNLL-U) and trains small probes on those of each layer: for
/// parts of speech, dependency relations, sentence length and word order, with control tasks and description
/// lengths; structural probes for dependency trees. A [geometry] section measures the anisotropy of vectors and
/// how corrections change sentence similarity.
///
/// Prints a table for each, and writes probe.html, a page with plots, and probe.json.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cloze probe configs/probe-ud-ewt.toml
  cloze probe configs/probe-ud-ewt.toml --set model.path=google-bert/bert-base-uncased --out runs/probe-bert
  cloze probe configs/probe-ud-ewt.toml --set probe.tasks='[\"part-of-speech\"]' --set model.layers='[0, 6]'")]
pub struct Args {
    /// The probe configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Override a key of the configuration, such as probe.hidden=0; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[arg(long, value_name = "DEVICE", help = compute::DEVICE)]
    device: Option<DeviceName>,
    /// The output folder (default: runs/ and the run's name).
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    let mut config = ProbeConfig::load(&args.config, &args.settings).map_err(WrongUsage::new)?;
    let path = &mut config.model.path;
    *path = model::folder(&path.to_string_lossy()).context("`model.path`")?;
    let device = compute::open(args.device)?;
    let folder = args.out.clone().unwrap_or_else(|| Path::new(RUNS).join(&config.run.name));
    let result = probing::probe(&config, &folder, &device, &mut StderrProgress::new())?;
    let mut output = Output::new();
    output.line(&result.text)?;
    output.flush()?;
    say(format_args!("report: {}", result.page.display()));
    Ok(())
}
