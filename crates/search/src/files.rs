//! Write-once files, verified when read.

use crate::{Result, SearchError};
use cloze_files::flush_folder;
use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file's record in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileRecord {
    pub name: String,
    pub bytes: u64,
    /// BLAKE3 of the contents.
    pub hash: String,
}

/// A file being written.
pub(crate) struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Writer {
    /// Creates a file, replacing any left by a killed writer.
    pub fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).map_err(SearchError::io("write", &path))?;
        Ok(Self {
            path,
            file: BufWriter::with_capacity(1 << 20, file),
            hasher: blake3::Hasher::new(),
            bytes: 0,
        })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(SearchError::io("write", &self.path))
    }

    /// Flushes it to disk.
    pub fn finish(self) -> Result<FileRecord> {
        let written = self.file.into_inner().map_err(std::io::IntoInnerError::into_error);
        written.and_then(|file| file.sync_all()).map_err(SearchError::io("write", &self.path))?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(FileRecord { name, bytes: self.bytes, hash: self.hasher.finalize().to_hex().to_string() })
    }
}

/// Writes a whole file.
pub(crate) fn write(path: PathBuf, bytes: &[u8]) -> Result<FileRecord> {
    let mut writer = Writer::create(path)?;
    writer.write(bytes)?;
    writer.finish()
}

/// A memory-mapped file.
#[derive(Debug)]
pub(crate) struct Mapped(Option<Mmap>);

impl Mapped {
    /// Maps a file after verifying it.
    ///
    /// # Errors
    /// [`SearchError::Damaged`] if it is not.
    pub fn open(folder: &Path, record: &FileRecord) -> Result<Self> {
        let mapped = Self::map(folder, record)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_rayon(mapped.bytes());
        if hasher.finalize().to_hex().as_str() != record.hash {
            return Err(SearchError::damaged(
                &folder.join(&record.name),
                "its contents are not as they were written",
            ));
        }
        Ok(mapped)
    }

    /// Maps a file that this process has just written.
    pub fn map(folder: &Path, record: &FileRecord) -> Result<Self> {
        let path = folder.join(&record.name);
        let file = File::open(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => SearchError::damaged(&path, "the file is missing"),
            _ => SearchError::io("read", &path)(error),
        })?;
        let found = file.metadata().map_err(SearchError::io("read", &path))?.len();
        if found != record.bytes {
            let problem = format!("it has {found} bytes instead of {}", record.bytes);
            return Err(SearchError::damaged(&path, problem));
        }
        if found == 0 {
            return Ok(Self(None));
        }
        // SAFETY: the files of an index are complete when its manifest names them, and are never changed after; a
        // process that cuts one short is outside what a mapping can promise.
        let mapped = unsafe { Mmap::map(&file) }.map_err(SearchError::io("map", &path))?;
        Ok(Self(Some(mapped)))
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Its contents as numbers. It is page-aligned, so any type's alignment is met.
    pub fn numbers<T: bytemuck::AnyBitPattern>(&self) -> &[T] {
        let bytes = self.bytes();
        bytemuck::cast_slice(&bytes[..bytes.len() / size_of::<T>() * size_of::<T>()])
    }
}

/// Replaces a file atomically: a temporary file is written, flushed and renamed.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = |partial: &Path| write(partial.to_owned(), bytes).map(drop);
    cloze_files::replace(path, write, SearchError::io("write", path))?;
    Ok(flush_folder(path.parent().unwrap_or(Path::new(".")))?)
}
