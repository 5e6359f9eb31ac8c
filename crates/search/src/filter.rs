//! Conditions on rows' fields, and the lookup of ids and values.
//!
//! Rows are found by hashes of their ids and of their fields' values: 128 bits of BLAKE3, so equal hashes
//! mean equal texts. They are stored sorted in a file, each with its row, and looked up by binary search.

use crate::bits::Bits;
use serde_json::{Map, Value};
use std::fmt;
use std::str::FromStr;

/// Bytes of an entry: a hash and a row.
pub(crate) const ENTRY: usize = 24;

/// A condition: `key=value`, or `key!=value`.
///
/// A row meets the first if its field `key` is this text, a number, `true` or `false` written this way, or a
/// list with such an element. It meets the second if it does not meet the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The field's name.
    pub key: String,
    /// The value as text.
    pub value: String,
    /// Whether the condition is negated.
    pub is_not: bool,
}

/// A condition without `=`, or without a key before it.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no condition: expected key=value, or key!=value")]
pub struct NotACondition(String);

impl FromStr for Condition {
    type Err = NotACondition;

    fn from_str(text: &str) -> Result<Self, NotACondition> {
        let (key, value) = text.split_once('=').ok_or_else(|| NotACondition(text.into()))?;
        let (key, is_not) = key.strip_suffix('!').map_or((key, false), |key| (key, true));
        match key {
            "" => Err(NotACondition(text.into())),
            _ => Ok(Self { key: key.into(), value: value.into(), is_not }),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.key, if self.is_not { "!=" } else { "=" }, self.value)
    }
}

impl Condition {
    /// The rows, of `len`, that meet it according to the field entries.
    pub(crate) fn rows(&self, entries: &[u8], len: usize) -> Bits {
        let mut with = Bits::none(len);
        rows_of(entries, &hash(&self.key, &self.value)).for_each(|row| with.insert(row as usize));
        if !self.is_not {
            return with;
        }
        let mut without = Bits::all(len);
        without.remove(&with);
        without
    }
}

/// A hash by which rows are found.
pub(crate) type Hash = [u8; 16];

/// The hash of an id.
pub(crate) fn hash_id(id: &str) -> Hash {
    first_half(blake3::hash(id.as_bytes()))
}

fn hash(key: &str, value: &str) -> Hash {
    let mut hasher = blake3::Hasher::new();
    // The key with its length, so that it does not run into the value.
    hasher.update(&(key.len() as u64).to_le_bytes()).update(key.as_bytes()).update(value.as_bytes());
    first_half(hasher.finalize())
}

/// The stored half of a hash.
pub(crate) fn first_half(hash: blake3::Hash) -> Hash {
    let mut half = Hash::default();
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

/// The hashes of a row's fields.
pub(crate) fn hashes(fields: &Map<String, Value>) -> Vec<Hash> {
    let mut found = Vec::new();
    for (key, value) in fields {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            other => std::slice::from_ref(other),
        };
        for value in values {
            match value {
                Value::String(text) => found.push(hash(key, text)),
                Value::Number(_) | Value::Bool(_) => found.push(hash(key, &value.to_string())),
                _ => {}
            }
        }
    }
    // A list may have an element twice.
    found.sort_unstable();
    found.dedup();
    found
}

/// Hashes with their rows, in file form.
pub(crate) fn sorted(mut pairs: Vec<(Hash, u32)>) -> Vec<u8> {
    pairs.sort_unstable();
    let entry = |(hash, row): (Hash, u32)| hash.into_iter().chain(u64::from(row).to_le_bytes());
    pairs.into_iter().flat_map(entry).collect()
}

/// The rows of a hash.
pub(crate) fn rows_of(entries: &[u8], hash: &Hash) -> impl Iterator<Item = u32> {
    let entries = entries.as_chunks::<ENTRY>().0;
    let start = entries.partition_point(|entry| entry[..16] < hash[..]);
    let of_hash = entries[start..].iter().take_while(|entry| entry[..16] == hash[..]);
    of_hash
        .map(|entry| u32::from_le_bytes([entry[16], entry[17], entry[18], entry[19]]))
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_as_they_are_shown() {
        for (text, key, value, is_not) in [
            ("a=b", "a", "b", false),
            ("a!=b", "a", "b", true),
            ("a==b", "a", "=b", false),
            ("a=", "a", "", false),
        ] {
            let condition: Condition = text.parse().unwrap();
            assert_eq!(
                (condition.key.as_str(), condition.value.as_str(), condition.is_not),
                (key, value, is_not)
            );
            assert_eq!(condition.to_string(), text);
        }
        for text in ["", "a", "=b", "!=b"] {
            let error = text.parse::<Condition>().unwrap_err().to_string();
            assert_eq!(error, format!("{text:?} is no condition: expected key=value, or key!=value"));
        }
    }

    #[test]
    fn rows_are_found_by_their_values() {
        let rows = [
            r#"{"year": 1999, "tags": ["sea", "old", "sea"]}"#,
            r#"{"year": "1999", "read": true}"#,
            r#"{"year": 2000.5, "tags": "old", "other": {"year": 1999}, "none": null}"#,
        ];
        let mut pairs = Vec::new();
        for (row, text) in (0..).zip(rows) {
            let fields = serde_json::from_str(text).unwrap();
            pairs.extend(hashes(&fields).into_iter().map(|hash| (hash, row)));
        }
        let entries = sorted(pairs);
        let found = |text: &str| -> Vec<usize> {
            let bits = text.parse::<Condition>().unwrap().rows(&entries, 3);
            (0..3).filter(|row| bits.has(*row)).collect()
        };
        assert_eq!(found("year=1999"), [0, 1]);
        assert_eq!(found("year!=1999"), [2]);
        assert_eq!(found("year=2000.5"), [2]);
        assert_eq!(found("tags=sea"), [0]);
        assert_eq!(found("tags=old"), [0, 2]);
        assert_eq!(found("read=true"), [1]);
        assert!(found("none=null").is_empty() && found("yea=r1999").is_empty());
        assert_eq!(found("absent!=x"), [0, 1, 2]);
    }
}
