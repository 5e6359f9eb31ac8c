//! Resolves a model name to a local folder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::ModelCache;
use crate::error::io;
use crate::files::{CONFIG, MODULES, OPTIONAL, WEIGHTS, module_files, shards};
use crate::remote::Remote;
use crate::{HubConfig, HubError, ModelName, Result};

/// Receives a download's progress. Every method does nothing by default.
pub trait Progress {
    /// A file is about to be downloaded.
    fn file(&mut self, _name: &str) {}

    /// The number of bytes downloaded so far, and the file's length if known.
    fn at(&mut self, _have: u64, _len: Option<u64>) {}

    /// Something worth a line happened.
    fn note(&mut self, _line: &str) {}
}

impl Progress for () {}

/// A model in a local folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The folder, inside the cache.
    pub folder: PathBuf,
    /// The model's files, as paths relative to the folder, which may contain others.
    pub files: Vec<String>,
    /// The commit of the name's revision.
    pub commit: String,
}

/// Models by name, from a server and a cache.
#[derive(Debug, Clone)]
pub struct Hub {
    config: HubConfig,
}

impl Hub {
    /// A hub with this `config`. No request is made yet.
    ///
    /// # Errors
    /// [`HubError::Protocol`] for an invalid endpoint.
    pub fn new(mut config: HubConfig) -> Result<Self> {
        config.endpoint.truncate(config.endpoint.trim_end_matches('/').len());
        let is_http = config.endpoint.starts_with("http://") || config.endpoint.starts_with("https://");
        if !is_http || config.endpoint.parse::<ureq::http::Uri>().is_err() {
            let reason = "expected an address that begins with https://".into();
            return Err(HubError::Protocol { url: config.endpoint, reason });
        }
        Ok(Self { config })
    }

    /// The folder of a model: its configuration, tokenizer, sentence-transformers modules and weights
    /// (safetensors if available). Downloads what the cache lacks.
    ///
    /// Asks the server once for the commit of the name; offline, or if the server is unreachable and the
    /// cache has the model, the last known commit is used. Interrupted downloads resume the next time. Files
    /// appear in the folder only when complete.
    ///
    /// # Errors
    /// See [`HubError`]: not found, gated, offline and not cached, no network, a corrupt download, a full
    /// disk.
    pub fn fetch(&self, name: &ModelName, progress: &mut dyn Progress) -> Result<Model> {
        let cache = ModelCache::new(&self.config.cache, name);
        let remote = Remote::new(&self.config);
        let cached = || -> Result<Option<(String, Vec<String>)>> {
            cache.commit().map(|commit| cache.listing(&commit).map(|files| (commit, files))).transpose()
        };
        let run = |commit: String, listed: Vec<String>, remote, progress| {
            Run { config: &self.config, name, cache: &cache, remote, commit, listed, progress }.fetch()
        };
        if !self.config.offline {
            match remote.listing(name) {
                Ok((commit, listed)) => return run(commit, listed, Some(&remote), progress),
                Err(error @ HubError::Network { .. }) => {
                    let Some((commit, listed)) = cached()? else { return Err(error) };
                    // Half a model in the cache explains less than why the other half is not to be had.
                    let Ok(model) = run(commit, listed, None, &mut ()) else { return Err(error) };
                    progress.note(&format!("{error}; using the cache's {name}, as of {}", model.commit));
                    return Ok(model);
                }
                Err(error) => return Err(error),
            }
        }
        match cached()? {
            Some((commit, listed)) => run(commit, listed, None, progress),
            None => Err(HubError::NotCached {
                name: name.to_string(),
                file: CONFIG.into(),
                cache: self.config.cache.clone(),
            }),
        }
    }
}

/// One model being fetched.
struct Run<'a> {
    config: &'a HubConfig,
    name: &'a ModelName,
    cache: &'a ModelCache,
    /// `None` offline.
    remote: Option<&'a Remote<'a>>,
    commit: String,
    /// The model's files.
    listed: Vec<String>,
    progress: &'a mut dyn Progress,
}

impl Run<'_> {
    fn fetch(mut self) -> Result<Model> {
        if !self.has(CONFIG) {
            return Err(self.lacks(CONFIG));
        }
        let Some(weights) = WEIGHTS.iter().copied().find(|file| self.has(file)) else {
            let missing = "weights in model.safetensors, pytorch_model.bin or shards of them";
            return Err(self.lacks(missing));
        };
        let mut files = vec![CONFIG.to_string()];
        files.extend(OPTIONAL.iter().filter(|file| self.has(file)).map(|file| file.to_string()));
        if self.has(MODULES) {
            let (path, modules) = self.read(MODULES)?;
            let found = module_files(&modules, &self.listed);
            files.extend(found.map_err(|error| self.unusable(&path, error.to_string()))?);
        }
        // Weights last: where they are, all else is.
        if weights.ends_with(".index.json") {
            let (path, index) = self.read(weights)?;
            files.extend(shards(&index).map_err(|reason| self.unusable(&path, reason))?);
        }
        files.push(weights.into());
        for file in &files {
            self.get(file)?;
        }
        if self.remote.is_some() {
            self.cache.set_commit(&self.commit)?;
        }
        Ok(Model { folder: self.cache.snapshot(&self.commit), files, commit: self.commit })
    }

    fn has(&self, file: &str) -> bool {
        self.listed.iter().any(|listed| listed == file)
    }

    fn lacks(&self, missing: &'static str) -> HubError {
        match self.remote {
            Some(_) => HubError::NoModel { name: self.name.to_string(), missing },
            None => self.not_cached(missing),
        }
    }

    fn not_cached(&self, file: &str) -> HubError {
        let cache = self.config.cache.clone();
        HubError::NotCached { name: self.name.to_string(), file: file.into(), cache }
    }

    fn unusable(&self, path: &Path, reason: String) -> HubError {
        HubError::Protocol { url: path.display().to_string(), reason }
    }

    /// The path and content of a small file.
    fn read(&mut self, file: &str) -> Result<(PathBuf, Vec<u8>)> {
        let path = self.get(file)?;
        let content = fs::read(&path).map_err(io("read", &path))?;
        Ok((path, content))
    }

    /// The path of a file in the snapshot, downloading it if missing.
    fn get(&mut self, file: &str) -> Result<PathBuf> {
        let pointer = self.cache.snapshot(&self.commit).join(file);
        if pointer.is_file() {
            return Ok(pointer);
        }
        let Some(remote) = self.remote else { return Err(self.not_cached(file)) };
        let announced = remote.announced(self.name, &self.commit, file)?;
        let blob_name = announced.blob(&self.commit, file);
        let blob = self.cache.blob(&blob_name);
        let folder = blob.parent().expect("a blob has a folder");
        fs::create_dir_all(folder).map_err(io("make", folder))?;
        let is_whole = || {
            fs::metadata(&blob)
                .is_ok_and(|data| data.is_file() && announced.len.is_none_or(|len| data.len() == len))
        };
        if !is_whole() {
            let _lock = self.cache.lock(&blob_name)?;
            // Another program may have brought it in the meantime.
            if !is_whole() {
                self.progress.file(file);
                let incomplete = blob.with_file_name(format!("{blob_name}.incomplete"));
                remote.download(self.name, &announced, &incomplete, self.progress)?;
                fs::rename(&incomplete, &blob).map_err(io("make", &blob))?;
            }
        }
        self.cache.link(&blob_name, &self.commit, file)
    }
}

impl Model {
    /// Copies the model's files, as regular files instead of links, to a new folder.
    ///
    /// The folder appears once all are copied.
    ///
    /// # Errors
    /// [`HubError::Io`], also for an existing non-empty folder.
    pub fn copy_to(&self, folder: &Path) -> Result<()> {
        if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(io("write to", folder)(std::io::Error::other("the folder is not empty")));
        }
        let parent = match folder.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(io("make", parent))?;
        let partial =
            tempfile::Builder::new().prefix(".cloze-").tempdir_in(parent).map_err(io("write to", parent))?;
        // The outer folder is for this user alone, as temporary ones are; the inner one is moved.
        let inner = partial.path().join("model");
        for file in &self.files {
            let (from, to) = (self.folder.join(file), inner.join(file));
            let parent = to.parent().expect("a file has a folder");
            fs::create_dir_all(parent).map_err(io("make", parent))?;
            fs::copy(&from, &to).map_err(io("copy", &from))?;
        }
        // An empty one in its place: not every system replaces it.
        let _ = fs::remove_dir(folder);
        fs::rename(&inner, folder).map_err(io("make", folder))
    }
}
