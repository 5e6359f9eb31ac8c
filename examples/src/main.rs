//! Runs an example: `cargo run --release --package cloze-examples -- linear-attention --steps 300`.

use anyhow::Result;
use burn::tensor::Device;
use clap::Parser;
use cloze_examples::{EXAMPLES, Example};
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::metrics::progress::StderrProgress;
use std::path::{Path, PathBuf};

/// Train a custom part with cloze's engine.
#[derive(Parser)]
struct Args {
    /// Which example.
    #[arg(value_parser = EXAMPLES.map(|example| example.name))]
    name: String,
    /// Steps of the run.
    #[arg(long, default_value_t = 300)]
    steps: u64,
    /// The run's folder (default: runs/examples/ and the example's name).
    #[arg(long)]
    out: Option<PathBuf>,
    /// Go on from the last good checkpoint in the run's folder.
    #[arg(long)]
    resume: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let out = args.out.unwrap_or_else(|| Path::new("runs/examples").join(&args.name));
    let options = RunOptions::new(Device::flex(), out).resume(args.resume);
    for Example { name, run, .. } in EXAMPLES {
        if name == args.name
            && let Outcome::Done { model, figures } = run(args.steps, &options, &mut StderrProgress::new())?
        {
            figures.iter().for_each(|(split, figures)| println!("{split}\n{figures}"));
            println!("{}", model.display());
        }
    }
    Ok(())
}
