//! The files of a test suite: given by name, in a folder, or in a zip archive.

use super::zip::{self, ZipEntry};
use crate::SkipReport;
use crate::corpus::Problem;
use crate::corpus::lines::Lines;
use crate::labelled::{LabelledSource, OnBadRow};
use crate::{DataError, Result};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A file of a test suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuiteFile {
    /// Its path; that of a file in an archive is below the archive's.
    pub path: PathBuf,
    archive: Option<(PathBuf, ZipEntry)>,
}

impl SuiteFile {
    /// Its name without folders and extension.
    pub fn stem(&self) -> String {
        self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The name of its folder.
    pub fn folder(&self) -> String {
        let folder = self.path.parent().and_then(Path::file_name);
        folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Its bytes.
    pub(super) fn open(&self) -> io::Result<Box<dyn Read>> {
        match &self.archive {
            Some((archive, entry)) => zip::open(archive, entry),
            None => Ok(Box::new(File::open(&self.path)?)),
        }
    }
}

/// The files that paths name, sorted within each: files as they are, and those with one of the `extensions` in folders and zip
/// archives, at any depth. Hidden ones are left out.
///
/// # Errors
/// A path that cannot be read; [`DataError::NoLabelledFiles`] for one without such a file.
pub fn suite_files(paths: &[PathBuf], extensions: &[&str]) -> Result<Vec<SuiteFile>> {
    let mut all = Vec::new();
    for path in paths {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| DataError::Io { action: "read", path, source }
        };
        let before = all.len();
        if fs::metadata(path).map_err(unreadable(path))?.is_dir() {
            let mut found = Vec::new();
            walk(path, &mut found).map_err(unreadable(path))?;
            found.retain(|path| has_extension(path, extensions));
            found.sort();
            all.extend(found.into_iter().map(|path| SuiteFile { path, archive: None }));
        } else if has_extension(path, &["zip"]) {
            let entries = zip::entries(path).map_err(unreadable(path))?;
            let mut entries: Vec<ZipEntry> = entries
                .into_iter()
                .filter(|entry| {
                    has_extension(Path::new(&entry.name), extensions) && !is_hidden(Path::new(&entry.name))
                })
                .collect();
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            let file = |entry: ZipEntry| SuiteFile {
                path: path.join(&entry.name),
                archive: Some((path.clone(), entry)),
            };
            all.extend(entries.into_iter().map(file));
        } else {
            all.push(SuiteFile { path: path.clone(), archive: None });
        }
        if all.len() == before {
            let known =
                extensions.iter().map(|extension| format!("*.{extension}")).collect::<Vec<_>>().join(" or ");
            return Err(DataError::NoLabelledFiles { pattern: known, base: path.clone() });
        }
    }
    Ok(all)
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let found = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    found.is_some_and(|found| extensions.contains(&found.as_str()))
}

/// Whether a path in an archive has a part that begins with a dot, or is what macOS adds.
fn is_hidden(path: &Path) -> bool {
    path.iter().any(|part| part.as_encoded_bytes().starts_with(b".") || part == "__MACOSX")
}

/// The files in a folder and its folders. Links to folders are not followed.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_hidden(Path::new(&entry.file_name())) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => walk(&entry.path(), found)?,
            false => found.push(entry.path()),
        }
    }
    Ok(())
}

/// The lines of a test suite's files. Empty ones are left out.
pub(super) struct SuiteLines {
    rest: VecDeque<SuiteFile>,
    current: Option<(SuiteFile, Lines)>,
    on_bad_row: OnBadRow,
    max_line_bytes: usize,
    skipped: SkipReport,
    failed: bool,
}

/// A line and its number.
pub(super) struct SuiteLine {
    pub number: u64,
    pub text: String,
}

impl SuiteLines {
    /// Of the source's keys, `on_bad_row` and `max_line_bytes` apply.
    pub fn new(files: Vec<SuiteFile>, source: &LabelledSource) -> Self {
        Self {
            rest: files.into(),
            current: None,
            on_bad_row: source.on_bad_row,
            max_line_bytes: source.max_line_bytes,
            skipped: SkipReport::default(),
            failed: false,
        }
    }

    /// The file of the last line.
    pub fn file(&self) -> Option<&SuiteFile> {
        self.current.as_ref().map(|(file, _)| file)
    }

    pub fn skipped(&self) -> &SkipReport {
        &self.skipped
    }

    /// Rejects a line of the current file for this `reason`; it is counted if bad ones are skipped.
    ///
    /// # Errors
    /// [`DataError::BadRow`] with the `problem`, if they are not.
    pub fn refuse(&mut self, line: u64, reason: &str, problem: String) -> Result<()> {
        let path = self.file().map(|file| file.path.clone()).unwrap_or_default();
        self.refuse_in(&path, line, reason, problem)
    }

    /// [`refuse`](Self::refuse) for a line of any file.
    ///
    /// # Errors
    /// As there.
    pub fn refuse_in(&mut self, path: &Path, line: u64, reason: &str, problem: String) -> Result<()> {
        if self.on_bad_row == OnBadRow::Skip {
            self.skipped.count_at(reason, || (format!("{}:{line}", path.display()), problem));
            return Ok(());
        }
        self.failed = true;
        Err(DataError::BadRow { path: path.into(), line: Some(line), problem })
    }

    /// The next line; none at the end, and after an error.
    pub fn next(&mut self) -> Result<Option<SuiteLine>> {
        while !self.failed {
            let Some((file, lines)) = &mut self.current else {
                let Some(file) = self.rest.pop_front() else { break };
                let opened = file.open().map_err(|source| {
                    self.failed = true;
                    DataError::Io { action: "read", path: file.path.clone(), source }
                })?;
                match Lines::read(opened, self.max_line_bytes, "--max-line-bytes") {
                    Ok(lines) => self.current = Some((file, lines)),
                    Err(problem) => return self.fail(&file, problem),
                }
                continue;
            };
            match lines.next() {
                None => self.current = None,
                Some(Ok((_, text))) if text.trim().is_empty() => {}
                Some(Ok((number, text))) => return Ok(Some(SuiteLine { number, text: text.to_owned() })),
                Some(Err(problem)) if problem.ends_file => {
                    let file = file.clone();
                    return self.fail(&file, problem);
                }
                Some(Err(problem)) => {
                    let Problem { line, kind, detail, .. } = problem;
                    self.refuse(line.unwrap_or_default(), kind, detail)?;
                }
            }
        }
        Ok(None)
    }

    fn fail(&mut self, file: &SuiteFile, problem: Problem) -> Result<Option<SuiteLine>> {
        self.failed = true;
        let Problem { line, detail: problem, .. } = problem;
        Err(DataError::LabelledFile { path: file.path.clone(), line, problem })
    }
}

#[cfg(test)]
mod tests {
    use super::super::zip::tests::archive;
    use super::*;

    #[test]
    fn files_of_folders_and_archives_are_found_but_no_hidden_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("suite/in/.hidden")).unwrap();
        for name in
            ["suite/b.jsonl", "suite/in/a.jsonl", "suite/in/.hidden/c.jsonl", "suite/note.md", "other.txt"]
        {
            fs::write(path(name), "{}\n\n{}\n").unwrap();
        }
        let zip = archive(&[
            ("data/z.jsonl", "{}\n"),
            ("data/.z.jsonl", ""),
            ("__MACOSX/data/z.jsonl", ""),
            ("a.jsonl", "{}"),
        ]);
        fs::write(path("suite.zip"), zip).unwrap();
        let found = suite_files(&[path("suite"), path("suite.zip"), path("other.txt")], &["jsonl"]).unwrap();
        let names: Vec<_> =
            found.iter().map(|file| file.path.strip_prefix(folder.path()).unwrap().to_owned()).collect();
        let expected =
            ["suite/b.jsonl", "suite/in/a.jsonl", "suite.zip/a.jsonl", "suite.zip/data/z.jsonl", "other.txt"];
        assert_eq!(names, expected.map(PathBuf::from));
        assert_eq!((found[3].stem(), found[3].folder()), ("z".into(), "data".into()));
        let mut lines = SuiteLines::new(found, &LabelledSource::default());
        let mut numbers = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            numbers.push(line.number);
        }
        assert_eq!(numbers, [1, 3, 1, 3, 1, 1, 1, 3]);
        let none = suite_files(&[path("suite")], &["csv"]).unwrap_err().to_string();
        assert!(none.contains("*.csv"), "{none}");
        assert!(
            suite_files(&[path("missing")], &["csv"]).unwrap_err().to_string().starts_with("cannot read")
        );
    }
}
