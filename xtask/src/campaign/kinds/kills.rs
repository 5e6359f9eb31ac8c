//! Runs ended at random moments and resumed: the same bits come out.

use std::time::Duration;

use anyhow::Result;

use crate::campaign::case::Case;
use crate::campaign::program::{Signal, When};
use crate::campaign::world::{RUNS, Run};

/// Ends of a run before it is left in peace.
const ENDS: usize = 6;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let run = case.random.pick(&RUNS);
    let (whole, time) = case.world.whole(run)?;
    case.world.bring_data(case)?;
    let mut is_done = false;
    for _ in 0..1 + case.random.below(ENDS) {
        is_done = end(case, run, time)?;
        if is_done {
            break;
        }
    }
    if !is_done {
        let attempt = resuming(case, run);
        let ran = case.run(attempt)?;
        case.expect(ran.succeeded(), format!("{} does not go on: {}", run.name, last_line(&ran.error())));
    }
    case.expect_same(
        &whole.join("model"),
        &case.path("out/model"),
        format!("unequal bits of {} after kill and resume", run.name),
    );
    Ok(())
}

/// The run, going on from where it was.
fn resuming(case: &Case<'_>, run: &Run) -> crate::campaign::program::Attempt {
    let attempt = run.attempt("out");
    match case.path("out/config.toml").exists() {
        true => attempt.arg("--resume"),
        false => attempt,
    }
}

/// Starts the run and ends it somewhere; whether it was done before.
fn end(case: &mut Case<'_>, run: &Run, time: Duration) -> Result<bool> {
    let when = match case.random.below(6) {
        // While the result is written.
        0 => When::Exists("out/model.partial".into()),
        1 => When::Exists(format!("out/checkpoints/.partial-{:08}", 8 * (1 + case.random.below(9))).into()),
        2 => When::Exists("cache".into()),
        _ => When::After(time.mul_f64(case.random.share())),
    };
    let signal = match case.random.below(8) {
        0 => Signal::Terminate,
        1 => Signal::Interrupt,
        2 => Signal::Pause(Duration::from_millis(30)),
        _ => Signal::Kill,
    };
    let attempt = resuming(case, run).ending(when, signal);
    let ran = case.run(attempt)?;
    if let (Some(1), Some(_)) = (ran.code, ran.ended) {
        let error = ran.error();
        case.expect(
            error.contains("stopped after"),
            format!("a stopped run says something else: {}", last_line(&error)),
        );
    }
    if matches!(ran.code, Some(1 | 2)) && ran.ended.is_none() {
        case.fault(format!("{} fails without an attack: {}", run.name, last_line(&ran.error())));
    }
    Ok(ran.succeeded())
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or_default()
}
