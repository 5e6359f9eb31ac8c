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
        key.split('.').try_fold(&self.root, |node, part| node.get(part)).is_some()
    }

    /// The whole number of 0 or more that a dotted key has, if it has one.
    pub(crate) fn whole(&self, key: &str) -> Option<usize> {
        let node = key.split('.').try_fold(&self.root, |node, part| node.get(part))?;
        match &node.value {
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
    replace_warmup(&mut merged, &sets);
    merged.lay(sets);
    shards::cut(&mut merged)?;
    Ok(merged)
}

/// Removes the file's warm-up if the arguments give one in another form: in steps, or as a fraction of them.
fn replace_warmup(file: &mut Node, sets: &Node) {
    const SCHEDULE: &str = "schedule";
    let forms = ["warmup_steps", "warmup_fraction"];
    let given = forms.map(|key| sets.get(SCHEDULE).is_some_and(|schedule| schedule.get(key).is_some()));
    let Some(schedule) = file.table_at(&[SCHEDULE.to_owned()]) else { return };
    match given {
        [true, false] => schedule.remove(forms[1]),
        [false, true] => schedule.remove(forms[0]),
        _ => None,
    };
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
