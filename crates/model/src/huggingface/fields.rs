use super::json_file::read_json;
use crate::{ModelError, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Reads a settings file key by key. `null` counts as a missing key. The keys that were asked for are remembered: what is
/// left over is judged by [`Keys`](super::keys::Keys).
#[derive(Debug)]
pub struct Fields {
    path: PathBuf,
    map: Map<String, Value>,
    asked: RefCell<BTreeSet<String>>,
}

/// The names of keys that a class of transformers takes for others (`attribute_map`): of each class, the name and the key.
/// Of those that are in no table, the key has several names in the reader, or the name is a key of its own in other versions.
pub(super) const ALIASES: &[(&str, &[(&str, &str)])] = &[
    ("bart", &[("hidden_size", "d_model"), ("num_attention_heads", "encoder_attention_heads")]),
    (
        "distilbert",
        &[("hidden_size", "dim"), ("num_attention_heads", "n_heads"), ("num_hidden_layers", "n_layers")],
    ),
    (
        "gpt2",
        &[
            ("hidden_size", "n_embd"),
            ("max_position_embeddings", "n_positions"),
            ("num_attention_heads", "n_head"),
            ("num_hidden_layers", "n_layer"),
        ],
    ),
    ("marian", &[("hidden_size", "d_model"), ("num_attention_heads", "encoder_attention_heads")]),
    ("mt5", T5),
    ("t5", T5),
    (
        "xlm",
        &[("hidden_size", "emb_dim"), ("num_attention_heads", "n_heads"), ("num_hidden_layers", "n_layers")],
    ),
    (
        "xlnet",
        &[
            ("hidden_size", "d_model"),
            ("n_token", "vocab_size"),
            ("num_attention_heads", "n_head"),
            ("num_hidden_layers", "n_layer"),
        ],
    ),
];

const T5: &[(&str, &str)] = &[
    ("head_dim", "d_kv"),
    ("hidden_size", "d_model"),
    ("num_attention_heads", "num_heads"),
    ("num_hidden_layers", "num_layers"),
];

impl Fields {
    pub(super) fn read(path: &Path) -> Result<Self> {
        Ok(Self::of(path, read_json(path, "a model's configuration")?))
    }

    /// A file that has been read.
    pub(super) fn of(path: &Path, map: Map<String, Value>) -> Self {
        Self { path: path.into(), map, asked: RefCell::default() }
    }

    /// As [`read`](Self::read); none for a file that is not there. One that is there and cannot be read is an error.
    pub(super) fn read_if_present(path: &Path) -> Result<Option<Self>> {
        if is_present(path) { Self::read(path).map(Some) } else { Ok(None) }
    }

    /// The keys that nothing has asked for, with their values.
    pub(super) fn left_over(&self) -> impl Iterator<Item = (&str, &Value)> {
        let asked = self.asked.borrow().clone();
        self.map
            .iter()
            .filter(move |(key, _)| !asked.contains(*key))
            .map(|(key, value)| (key.as_str(), value))
    }

    /// The keys that were asked for, whether they are there or not.
    #[cfg(test)]
    pub(super) fn asked(&self) -> BTreeSet<String> {
        self.asked.borrow().clone()
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All keys with their values.
    pub(super) fn map(&self) -> &Map<String, Value> {
        &self.map
    }

    pub(super) fn ask(&self, key: &str) {
        if !self.asked.borrow().contains(key) {
            self.asked.borrow_mut().insert(key.to_owned());
        }
    }

    /// The file of this name in the same folder, if there is one.
    pub(super) fn beside(&self, name: &str) -> Result<Option<Self>> {
        Self::read_if_present(&self.path.with_file_name(name))
    }

    /// The value of a key, and none for `null`.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.map.get(self.place(key)?).filter(|value| !value.is_null())
    }

    /// Whether the key is there, even with `null`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.place(key).is_some()
    }

    /// The name under which a key is there: its own, or one that the class has for it beside its own.
    fn place<'a>(&self, key: &'a str) -> Option<&'a str> {
        let model_type = self.map.get("model_type").and_then(Value::as_str).unwrap_or_default();
        let of_class = ALIASES.iter().find(|(class, _)| *class == model_type).map(|(_, aliases)| *aliases);
        let others =
            of_class.unwrap_or_default().iter().filter(|(_, own)| *own == key).map(|(alias, _)| *alias);
        let mut found = None;
        for name in std::iter::once(key).chain(others) {
            self.ask(name);
            found = found.or(self.map.contains_key(name).then_some(name));
        }
        found
    }

    pub(super) fn size(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a whole number, 0 or more", |value| usize::try_from(value.as_u64()?).ok())
    }

    /// A size, or the default if the key is missing; none for `null`.
    pub(super) fn size_or(&self, key: &str, default: Option<usize>) -> Result<Option<usize>> {
        if self.has(key) { self.size(key) } else { Ok(default) }
    }

    /// A size of 1 or more.
    pub(super) fn positive(&self, key: &str, default: usize) -> Result<usize> {
        match self.size(key)?.unwrap_or(default) {
            0 => Err(self.refuse(key, &0.into(), "at least 1")),
            size => Ok(size),
        }
    }

    /// A flag that must have this crate's value.
    pub(super) fn fixed(&self, key: &str, expected: bool) -> Result<()> {
        match self.flag(key)? {
            Some(found) if found != expected => {
                Err(self.refuse(key, &found.into(), if expected { "true" } else { "false" }))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", Value::as_str)
    }

    pub(super) fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.refuse(key, value, expected)),
        }
    }

    /// A value that has a structure of its own.
    pub(super) fn nested<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let read = |value: &Value| {
            serde_json::from_value(value.clone()).map_err(|error| {
                let message = error.to_string().replace("variant identifier", "the name of a kind");
                self.error(&format!("`{key}`: {message}"))
            })
        };
        self.value(key).map(read).transpose()
    }

    /// The error for an invalid value.
    pub(super) fn refuse(&self, key: &str, found: &Value, expected: &str) -> ModelError {
        ModelError::Config(format!("{}: `{key}` is {found}, expected {expected}", self.path.display()))
    }

    /// The error for values that contradict each other.
    pub(super) fn error(&self, message: &str) -> ModelError {
        ModelError::Config(format!("{}: {message}", self.path.display()))
    }
}

/// Whether there is a file of this name, if only a link to one that is gone: its settings were meant to be read.
pub(super) fn is_present(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
