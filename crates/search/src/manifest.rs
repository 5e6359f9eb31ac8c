//! The manifest: the list of an index's files. Replacing it commits a change.

use crate::files::{self, FileRecord};
use crate::{IndexConfig, Result, SearchError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The manifest's name.
pub(crate) const NAME: &str = "manifest";
/// Its name until complete.
pub(crate) const PARTIAL: &str = "manifest.partial";
/// The beginning of its first line, before a hash of the rest.
const MAGIC: &str = "cloze-search 1 ";

/// The contents of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub config: IndexConfig,
    /// The number of the next file.
    pub next: u64,
    /// The next id for a row without one: the number of rows ever added plus skipped ids.
    pub added: u64,
    /// The names of all rows' fields; `None` for an index that predates their storage.
    #[serde(default)]
    pub fields: Option<BTreeSet<String>>,
    pub segments: Vec<SegmentRecord>,
}

/// The files of a segment: rows written together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentRecord {
    pub rows: usize,
    /// 32-bit floats, or bfloat16.
    pub vectors: FileRecord,
    /// Half of each row's squared length, for Euclidean distances.
    pub halves: Option<FileRecord>,
    pub scales: Option<FileRecord>,
    pub codes: Option<FileRecord>,
    /// A JSON object for each row.
    pub texts: FileRecord,
    /// The end of each row's text.
    pub ends: FileRecord,
    /// Hashes of the ids.
    pub ids: FileRecord,
    /// Hashes of the fields' values.
    pub fields: FileRecord,
    pub graph: Option<FileRecord>,
    /// A bit for each row that is deleted.
    pub deleted: Option<FileRecord>,
}

impl SegmentRecord {
    pub fn files(&self) -> impl Iterator<Item = &FileRecord> {
        let always = [&self.vectors, &self.texts, &self.ends, &self.ids, &self.fields];
        let others = [&self.halves, &self.scales, &self.codes, &self.graph, &self.deleted];
        always.into_iter().chain(others.into_iter().flatten())
    }
}

impl Manifest {
    pub fn new(config: IndexConfig) -> Self {
        Self { config, next: 0, added: 0, fields: Some(BTreeSet::new()), segments: Vec::new() }
    }

    /// Reads a folder's manifest.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(NAME);
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => SearchError::NoIndex { folder: folder.into() },
            _ => SearchError::io("read", &path)(error),
        })?;
        let damaged = |problem: &str| SearchError::damaged(&path, problem);
        let rest = bytes
            .strip_prefix(MAGIC.as_bytes())
            .ok_or_else(|| damaged("it is no manifest of this version"))?;
        let (hash, json) = rest.split_at_checked(64).ok_or_else(|| damaged("it is cut short"))?;
        let json = json.strip_prefix(b"\n").ok_or_else(|| damaged("it is no manifest of this version"))?;
        if hash != blake3::hash(json).to_hex().as_bytes() {
            return Err(damaged("its contents are not as they were written"));
        }
        serde_json::from_slice(json).map_err(|error| damaged(&format!("it cannot be read: {error}")))
    }

    /// Replaces the previous manifest, which commits the change.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self).expect("plain values serialise") + "\n";
        let text = format!("{MAGIC}{}\n{json}", blake3::hash(json.as_bytes()).to_hex());
        files::replace(&folder.join(NAME), text.as_bytes())
    }

    /// Whether no row was ever added.
    pub fn is_new(&self) -> bool {
        self.added == 0 && self.segments.is_empty()
    }

    /// Live and deleted rows.
    pub fn rows(&self) -> usize {
        self.segments.iter().map(|segment| segment.rows).sum()
    }

    pub fn files(&self) -> impl Iterator<Item = &FileRecord> {
        self.segments.iter().flat_map(SegmentRecord::files)
    }
}
