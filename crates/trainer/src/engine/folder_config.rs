//! A config that is stored in a run folder and compared with the stored one.

use crate::error::Result;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// A resolved config as stored in a run folder.
pub trait FolderConfig: Serialize + Sized {
    /// Keys or key prefixes that do not affect the weights: a run may be resumed with other values of them.
    const FREE_KEYS: &[&str];

    /// Reads a stored config.
    ///
    /// # Errors
    /// Those of reading a config.
    fn load(path: &Path) -> Result<Self>;

    /// The config as TOML, with every value spelled out.
    fn to_toml(&self) -> String {
        toml::to_string(self).expect("a config is tables of strings, numbers and lists, all of them TOML")
    }

    /// A BLAKE3 hash, in hexadecimal, of everything in the config that determines the trained weights.
    ///
    /// The contents of files that the config names are not part of it.
    fn fingerprint(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (key, value) in self.decisive() {
            hasher.update(format!("{key} = {value}\n").as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The differences between the configs in what determines the trained weights; empty if the fingerprints match.
    fn differences(&self, other: &Self) -> Vec<Difference> {
        let (ours, theirs) = (self.decisive(), other.decisive());
        let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        keys.into_iter()
            .filter(|key| ours.get(*key) != theirs.get(*key))
            .map(|key| Difference {
                key: key.clone(),
                ours: ours.get(key).cloned(),
                theirs: theirs.get(key).cloned(),
            })
            .collect()
    }

    /// The dotted keys and JSON values that determine the trained weights, in order.
    fn decisive(&self) -> BTreeMap<String, String> {
        let mut flat = flatten(self);
        flat.retain(|key, _| !self.is_free(key));
        flat
    }

    /// Whether evaluations influence the result, as with patience: then no key of `eval` is free.
    fn evaluations_decide(&self) -> bool {
        false
    }

    /// Whether a key does not affect the weights.
    fn is_free(&self, key: &str) -> bool {
        let decides = self.evaluations_decide() && key.starts_with("eval.");
        !decides && Self::FREE_KEYS.iter().chain(&["ranks."]).any(|free| key.starts_with(free))
    }
}

/// A key whose values differ between two configs; shown as `optimizer.lr: 0.001 became 0.002`.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The dotted key.
    pub key: String,
    /// The first config's value as JSON, if it has the key.
    pub ours: Option<String>,
    /// The other config's value as JSON, if it has the key.
    pub theirs: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        write!(f, "{}: {} became {}", self.key, show(&self.ours), show(&self.theirs))
    }
}

/// The dotted keys of `config`, with their values as JSON.
pub(crate) fn flatten(config: &impl Serialize) -> BTreeMap<String, String> {
    fn walk(prefix: &str, value: &serde_json::Value, flat: &mut BTreeMap<String, String>) {
        match value {
            serde_json::Value::Object(entries) => {
                for (key, value) in entries {
                    let dotted = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                    walk(&dotted, value, flat);
                }
            }
            leaf => {
                flat.insert(prefix.to_owned(), leaf.to_string());
            }
        }
    }
    let json = serde_json::to_value(config).expect("a config has string keys and no foreign types");
    let mut flat = BTreeMap::new();
    walk("", &json, &mut flat);
    flat
}
