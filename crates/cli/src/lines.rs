//! Lines of text from standard input or a file.

use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader, Read, StdinLock, stdin};
use std::path::Path;

use anyhow::{Context, Result, bail};
use cloze_data::not_utf8;

/// Bytes read ahead at most.
const READ_AHEAD: usize = 1 << 20;

/// How UTF-8 may begin to say that it is that.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// UTF-8 lines in batches: what is there now, one line at least. A byte-order mark before the first is left out.
///
/// So a file is worked through many lines at a time, and a person or program that waits for the
/// answer to each line gets it.
pub struct Lines<R> {
    input: BufReader<R>,
    /// What errors call the input.
    name: String,
    /// A file's bytes.
    size: Option<u64>,
    /// Lines read so far.
    count: usize,
    /// What ended the last batch before its time; told by the next call, after its lines' results.
    failed: Option<anyhow::Error>,
}

impl Lines<StdinLock<'static>> {
    /// The lines of standard input.
    pub fn stdin() -> Self {
        Self::new(stdin().lock(), "standard input")
    }
}

impl Lines<Box<dyn Read>> {
    /// The lines of a file, or of standard input where there is none.
    pub fn of(path: Option<&Path>) -> Result<Self> {
        match path {
            None => Ok(Self::new(Box::new(stdin().lock()), "standard input")),
            Some(path) => {
                let name = path.display().to_string();
                let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
                let size = file.metadata().ok().filter(Metadata::is_file).map(|found| found.len());
                Ok(Self { size, ..Self::new(Box::new(file), &name) })
            }
        }
    }
}

impl<R: Read> Lines<R> {
    fn new(input: R, name: &str) -> Self {
        let input = BufReader::with_capacity(READ_AHEAD, input);
        Self { input, name: name.to_owned(), size: None, count: 0, failed: None }
    }

    /// All bytes of a file, line ends among them; of other input it is not known how much there is.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// A line by its number, as errors name it.
    pub fn place(&self, number: usize) -> String {
        format!("{}, line {number}", self.name)
    }

    /// The next lines, without their ends (`\n` or `\r\n`), and the number of the first, from 1;
    /// `None` when all are read.
    ///
    /// # Errors
    /// A line that is not UTF-8, by its number, once the lines before it have been handed out.
    pub fn next_batch(&mut self) -> Result<Option<(usize, Vec<String>)>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let first = self.count + 1;
        let mut batch = Vec::new();
        loop {
            match self.next_line() {
                Ok(Some(line)) => batch.push(line),
                Ok(None) => break,
                Err(error) if batch.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
            // Go on only where a whole line is at hand, so that no read has to wait.
            if !self.input.buffer().contains(&b'\n') {
                break;
            }
        }
        Ok((!batch.is_empty()).then_some((first, batch)))
    }

    fn next_line(&mut self) -> Result<Option<String>> {
        let number = self.count + 1;
        let mut line = Vec::new();
        let read = self.input.read_until(b'\n', &mut line);
        if read.with_context(|| self.place(number))? == 0 {
            return Ok(None);
        }
        self.count = number;
        if number == 1 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        match String::from_utf8(line) {
            Ok(line) => Ok(Some(line)),
            Err(error) => {
                let what = not_utf8(error.as_bytes(), error.utf8_error(), number == 1);
                bail!("{}: {what}", self.place(number))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything `input` yields, and the error that ended it.
    fn all(input: &[u8]) -> (Vec<String>, Option<String>) {
        let mut lines = Lines::new(input, "standard input");
        let mut read = Vec::new();
        loop {
            match lines.next_batch() {
                Ok(Some((first, batch))) => {
                    assert_eq!(first, read.len() + 1);
                    read.extend(batch);
                }
                Ok(None) => return (read, None),
                Err(error) => return (read, Some(error.to_string())),
            }
        }
    }

    #[test]
    fn lines_lose_their_ends_and_empty_ones_stay() {
        let (lines, error) = all(b"one\r\n\ntwo\n\nlast");
        assert_eq!(lines, ["one", "", "two", "", "last"]);
        assert_eq!(error, None);
        assert_eq!(all(b""), (vec![], None));
        assert_eq!(all(b"\n"), (vec![String::new()], None));
        assert_eq!(all("\u{feff}a\n\u{feff}b\n".as_bytes()).0, ["a", "\u{feff}b"]);
    }

    #[test]
    fn bad_utf8_is_named_by_line_after_the_lines_before_it() {
        let (lines, error) = all(b"fine\nab\xffc\nmore\n");
        assert_eq!(lines, ["fine"]);
        assert_eq!(error.unwrap(), "standard input, line 2: not UTF-8 (byte 3 is 0xff)");
        let utf16 =
            "standard input, line 1: not UTF-8 (byte 1 is 0xff); it begins as UTF-16 does, save it as UTF-8";
        assert_eq!(all(b"\xff\xfe\"\0a\0\"\0\n\0").1.unwrap(), utf16);
        assert!(all(b"caf\xc3").1.unwrap().contains("line 1: not UTF-8 (byte 4 is 0xc3)"));
    }

    #[test]
    fn a_batch_is_what_can_be_had_without_waiting() {
        /// Hands out one piece a read, as a pipe does.
        struct Pieces(Vec<&'static [u8]>);
        impl Read for Pieces {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                if self.0.is_empty() {
                    return Ok(0);
                }
                let piece = self.0.remove(0);
                buffer[..piece.len()].copy_from_slice(piece);
                Ok(piece.len())
            }
        }
        let mut lines = Lines::new(Pieces(vec![b"a\nb\nc", b"c\nd\n"]), "pieces");
        assert_eq!(lines.next_batch().unwrap().unwrap(), (1, vec!["a".into(), "b".into()]));
        assert_eq!(lines.next_batch().unwrap().unwrap(), (3, vec!["cc".into(), "d".into()]));
        assert!(lines.next_batch().unwrap().is_none());
    }
}
