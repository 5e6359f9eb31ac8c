//! `--seeds` over data that changes in between.

use anyhow::Result;
use serde_json::Value;

use crate::campaign::case::Case;
use crate::campaign::program::{Attempt, Signal, When};
use crate::campaign::world::{delimited, sentence};

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.world.bring_data(case)?;
    let attempt = |out: &str, seeds: &str| {
        Attempt::new([
            "train",
            "seeds/classification.toml",
            "--out",
            out,
            "--set",
            "train.epochs=2",
            "--seeds",
            seeds,
        ])
    };
    let first = attempt("out", "1,2");
    let first = match case.random.one_in(2) {
        true => first,
        false => {
            let after = std::time::Duration::from_millis(20 + case.random.below(400) as u64);
            first.ending(When::After(after), Signal::Kill)
        }
    };
    case.run(first)?;
    let changed = case.random.one_in(4);
    if !changed {
        let file = *case.random.pick(&["seeds/train.tsv", "seeds/dev.tsv"]);
        let rows: Vec<Vec<String>> =
            (0..20).map(|i| vec![sentence(i * 3 + 1), ["yes", "no"][i / 3 % 2].into()]).collect();
        case.write(file, delimited(&rows, "\t"))?;
    }
    let again = case.run(attempt("out", "1,2,3"))?;
    if !again.succeeded() {
        return Ok(());
    }
    case.run(attempt("fresh", "1,2,3"))?;
    let figures = |case: &Case<'_>, out: &str| -> Result<Value> {
        let mut value: Value = serde_json::from_slice(&case.read(format!("{out}/seeds.json"))?)?;
        without_times(&mut value);
        Ok(value)
    };
    let (mixed, fresh) = (figures(case, "out")?, figures(case, "fresh")?);
    case.expect(mixed == fresh, "--seeds shows figures that the data as it is does not give");
    Ok(())
}

/// Measured times and folders differ.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| {
                !["seconds", "time", "model", "folder", "tokens_per_second"].contains(&key.as_str())
            });
            map.values_mut().for_each(without_times);
        }
        Value::Array(list) => list.iter_mut().for_each(without_times),
        _ => {}
    }
}
