use super::fields::Fields;
use crate::Result;
use serde_json::Value;
use std::path::Path;

/// The file with a model's settings of decoding.
pub(super) const GENERATION: &str = "generation_config.json";

/// A model's defaults for text generation, from `generation_config.json` or `config.json`.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct GenerationDefaults {
    /// The ids that end a text.
    pub stop_ids: Vec<i32>,
    /// Ids that are never written: the `bad_words_ids` of one piece each.
    pub forbidden_ids: Vec<i32>,
}

impl GenerationDefaults {
    /// Reads a folder's defaults; what neither file has is empty. Other settings, such as a temperature, are ignored:
    /// the caller chooses the search.
    ///
    /// # Errors
    /// [`ModelError::Io`](crate::ModelError::Io) and [`ModelError::Json`](crate::ModelError::Json) for a file that
    /// cannot be read, [`ModelError::Config`](crate::ModelError::Config) for an invalid id.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut found = Self::default();
        for file in [GENERATION, "config.json"] {
            let path = folder.join(file);
            if !path.is_file() {
                continue;
            }
            let fields = Fields::read(&path)?;
            if found.stop_ids.is_empty() {
                found.stop_ids =
                    fields.typed("eos_token_id", "an id, or a list of ids", ids)?.unwrap_or_default();
            }
            if found.forbidden_ids.is_empty() {
                let words = fields.typed("bad_words_ids", "a list of lists of ids", |value| {
                    value.as_array()?.iter().map(ids).collect::<Option<Vec<_>>>()
                })?;
                let single = words.unwrap_or_default().into_iter().filter(|word| word.len() == 1);
                found.forbidden_ids = single.flatten().collect();
            }
        }
        Ok(found)
    }
}

/// One id, or several.
fn ids(value: &Value) -> Option<Vec<i32>> {
    let id = |value: &Value| i32::try_from(value.as_u64()?).ok();
    match value {
        Value::Array(all) => all.iter().map(id).collect(),
        one => Some(vec![id(one)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_from_either_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let read = || GenerationDefaults::read(folder.path());
        assert_eq!(read().unwrap(), GenerationDefaults::default());
        write("config.json", r#"{"eos_token_id": 3, "bad_words_ids": [[7], [8, 9]]}"#);
        let found = read().unwrap();
        assert_eq!((found.stop_ids, found.forbidden_ids), (vec![3], vec![7]));
        write("generation_config.json", r#"{"eos_token_id": [4, 5], "temperature": 0.3}"#);
        assert_eq!(read().unwrap().stop_ids, [4, 5]);
        write("generation_config.json", r#"{"eos_token_id": -1}"#);
        let error = read().unwrap_err().to_string();
        assert!(error.contains("`eos_token_id` is -1, expected an id, or a list of ids"), "{error}");
    }
}
