//! What a run of ours writes about itself: `metrics.jsonl`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The records in a run's folder.
pub fn read(folder: &Path) -> Result<Vec<Value>> {
    let path = folder.join("metrics.jsonl");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let records = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
    records.with_context(|| format!("{} is no list of records", path.display()))
}

/// All steps of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steps {
    /// The last one.
    pub steps: u64,
    /// Tokens that were trained on, without padding.
    pub tokens: f64,
    /// The time of steps alone: without reading, tokenizing, evaluations and saving.
    pub seconds: f64,
}

/// What the records say of the steps.
pub fn steps(records: &[Value]) -> Result<Steps> {
    let mut all = Steps { steps: 0, tokens: 0.0, seconds: 0.0 };
    for record in records.iter().filter(|record| record["event"] == "train") {
        let (Some(tokens), Some(rate)) = (record["tokens"].as_f64(), record["tokens_per_second"].as_f64())
        else {
            bail!("a training record without tokens: {record}");
        };
        // The rate is of the time in steps alone.
        all.seconds += (tokens - all.tokens) / rate;
        all.tokens = tokens;
        all.steps = record["step"].as_u64().unwrap_or(all.steps);
    }
    Ok(all)
}

/// The figures of each evaluation on a split.
pub fn evaluations<'a>(records: &'a [Value], split: &str) -> Vec<&'a Value> {
    let found = records.iter().filter(|record| record["event"] == "evaluation" && record["split"] == split);
    found.map(|record| &record["figures"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_steps_add_up() {
        let lines = r#"{"event":"train","step":50,"tokens":1000,"tokens_per_second":500.0}
{"event":"evaluation","step":60,"split":"dev","figures":{"figures":{"loss":2.5}}}
{"event":"train","step":100,"tokens":1600,"tokens_per_second":200.0}"#;
        let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(steps(&records).unwrap(), Steps { steps: 100, tokens: 1600.0, seconds: 5.0 });
        assert_eq!(evaluations(&records, "dev")[0]["figures"]["loss"], 2.5);
        assert!(evaluations(&records, "test").is_empty());
        assert!(steps(&[serde_json::json!({"event": "train"})]).is_err());
    }
}
