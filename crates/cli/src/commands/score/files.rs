//! Translations, references and sources, read in parallel.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use cloze_evaluation::table::grouped;
use cloze_evaluation::translation::trimmed;

use crate::lines::{Batch, Lines};

/// Lines processed together: enough for all cores.
const TOGETHER: usize = 1 << 13;

/// Lines of a file read between checks of their size.
const AT_ONCE: usize = 16;

/// Approximate bytes processed together: fewer lines if they are long.
const BYTES: usize = 4 << 20;

/// A file with a buffer of its next lines.
struct Stream {
    name: String,
    lines: Lines<Box<dyn Read>>,
    batch: Batch,
    at_hand: Vec<String>,
    count: usize,
}

impl Stream {
    fn open(path: Option<&Path>, max: usize) -> Result<Self> {
        let name = path.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
        let lines = Lines::of(path, max)?;
        Ok(Self { name, lines, batch: Batch::default(), at_hand: Vec::new(), count: 0 })
    }

    /// Buffers the next lines, fewer than asked for only at the end of the file; returns their bytes. Trailing
    /// white space is stripped, as sacreBLEU does.
    fn read(&mut self, n: usize) -> Result<usize> {
        let (mut left, mut bytes) = (n, 0);
        while left > 0 && self.lines.read(left, &mut self.batch)? {
            left -= self.batch.len();
            let new = self.batch.iter().map(|line| trimmed(line.text).to_owned());
            self.at_hand.extend(new.inspect(|line| bytes += line.len()));
        }
        self.count += n - left;
        Ok(bytes)
    }
}

/// All files of a call: the translations of each system, the references, and what was translated.
pub struct Files {
    streams: Vec<Stream>,
    n_systems: usize,
    n_references: usize,
}

impl Files {
    /// Opens the first system's translations, by default standard input, those of the other systems, the references,
    /// and what was translated. Lines have at most `max` bytes.
    pub fn open(
        input: Option<&Path>,
        paired: &[PathBuf],
        references: &[PathBuf],
        source: Option<&Path>,
        max: usize,
    ) -> Result<Self> {
        let others = paired.iter().chain(references).map(PathBuf::as_path).chain(source).map(Some);
        let streams = [input].into_iter().chain(others).map(|path| Stream::open(path, max));
        Ok(Self {
            streams: streams.collect::<Result<_>>()?,
            n_systems: 1 + paired.len(),
            n_references: references.len(),
        })
    }

    /// The name of the translations in error messages.
    pub fn name(&self) -> &str {
        &self.streams[0].name
    }

    /// The systems' names as in sacreBLEU: their file names, with the first marked as the baseline.
    pub fn systems(&self) -> impl Iterator<Item = String> {
        let name = |(place, stream): (usize, &Stream)| match (place, stream.name.as_str()) {
            (0, "standard input") => "Baseline".to_owned(),
            (0, name) if self.n_systems > 1 => format!("Baseline: {name}"),
            (_, name) => name.to_owned(),
        };
        self.streams[..self.n_systems].iter().enumerate().map(name)
    }

    /// Reads the next lines of all files; returns whether there are any.
    ///
    /// # Errors
    /// Read errors; a file that ends before the others.
    pub fn read(&mut self) -> Result<bool> {
        self.streams.iter_mut().for_each(|stream| stream.at_hand.clear());
        let (mut lines, mut bytes) = (0, 0);
        while lines < TOGETHER && bytes < BYTES {
            for stream in &mut self.streams {
                bytes += stream.read(AT_ONCE)?;
            }
            lines += AT_ONCE;
            if self.streams.iter().any(|stream| stream.at_hand.len() < lines) {
                break;
            }
        }
        let by_count = |stream: &&Stream| stream.count;
        let (Some(short), Some(long)) =
            (self.streams.iter().min_by_key(by_count), self.streams.iter().max_by_key(by_count))
        else {
            return Ok(false);
        };
        if short.count < long.count {
            let n = grouped(short.count as u64);
            bail!(
                "{} ends after {n} lines and {} does not; expected the same number of lines in each",
                short.name,
                long.name
            );
        }
        Ok(!short.at_hand.is_empty())
    }

    /// The lines read last.
    pub fn at_hand(&self) -> Together<'_> {
        Together {
            streams: self.streams.iter().map(|stream| &stream.at_hand[..]).collect(),
            n_systems: self.n_systems,
            n_references: self.n_references,
        }
    }
}

/// Parallel lines of all files.
pub struct Together<'a> {
    streams: Vec<&'a [String]>,
    n_systems: usize,
    n_references: usize,
}

impl Together<'_> {
    /// A system's translations.
    pub fn translations(&self, system: usize) -> &[String] {
        self.streams[system]
    }

    /// The references of one translation.
    pub fn references(&self, at: usize) -> Vec<&str> {
        let references = &self.streams[self.n_systems..self.n_systems + self.n_references];
        references.iter().map(|lines| lines[at].as_str()).collect()
    }

    /// The source of one translation, if known.
    pub fn source(&self, at: usize) -> Option<&str> {
        let lines = self.streams.get(self.n_systems + self.n_references)?;
        lines.get(at).map(String::as_str)
    }
}
