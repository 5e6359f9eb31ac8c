//! Attention by length beside PyTorch's.

use anyhow::Result;

use super::measure::{self, Rounds, Row};
use super::report;
use crate::step;

/// What is measured: the row's name, `LEN PRECISION WINDOW`. PyTorch's fused kernel has no window.
const ROWS: [(&str, [&str; 3]); 10] = [
    ("128, f32", ["128", "f32", "all"]),
    ("512, f32", ["512", "f32", "all"]),
    ("2,048, f32", ["2048", "f32", "all"]),
    ("8,192, f32", ["8192", "f32", "all"]),
    ("8,192, f32, window 128", ["8192", "f32", "128"]),
    ("128, bf16", ["128", "bf16", "all"]),
    ("512, bf16", ["512", "bf16", "all"]),
    ("2,048, bf16", ["2048", "bf16", "all"]),
    ("8,192, bf16", ["8192", "bf16", "all"]),
    ("8,192, bf16, window 128", ["8192", "bf16", "128"]),
];

/// Steps of each side in a round, of which the best counts.
const STEPS: &str = "3";

pub fn run(args: &Rounds) -> Result<()> {
    let python = measure::python();
    let mut cargo = step::cargo("bench");
    cargo.args(["-p", "cloze-ops", "--features", "flex", "--bench", "attention", "--no-run"]);
    let bench = step::executable("build attention", &mut cargo, "attention")?;
    let rows = ROWS.map(|(work, [len, precision, window])| Row {
        work,
        ours: measure::ours(&bench, &["step", len, precision, window, STEPS]),
        peer: match window {
            "all" => {
                let peer = |python| measure::peer(python, "attention.py", &[len, precision, STEPS]);
                ("SDPA", python.as_ref().map(peer))
            }
            _ => ("–", None),
        },
        floor: 0.0,
    });
    let outcomes = measure::alternate(rows.into(), args)?;
    let mut text = report::beside(&outcomes, "tokens/s");
    text += &format!(
        "\n\nMedians of {} alternating rounds, each the best of {STEPS} steps. {}.",
        args.rounds,
        report::machine(python.as_ref())
    );
    println!("{text}");
    if args.write { report::write("attention", &text) } else { Ok(()) }
}
