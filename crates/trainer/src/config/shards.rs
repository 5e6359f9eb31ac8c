//! `train.shards`: a step cut into parts, for as many processes as are wanted.
//!
//! Parts are micro-batches: `batch_size = 64, shards = 8` is `batch_size = 8, accumulate = 8`, and is replaced by it when
//! a config is read. So every kind of run has shards, and a run does not depend on how they were written. A loss that compares
//! the examples of a micro-batch is another one in smaller micro-batches: there, the shards are parts of each.

use super::layers::{Node, Value};
use super::strict;
use super::validate::{Check, at_least, ensure};
use crate::error::{Result, TrainerError};

const SHARDS: &str = "shards";

/// The tables, and their kinds, of losses that compare the examples of a micro-batch. They have a key of this name.
const COMPARED: [(&str, &str); 2] = [("task", "embedding"), ("objective", "contrastive-views")];

/// Replaces `train.shards` of a config by smaller micro-batches, or by the parts of each if its loss compares their
/// examples.
///
/// # Errors
/// [`TrainerError::BadValue`] for a number of shards that the batch cannot be cut into.
pub(super) fn cut(root: &mut Node) -> Result<()> {
    let compared =
        COMPARED.iter().find(|(table, kind)| root.kind(table) == Some(kind)).map(|(table, _)| *table);
    let Some(train) = root.table_mut().and_then(|root| root.get_mut("train")?.table_mut()) else {
        return Ok(());
    };
    let Some(node) = train.remove(SHARDS) else { return Ok(()) };
    let refused = |expected: String| {
        let (place, key) = (node.place.clone(), format!("train.{SHARDS}"));
        Err(TrainerError::BadValue { place, key, found: strict::describe(&node), expected })
    };
    let shards = match whole(&node) {
        Some(1) => return Ok(()),
        Some(shards) if shards > 1 => shards,
        _ => return refused("a whole number from 1".into()),
    };
    if let Some(table) = compared {
        if let Some(table) = root.table_mut().and_then(|root| root.get_mut(table)?.table_mut()) {
            table.insert(SHARDS.into(), node);
        }
        return Ok(());
    }
    let mut is_cut = false;
    for key in ["batch_size", "batch_tokens"] {
        let Some(batch) = train.get_mut(key) else { continue };
        let Some(n) = whole(batch) else { continue };
        if n % shards != 0 {
            return refused(format!("a divisor of `train.{key}`, {n}"));
        }
        batch.value = Value::Scalar((n / shards).into());
        is_cut = true;
    }
    if !is_cut {
        return refused("`train.batch_size` beside it, which it divides".into());
    }
    let place = node.place.clone();
    let accumulate = train.entry("accumulate".into()).or_insert_with(|| Node::scalar(1, place));
    if let Some(n) = whole(accumulate).and_then(|n| n.checked_mul(shards)) {
        accumulate.value = Value::Scalar(n.into());
    }
    Ok(())
}

/// Checks how a batch is cut into parts: the number of items in a part, or the number of parts.
pub(crate) fn check_parts(
    (chunk_key, chunk): (&'static str, Option<usize>),
    (shards_key, shards): (&'static str, Option<usize>),
) -> Check {
    at_least(1, chunk_key, chunk.unwrap_or(1))?;
    at_least(1, shards_key, shards.unwrap_or(1))?;
    let is_one = chunk.is_none() || shards.is_none();
    let expected = format!("none beside `train.{SHARDS}`, whose parts are as large as they can be");
    ensure(is_one, chunk_key, chunk.unwrap_or_default(), expected)
}

fn whole(node: &Node) -> Option<i64> {
    match &node.value {
        Value::Scalar(toml::Value::Integer(n)) => Some(*n),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::layered::{ConfigFile, merge};
    use super::*;
    use crate::error::Place;

    fn cut_of(text: &str, sets: &[&str]) -> Result<(Option<i64>, Option<i64>)> {
        let file = ConfigFile::parse(text, "run", &Place::file("run.toml".as_ref()))?;
        let sets: Vec<String> = sets.iter().map(|set| (*set).into()).collect();
        let merged = merge(&file, &sets, |_| {})?;
        let train = merged.get("train").unwrap();
        assert_eq!(train.get(SHARDS), None);
        Ok(["batch_size", "accumulate"].map(|key| train.get(key).and_then(whole)).into())
    }

    #[test]
    fn shards_are_micro_batches() {
        let text = "train = { batch_size = 64, accumulate = 3 }";
        assert_eq!(cut_of(text, &[]).unwrap(), (Some(64), Some(3)));
        assert_eq!(cut_of(text, &["train.shards=1"]).unwrap(), (Some(64), Some(3)));
        assert_eq!(cut_of(text, &["train.shards=8"]).unwrap(), (Some(8), Some(24)));
        assert_eq!(cut_of("train = { batch_size = 6, shards = 2 }", &[]).unwrap(), (Some(3), Some(2)));
    }

    #[test]
    fn a_batch_whose_examples_are_compared_stays_whole() {
        let text = "task = { kind = \"embedding\" }\ntrain = { batch_size = 64, shards = 4 }";
        let file = ConfigFile::parse(text, "run", &Place::file("run.toml".as_ref())).unwrap();
        let merged = merge(&file, &[], |_| {}).unwrap();
        let number = |table: &str, key: &str| merged.get(table)?.get(key).and_then(whole);
        assert_eq!(number("task", SHARDS), Some(4));
        assert_eq!([number("train", SHARDS), number("train", "batch_size")], [None, Some(64)]);
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let told = |text: &str, set: &str| cut_of(text, &[set]).unwrap_err().to_string();
        let text = "train = { batch_size = 64 }";
        let line = told(text, "train.shards=3");
        assert!(
            line.contains("`train.shards`") && line.contains("a divisor of `train.batch_size`, 64"),
            "{line}"
        );
        for wrong in ["0", "-1", "many", "1.5", "[1]"] {
            let line = told(text, &format!("train.shards={wrong}"));
            assert!(line.contains("a whole number from 1"), "{line}");
        }
        let line = told("train = { steps = 1 }", "train.shards=2");
        assert!(line.contains("`train.batch_size` beside it"), "{line}");
    }
}
