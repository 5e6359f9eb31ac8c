//! Counts pieces on all cores.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use cloze_tokenizer::{PieceCounts, Tokenizer, split_words};

use crate::chunks::Chunks;
use crate::lines::{BATCH_OF_IDS, Batch, Line, Lines};
use crate::progress::Progress;

/// The counts of texts.
pub struct Counts {
    /// Those of each tokenizer.
    pub of_tokenizers: Vec<PieceCounts>,
    pub lines: usize,
}

/// Counts the pieces that each tokenizer makes of the lines of all files, or of standard input without a file. Every
/// file is read once, and memory does not depend on its length.
///
/// # Errors
/// Files that cannot be read, or without a word.
pub fn files(tokenizers: &[Tokenizer], files: &[PathBuf], max_line_bytes: usize) -> Result<Counts> {
    let mut counter = Counter::new(tokenizers);
    let paths: Vec<Option<&Path>> = match files {
        [] => vec![None],
        files => files.iter().map(|path| Some(path.as_path())).collect(),
    };
    for path in paths {
        counter.lines(Lines::of(path, max_line_bytes)?)?;
    }
    let counts = counter.finish();
    if counts.of_tokenizers.first().is_some_and(|counts| counts.words() == 0) {
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        let name = if names.is_empty() { "standard input".to_owned() } else { names.join(", ") };
        bail!("{name}: there is no word; expected text");
    }
    Ok(counts)
}

/// Counts for each thread, because a copy for each chunk of text would take longer than the counting.
struct Counter<'a> {
    tokenizers: &'a [Tokenizer],
    of_threads: Vec<Mutex<Vec<PieceCounts>>>,
    lines: usize,
}

impl<'a> Counter<'a> {
    fn new(tokenizers: &'a [Tokenizer]) -> Self {
        let counts = || Mutex::new(tokenizers.iter().map(PieceCounts::new).collect());
        let of_threads = (0..rayon::current_num_threads()).map(|_| counts()).collect();
        Self { tokenizers, of_threads, lines: 0 }
    }

    fn lines(&mut self, mut lines: Lines<Box<dyn std::io::Read>>) -> Result<()> {
        let of_thread = || {
            let counts = &self.of_threads[rayon::current_thread_index().unwrap_or(0)];
            counts.lock().unwrap_or_else(PoisonError::into_inner)
        };
        let work = |counts: &mut MutexGuard<Vec<PieceCounts>>, line: Line, _: &mut Vec<u8>| {
            let words = split_words(line.text);
            for (counts, tokenizer) in counts.iter_mut().zip(self.tokenizers) {
                counts.add(tokenizer, line.text, &words)?;
            }
            Ok::<_, cloze_tokenizer::Error>(())
        };
        let (mut chunks, mut batch) = (Chunks::default(), Batch::default());
        let mut progress = Progress::new("lines", false);
        let (mut n_lines, mut bytes) = (0, 0);
        while lines.read(BATCH_OF_IDS, &mut batch)? {
            if let Some((place, error)) = chunks.run(&batch, 0, of_thread, work, |_| Ok(()))? {
                return Err(lines.failure(batch.first() + place, batch.line(place), error));
            }
            n_lines += batch.len();
            bytes += batch.iter().map(|line| line.text.len() + 1).sum::<usize>();
            progress.show(n_lines, lines.size().map(|size| bytes as f64 / size.max(1) as f64));
        }
        progress.finish();
        self.lines += n_lines;
        Ok(())
    }

    fn finish(self) -> Counts {
        let mut of_tokenizers: Vec<PieceCounts> = self.tokenizers.iter().map(PieceCounts::new).collect();
        for counts in self.of_threads {
            let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
            of_tokenizers.iter_mut().zip(&counts).for_each(|(sum, counts)| sum.merge(counts));
        }
        Counts { of_tokenizers, lines: self.lines }
    }
}
