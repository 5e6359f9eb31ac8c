//! Checksums of what a run reads: two runs with the same checksums have read the same data.

use crate::corpus::{CorpusConfig, files, format, input_files};
use crate::{DataError, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes hashed at a time: enough to share among the threads.
const BLOCK: usize = 4 << 20;

/// The BLAKE3 hash of a file's contents, in hexadecimal digits.
///
/// # Errors
/// [`DataError::Io`].
pub fn file_checksum(path: &Path) -> Result<String> {
    Ok(hash_path(path)?.to_hex().to_string())
}

fn hash_path(path: &Path) -> Result<blake3::Hash> {
    File::open(path).and_then(|file| hash_file(&file)).map_err(DataError::io("read", path))
}

/// A string that identifies a corpus's documents: a hash of its files' contents and of the settings that
/// decide how they are read. Relative paths start at `base`.
///
/// # Errors
/// A pattern without files; files that cannot be read.
pub fn corpus_checksum(config: &CorpusConfig, base: &Path) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(settings(config).as_bytes());
    // Says which language a missing file is of.
    input_files(config, base)?;
    hash_corpus_files(&mut hasher, config, base)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// The settings that shape a corpus's documents, as text.
pub(crate) fn settings(config: &CorpusConfig) -> String {
    serde_json::to_string(&config.shaping()).expect("a config serialises")
}

/// Adds the contents and the formats of a corpus's files to a hash.
pub(crate) fn hash_corpus_files(
    hasher: &mut blake3::Hasher,
    config: &CorpusConfig,
    base: &Path,
) -> Result<()> {
    for part in config.parts() {
        if !config.languages.is_empty() {
            hasher.update(&(part.language.len() as u64).to_le_bytes());
            hasher.update(part.language.as_bytes());
        }
        for path in files(&part.files, base)? {
            let sum = hash_path(&path)?;
            hasher.update(sum.as_bytes());
            // The ending decides how the contents are read.
            hasher.update(&[format(&path, config.format) as u8]);
        }
    }
    Ok(())
}

/// The BLAKE3 hash of the rest of an open file, computed on all threads.
///
/// The file is read, not mapped: a mapped file counts as memory in use, and truncation by another process
/// would kill this one.
pub(crate) fn hash_file(mut file: &File) -> std::io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut block = Vec::with_capacity(BLOCK);
    loop {
        block.clear();
        if Read::by_ref(&mut file).take(BLOCK as u64).read_to_end(&mut block)? == 0 {
            return Ok(hasher.finalize());
        }
        hasher.update_rayon(&block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_corpus_is_told_from_others_by_its_texts_and_settings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, "One text.\n").unwrap();
        let mut config: CorpusConfig =
            serde_json::from_value(serde_json::json!({ "files": ["a.txt"] })).unwrap();
        let first = corpus_checksum(&config, folder.path()).unwrap();
        assert_eq!(corpus_checksum(&config, folder.path()).unwrap(), first);

        fs::write(&path, "Another text.\n").unwrap();
        let second = corpus_checksum(&config, folder.path()).unwrap();
        assert_ne!(second, first);
        config.max_document_bytes = 5;
        assert_ne!(corpus_checksum(&config, folder.path()).unwrap(), second);
    }

    #[test]
    fn a_file_is_of_its_language() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.txt", "b.txt", "c.txt"] {
            fs::write(folder.path().join(name), format!("Text {name}.\n")).unwrap();
        }
        let sum = |first: &[&str], second: &[&str]| {
            let config = serde_json::json!({ "languages": [
                { "name": "en", "files": first },
                { "name": "de", "files": second },
            ]});
            let config: CorpusConfig = serde_json::from_value(config).unwrap();
            corpus_checksum(&config, folder.path())
        };
        let one = sum(&["a.txt", "b.txt"], &["c.txt"]).unwrap();
        assert_eq!(one, sum(&["a.txt", "b.txt"], &["c.txt"]).unwrap());
        assert_ne!(one, sum(&["a.txt"], &["b.txt", "c.txt"]).unwrap());
        let message = sum(&["a.txt"], &["none.txt"]).unwrap_err().to_string();
        assert!(message.starts_with("the corpus of \"de\" has no file `none.txt` "), "{message}");
        assert!(message.contains("`corpus.languages`"), "{message}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = file_checksum(Path::new("no-such-file")).unwrap_err().to_string();
        assert!(error.contains("no-such-file"), "{error}");
    }
}
