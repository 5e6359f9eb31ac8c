//! Prepared data on disk: files of numbers, written once, hashed, and mapped into memory.
//!
//! A build uses a folder `.building-…` in the cache, which is flushed to disk and then renamed to its key: a
//! folder named by its key is complete. Remains of a killed build are removed by a later build, one day after
//! the last write.

use crate::checksum::hash_file;
use crate::{DataError, Result};
use memmap2::Mmap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// Prefix of a build folder's name.
const BUILDING: &str = ".building-";
/// A build that wrote nothing for this long is dead.
const DEAD_AFTER: Duration = Duration::from_secs(24 * 3600);

/// How long a folder that another process has written may stay unseen.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// A memory-mapped file of numbers.
#[derive(Debug)]
pub(crate) struct Table(Option<Mmap>);

impl Table {
    /// Maps a file; `None` if its size or checksum differs.
    pub fn open(path: &Path, bytes: u64, sum: &str) -> Option<Self> {
        let file = File::open(path).ok()?;
        if file.metadata().ok()?.len() != bytes || hash_file(&file).ok()?.to_hex().as_str() != sum {
            return None;
        }
        if bytes == 0 {
            return Some(Self(None));
        }
        // SAFETY: the file lies in a folder that is complete when it appears and never changed after,
        // by the cache's protocol; a reader that breaks it is outside what a mapping can promise.
        Some(Self(Some(unsafe { Mmap::map(&file) }.ok()?)))
    }

    /// The whole contents.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// The last end of a table of ends.
    pub fn last(&self) -> u64 {
        self.bytes().as_chunks::<8>().0.last().map_or(0, |end| u64::from_le_bytes(*end))
    }

    /// The index of the first end beyond `value`.
    pub fn first_beyond(&self, value: u64) -> u64 {
        let ends = self.bytes().as_chunks::<8>().0;
        ends.partition_point(|end| u64::from_le_bytes(*end) <= value) as u64
    }

    /// Entry `i − 1` to entry `i` of a table of ends.
    pub fn range(&self, i: u64) -> Range<u64> {
        let end = |i: u64| u64::from_le_bytes(self.bytes().as_chunks::<8>().0[i as usize]);
        let start = if i == 0 { 0 } else { end(i - 1) };
        start..end(i)
    }
}

/// The name of the file of a [`Meta`].
const META: &str = "meta.json";

/// The contents of `meta.json`; `C` holds the counts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Meta<C> {
    format: u32,
    pub key: String,
    #[serde(flatten)]
    pub counts: C,
    /// BLAKE3 of the files of numbers.
    pub files: Vec<String>,
    /// BLAKE3 of the fields above, to detect a half-written file.
    checksum: String,
}

impl<C: Serialize + DeserializeOwned> Meta<C> {
    pub fn new(format: u32, key: &str, counts: C, files: Vec<String>) -> Self {
        let mut meta = Self { format, key: key.to_owned(), counts, files, checksum: String::new() };
        meta.checksum = meta.sum();
        meta
    }

    fn sum(&self) -> String {
        let fields = (self.format, &self.key, &self.counts, &self.files);
        let json = serde_json::to_vec(&fields).expect("plain values serialise");
        blake3::hash(&json).to_hex().to_string()
    }

    /// Reads a folder's metadata; `None` if missing, corrupt, or of another format or key.
    pub fn read(folder: &Path, format: u32, key: &str) -> Option<Self> {
        let meta: Self = serde_json::from_slice(&fs::read(folder.join(META)).ok()?).ok()?;
        (meta.format == format && meta.key == key && meta.checksum == meta.sum()).then_some(meta)
    }

    pub fn write(&self, folder: &Path) -> Result<()> {
        let mut json = Output::create(folder.join(META))?;
        json.write(&serde_json::to_vec_pretty(self).expect("plain values serialise"))?;
        json.finish().map(|_| ())
    }
}

/// Makes a folder in the cache to build in; removes the remains of killed builds.
pub(crate) fn begin(cache: &Path) -> Result<TempDir> {
    fs::create_dir_all(cache).map_err(DataError::io("make", cache))?;
    remove_dead_builds(cache, SystemTime::now());
    tempfile::Builder::new()
        .prefix(BUILDING)
        .tempdir_in(cache)
        .map_err(DataError::io("make a folder in", cache))
}

/// Renames a complete build, unless another process finished first; `open` opens the result.
pub(crate) fn publish<T>(
    partial: TempDir,
    cache: &Path,
    key: &str,
    open: impl Fn(&Path) -> Option<T>,
) -> Result<T> {
    // Held until the end of the function, so that two builds do not replace each other's. Where a file
    // system has no locks, the loser of such a race gets an error and succeeds on the next try.
    let path = cache.join(".lock");
    let lock = File::create(&path).map_err(DataError::io("write", &path))?;
    let _ = lock.lock();
    let folder = cache.join(key);
    if let Some(built) = open(&folder) {
        return Ok(built);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(DataError::io("replace", &folder))?;
    }
    fs::rename(partial.path(), &folder).map_err(DataError::io("write", &folder))?;
    // There is nothing under the temporary name to remove any more.
    let _ = partial.keep();
    cloze_files::flush_folder(cache)?;
    open(&folder).ok_or(DataError::Prepared { path: folder })
}

/// Opens a folder that another process has written, once it is seen here: a network's file system may take a while.
pub(crate) fn appeared<T>(folder: &Path, open: impl Fn(&Path) -> Option<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(opened) = open(folder) {
            return Ok(opened);
        }
        if start.elapsed() > SEEN_WITHIN {
            return Err(DataError::Prepared { path: folder.into() });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Removes the remains of killed builds. Failures are harmless and ignored.
fn remove_dead_builds(cache: &Path, now: SystemTime) {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    for build in entries(cache).filter(|entry| entry.file_name().to_string_lossy().starts_with(BUILDING)) {
        let folder = build.path();
        // The folder's own time stands still while its files grow.
        let is_dead = entries(&folder).chain([build]).all(|entry| {
            let written = entry.metadata().and_then(|meta| meta.modified());
            written.is_ok_and(|time| now.duration_since(time).is_ok_and(|age| age > DEAD_AFTER))
        });
        if is_dead {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

/// A file being written, hashed along the way and flushed to disk at the end.
pub(crate) struct Output {
    path: PathBuf,
    file: BufWriter<Hashing>,
}

struct Hashing {
    file: File,
    hasher: blake3::Hasher,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Output {
    pub fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).map_err(DataError::io("write", &path))?;
        let hashing = Hashing { file, hasher: blake3::Hasher::new() };
        Ok(Self { file: BufWriter::with_capacity(1 << 20, hashing), path })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(DataError::io("write", &self.path))
    }

    /// Flushes the file and returns its checksum.
    pub fn finish(self) -> Result<String> {
        let path = self.path;
        let Hashing { file, hasher } =
            self.file.into_inner().map_err(|error| DataError::io("write", &path)(error.into_error()))?;
        file.sync_all().map_err(DataError::io("flush", &path))?;
        Ok(hasher.finalize().to_hex().to_string())
    }
}
