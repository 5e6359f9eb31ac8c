//! Steps of objectives beside those of transformers' classes.

use anyhow::Result;

use super::measure::{self, Rounds, Row};
use super::report;

/// A row: what is measured, and its name and precision on both sides.
const OBJECTIVES: [(&str, &str, &str); 6] = [
    ("ELECTRA, 64 × 128, f32", "electra", "f32"),
    ("ELECTRA, 64 × 128, bf16", "electra", "bf16"),
    ("XLNet, 64 × 96, memory 32, f32", "xlnet", "f32"),
    ("XLNet, 64 × 96, memory 32, bf16", "xlnet", "bf16"),
    ("BART, 32 × 128, f32", "bart", "f32"),
    ("BART, 32 × 128, bf16", "bart", "bf16"),
];

/// Times the peer's rate that is wanted.
const GOAL: f64 = 2.0;

/// Steps of a round.
const STEPS: &str = "5";

pub fn run(args: &Rounds) -> Result<()> {
    let python = measure::python();
    let executable = measure::build("cloze-trainer", "objective_step")?;
    let rows = OBJECTIVES.map(|(work, objective, precision)| {
        let arguments = [objective, STEPS, precision];
        let peer = python.as_ref().map(|python| measure::peer(python, "objective.py", &arguments));
        Row { work, ours: measure::ours(&executable, &arguments), peer: ("transformers", peer), floor: GOAL }
    });
    let outcomes = measure::alternate(rows.into(), args)?;
    let text = format!(
        "{}\n\n4 layers of width 256, vocabulary 8,192, without dropout; bf16 is autocast on the peer's side. Medians of {} alternating rounds of {STEPS} \
         steps. {}.",
        report::beside(&outcomes, "tokens/s"),
        args.rounds,
        report::machine(python.as_ref())
    );
    println!("{text}");
    if args.write { report::write_class("steps", &text) } else { Ok(()) }
}
