//! Length-limited lines of a file, compressed or not.

use super::Problem;
use super::utf16::Decoded;
use crate::not_utf8;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file's text as a stream, and a counter of the bytes read.
pub(crate) fn open(path: &Path) -> io::Result<(Box<dyn BufRead>, Arc<AtomicU64>)> {
    decoded(Box::new(File::open(path)?))
}

/// Bytes decoded to a text stream, and a counter of the bytes read. gzip and zstd are recognised by their
/// first bytes, and UTF-16 by its byte-order mark.
pub(crate) fn decoded(source: Box<dyn Read>) -> io::Result<(Box<dyn BufRead>, Arc<AtomicU64>)> {
    let read = Arc::new(AtomicU64::new(0));
    let mut source = BufReader::with_capacity(1 << 18, Counted { source, read: read.clone() });
    let magic = source.fill_buf()?;
    let source: Box<dyn BufRead> = match magic {
        [0x1F, 0x8B, ..] => Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(source))),
        [0x28, 0xB5, 0x2F, 0xFD, ..] => Box::new(BufReader::new(zstd::Decoder::with_buffer(source)?)),
        _ => Box::new(source),
    };
    Ok((Box::new(Decoded::new(source)), read))
}

/// Lines as text, numbered from 1.
pub(crate) struct Lines {
    source: Box<dyn BufRead>,
    read: Arc<AtomicU64>,
    max: usize,
    /// The user's name for the limit.
    setting: String,
    number: u64,
    buffer: Vec<u8>,
    /// The line terminator; unknown until the first line is read.
    end: Option<u8>,
}

impl Lines {
    /// Opens a file; gzip and zstd are recognised by their first bytes.
    pub fn open(path: &Path, max: usize, setting: impl Into<String>) -> Result<Self, Problem> {
        Self::of_opened(open(path), max, setting)
    }

    /// Reads bytes from any source, as [`open`](Self::open) reads a file's.
    pub fn read(source: Box<dyn Read>, max: usize, setting: impl Into<String>) -> Result<Self, Problem> {
        Self::of_opened(decoded(source), max, setting)
    }

    fn of_opened(
        opened: io::Result<(Box<dyn BufRead>, Arc<AtomicU64>)>,
        max: usize,
        setting: impl Into<String>,
    ) -> Result<Self, Problem> {
        let (source, read) = opened.map_err(|error| Problem {
            line: None,
            kind: "unreadable file",
            detail: format!("cannot be read: {error}"),
            ends_file: true,
        })?;
        Ok(Self::of(source, read, max, setting))
    }

    /// The lines of an [open](open) file.
    pub fn of(
        source: Box<dyn BufRead>,
        read: Arc<AtomicU64>,
        max: usize,
        setting: impl Into<String>,
    ) -> Self {
        Self { source, read, max, setting: setting.into(), number: 0, buffer: Vec::new(), end: None }
    }

    /// The line terminator: `\n`, or `\r` if the file begins with such lines and has no other, as written by
    /// old spreadsheets.
    fn end(&mut self) -> io::Result<u8> {
        if let Some(end) = self.end {
            return Ok(end);
        }
        let start = self.source.fill_buf()?;
        let is_return = |at: usize| at + 1 < start.len();
        let returns =
            !start.contains(&b'\n') && start.iter().position(|byte| *byte == b'\r').is_some_and(is_return);
        Ok(*self.end.insert(if returns { b'\r' } else { b'\n' }))
    }

    /// Number of lines requested so far, which is the last one's number, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of the file read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The last line with its bytes that are not UTF-8 replaced, if it was refused for them.
    pub fn last_lossy(&self) -> Option<String> {
        match std::str::from_utf8(&self.buffer) {
            Err(_) => Some(String::from_utf8_lossy(&self.buffer).into_owned()),
            Ok(_) => None,
        }
    }

    /// The next line without its line ending; `None` at the end of the file.
    pub fn next(&mut self) -> Option<Result<(u64, &str), Problem>> {
        self.buffer.clear();
        self.number += 1;
        let line = Some(self.number);
        // Room for the line's end, `\r\n`: what fills it without ending is too long.
        let limit = (self.max as u64).saturating_add(2);
        let found =
            self.end().and_then(|end| self.source.by_ref().take(limit).read_until(end, &mut self.buffer));
        let end = self.end.unwrap_or(b'\n');
        match found {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => {
                return Some(Err(Problem {
                    line,
                    kind: "damaged file",
                    detail: format!("reading failed part way: {error}"),
                    ends_file: true,
                }));
            }
        }
        let ended = self.buffer.last() == Some(&end);
        if ended {
            self.buffer.pop();
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        if self.buffer.len() > self.max {
            if !ended && let Err(error) = skip_line(&mut self.source, end) {
                let detail = format!("reading failed part way: {error}");
                return Some(Err(Problem { line, kind: "damaged file", detail, ends_file: true }));
            }
            return Some(Err(Problem {
                line,
                kind: "long line",
                detail: format!("the line is longer than `{}` = {}", self.setting, self.max),
                ends_file: false,
            }));
        }
        // A byte-order mark is no part of the text.
        if self.number == 1 && self.buffer.starts_with("\u{FEFF}".as_bytes()) {
            self.buffer.drain(..3);
        }
        Some(match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok((self.number, text)),
            Err(error) => Err(Problem {
                line,
                kind: "bad UTF-8",
                detail: not_utf8(&self.buffer, error, self.number == 1),
                ends_file: false,
            }),
        })
    }
}

/// Reads to the end of the line without keeping it.
fn skip_line(source: &mut dyn BufRead, end: u8) -> io::Result<()> {
    loop {
        let buffer = source.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        match buffer.iter().position(|byte| *byte == end) {
            Some(place) => {
                source.consume(place + 1);
                return Ok(());
            }
            None => {
                let len = buffer.len();
                source.consume(len);
            }
        }
    }
}

/// A source that counts the bytes read from it.
struct Counted {
    source: Box<dyn Read>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buffer)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}
