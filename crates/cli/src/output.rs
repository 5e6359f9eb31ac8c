//! Standard output.

use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};

use anyhow::{Context, Error, Result};

use crate::failure::ClosedPipe;

/// Buffered standard output, where results go. A reader that went away is [`ClosedPipe`].
pub struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub fn new() -> Self {
        Self(BufWriter::with_capacity(1 << 16, io::stdout().lock()))
    }

    /// Writes `text` and a line's end.
    pub fn line(&mut self, text: impl Display) -> Result<()> {
        writeln!(self.0, "{text}").or_else(failed)
    }

    /// Writes `bytes` as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).or_else(failed)
    }

    /// Hands on what is buffered; call it at the end, or the last error is lost.
    pub fn flush(&mut self) -> Result<()> {
        self.0.flush().or_else(failed)
    }
}

fn failed(error: io::Error) -> Result<()> {
    match error.kind() {
        ErrorKind::BrokenPipe => Err(Error::new(ClosedPipe)),
        _ => Err(error).context("cannot write to standard output"),
    }
}
