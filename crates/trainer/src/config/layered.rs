//! Reads a config from its layers: the file, overridden by arguments.

use super::layers::Node;
use super::validate::Check;
use super::{shards, strict};
use crate::error::{Place, Result, TrainerError};
use std::path::Path;

/// A parsed config file, not yet read as a config: its sections determine which kind of run it describes.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// The run's name if the file gives none.
    name: String,
    root: Node,
}

impl ConfigFile {
    /// Opens the file at `path`, which also names the run.
    ///
    /// # Errors
    /// [`TrainerError::Io`] for an unreadable file, [`TrainerError::ConfigSyntax`] for one that is not valid
    /// TOML.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(TrainerError::io("read config", path))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&text, &name, &Place::file(path))
    }

    /// Parses the text of a file; `name` is the run's if the text gives none.
    ///
    /// # Errors
    /// [`TrainerError::ConfigSyntax`] with the line.
    pub fn parse(text: &str, name: &str, file: &Place) -> Result<Self> {
        Ok(Self { name: name.into(), root: Node::parse(text, file)? })
    }

    /// Whether it has a table, or any other value, of this name.
    pub fn has(&self, name: &str) -> bool {
        self.root.get(name).is_some()
    }

    /// The `kind` of a table: empty if the table has none; `None` if there is no such table.
    pub fn kind_of(&self, table: &str) -> Option<&str> {
        self.root.kind(table)
    }

    /// Where a key is given.
    pub(crate) fn place_of(&self, key: &str) -> Place {
        self.root.place_of(key)
    }
}

/// Merges a config file with the `sets` over it; `expand` expands presets, layer by layer.
pub(super) fn merge(file: &ConfigFile, sets: &[String], expand: impl Fn(&mut Node)) -> Result<Node> {
    let mut merged = file.root.clone();
    let place = merged.place.clone();
    expand(&mut merged);
    if let Some(root) = merged.table_mut() {
        let run = root.entry("run".to_owned()).or_insert_with(|| Node::empty(place.clone()));
        if let Some(run) = run.table_mut() {
            run.entry("name".to_owned()).or_insert_with(|| Node::scalar(&*file.name, place));
        }
    }
    let mut sets = Node::parse_sets(sets)?;
    expand(&mut sets);
    merged.lay(sets);
    shards::cut(&mut merged)?;
    Ok(merged)
}

/// Reads a config file with the `sets` over it as a `T`, which `finish` completes and checks.
pub(crate) fn read<T: strict::FromNode>(
    file: &ConfigFile,
    sets: &[String],
    finish: impl Fn(&mut T) -> Check,
) -> Result<T> {
    let merged = merge(file, sets, |_| {})?;
    strict::read(&merged, &[], finish)
}
