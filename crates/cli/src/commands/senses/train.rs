//! `cloze senses train`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use cloze_evaluation::table;
use cloze_trainer::senses::{SENSES_FILE, VECTORS_FILE, learn};
use cloze_trainer::token_vectors::Layers;

use super::model::ComputeArgs;
use super::say_without_token;
use crate::failure::{WrongUsage, by_option};
use crate::model;
use crate::output::Output;
use crate::progress::Progress;
use crate::rows::BadRowArgs;

/// Train a vector for each sense in labelled sentences.
///
/// Example: cloze senses train --model google-bert/bert-base-uncased --data semcor.jsonl --out senses
///
/// The output folder has senses.json, the words with their senses and their counts, and senses.safetensors, the
/// vectors. It records its model: a different one is refused later.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Labelled sentences, JSON lines, optionally compressed with gzip or zstd.
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The output folder: new, empty, or written by an earlier `cloze senses train`, which is replaced.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The layers that a vector is made of: last, last-four-mean, last-four-concat, all, or a concatenation of
    /// numbered layers such as 0,6,-1, where 0 is the embeddings and -1 the last.
    #[arg(long, value_name = "LAYERS", default_value = "last-four-mean", allow_hyphen_values = true)]
    layers: Layers,
    /// The fraction of sentences held out for `cloze senses eval` on the same file: the last sentences of each
    /// tenth of the file.
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, value_parser = share)]
    held_out: f64,
    #[command(flatten)]
    bad: BadRowArgs,
    #[command(flatten)]
    compute: ComputeArgs,
}

fn share(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| (0.0..1.0).contains(value));
    value.ok_or_else(|| "expected a number from 0 and below 1".to_owned())
}

pub fn run(args: &Args) -> Result<()> {
    check_out(&args.out)?;
    let data = super::open(&args.data, &args.bad)?;
    let (embedder, model) = args.compute.load(&args.model, args.layers.clone())?;
    let mut progress = Progress::new("sentences", false);
    let shown = &mut |done: u64, all: u64| progress.show(done as usize, Some(done as f64 / all as f64));
    let learnt = args.compute.compute.run(|| learn(&embedder, model, &data, args.held_out, shown));
    progress.finish();
    let (vectors, report) = learnt.map_err(by_option)?;
    vectors.save(&args.out)?;
    say_without_token(report.without_token, "they are in no sense's vector");
    let grouped = |n: usize| table::grouped(n as u64);
    let facts = [
        ("sentences", table::grouped(vectors.origin.sentences)),
        ("words with a sense", table::grouped(vectors.origin.words)),
        ("different words", grouped(vectors.inventory.n_words())),
        ("their senses", grouped(vectors.inventory.n_senses())),
        ("features of a vector", grouped(vectors.model.width)),
        ("sentences held out", table::grouped(data.sentences - vectors.origin.sentences)),
    ];
    let mut output = Output::new();
    output.line(table::facts(&args.out.display().to_string(), facts))?;
    output.finish()
}

/// Sense vectors may replace only sense vectors.
fn check_out(out: &Path) -> Result<()> {
    let refused = |found: String| {
        let found = format!("{} {found}; choose a new or empty folder with --out", out.display());
        Err(WrongUsage::new(anyhow!(found)).into())
    };
    // The folder is made beside its place and moved there, for which it needs a name.
    if out.file_name().is_none() {
        return refused("has no name of its own".into());
    }
    if !out.exists() {
        return Ok(());
    }
    if !out.is_dir() {
        return refused("is a file".into());
    }
    let cannot = || format!("cannot read {}", out.display());
    for entry in fs::read_dir(out).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        if name != SENSES_FILE && name != VECTORS_FILE {
            return refused(format!("holds other files than sense vectors ({})", name.display()));
        }
    }
    Ok(())
}
