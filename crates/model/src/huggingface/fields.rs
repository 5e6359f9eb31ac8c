use super::sentence::read_json;
use crate::{ModelError, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Reads a `config.json` key by key. `null` counts as a missing key, and keys that are not asked for are ignored.
#[derive(Debug)]
pub struct Fields {
    path: PathBuf,
    map: Map<String, Value>,
}

impl Fields {
    pub(super) fn read(path: &Path) -> Result<Self> {
        Ok(Self { path: path.into(), map: read_json(path, "a model's configuration")? })
    }

    /// The file of this name in the same folder, if there is one.
    pub(super) fn beside(&self, name: &str) -> Result<Option<Self>> {
        let path = self.path.with_file_name(name);
        if path.is_file() { Self::read(&path).map(Some) } else { Ok(None) }
    }

    /// The value of a key, and none for `null`.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether the key is there, even with `null`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(super) fn size(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a whole number, 0 or more", |value| usize::try_from(value.as_u64()?).ok())
    }

    /// A size, or the default if the key is missing; none for `null`.
    pub(super) fn size_or(&self, key: &str, default: Option<usize>) -> Result<Option<usize>> {
        if self.map.contains_key(key) { self.size(key) } else { Ok(default) }
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
        let read = |value: &Value| serde_json::from_value(value.clone());
        self.value(key)
            .map(|value| read(value).map_err(|error| self.error(&format!("`{key}`: {error}"))))
            .transpose()
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
