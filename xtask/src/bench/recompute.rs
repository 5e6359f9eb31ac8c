//! What recomputed layers cost and save.

use anyhow::Result;

use super::measure::{self, Measured};
use super::report;

/// How to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Steps that a median is of.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// In what precision matrices are multiplied.
    #[arg(long, default_value = "bf16", value_parser = ["f32", "bf16"])]
    precision: String,
    /// Leave out steps with more tokens.
    #[arg(long, value_name = "TOKENS")]
    at_most: Option<usize>,
    /// Put the table into benches/README.md.
    #[arg(long, conflicts_with = "at_most")]
    write: bool,
}

const PRESETS: [&str; 2] = ["base", "large"];
const BATCHES: [usize; 2] = [4, 16];
const LENGTHS: [usize; 2] = [128, 512];

pub fn run(args: &Args) -> Result<()> {
    let executable = measure::build("cloze-trainer", "pretraining_step")?;
    let steps = args.steps.to_string();
    let mut rows = Vec::new();
    for preset in PRESETS {
        for (batch, length) in LENGTHS.into_iter().flat_map(|length| BATCHES.map(|batch| (batch, length))) {
            if args.at_most.is_some_and(|most| batch * length > most) {
                continue;
            }
            eprintln!("{preset} {batch} × {length}");
            let (batch, length) = (batch.to_string(), length.to_string());
            let step = |how: &str| -> Result<Measured> {
                let arguments = [preset, &batch, &length, "30522", &steps, &args.precision, "0", how];
                Measured::from(&mut measure::ours(&executable, &arguments))
            };
            let (kept, again) = (step("keep")?, step("recompute")?);
            rows.push([
                format!("BERT-{preset}, {batch} × {length}"),
                report::short(kept.ms),
                report::short(again.ms),
                format!("{:.2} ×", again.ms / kept.ms),
                report::short(kept.peak_mb),
                report::short(again.peak_mb),
                format!("{:.2} ×", again.peak_mb / kept.peak_mb),
            ]);
        }
    }
    let header =
        ["a step", "kept, ms", "recomputed, ms", "time", "kept, peak MB", "recomputed, peak MB", "memory"];
    let mut text = report::table(header, rows);
    text += &format!("\n\nVocabulary 30,522, {}. {}.", args.precision, report::machine(None));
    println!("{text}");
    if args.write {
        report::write("recompute", &text)?;
    }
    Ok(())
}
