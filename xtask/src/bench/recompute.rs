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

/// A step to measure.
struct Step {
    preset: &'static str,
    batch: usize,
    length: usize,
    /// Whether with kept layers too: not where that would take 23 GB.
    kept: bool,
}

const STEPS: [Step; 8] = [
    Step { preset: "base", batch: 4, length: 128, kept: true },
    Step { preset: "base", batch: 16, length: 128, kept: true },
    Step { preset: "base", batch: 4, length: 512, kept: true },
    Step { preset: "base", batch: 16, length: 512, kept: true },
    Step { preset: "large", batch: 4, length: 128, kept: true },
    Step { preset: "large", batch: 16, length: 128, kept: true },
    Step { preset: "large", batch: 4, length: 512, kept: true },
    Step { preset: "large", batch: 16, length: 512, kept: false },
];

pub fn run(args: &Args) -> Result<()> {
    let executable = measure::build("cloze-trainer", "pretraining_step")?;
    let steps = args.steps.to_string();
    let mut rows = Vec::new();
    for Step { preset, batch, length, kept } in STEPS {
        if args.at_most.is_some_and(|most| batch * length > most) {
            continue;
        }
        let work = format!("BERT-{preset}, {batch} × {length}");
        eprintln!("{work}");
        let step = |how: &str| -> Result<Measured> {
            let (batch, length) = (batch.to_string(), length.to_string());
            let arguments = [preset, &batch, &length, "30522", &steps, &args.precision, "0", how];
            Measured::from(&mut measure::ours(&executable, &arguments))
        };
        let again = step("recompute")?;
        let kept = if kept { Some(step("keep")?) } else { None };
        let beside = |figure: fn(&Measured) -> f64| match &kept {
            Some(kept) => [report::short(figure(kept)), format!("{:.2} ×", figure(&again) / figure(kept))],
            None => ["–".into(), "–".into()],
        };
        let ([kept_ms, time], [kept_mb, memory]) = (beside(|m| m.ms), beside(|m| m.peak_mb));
        rows.push([
            work,
            kept_ms,
            report::short(again.ms),
            time,
            kept_mb,
            report::short(again.peak_mb),
            memory,
        ]);
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
