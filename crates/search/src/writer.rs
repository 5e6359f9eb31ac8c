//! Changes to an index. Each writes and flushes new files, then replaces and flushes the manifest, which
//! commits the change.

use crate::bits::Bits;
use crate::files;
use crate::filter::{Hash, hash_id};
use crate::find::prepared;
use crate::graph::GraphBuilder;
use crate::manifest::{self, Manifest, SegmentRecord};
use crate::segment::{KINDS, MOST_NESTED, MOST_ROWS, Row, Segment, SegmentWriter, is_deeper, path};
use crate::{Index, IndexConfig, Result, SearchError};
use cloze_files::flush_folder;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::sync::Arc;

/// The name of the file that a writer locks.
const LOCK: &str = "lock";
/// Parts with fewer rows are always merged.
const SMALL: usize = 4096;

/// A row to add.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewRow {
    /// Its id; if `None`, the next unused number.
    pub id: Option<String>,
    /// Its text.
    pub text: String,
    /// Its other data; see [`Condition`](crate::Condition).
    pub fields: Map<String, Value>,
}

/// What to do if a row with an id exists, or does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnId {
    /// Fail without changing anything.
    #[default]
    Error,
    /// Replace an existing row; ignore the deletion of a missing one.
    Accept,
}

/// An index open for changes, by one process at a time.
#[derive(Debug)]
pub struct IndexWriter {
    index: Index,
    /// Locked as long as it is open.
    _lock: File,
}

impl IndexWriter {
    /// Creates an index in a new or empty folder, or in one with an index to which no row was ever added.
    ///
    /// # Errors
    /// [`SearchError::Taken`], [`SearchError::Busy`], [`SearchError::Setting`], [`SearchError::Io`].
    pub fn create(folder: impl AsRef<Path>, config: IndexConfig) -> Result<Self> {
        let folder = folder.as_ref();
        config.check()?;
        fs::create_dir_all(folder).map_err(SearchError::io("make", folder))?;
        let taken = |found| SearchError::Taken { folder: folder.into(), found };
        let is_new = || Manifest::read(folder).is_ok_and(|found| found.is_new());
        let has_rows = || folder.join(manifest::NAME).exists() && !is_new();
        if has_rows() {
            return Err(taken("has an index already"));
        }
        for entry in fs::read_dir(folder).map_err(SearchError::io("read", folder))? {
            let name = entry.map_err(SearchError::io("read", folder))?.file_name();
            let name = name.to_string_lossy();
            // One who was killed while making one may have left these; without a manifest nobody knows what parts are of.
            let is_ours = [LOCK, manifest::PARTIAL].contains(&&*name);
            if !is_ours && !(is_new() && (name == manifest::NAME || is_of_index(&name))) {
                return Err(taken("has other files"));
            }
        }
        let lock = lock(folder)?;
        // Another process may have been faster.
        if has_rows() {
            return Err(taken("has an index already"));
        }
        let manifest = Manifest::new(config);
        manifest.write(folder)?;
        remove_unused(folder, &manifest);
        Ok(Self { index: Index::of(folder, manifest, Vec::new()), _lock: lock })
    }

    /// Opens an index, and removes the remains of a killed writer.
    ///
    /// # Errors
    /// [`SearchError::Busy`], and those of [`Index::open`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        // No lock is made where there is no index.
        Manifest::read(folder)?;
        let lock = lock(folder)?;
        let index = Index::open(folder)?;
        remove_unused(folder, &index.manifest);
        Ok(Self { index, _lock: lock })
    }

    /// Removes the index, unless rows were ever added to it, and its folder if that has no other files. Says whether it was
    /// removed.
    ///
    /// # Errors
    /// [`SearchError::Io`].
    pub fn discard_new(self) -> Result<bool> {
        let folder = self.index.folder().to_owned();
        if !self.index.manifest.is_new() {
            return Ok(false);
        }
        let remove = |name: &str| {
            let path = folder.join(name);
            fs::remove_file(&path).map_err(SearchError::io("remove", &path))
        };
        // Of a change that failed, too: without a manifest nobody would know what such files are of.
        remove_unused(&folder, &self.index.manifest);
        // Without its manifest it is no index, whatever happens then.
        remove(manifest::NAME)?;
        remove(LOCK)?;
        drop(self);
        // What is left is not ours.
        fs::remove_dir(&folder).ok();
        Ok(true)
    }

    /// The index as it is now.
    pub fn index(&self) -> &Index {
        &self.index
    }

    fn config(&self) -> &IndexConfig {
        self.index.config()
    }

    /// Adds rows with their vectors, `[rows · width]`. They are on disk when it returns. Returns the number
    /// of rows replaced.
    ///
    /// # Errors
    /// [`SearchError::Vector`], [`SearchError::DuplicateId`], [`SearchError::Nested`], [`SearchError::Io`]; then no row was
    /// added.
    pub fn add(&mut self, rows: &[NewRow], vectors: &[f32], on_id: OnId) -> Result<usize> {
        let width = self.config().width;
        if vectors.len() != rows.len() * width {
            let problem = format!("{} features for {} rows of {width}", vectors.len(), rows.len());
            return Err(SearchError::Vector { what: "row", place: vectors.len() / width, problem });
        }
        let vectors = prepared(vectors, self.config(), "row")?;
        for (place, row) in rows.iter().enumerate() {
            // What cannot be read back is not acknowledged.
            if let Some((field, _)) = row.fields.iter().find(|(_, value)| is_deeper(value, MOST_NESTED)) {
                return Err(SearchError::Nested { place, field: field.clone(), most: MOST_NESTED });
            }
        }
        if rows.is_empty() {
            return Ok(0);
        }
        let mut next_id = self.index.manifest.added;
        let ids = self.ids(rows, &mut next_id);
        let hashes: Vec<Hash> = ids.iter().map(|id| hash_id(id)).collect();
        let mut places: HashMap<Hash, usize> = HashMap::with_capacity(ids.len());
        let mut gone = self.no_rows();
        for (place, (id, hash)) in ids.iter().zip(&hashes).enumerate() {
            let duplicate = |found| SearchError::DuplicateId { place, id: id.clone(), found };
            if places.insert(*hash, place).is_some() {
                return Err(duplicate("is that of another new row"));
            }
            if let Some((segment, row)) = self.find(hash) {
                if on_id == OnId::Error {
                    return Err(duplicate("is in the index already"));
                }
                gone[segment].insert(row as usize);
            }
        }
        self.change(|writer| {
            let mut manifest = writer.index.manifest.clone();
            let mut segment = SegmentWriter::create(writer.index.folder(), manifest.next, writer.config())?;
            manifest.next += 1;
            for ((row, id), vector) in rows.iter().zip(ids).zip(vectors.chunks_exact(width)) {
                segment.push(&Row { id, text: row.text.clone(), fields: row.fields.clone() }, vector)?;
            }
            let record = segment.finish()?;
            let replaced = writer.mark_deleted(&mut manifest, &gone)?;
            manifest.segments.push(record);
            manifest.added = next_id.max(manifest.added + rows.len() as u64);
            if let Some(fields) = &mut manifest.fields {
                fields.extend(rows.iter().flat_map(|row| row.fields.keys().cloned()));
            }
            writer.commit(manifest)?;
            Ok(replaced)
        })
    }

    /// Makes a change. Files of a failed change are removed, so a full disk is no fuller than before.
    fn change<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let changed = change(self);
        // It may have failed after the manifest was replaced: then all is of the index.
        if changed.is_err() && Manifest::read(self.index.folder()).is_ok_and(|now| now == self.index.manifest)
        {
            remove_unused(self.index.folder(), &self.index.manifest);
        }
        changed
    }

    /// The rows' ids. A row without one gets its number among all rows ever added, or the next unused id;
    /// `next` is advanced.
    fn ids(&self, rows: &[NewRow], next: &mut u64) -> Vec<String> {
        let given: HashSet<&str> = rows.iter().filter_map(|row| row.id.as_deref()).collect();
        let is_taken = |id: &str| given.contains(id) || self.index.contains(id);
        let first = *next;
        let id = |(place, row): (u64, &NewRow)| {
            row.id.clone().unwrap_or_else(|| {
                *next = (first + place).max(*next);
                while is_taken(&next.to_string()) {
                    *next += 1;
                }
                *next += 1;
                (*next - 1).to_string()
            })
        };
        (0..).zip(rows).map(id).collect()
    }

    /// Deletes the rows of these ids. The change is on disk when it returns. Returns the number of rows
    /// deleted.
    ///
    /// # Errors
    /// [`SearchError::UnknownId`], [`SearchError::Io`]; then no row was deleted.
    pub fn delete<T: AsRef<str>>(&mut self, ids: &[T], on_id: OnId) -> Result<usize> {
        let mut gone = self.no_rows();
        for id in ids {
            match self.find(&hash_id(id.as_ref())) {
                Some((segment, row)) => gone[segment].insert(row as usize),
                None if on_id == OnId::Accept => {}
                None => return Err(SearchError::UnknownId { id: id.as_ref().into() }),
            }
        }
        self.change(|writer| {
            let mut manifest = writer.index.manifest.clone();
            let deleted = writer.mark_deleted(&mut manifest, &gone)?;
            if deleted > 0 {
                writer.commit(manifest)?;
            }
            Ok(deleted)
        })
    }

    /// Merges small parts and builds missing graphs, so that the next search is fast. The amortised cost per
    /// added row is logarithmic in the number of rows; existing graphs are extended. `progress` receives the
    /// number of rows in the graph being built, and the total.
    ///
    /// # Errors
    /// [`SearchError::Io`]; the index is then unchanged.
    pub fn maintain(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        let rows: Vec<usize> = self.index.segments.iter().map(|segment| segment.live()).collect();
        let mut start = rows.len();
        let mut joined = 0;
        // Geometric sizes: a part is joined with those after it once they have half its rows.
        while start > 0
            && (rows[start - 1] <= 2 * joined || joined + rows[start - 1] < SMALL || start == rows.len())
        {
            start -= 1;
            joined += rows[start];
        }
        self.change(|writer| {
            if rows.len() - start > 1 {
                writer.join(start, progress)?;
            }
            writer.build_graphs(false, progress)
        })
    }

    /// Merges all live rows into one part, with a graph of this version. `progress` as for
    /// [`maintain`](Self::maintain).
    ///
    /// # Errors
    /// [`SearchError::Io`]; the index is then unchanged.
    pub fn compact(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        let info = self.index.info();
        self.change(|writer| {
            if info.deleted > 0 || info.parts > 1 {
                writer.join(0, progress)?;
            }
            writer.build_graphs(true, progress)
        })
    }

    /// Merges the parts from `start` on.
    fn join(&mut self, start: usize, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        let folder = self.index.folder().to_owned();
        let old = &self.index.segments[start..];
        let live: usize = old.iter().map(|segment| segment.live()).sum();
        if live > MOST_ROWS {
            return Err(SearchError::TooMany { most: MOST_ROWS });
        }
        let mut manifest = self.index.manifest.clone();
        manifest.segments.truncate(start);
        if live > 0 {
            let number = manifest.next;
            manifest.next += 1;
            let mut writer = SegmentWriter::create(&folder, number, self.config())?;
            let mut vector = vec![0.0; self.config().width];
            for segment in old {
                let vectors = segment.vectors(self.config());
                for row in (0..segment.rows() as u32).filter(|row| segment.is_live(*row)) {
                    vectors.read(row, &mut vector);
                    writer.push(&segment.row(&folder, row)?, &vector)?;
                }
            }
            let mut record = writer.finish()?;
            // Rows of the first part have kept their numbers if none is deleted: its graph goes on.
            let first = &old[0];
            let kept = first
                .graph()
                .filter(|graph| graph.is_current() && first.deleted().is_none() && 2 * first.rows() >= live);
            if let (Some(graph), true) = (kept, self.config().graph.is_some()) {
                record.graph = self.grow(GraphBuilder::of(&graph), &record, number, progress)?;
            }
            manifest.segments.push(record);
        }
        self.commit(manifest)
    }

    /// Builds the missing graphs; `anew` also replaces those of earlier versions.
    fn build_graphs(&mut self, anew: bool, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        let Some(config) = self.config().graph.clone() else { return Ok(()) };
        for place in 0..self.index.segments.len() {
            let record = &self.index.manifest.segments[place];
            let graph = self.index.segments[place].graph();
            let is_there = graph.is_some_and(|graph| !anew || graph.is_current());
            if is_there || record.graph.is_none() && record.rows < config.from_rows {
                continue;
            }
            let mut manifest = self.index.manifest.clone();
            let graph = self.grow(GraphBuilder::new(&config), record, manifest.next, progress)?;
            manifest.next += 1;
            manifest.segments[place].graph = graph;
            self.commit(manifest)?;
        }
        Ok(())
    }

    /// Inserts the rest of a part's rows into a graph, and writes it.
    fn grow(
        &self,
        mut builder: GraphBuilder,
        record: &SegmentRecord,
        number: u64,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<files::FileRecord>> {
        let Some(config) = &self.config().graph else { return Ok(None) };
        let segment = Segment::open(self.index.folder(), record, self.config(), false)?;
        let rows = record.rows;
        let space = segment.short(self.config());
        builder.extend(&space, rows, config, &mut |done| progress(done, rows));
        builder.mend(&space);
        let path = path(self.index.folder(), number, "graph");
        files::write(path, bytemuck::cast_slice(&builder.words())).map(Some)
    }

    /// The live row with an id.
    fn find(&self, hash: &Hash) -> Option<(usize, u32)> {
        self.index.segments.iter().enumerate().find_map(|(place, segment)| Some((place, segment.find(hash)?)))
    }

    /// For each part, none of its rows.
    fn no_rows(&self) -> Vec<Bits> {
        self.index.segments.iter().map(|segment| Bits::none(segment.rows())).collect()
    }

    /// Writes the parts' deleted rows, including `gone`; returns the number in `gone`.
    fn mark_deleted(&self, manifest: &mut Manifest, gone: &[Bits]) -> Result<usize> {
        let mut count = 0;
        for (place, gone) in gone.iter().enumerate().filter(|(_, gone)| gone.count() > 0) {
            count += gone.count();
            let old = self.index.segments[place].deleted().map_or(&[][..], Bits::words);
            let old = old.iter().copied().chain(std::iter::repeat(0));
            let all: Vec<u64> = gone.words().iter().zip(old).map(|(a, b)| a | b).collect();
            let path = path(self.index.folder(), manifest.next, "deleted");
            manifest.next += 1;
            manifest.segments[place].deleted = Some(files::write(path, bytemuck::cast_slice(&all))?);
        }
        Ok(count)
    }

    /// Commits a change: `manifest` becomes the index.
    fn commit(&mut self, manifest: Manifest) -> Result<()> {
        let folder = self.index.folder().to_owned();
        // Unchanged parts are open already; of new ones this process has just written the files.
        let open = |record: &SegmentRecord| {
            let same = self.index.segments.iter().find(|segment| segment.record == *record);
            match same {
                Some(segment) => Ok(segment.clone()),
                None => Segment::open(&folder, record, self.config(), false).map(Arc::new),
            }
        };
        let segments = manifest.segments.iter().map(open).collect::<Result<_>>()?;
        flush_folder(&folder)?;
        manifest.write(&folder)?;
        self.index = Index::of(&folder, manifest, segments);
        remove_unused(&folder, &self.index.manifest);
        Ok(())
    }
}

/// Locks a folder against other writers.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(SearchError::io("write", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SearchError::Busy { folder: folder.into() }),
        Err(TryLockError::Error(source)) => Err(SearchError::Io { action: "lock", path, source }),
    }
}

/// Removes an index's unused files. If the system keeps a file that is still being read, a later writer
/// removes it.
fn remove_unused(folder: &Path, manifest: &Manifest) {
    let _ = fs::remove_file(folder.join(manifest::PARTIAL));
    let used: Vec<&str> = manifest.files().map(|file| file.name.as_str()).collect();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| is_of_index(name) && !used.contains(&name)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a file's name is that of an index part.
fn is_of_index(name: &str) -> bool {
    let (number, kind) = name.split_once('.').unwrap_or((name, ""));
    number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit()) && KINDS.contains(&kind)
}
