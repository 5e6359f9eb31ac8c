//! Lines of text from standard input or a file.

use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader, Read, StdinLock, stdin};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use clap::builder::RangedU64ValueParser;
use cloze_data::{SkipReport, check_no_spreadsheet, not_utf8};
use cloze_tokenizer::Sequence;

/// Maximum bytes of read-ahead.
const READ_AHEAD: usize = 1 << 20;

/// Maximum lines of a batch for a model: this many results are in memory at once, and short ones cost more than
/// their bytes.
pub const BATCH: usize = 2048;

/// Maximum lines of a batch for a tokenizer alone: results take little memory.
pub const BATCH_OF_IDS: usize = 1 << 16;

/// The default maximum line length in bytes, as for training data.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Parses `--max-line-bytes`.
pub fn limit() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// The UTF-8 byte-order mark.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// UTF-8 lines in batches: whatever is available now, at least one line. A leading byte-order mark is skipped.
///
/// This way a file is processed many lines at a time, while a person or program that waits for each answer gets
/// it.
pub struct Lines<R> {
    input: BufReader<R>,
    /// The maximum line length in bytes.
    max: usize,
    /// What to do with longer lines.
    longer: Longer,
    /// The input's name in error messages.
    name: String,
    /// Whether that is a file's name.
    is_file: bool,
    /// The file's size in bytes.
    size: Option<u64>,
    /// Lines read so far.
    count: usize,
    /// The error that ended the last batch early; returned by the next call, after that batch's results.
    failed: Option<anyhow::Error>,
    /// Whether unusable lines are left out and counted.
    skips: bool,
    skipped: SkipReport,
}

/// What was read of an input.
enum Found {
    Line,
    End,
    /// A line that cannot be used: the reason to count it by, and what is wrong with it.
    Bad(&'static str, String),
}

/// What to do with a line that exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Longer {
    /// Fail.
    Refused,
    /// Return its beginning and discard the rest.
    Cut,
}

/// A line without its line ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The line, or the part that was kept.
    pub text: &'a str,
    /// Whether the line was cut after `text`.
    pub goes_on: bool,
}

impl AsRef<str> for Line<'_> {
    fn as_ref(&self) -> &str {
        self.text
    }
}

impl<'a> From<Line<'a>> for Sequence<'a> {
    fn from(line: Line<'a>) -> Self {
        match line.goes_on {
            true => Self::Beginning(line.text),
            false => Self::Text(line.text),
        }
    }
}

/// Lines that were read together. Their text shares a buffer that the next batch reuses.
#[derive(Debug, Default)]
pub struct Batch {
    /// The number of the first line, from 1.
    first: usize,
    /// The concatenated lines, without line endings.
    text: String,
    /// Where in `text` each line ends, and whether it was cut.
    ends: Vec<(usize, bool)>,
}

impl Batch {
    /// The number of the first line, from 1.
    pub fn first(&self) -> usize {
        self.first
    }

    /// The number of lines.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The line at an index.
    pub fn line(&self, place: usize) -> Line<'_> {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before].0);
        let (end, goes_on) = self.ends[place];
        Line { text: &self.text[start..end], goes_on }
    }

    /// The lines in order.
    pub fn iter(&self) -> impl Iterator<Item = Line<'_>> {
        (0..self.len()).map(|place| self.line(place))
    }

    /// The lines with their numbers, from 1.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, Line<'_>)> {
        (self.first..).zip(self.iter())
    }

    fn clear(&mut self, first: usize) {
        // One very long line is no reason to keep its memory.
        self.text.clear();
        self.text.shrink_to(2 * READ_AHEAD);
        self.ends.clear();
        self.first = first;
    }

    fn push(&mut self, text: &str, goes_on: bool) {
        self.text.push_str(text);
        self.ends.push((self.text.len(), goes_on));
    }
}

impl Lines<StdinLock<'static>> {
    /// The lines of standard input.
    pub fn stdin(max: usize, longer: Longer) -> Self {
        Self::new(stdin().lock(), "standard input", max, longer)
    }
}

impl Lines<Box<dyn Read>> {
    /// The lines of a file, or of standard input if no file is given.
    pub fn of(path: Option<&Path>, max: usize) -> Result<Self> {
        let new = |input: Box<dyn Read>, name: &str| Self::new(input, name, max, Longer::Refused);
        match path {
            None => Ok(new(Box::new(stdin().lock()), "standard input")),
            Some(path) => {
                check_no_spreadsheet(path)?;
                let name = path.display().to_string();
                let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
                let size = file.metadata().ok().filter(Metadata::is_file).map(|found| found.len());
                Ok(Self { is_file: true, size, ..new(Box::new(file), &name) })
            }
        }
    }
}

impl<R: Read> Lines<R> {
    /// Lines of at most `max` bytes; `name` is the input's name in error messages; `longer` lines are refused
    /// or cut.
    pub fn new(input: R, name: &str, max: usize, longer: Longer) -> Self {
        let input = BufReader::with_capacity(READ_AHEAD, input);
        Self {
            input,
            max,
            longer,
            name: name.to_owned(),
            is_file: false,
            size: None,
            count: 0,
            failed: None,
            skips: false,
            skipped: SkipReport::default(),
        }
    }

    /// The same lines, with longer ones refused or cut as set.
    pub fn with_longer(self, longer: Longer) -> Self {
        Self { longer, ..self }
    }

    /// The same lines, where unusable ones are left out and counted if `skips`.
    pub fn skipping(self, skips: bool) -> Self {
        Self { skips, ..self }
    }

    /// The lines skipped so far, by reason.
    pub fn skipped(&self) -> &SkipReport {
        &self.skipped
    }

    /// Whether the input begins as JSON does, with a brace, a bracket or a quotation mark; an input without text counts
    /// as such.
    pub fn begins_as_json(&mut self) -> bool {
        // Whoever reads the lines is told what cannot be read.
        let start = self.input.fill_buf().unwrap_or_default();
        let start = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start).trim_ascii_start();
        start.first().is_none_or(|first| b"{[\"".contains(first))
    }

    /// The total bytes of a file, line endings included; unknown for other input.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The input's name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A line's location in messages, by number: `a.txt:3`, or `standard input, line 3`.
    pub fn place(&self, number: usize) -> String {
        match self.is_file {
            true => format!("{}:{number}", self.name),
            false => format!("{}, line {number}", self.name),
        }
    }

    /// A tokenizer error on a line, with the line's location.
    pub fn failure(&self, number: usize, line: Line, error: cloze_tokenizer::Error) -> anyhow::Error {
        let error = anyhow::Error::new(error);
        let error = if line.goes_on { error.context(self.too_long()) } else { error };
        error.context(self.place(number))
    }

    /// The message for a line that is too long.
    pub fn too_long(&self) -> String {
        format!("longer than `--max-line-bytes` = {}", self.max)
    }

    /// Reads the next lines into `batch`, `most` at most and at least one; returns whether there was one.
    ///
    /// # Errors
    /// A line that is too long or, in the part that is kept, not UTF-8; returned with its number after the
    /// lines before it.
    pub fn read(&mut self, most: usize, batch: &mut Batch) -> Result<bool> {
        batch.clear(self.count + 1);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        while batch.len() < most {
            if self.take_line(batch) {
                continue;
            }
            // Go on only where a whole line is at hand, so that no read has to wait.
            if batch.len() > 0 && !self.input.buffer().contains(&b'\n') {
                break;
            }
            let error = match self.read_line(batch) {
                Ok(Found::Line) => continue,
                Ok(Found::End) => break,
                Ok(Found::Bad(reason, problem)) if self.skips => {
                    let place = self.place(self.count);
                    self.skipped.count_at(reason, || (place, problem));
                    // The lines of a batch are consecutive: the next one begins after this line.
                    if batch.len() > 0 {
                        break;
                    }
                    batch.clear(self.count + 1);
                    continue;
                }
                Ok(Found::Bad(_, problem)) => anyhow!("{}: {problem}", self.place(self.count)),
                Err(error) => error,
            };
            if batch.len() == 0 {
                return Err(error);
            }
            self.failed = Some(error);
            break;
        }
        Ok(batch.len() > 0)
    }

    /// Fast path: a buffered ordinary line.
    fn take_line(&mut self, batch: &mut Batch) -> bool {
        let buffer = self.input.buffer();
        let mut rest = buffer;
        // The fastest search for a byte that the standard library offers. A slice cannot fail to be read.
        let used = rest.skip_until(b'\n').unwrap_or(0);
        let Some(line) = buffer[..used].strip_suffix(b"\n") else {
            return false;
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match std::str::from_utf8(line) {
            Ok(text) if self.count > 0 && text.len() <= self.max => batch.push(text, false),
            _ => return false,
        }
        self.count += 1;
        self.input.consume(used);
        true
    }

    /// Reads any kind of line.
    fn read_line(&mut self, batch: &mut Batch) -> Result<Found> {
        let number = self.count + 1;
        let mut line = Vec::new();
        let mark = if number == 1 { BYTE_ORDER_MARK.len() } else { 0 };
        // Room for the line's end and the mark: what fills it without ending is too long.
        let room = self.max.saturating_add(2 + mark) as u64;
        let read = self.input.by_ref().take(room).read_until(b'\n', &mut line);
        if read.with_context(|| self.place(number))? == 0 {
            return Ok(Found::End);
        }
        self.count = number;
        let ended = line.last() == Some(&b'\n');
        if ended {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        if number == 1 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        let goes_on = line.len() > self.max;
        if goes_on {
            if !ended && (self.skips || self.longer == Longer::Cut) {
                self.skip_line().with_context(|| self.place(number))?;
            }
            if self.longer == Longer::Refused {
                let problem = format!("{}; cut the line, or raise the limit", self.too_long());
                return Ok(Found::Bad("long line", problem));
            }
            line.truncate(self.max);
            // Not in the middle of a character.
            if let Err(error) = std::str::from_utf8(&line)
                && error.error_len().is_none()
            {
                line.truncate(error.valid_up_to());
            }
        }
        match std::str::from_utf8(&line) {
            Ok(text) => {
                batch.push(text, goes_on);
                Ok(Found::Line)
            }
            Err(error) => Ok(Found::Bad("bad UTF-8", not_utf8(&line, error, number == 1))),
        }
    }

    /// Skips to the end of a line.
    fn skip_line(&mut self) -> std::io::Result<()> {
        loop {
            let buffer = self.input.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(buffer.len(), |end| end + 1);
            let done = end.is_some() || buffer.is_empty();
            self.input.consume(used);
            if done {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything `input` yields, and the error that ended it.
    fn all(input: &[u8]) -> (Vec<String>, Option<String>) {
        bounded(input, MAX_LINE_BYTES, Longer::Refused)
    }

    fn bounded(input: &[u8], max: usize, longer: Longer) -> (Vec<String>, Option<String>) {
        let mut lines = Lines::new(input, "standard input", max, longer);
        let (mut batch, mut read) = (Batch::default(), Vec::new());
        loop {
            match lines.read(BATCH, &mut batch) {
                Ok(true) => {
                    assert_eq!(batch.first(), read.len() + 1);
                    assert!(batch.len() <= BATCH);
                    let shown = |line: Line| line.text.to_owned() + if line.goes_on { "…" } else { "" };
                    read.extend(batch.iter().map(shown));
                }
                Ok(false) => return (read, None),
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
        let error = error.unwrap();
        assert!(
            error.starts_with(
                "standard input, line 2: not UTF-8 (byte 3 is 0xff); it looks like Windows-1252"
            ),
            "{error}"
        );
        let utf16 =
            "standard input, line 1: not UTF-8 (byte 1 is 0xff); it looks like UTF-16: save it as UTF-8";
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
        let pieces = Pieces(vec![b"a\nb\nc", b"c\nd\n"]);
        let mut lines = Lines::new(pieces, "pieces", MAX_LINE_BYTES, Longer::Refused);
        let mut batch = Batch::default();
        for expected in [[(1, "a"), (2, "b")], [(3, "cc"), (4, "d")]] {
            assert!(lines.read(BATCH, &mut batch).unwrap());
            assert!(batch.numbered().map(|(number, line)| (number, line.text)).eq(expected));
        }
        assert!(!lines.read(BATCH, &mut batch).unwrap());
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_or_cut() {
        let refused = |input: &str| bounded(input.as_bytes(), 3, Longer::Refused);
        assert_eq!(
            refused("abc\r\n\u{feff}\nabc"),
            (vec!["abc".into(), "\u{feff}".into(), "abc".into()], None)
        );
        assert_eq!(refused("\u{feff}abc"), (vec!["abc".into()], None));
        for long in ["abcd\nx", "abcd\r\nx", "abcd", "\u{feff}abcd", "abc\r\r\n", "aéb\n"] {
            let (lines, error) = refused(long);
            assert!(lines.is_empty());
            let message = "standard input, line 1: longer than `--max-line-bytes` = 3; cut the line, or raise the limit";
            assert_eq!(error.unwrap(), message);
        }
        let cut = |input: &str| bounded(input.as_bytes(), 3, Longer::Cut);
        let long = format!("{}\nabc\n", "abcdefg".repeat(1 << 19));
        assert_eq!(cut(&long), (vec!["abc…".into(), "abc".into()], None));
        assert_eq!(cut("abé\naébc\nabcd"), (vec!["ab…".into(), "aé…".into(), "abc…".into()], None));
        assert!(bounded(b"a\xffbcd", 3, Longer::Cut).1.unwrap().contains("byte 2 is 0xff"));
    }

    #[test]
    fn unusable_lines_are_left_out_and_counted_on_request() {
        let input = &b"abcd\nab\na\xff\n\ncd\nlonger"[..];
        let mut lines = Lines::new(input, "pieces", 3, Longer::Refused).skipping(true);
        let (mut batch, mut found) = (Batch::default(), Vec::new());
        while lines.read(BATCH, &mut batch).unwrap() {
            found.extend(batch.numbered().map(|(number, line)| (number, line.text.to_owned())));
        }
        assert_eq!(found, [(2, "ab".to_owned()), (4, String::new()), (5, "cd".to_owned())]);
        assert_eq!(lines.skipped().to_string(), "1 × bad UTF-8, 2 × long line");
    }

    #[test]
    fn a_batch_has_so_many_lines_at_most() {
        let (lines, error) = all(&vec![b'\n'; 3 * BATCH + 7]);
        assert_eq!((lines.len(), error), (3 * BATCH + 7, None));
    }
}
