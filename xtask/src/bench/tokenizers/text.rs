//! The corpus in one file, and parts of it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::step;

/// The files that a config's `corpus.files` names, in order.
pub fn files(config: &str) -> Result<Vec<PathBuf>> {
    let table: toml::Table = config.parse()?;
    let patterns = table.get("corpus").and_then(|corpus| corpus.get("files")).and_then(toml::Value::as_array);
    let mut files = Vec::new();
    for pattern in patterns.context("no corpus.files")?.iter().filter_map(toml::Value::as_str) {
        let path = step::root().join(pattern);
        match path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix("*.")) {
            Some(end) => files.extend(ending(path.parent().unwrap_or(&path), end)?),
            None => files.push(path),
        }
    }
    if files.is_empty() {
        bail!("no file of the corpus is there");
    }
    Ok(files)
}

/// The files of a folder that end so, by their names.
fn ending(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    files.retain(|path| path.extension().is_some_and(|found| found == end));
    files.sort();
    Ok(files)
}

/// Writes every `every`th line of files to `to`, so that a part is of all texts.
pub fn lines(files: &[PathBuf], every: usize, to: &Path) -> Result<()> {
    let cannot = |path: &Path| format!("cannot read {}", path.display());
    let write = || format!("cannot write {}", to.display());
    let mut out = BufWriter::new(File::create(to).with_context(write)?);
    let (mut count, mut line) = (0usize, Vec::new());
    for path in files {
        let mut file = BufReader::new(File::open(path).with_context(|| cannot(path))?);
        while file.read_until(b'\n', &mut line).with_context(|| cannot(path))? > 0 {
            if count.is_multiple_of(every) {
                out.write_all(&line).with_context(write)?;
                if !line.ends_with(b"\n") {
                    out.write_all(b"\n").with_context(write)?;
                }
            }
            count += 1;
            line.clear();
        }
    }
    out.flush().with_context(write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_of_all_files() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("b.txt", "4\n5\n6"), ("a.txt", "0\n1\n2\n3\n"), ("c.md", "7\n")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let files = ending(folder.path(), "txt").unwrap();
        let to = folder.path().join("part");
        for (every, expected) in [(1, "0\n1\n2\n3\n4\n5\n6\n"), (3, "0\n3\n6\n"), (100, "0\n")] {
            lines(&files, every, &to).unwrap();
            assert_eq!(fs::read_to_string(&to).unwrap(), expected);
        }
        assert!(lines(&[folder.path().join("d.txt")], 1, &to).is_err());
    }

    #[test]
    fn a_configs_files_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), "").unwrap();
        let config = |pattern: &str| format!("[corpus]\nfiles = [{:?}]\n", folder.path().join(pattern));
        assert_eq!(files(&config("*.txt")).unwrap(), [folder.path().join("a.txt")]);
        assert_eq!(files(&config("b.txt")).unwrap(), [folder.path().join("b.txt")]);
        assert!(files(&config("*.md")).is_err() && files("").is_err());
    }
}
