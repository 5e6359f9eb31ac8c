//! Pretraining steps beside PyTorch's.

use anyhow::Result;

use super::measure::{self, Rounds, Row};
use super::report;

/// What is measured: the row's name, the peer, `PRESET BATCH LEN VOCAB STEPS PRECISION`, the floor.
const ROWS: [(&str, &str, [&str; 6], f64); 5] = [
    ("BERT-mini, 16 × 128, f32", "transformers", ["mini", "16", "128", "30522", "8", "f32"], 3.0),
    ("BERT-mini, 16 × 128, bf16", "transformers", ["mini", "16", "128", "30522", "8", "bf16"], 2.5),
    ("BERT-base, 4 × 128, f32", "transformers", ["base", "4", "128", "30522", "8", "f32"], 1.25),
    ("BERT-base, 4 × 128, bf16", "transformers", ["base", "4", "128", "30522", "8", "bf16"], 1.25),
    ("BERT-mini, vocabulary 8,192, f32", "tuned", ["mini", "16", "128", "8192", "8", "f32"], 1.1),
];

pub fn run(args: &Rounds) -> Result<()> {
    let python = measure::python();
    let step = measure::build("cloze-trainer", "pretraining_step")?;
    let rows = ROWS.map(|(work, peer, shape, floor)| Row {
        work,
        ours: measure::ours(&step, &shape),
        peer: (
            peer,
            python.as_ref().map(|python| {
                let arguments: Vec<&str> = [peer].into_iter().chain(shape).collect();
                measure::peer(python, "pretrain.py", &arguments)
            }),
        ),
        floor,
    });
    let outcomes = measure::alternate(rows.into(), args)?;
    let mut text = report::beside(&outcomes, "tokens/s");
    text += "\n\nShare of the machine's rate in an f32 product of 1,024 × 1,024 × 1,024, over the whole step:\n\n";
    text += &report::table(
        ["work", "GFLOP", "GFLOP/s", "the product's", "share"],
        outcomes.iter().map(|outcome| {
            let rate = outcome.ours.gflop / outcome.ours.ms * 1e3;
            [
                outcome.work.to_owned(),
                report::short(outcome.ours.gflop),
                report::short(rate),
                report::short(outcome.ours.gflop_per_s),
                format!("{:.0} %", 100.0 * rate / outcome.ours.gflop_per_s),
            ]
        }),
    );
    text +=
        &format!("\n\nMedians of {} alternating rounds. {}.", args.rounds, report::machine(python.as_ref()));
    println!("{text}");
    if args.write { report::write("train", &text) } else { Ok(()) }
}
