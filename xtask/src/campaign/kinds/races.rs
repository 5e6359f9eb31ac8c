//! Two processes at one place.

use anyhow::Result;

use crate::campaign::case::{self, Case};
use crate::campaign::program::{Attempt, Ran};
use crate::campaign::world::RUNS;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.world.bring_data(case)?;
    match case.random.below(5) {
        0 | 1 => train(case),
        2 | 3 => convert(case),
        _ => others(case),
    }
}

/// What nobody can make sense of who did not know of the other process.
fn expect_sense(case: &mut Case<'_>, both: &[Ran; 2]) {
    for ran in both {
        let error = ran.error();
        case.expect(!error.contains("(os error"), format!("the system's words alone: {}", error.trim()));
    }
}

/// Two runs of one folder, or of one cache.
fn train(case: &mut Case<'_>) -> Result<()> {
    let run = &RUNS[case.random.below(RUNS.len())];
    let (whole, _) = case.world.whole(run)?;
    let apart = case.random.one_in(3);
    let outs = ["out", if apart { "out2" } else { "out" }];
    let both = case.both(outs.map(|out| run.attempt(out)))?;
    let done = both.iter().filter(|ran| ran.succeeded()).count();
    case.expect(done == if apart { 2 } else { 1 }, format!("{done} of two runs succeeded"));
    expect_sense(case, &both);
    if done > 0 {
        for out in &outs[..done] {
            case.expect_same(
                &whole.join("model"),
                &case.path(out).join("model"),
                "unequal bits of two runs at once",
            );
        }
    }
    Ok(())
}

/// Two conversions into one folder.
fn convert(case: &mut Case<'_>) -> Result<()> {
    let attempt = |out: &str| {
        Attempt::new(["convert", "--model", "seeds/mlm", "--max-shard-size", "6KB", "--out", out])
    };
    case.run(attempt("alone"))?;
    let both = case.both([attempt("out"), attempt("out")])?;
    let done = both.iter().filter(|ran| ran.succeeded()).count();
    case.expect(done == 1, format!("{done} of two conversions succeeded"));
    expect_sense(case, &both);
    case.expect_same(&case.path("alone"), &case.path("out"), "two conversions at once");
    Ok(())
}

/// Two writers of one file: the last one wins, and what there is is whole.
fn others(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/classification", "model")?;
    let attempt = match case.random.below(2) {
        0 => Attempt::new(["predict", "--model", "model", "--output", "out"])
            .input("\"the law\"\n".repeat(2_000)),
        _ => Attempt::new([
            "tokenizer",
            "train",
            "--model",
            "wordpiece",
            "--vocab-size",
            "90",
            "seeds/corpus.txt",
            "--out",
            "out",
        ]),
    };
    let mut alone = attempt.clone();
    for arg in &mut alone.args {
        if *arg == "out" {
            *arg = "alone".into();
        }
    }
    case.run(alone)?;
    let both = case.both([attempt.clone(), attempt])?;
    expect_sense(case, &both);
    let done = both.iter().any(Ran::succeeded);
    case.expect(done, "none of two writers succeeded");
    let [alone, out] = ["alone", "out"].map(|name| case.path(name));
    let same = match alone.is_dir() {
        true => case::difference(&alone, &out).is_none(),
        false => std::fs::read(&alone)? == std::fs::read(&out).unwrap_or_default(),
    };
    case.expect(same, "two writers at once leave something else than one does");
    Ok(())
}
