//! Reading a config from its layers: the file, and the arguments over it.

use super::layers::{Node, TAG, Value};
use super::strict;
use super::validate::Check;
use crate::error::{Place, Result, TrainerError};
use serde::de::DeserializeOwned;
use std::path::Path;

/// Merges a config's `text`, from `file`, with the `sets` over it; `expand` puts in what presets stand for, layer
/// by layer. `name` is the run's where nothing else is.
pub(super) fn merge(
    text: &str,
    name: &str,
    file: &Place,
    sets: &[String],
    expand: impl Fn(&mut Node),
) -> Result<Node> {
    let mut merged = Node::parse(text, file)?;
    expand(&mut merged);
    if let Some(root) = merged.table_mut() {
        let run = root.entry("run".to_owned()).or_insert_with(|| Node::empty(file.clone()));
        if let Some(run) = run.table_mut() {
            run.entry("name".to_owned()).or_insert_with(|| Node::scalar(name, file.clone()));
        }
    }
    let mut sets = Node::parse_sets(sets)?;
    expand(&mut sets);
    merged.lay(sets);
    Ok(merged)
}

/// Reads a config's `text`, from `file`, with the `sets` over it as a `T`, which `finish` completes and checks. `name`
/// is the run's where nothing else is.
pub(crate) fn read<T: DeserializeOwned>(
    text: &str,
    name: &str,
    file: &Place,
    sets: &[String],
    finish: impl Fn(&mut T) -> Check,
) -> Result<T> {
    let merged = merge(text, name, file, sets, |_| {})?;
    strict::read(&merged, &[], finish)
}

/// Whether the file has a table of this name.
pub(crate) fn has_table(path: &Path, name: &str) -> Result<bool> {
    let root = Node::parse(&text(path)?, &Place::file(path))?;
    Ok(root.get(name).is_some())
}

/// The text of the config file at `path`.
pub(crate) fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(TrainerError::io("read config", path))
}

/// The name that the file at `path` gives a run.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The `kind` of the file's table of this name, empty where the table has none; none where the file has no such table.
pub(super) fn kind_of(path: &Path, name: &str) -> Result<Option<String>> {
    let root = Node::parse(&text(path)?, &Place::file(path))?;
    Ok(root.get(name).map(|table| match table.get(TAG).map(|kind| &kind.value) {
        Some(Value::Scalar(toml::Value::String(kind))) => kind.clone(),
        _ => String::new(),
    }))
}
