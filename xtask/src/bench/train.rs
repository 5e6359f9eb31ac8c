//! Pretraining steps beside PyTorch's.

use anyhow::Result;

use super::measure::{self, Rounds, Row};
use super::processor::Processor;
use super::report;

/// What is measured.
struct Step {
    work: &'static str,
    peer: &'static str,
    /// `PRESET BATCH LEN VOCAB STEPS PRECISION`.
    shape: [&'static str; 6],
    /// Times the peer's rate, with AMX, AVX-512 and AVX2.
    goals: [f64; 3],
    /// Of the rate of an FP32 product, in percent; a step in bf16 is measured by its peer alone.
    share: Option<u8>,
}

const STEPS: [Step; 5] = [
    Step {
        work: "BERT-mini, 16 × 128, f32",
        peer: "transformers",
        shape: ["mini", "16", "128", "30522", "8", "f32"],
        goals: [4.0, 7.64, 3.0],
        share: Some(70),
    },
    Step {
        work: "BERT-mini, 16 × 128, bf16",
        peer: "transformers",
        shape: ["mini", "16", "128", "30522", "8", "bf16"],
        goals: [4.0, 5.38, 2.5],
        share: None,
    },
    Step {
        work: "BERT-base, 4 × 128, f32",
        peer: "transformers",
        shape: ["base", "4", "128", "30522", "8", "f32"],
        goals: [1.6, 2.75, 1.4],
        share: Some(80),
    },
    Step {
        work: "BERT-base, 4 × 128, bf16",
        peer: "transformers",
        shape: ["base", "4", "128", "30522", "8", "bf16"],
        goals: [2.5, 1.89, 1.25],
        share: None,
    },
    Step {
        work: "BERT-mini, vocabulary 8,192, f32",
        peer: "tuned",
        shape: ["mini", "16", "128", "8192", "8", "f32"],
        goals: [1.1, 2.36, 1.1],
        share: Some(70),
    },
];

pub fn run(args: &Rounds) -> Result<()> {
    let python = measure::python();
    let processor = Processor::here();
    let executable = measure::build("cloze-trainer", "pretraining_step")?;
    let rows = STEPS.map(|Step { work, peer, shape, goals, .. }| Row {
        work,
        ours: measure::ours(&executable, &shape),
        peer: (
            peer,
            python.as_ref().map(|python| {
                let arguments: Vec<&str> = [peer].into_iter().chain(shape).collect();
                measure::peer(python, "pretrain.py", &arguments)
            }),
        ),
        floor: processor.goal(goals),
    });
    let outcomes = measure::alternate(rows.into(), args)?;
    let mut text = report::beside(&outcomes, "tokens/s");
    text += "\n\nShare of the machine's rate in an f32 product of 1,024 × 1,024 × 1,024, over the whole step:\n\n";
    text += &report::table(
        ["work", "GFLOP", "GFLOP/s", "the product's", "share", "at least"],
        outcomes.iter().map(|outcome| {
            let rate = outcome.ours.gflop / outcome.ours.ms * 1e3;
            let goal = STEPS.iter().find(|step| step.work == outcome.work).and_then(|step| step.share);
            [
                outcome.work.to_owned(),
                report::short(outcome.ours.gflop),
                report::short(rate),
                report::short(outcome.ours.gflop_per_s),
                format!("{:.0} %", 100.0 * rate / outcome.ours.gflop_per_s),
                goal.map_or("–".into(), |share| format!("{share} %")),
            ]
        }),
    );
    text +=
        &format!("\n\nMedians of {} alternating rounds. {}.", args.rounds, report::machine(python.as_ref()));
    println!("{text}");
    if args.write { report::write_class("train", &text) } else { Ok(()) }
}
