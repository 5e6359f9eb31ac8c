//! The cache's layout, that of Python's `huggingface_hub`:
//!
//! ```text
//! models--OWNER--NAME/refs/REVISION           the commit
//! models--OWNER--NAME/snapshots/COMMIT/FILE   a link to ../../blobs/ETAG
//! models--OWNER--NAME/blobs/ETAG              the bytes; ETAG.incomplete while they arrive
//! .locks/models--OWNER--NAME/ETAG.lock        held by whoever downloads them
//! ```

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hf_hub::{Cache, CacheRepo, Repo, RepoType};

use crate::error::io;
use crate::name::is_plain_path;
use crate::{ModelName, Result};

/// A model's part of the cache.
pub(crate) struct ModelCache {
    root: PathBuf,
    folder_name: String,
    revision: String,
    repo: CacheRepo,
}

impl ModelCache {
    pub(crate) fn new(root: &Path, name: &ModelName) -> Self {
        let repo = Repo::with_revision(name.repo.clone(), RepoType::Model, name.revision.clone());
        Self {
            root: root.into(),
            folder_name: repo.folder_name(),
            revision: name.revision.clone(),
            repo: Cache::new(root.into()).repo(repo),
        }
    }

    /// The revision's commit when last requested, or the revision itself if it is a commit.
    pub(crate) fn commit(&self) -> Option<String> {
        let path = self.root.join(&self.folder_name).join("refs").join(&self.revision);
        let commit = match fs::read_to_string(path) {
            Ok(commit) => commit.trim().to_string(),
            Err(_) => self.revision.clone(),
        };
        (is_commit(&commit) && self.snapshot(&commit).is_dir()).then_some(commit)
    }

    /// Records that the revision is `commit`.
    pub(crate) fn set_commit(&self, commit: &str) -> Result<()> {
        let path = self.root.join(&self.folder_name).join("refs").join(&self.revision);
        if self.revision == commit || fs::read_to_string(&path).is_ok_and(|old| old == commit) {
            return Ok(());
        }
        let parent = parent(&path);
        fs::create_dir_all(parent).map_err(io("make", parent))?;
        let write = |to: &Path| fs::write(to, commit);
        replace(&path, write).map_err(io("write", &path))
    }

    /// The folder of a commit's files.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.repo.pointer_path(commit)
    }

    /// The bytes of a file.
    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.repo.blob_path(etag)
    }

    /// All files of a snapshot, as relative paths.
    pub(crate) fn listing(&self, commit: &str) -> Result<Vec<String>> {
        let (root, mut files, mut folders) = (self.snapshot(commit), Vec::new(), vec![String::new()]);
        while let Some(folder) = folders.pop() {
            let path = root.join(&folder);
            for entry in fs::read_dir(&path).map_err(io("read", &path))? {
                let entry = entry.map_err(io("read", &path))?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let name = format!("{folder}{name}");
                // A link to a folder is not followed: it may lead back.
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(name + "/"),
                    Ok(_) => files.push(name),
                    Err(error) => return Err(io("read", &entry.path())(error)),
                }
            }
        }
        Ok(files)
    }

    /// Locks the blob against other downloads while the result lives; waits for a running one.
    pub(crate) fn lock(&self, etag: &str) -> Result<File> {
        let folder = self.root.join(".locks").join(&self.folder_name);
        fs::create_dir_all(&folder).map_err(io("make", &folder))?;
        let path = folder.join(format!("{etag}.lock"));
        let file = File::options().create(true).append(true).open(&path).map_err(io("open", &path))?;
        file.lock().map_err(io("lock", &path))?;
        Ok(file)
    }

    /// Links a blob into a snapshot under its file's name, replacing any existing file.
    pub(crate) fn link(&self, etag: &str, commit: &str, file: &str) -> Result<PathBuf> {
        let pointer = self.snapshot(commit).join(file);
        let parent = parent(&pointer);
        fs::create_dir_all(parent).map_err(io("make", parent))?;
        let up = "../".repeat(2 + file.matches('/').count());
        let relative = format!("{up}blobs/{etag}");
        replace(&pointer, |to| link(&self.blob(etag), Path::new(&relative), to))
            .map_err(io("make", &pointer))?;
        Ok(pointer)
    }
}

/// Makes a temporary file and renames it, so that a complete file exists at all times.
fn replace(path: &Path, make: impl FnMut(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    let partial = tempfile::Builder::new().prefix(".partial-").make_in(parent(path), make)?;
    partial.persist(path).map(drop).map_err(|error| error.error)
}

/// Makes a relative symbolic link; if unsupported, a hard link or a copy.
fn link(blob: &Path, relative: &Path, to: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    match std::os::unix::fs::symlink(relative, to) {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {}
        done => return done,
    }
    let _ = (relative, ErrorKind::Unsupported);
    fs::hard_link(blob, to).or_else(|_| fs::copy(blob, to).map(drop))
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("a file in the cache has a folder")
}

/// Whether the text can be a commit and a folder's name.
pub(crate) fn is_commit(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether the text can be a blob's name.
pub(crate) fn is_etag(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= 128 && !text.starts_with('.') && text.bytes().all(plain) && is_plain_path(text)
}
