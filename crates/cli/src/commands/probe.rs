//! `cloze probe`.

use anyhow::{Context, Result};
use cloze_trainer::metrics::progress::StderrProgress;
use cloze_trainer::probing::{self, ProbeConfig};

use crate::failure::WrongUsage;
use crate::model;
use crate::output::{Output, say};
use crate::run_args::{For, RunArgs};

/// Probe what each layer of an encoder encodes, as set in a configuration file.
///
/// Example: cloze probe configs/probe-ud-ewt.toml
///
/// Computes the states of words in a treebank (CoNLL-U) and trains small probes on those of each layer: for
/// parts of speech, dependency relations, sentence length and word order, with control tasks and description
/// lengths; structural probes for dependency trees. A [geometry] section measures the anisotropy of vectors and
/// how corrections change sentence similarity.
///
/// Prints a table for each, and writes probe.html, a page with plots, and probe.json.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze probe configs/probe-ud-ewt.toml --set model.path=google-bert/bert-base-uncased --out runs/probe-bert
  cloze probe configs/probe-ud-ewt.toml --set probe.tasks='[\"part-of-speech\"]' --set model.layers='[0, 6]'")]
pub struct Args {
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let file = args.run.file.open(For::Probe)?;
    let mut config = ProbeConfig::read(&file, &args.run.file.settings).map_err(WrongUsage::new)?;
    let path = &mut config.model.path;
    *path = model::folder(&path.to_string_lossy()).context("`model.path`")?;
    let device = args.run.device.open()?;
    let folder = args.run.folder(&config.run.name);
    let result = probing::probe(&config, &folder, &device, &mut StderrProgress::new())?;
    let mut output = Output::new();
    output.line(&result.text)?;
    output.flush()?;
    say(format_args!("report: {}", result.page.display()));
    Ok(())
}
