//! An index open for reading.

use crate::manifest::Manifest;
use crate::segment::{Row, Segment};
use crate::{IndexConfig, ModelIdentity, Place, Result, SearchError};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A snapshot of an index as it was when opened: later writes do not change it. Threads may share one.
#[derive(Debug, Clone)]
pub struct Index {
    folder: PathBuf,
    pub(crate) manifest: Manifest,
    pub(crate) segments: Vec<Arc<Segment>>,
}

/// Statistics of an index.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IndexInfo {
    /// Rows that can be found.
    pub rows: usize,
    /// Deleted rows that still take space.
    pub deleted: usize,
    /// Parts, which are searched in turn.
    pub parts: usize,
    /// Rows of parts with a graph.
    pub rows_with_graph: usize,
    /// Rows of parts with a graph of an earlier version, which loses rows if many vectors are equal:
    /// [`compact`](crate::IndexWriter::compact) rebuilds it.
    pub rows_with_old_graph: usize,
    /// Vectors unreachable in a graph, which are compared with each query.
    pub strays: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// The names of its rows' fields; `None` if the index predates their storage.
    pub fields: Option<BTreeSet<String>>,
    /// The index's settings.
    pub config: IndexConfig,
}

impl Index {
    /// Opens an index after verifying each of its files.
    ///
    /// # Errors
    /// [`SearchError::NoIndex`], [`SearchError::Damaged`] with the file, [`SearchError::Io`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let mut manifest = Manifest::read(folder)?;
        loop {
            let opened = Self::open_as(folder, manifest.clone());
            // A writer may have replaced files between.
            let now = Manifest::read(folder)?;
            match opened {
                Err(_) if now != manifest => manifest = now,
                opened => return opened,
            }
        }
    }

    fn open_as(folder: &Path, manifest: Manifest) -> Result<Self> {
        if cfg!(target_endian = "big") {
            let path = folder.join(crate::manifest::NAME);
            return Err(SearchError::damaged(&path, "its numbers are of little-endian machines"));
        }
        let path = folder.join(crate::manifest::NAME);
        manifest.config.check().map_err(|error| SearchError::damaged(&path, error.to_string()))?;
        if manifest.files().any(|file| file.name.contains(['/', '\\'])) {
            return Err(SearchError::damaged(&path, "it names a file outside of the folder"));
        }
        let open = |record| Segment::open(folder, record, &manifest.config, true).map(Arc::new);
        let segments = manifest.segments.par_iter().map(open).collect::<Result<_>>()?;
        Ok(Self { folder: folder.into(), manifest, segments })
    }

    pub(crate) fn of(folder: &Path, manifest: Manifest, segments: Vec<Arc<Segment>>) -> Self {
        Self { folder: folder.into(), manifest, segments }
    }

    /// Whether the folder still has what was opened, and no writer has changed it since.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), for the folder's list of files.
    pub fn is_current(&self) -> Result<bool> {
        Ok(Manifest::read(&self.folder)? == self.manifest)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The index's settings.
    pub fn config(&self) -> &IndexConfig {
        &self.manifest.config
    }

    pub(crate) fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    /// The names of its rows' fields, including deleted rows; `None` if the index predates their storage.
    pub fn fields(&self) -> Option<&BTreeSet<String>> {
        self.manifest.fields.as_ref()
    }

    /// Rows that can be found.
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.live()).sum()
    }

    /// Whether no row can be found.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A row that was found.
    ///
    /// # Errors
    /// [`SearchError::Damaged`].
    ///
    /// # Panics
    /// If the place belongs to another index.
    pub fn row(&self, place: Place) -> Result<Row> {
        self.segments[place.segment].row(&self.folder, place.row)
    }

    /// All live rows with their vectors of [`IndexConfig::width`] features, in file order, which is the order
    /// of addition unless rows were changed. With the cosine metric, vectors have length 1.
    ///
    /// # Errors
    /// [`SearchError::Damaged`] for each row that cannot be read.
    pub fn rows(&self) -> impl Iterator<Item = Result<(Row, Vec<f32>)>> + '_ {
        self.segments.iter().flat_map(move |segment| {
            let live = (0..segment.rows() as u32).filter(|row| segment.is_live(*row));
            live.map(move |row| {
                let mut vector = vec![0.0; self.config().width];
                segment.vectors(self.config()).read(row, &mut vector);
                Ok((segment.row(&self.folder, row)?, vector))
            })
        })
    }

    /// Whether a row has this id.
    pub fn contains(&self, id: &str) -> bool {
        let hash = crate::filter::hash_id(id);
        self.segments.iter().any(|segment| segment.find(&hash).is_some())
    }

    /// Some vectors of the index, evenly spread over its rows, as queries to measure recall.
    pub fn sample(&self, most: usize) -> Vec<f32> {
        let width = self.config().width;
        let live =
            |segment: &Arc<Segment>| (0..segment.rows() as u32).filter(|row| segment.is_live(*row)).collect();
        let places: Vec<(usize, Vec<u32>)> = self.segments.iter().map(live).enumerate().collect();
        let step = self.len().div_ceil(most.max(1)).max(1);
        let all = places.iter().flat_map(|(segment, rows)| rows.iter().map(|row| (*segment, *row)));
        let mut values = Vec::new();
        for (segment, row) in all.step_by(step) {
            let start = values.len();
            values.resize(start + width, 0.0);
            self.segments[segment].vectors(self.config()).read(row, &mut values[start..]);
        }
        values
    }

    /// Statistics of the index.
    pub fn info(&self) -> IndexInfo {
        let with_graph = self.segments.iter().filter(|segment| segment.record.graph.is_some());
        IndexInfo {
            rows: self.len(),
            deleted: self.manifest.rows() - self.len(),
            parts: self.segments.len(),
            rows_with_graph: with_graph.map(|segment| segment.rows()).sum(),
            rows_with_old_graph: self
                .segments
                .iter()
                .filter(|segment| segment.graph().is_some_and(|graph| !graph.is_current()))
                .map(|segment| segment.rows())
                .sum(),
            strays: self.segments.iter().filter_map(|segment| Some(segment.graph()?.strays())).sum(),
            bytes: self.manifest.files().map(|file| file.bytes).sum(),
            fields: self.fields().cloned(),
            config: self.config().clone(),
        }
    }

    /// Checks that a model is the one that made the vectors, if known.
    ///
    /// # Errors
    /// [`SearchError::OtherModel`].
    pub fn check_model(&self, model: &ModelIdentity, width: usize) -> Result<()> {
        let other =
            |part, expected: String, found: String| Err(SearchError::OtherModel { part, expected, found });
        if self.config().width != width {
            return other("width", self.config().width.to_string(), width.to_string());
        }
        let Some(expected) = &self.config().model else { return Ok(()) };
        if expected.hash != model.hash {
            let short = |model: &ModelIdentity| {
                format!("{} ({})", model.hash.get(..12).unwrap_or(&model.hash), model.name)
            };
            return other("hash", short(expected), short(model));
        }
        if expected.pooling != model.pooling {
            return other("pooling", expected.pooling.clone(), model.pooling.clone());
        }
        if expected.normalize != model.normalize {
            return other("`normalize`", expected.normalize.to_string(), model.normalize.to_string());
        }
        Ok(())
    }
}
