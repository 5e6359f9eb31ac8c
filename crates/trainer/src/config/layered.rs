//! Reads a config from its layers: the file, overridden by arguments.

use super::layers::{Node, Value};
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

    /// Whether it has a dotted key.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.root.at(key).is_some()
    }

    /// The whole number of 0 or more that a dotted key has, if it has one.
    pub(crate) fn whole(&self, key: &str) -> Option<usize> {
        match &self.root.at(key)?.value {
            Value::Scalar(toml::Value::Integer(n)) => usize::try_from(*n).ok(),
            _ => None,
        }
    }

    /// With the `sets` over it, without any preset; none if one of them is not `section.key=value`.
    pub(crate) fn merged(&self, sets: &[String]) -> Option<Self> {
        let mut root = self.root.clone();
        root.lay(Node::parse_sets(sets).ok()?);
        Some(Self { name: self.name.clone(), root })
    }

    /// Says which keys of the file have no effect because the `sets` give another key in their place, such as files of
    /// development data in place of a share of the training data.
    pub fn replaced(&self, sets: &[String]) -> Vec<String> {
        // What is wrong with the arguments is told by reading the config.
        let Ok(sets) = Node::parse_sets(sets) else { return Vec::new() };
        let told = replaced(&self.root, &sets).into_iter().map(|(key, other)| {
            format!("`{key}` is given by --set: `{other}` of {} is not used", self.root.place_of(other))
        });
        told.collect()
    }

    /// This file over another one: only what it does not set comes from that.
    pub(crate) fn over(&self, below: Self) -> Self {
        let mut root = below.root;
        root.lay(self.root.clone());
        // What neither sets is missing in this file.
        root.place = self.root.place.clone();
        Self { name: self.name.clone(), root }
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
    replace(&mut merged, &sets);
    merged.lay(sets);
    shards::cut(&mut merged)?;
    Ok(merged)
}

/// Keys of which a run has one: arguments that give the first, and not the second, replace the file's second.
const REPLACING: [(&str, &str); 4] = [
    ("schedule.warmup_steps", "schedule.warmup_fraction"),
    ("schedule.warmup_fraction", "schedule.warmup_steps"),
    ("data.dev", "data.dev_fraction"),
    ("data.source.dev", "data.source.dev_fraction"),
];

/// The keys of the file that the arguments replace by another key, each after that key.
fn replaced(file: &Node, sets: &Node) -> Vec<(&'static str, &'static str)> {
    // An empty list of files takes those of the file away, and names none.
    let gives = |key: &str| {
        sets.at(key).is_some_and(|node| !matches!(&node.value, Value::Array(items) if items.is_empty()))
    };
    let is_replaced =
        |(key, other): &(&str, &str)| gives(key) && sets.at(other).is_none() && file.at(other).is_some();
    REPLACING.into_iter().filter(is_replaced).collect()
}

/// Removes what the arguments replace by another key.
fn replace(file: &mut Node, sets: &Node) {
    for (_, other) in replaced(file, sets) {
        let mut table: Vec<String> = other.split('.').map(str::to_owned).collect();
        let Some(key) = table.pop() else { continue };
        if let Some(entries) = file.table_at(&table) {
            entries.remove(&key);
        }
    }
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
