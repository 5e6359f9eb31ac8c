//! Output to standard output or a file.

use std::fmt::Display;
#[cfg(unix)]
use std::fs::Permissions;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};
pub use cloze_trainer::metrics::standard_error::say;
use tempfile::TempPath;

use crate::failure::{ClosedPipe, WrongUsage};

/// The path of the file that standard input is, where the system has one.
pub const STANDARD_INPUT: &str = "/dev/stdin";

/// Buffered standard output, whose reader may go away ([`ClosedPipe`]), or a file that is written atomically.
pub struct Output {
    writer: BufWriter<Box<dyn Write>>,
    file: Option<Place>,
}

/// A file's final path, and the temporary file next to it, which is removed unless it is renamed to that path.
struct Place {
    path: PathBuf,
    partial: Option<TempPath>,
}

impl Output {
    /// Standard output.
    pub fn new() -> Self {
        Self { writer: BufWriter::with_capacity(1 << 16, Box::new(io::stdout().lock())), file: None }
    }

    /// A file, or standard output if there is none. Anything but a regular file, such as a pipe, is written to
    /// directly. If two processes write the same file, the last to finish wins.
    pub fn of(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::new());
        };
        let cannot = || format!("cannot write {}", path.display());
        let is_other = fs::metadata(path).is_ok_and(|found| !found.is_file());
        let (file, partial) = match is_other {
            true => (File::create(path).with_context(cannot)?, None),
            false => {
                let (file, partial) = beside(path).with_context(cannot)?;
                (file, Some(partial))
            }
        };
        let writer = BufWriter::with_capacity(1 << 16, Box::new(file) as Box<dyn Write>);
        Ok(Self { writer, file: Some(Place { path: path.to_owned(), partial }) })
    }

    /// The same for what is made of these `inputs`. What is read must not be replaced: rows that are left out would be lost.
    ///
    /// # Errors
    /// [`WrongUsage`] for an output that is one of them, also by another name.
    pub fn apart_from<'a>(path: Option<&Path>, inputs: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        Self::check_apart(path, inputs)?;
        Self::of(path)
    }

    /// Checks that an output is none of these `inputs`.
    ///
    /// # Errors
    /// Those of [`apart_from`](Self::apart_from).
    pub fn check_apart<'a>(path: Option<&Path>, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
        let place = path.and_then(|path| fs::canonicalize(path).ok()).filter(|place| place.is_file());
        if let (Some(path), Some(place)) = (path, place) {
            let is_same = |input: &Path| fs::canonicalize(input).is_ok_and(|input| input == place);
            if inputs.into_iter().any(is_same) {
                let problem = anyhow!(
                    "{}: this file is read, so it cannot be the output; name another one",
                    path.display()
                );
                return Err(WrongUsage::new(problem).into());
            }
        }
        Ok(())
    }

    /// Writes `text` and a newline.
    pub fn line(&mut self, text: impl Display) -> Result<()> {
        writeln!(self.writer, "{text}").or_else(|error| self.failed(error))
    }

    /// Writes `bytes`.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).or_else(|error| self.failed(error))
    }

    /// Whether this is a new file, whose start can be rewritten.
    pub fn is_new_file(&self) -> bool {
        self.file.as_ref().is_some_and(|place| place.partial.is_some())
    }

    /// Overwrites the first bytes of a new file ([`is_new_file`](Self::is_new_file)) with `bytes`; other output
    /// cannot be changed any more.
    pub fn rewrite_start(&mut self, bytes: &[u8]) -> Result<()> {
        self.flush()?;
        let Some(Place { path, partial: Some(partial) }) = &self.file else {
            return Ok(());
        };
        let written = File::options().write(true).open(partial).and_then(|mut file| file.write_all(bytes));
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Flushes the buffer; call it or [`finish`](Self::finish) at the end, or the last error is lost.
    pub fn flush(&mut self) -> Result<()> {
        self.writer.flush().or_else(|error| self.failed(error))
    }

    /// Moves a file to its final path. An unfinished file is removed.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        match self.file.take() {
            Some(Place { path, partial: Some(partial) }) => {
                let flushed = File::open(&partial).and_then(|file| file.sync_all());
                flushed
                    .and_then(|()| partial.persist(&path).map_err(io::Error::from))
                    .with_context(|| format!("cannot write {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, error: io::Error) -> Result<()> {
        match (&self.file, error.kind()) {
            (Some(Place { path, .. }), _) => {
                Err(error).with_context(|| format!("cannot write {}", path.display()))
            }
            (None, ErrorKind::BrokenPipe) => Err(Error::new(ClosedPipe)),
            (None, _) => Err(error).context("cannot write to standard output"),
        }
    }
}

/// A new file in the folder of `path`, under a unique name.
fn beside(path: &Path) -> io::Result<(File, TempPath)> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".cloze-");
    // As any file that a program makes, not for this user alone.
    #[cfg(unix)]
    let builder = builder.permissions(<Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
    Ok(builder.tempfile_in(folder)?.into_parts())
}

/// Writes a file atomically.
pub fn write_atomic(path: &Path, text: &str) -> Result<()> {
    let mut output = Output::of(Some(path))?;
    output.bytes(text.as_bytes())?;
    output.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_that_write_one_file_the_last_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.txt");
        let mut both = [1, 2].map(|_| Output::of(Some(&path)).unwrap());
        for text in ["a", "b"] {
            both.iter_mut().for_each(|output| output.line(text).unwrap());
        }
        let [mut first, second] = both;
        first.line("c").unwrap();
        second.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
        first.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\nc\n");
        drop(Output::of(Some(&path)).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn what_is_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let [input, link, other] = ["in.txt", "link.txt", "other.txt"].map(|name| folder.path().join(name));
        fs::write(&input, "a\n").unwrap();
        std::os::unix::fs::symlink(&input, &link).unwrap();
        let within = folder.path().join("sub/../in.txt");
        fs::create_dir(folder.path().join("sub")).unwrap();
        for same in [&input, &link, &within] {
            let error = Output::apart_from(Some(same), [&*other, &*input]).err().unwrap();
            assert!(
                error
                    .to_string()
                    .ends_with("this file is read, so it cannot be the output; name another one"),
                "{error}"
            );
            assert!(error.is::<WrongUsage>());
        }
        for apart in [Some(&*other), Some(Path::new("/dev/null")), None] {
            assert!(Output::apart_from(apart, [&*input, Path::new("/dev/null")]).is_ok());
        }
        assert_eq!(fs::read_to_string(&input).unwrap(), "a\n");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_for_whom_other_files_are_for() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let [ours, other] = ["ours", "other"].map(|name| folder.path().join(name));
        write_atomic(&ours, "text").unwrap();
        fs::write(&other, "text").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&other));
    }
}
