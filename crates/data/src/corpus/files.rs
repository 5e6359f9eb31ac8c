//! The files of a corpus.

use super::{CorpusConfig, Format};
use crate::{DataError, Result};
use std::path::{Path, PathBuf};

/// The files of a corpus, language by language, in the order listed. Files of a folder or pattern are sorted
/// by name.
///
/// Folders are read recursively. Folders and `*` omit hidden entries, and links to a parent folder are not
/// followed. A file listed twice is read twice.
///
/// # Errors
/// [`DataError::NoFiles`] or [`DataError::NoLanguageFiles`] for a path or pattern without files,
/// [`DataError::Pattern`].
pub fn input_files(config: &CorpusConfig, base: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for part in config.parts() {
        let found = files(&part.files, base).map_err(|error| match error {
            DataError::NoFiles { pattern, base } if !config.languages.is_empty() => {
                DataError::NoLanguageFiles { language: part.language.clone(), pattern, base }
            }
            other => other,
        })?;
        all.extend(found);
    }
    Ok(all)
}

/// The files that match these paths and patterns, as in [`input_files`].
pub(crate) fn files(patterns: &[String], base: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for pattern in patterns {
        let before = files.len();
        let path = base.join(pattern);
        if path.is_file() {
            files.push(path);
        } else if path.is_dir() {
            walk(&path, &mut Vec::new(), &mut files)?;
        } else {
            let options = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
            // Only what the user wrote is a pattern: the base may have brackets in its name.
            let base = glob::Pattern::escape(&base.to_string_lossy());
            let matches =
                glob::glob_with(&Path::new(&base).join(pattern).to_string_lossy(), options).map_err(
                    |error| DataError::Pattern { pattern: pattern.clone(), reason: error.msg.to_string() },
                )?;
            for path in matches {
                let path = path.map_err(|error| {
                    let path = error.path().to_owned();
                    DataError::io("read", &path)(error.into())
                })?;
                match path.is_dir() {
                    true => walk(&path, &mut Vec::new(), &mut files)?,
                    false => files.push(path),
                }
            }
        }
        if files.len() == before {
            return Err(DataError::NoFiles { pattern: pattern.clone(), base: base.into() });
        }
    }
    if files.is_empty() {
        return Err(DataError::NoFiles { pattern: "(none listed)".into(), base: base.into() });
    }
    Ok(files)
}

/// Adds the files of a folder, sorted by name, without hidden ones. `above`: the parent folders, to which a link may
/// lead back.
pub(crate) fn walk(folder: &Path, above: &mut Vec<PathBuf>, files: &mut Vec<PathBuf>) -> Result<()> {
    let real = folder.canonicalize().map_err(DataError::io("read", folder))?;
    if above.contains(&real) {
        return Ok(());
    }
    above.push(real);
    let mut entries = std::fs::read_dir(folder)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .map_err(DataError::io("read", folder))?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // Hidden files are an editor's or a version control's, not text.
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        match path.is_dir() {
            true => walk(&path, above, files)?,
            false => files.push(path),
        }
    }
    above.pop();
    Ok(())
}

/// A file's format: the configured one, or the one its extension indicates after any compression
/// extension.
pub(crate) fn format(path: &Path, configured: Format) -> Format {
    if configured != Format::Auto {
        return configured;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("jsonl" | "ndjson" | "json") => Format::Jsonl,
        Some("parquet") => Format::Parquet,
        _ => Format::Text,
    }
}
