//! The keys of a folder's `config.json` that a GGUF file has a place for.

use crate::{GgufError, Result};
use serde_json::{Map, Value};

/// A `config.json`, asked for its keys.
#[derive(Clone, Copy)]
pub(crate) struct Config<'a>(pub &'a Map<String, Value>);

impl<'a> Config<'a> {
    /// The value of the first of these keys that has one.
    pub fn value(&self, keys: &[&'static str]) -> Option<(&'static str, &'a Value)> {
        keys.iter().find_map(|key| Some((*key, self.0.get(*key).filter(|value| !value.is_null())?)))
    }

    pub fn refuse(&self, key: &str, expected: &str) -> GgufError {
        let found = self.0.get(key).map_or_else(|| "missing".into(), Value::to_string);
        GgufError::Export(format!("config.json: `{key}` is {found}; expected {expected}"))
    }

    fn typed<T>(
        &self,
        keys: &[&'static str],
        expected: &str,
        of: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        self.value(keys).map(|(key, value)| of(value).ok_or_else(|| self.refuse(key, expected))).transpose()
    }

    /// A whole number above 0, under the first of these keys that is there.
    pub fn size(&self, keys: &[&'static str], default: usize) -> Result<usize> {
        let positive = |value: &Value| value.as_u64().filter(|size| *size > 0)?.try_into().ok();
        Ok(self.typed(keys, "a whole number above 0", positive)?.unwrap_or(default))
    }

    pub fn number(&self, keys: &[&'static str], default: f64) -> Result<f64> {
        Ok(self.typed(keys, "a number", Value::as_f64)?.unwrap_or(default))
    }

    pub fn text(&self, keys: &[&'static str]) -> Result<Option<&'a str>> {
        self.typed(keys, "a text", Value::as_str)
    }

    /// Refuses a key that is neither missing nor this value, with which alone llama.cpp computes.
    pub fn only(&self, key: &'static str, value: Value) -> Result<()> {
        match self.value(&[key]) {
            Some((_, found)) if *found != value => {
                Err(self.refuse(key, &format!("{value}, which is what llama.cpp computes with")))
            }
            _ => Ok(()),
        }
    }
}
