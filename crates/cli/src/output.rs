//! Where results go: standard output or a file.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};

use crate::failure::ClosedPipe;

/// Buffered standard output, whose reader may go away ([`ClosedPipe`]), or a file that is found whole or not at all.
pub struct Output {
    writer: BufWriter<Box<dyn Write>>,
    file: Option<Partial>,
}

/// A file under way, beside the place that it is to take.
struct Partial {
    path: PathBuf,
    place: PathBuf,
}

impl Output {
    /// Standard output.
    pub fn new() -> Self {
        Self { writer: BufWriter::with_capacity(1 << 16, Box::new(io::stdout().lock())), file: None }
    }

    /// A file, or standard output where there is none. What is no regular file, such as a pipe, is written to as
    /// it is.
    pub fn of(path: Option<&Path>) -> Result<Self> {
        let Some(place) = path else {
            return Ok(Self::new());
        };
        let in_place = fs::metadata(place).is_ok_and(|found| !found.is_file());
        let path = match in_place {
            true => place.to_owned(),
            false => {
                let mut name = place.file_name().map_or_else(OsString::new, ToOwned::to_owned);
                name.push(".partial");
                place.with_file_name(name)
            }
        };
        let file = File::create(&path).with_context(|| format!("cannot write {}", place.display()))?;
        let writer = BufWriter::with_capacity(1 << 16, Box::new(file) as Box<dyn Write>);
        Ok(Self { writer, file: (!in_place).then(|| Partial { path, place: place.to_owned() }) })
    }

    /// Writes `text` and a line's end.
    pub fn line(&mut self, text: impl Display) -> Result<()> {
        writeln!(self.writer, "{text}").or_else(|error| self.failed(error))
    }

    /// Writes `bytes` as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.write_all(bytes).or_else(|error| self.failed(error))
    }

    /// Hands on what is buffered; call it or [`finish`](Self::finish) at the end, or the last error is lost.
    pub fn flush(&mut self) -> Result<()> {
        self.writer.flush().or_else(|error| self.failed(error))
    }

    /// Puts a file in its place. One that was not finished is removed.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        match self.file.take() {
            Some(Partial { path, place }) => fs::rename(&path, &place)
                .inspect_err(|_| _ = fs::remove_file(&path))
                .with_context(|| format!("cannot write {}", place.display())),
            None => Ok(()),
        }
    }

    fn failed(&self, error: io::Error) -> Result<()> {
        match (&self.file, error.kind()) {
            (Some(Partial { place, .. }), _) => {
                Err(error).with_context(|| format!("cannot write {}", place.display()))
            }
            (None, ErrorKind::BrokenPipe) => Err(Error::new(ClosedPipe)),
            (None, _) => Err(error).context("cannot write to standard output"),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(Partial { path, .. }) = &self.file {
            // Nothing more can be done about a file that stays.
            let _ = fs::remove_file(path);
        }
    }
}
