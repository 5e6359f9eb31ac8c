//! Files of words and their vectors.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::builder::RangedU64ValueParser;
use cloze_evaluation::lexicon::WordVectors;

use crate::lines::{BATCH, Batch, Lines, MAX_LINE_BYTES};
use crate::npy;

/// How vectors are read.
#[derive(clap::Args)]
pub struct VectorArgs {
    /// Words that differ in case alone are one word, whose vector is that of the first of them.
    #[arg(long)]
    ignore_case: bool,
    /// Read the first N words only, which are the most frequent ones in published vectors.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    limit: Option<usize>,
}

/// Help for a file of vectors.
pub const HELP: &str = "Vectors: NAME.npy of `lexicon build`, beside which NAME.words lies, or text in word2vec's or GloVe's format, \
                        a word and its numbers per line";

impl VectorArgs {
    /// Reads words and their vectors.
    ///
    /// # Errors
    /// A file that cannot be read, with the line that is wrong; vectors without their words; no vector at all; numbers
    /// that are not finite.
    pub fn read(&self, path: &Path) -> Result<WordVectors> {
        let most = self.limit.unwrap_or(usize::MAX);
        let (words, values, width) = match path.extension().is_some_and(|extension| extension == "npy") {
            true => array(path, most)?,
            false => text(path, most)?,
        };
        let vectors = WordVectors::new(words, values, width, self.ignore_case);
        vectors.with_context(|| path.display().to_string())
    }
}

type Found = (Vec<String>, Vec<f32>, usize);

/// Reads an array and the words beside it.
fn array(path: &Path, most: usize) -> Result<Found> {
    let list = path.with_extension("words");
    if path.exists() && !list.exists() {
        bail!(
            "{}: the words of its rows are missing; expected one per line in {}",
            path.display(),
            list.display()
        );
    }
    let (mut values, width) = npy::read(path)?;
    let mut words = Vec::new();
    let mut lines = Lines::of(Some(&list), MAX_LINE_BYTES)?;
    let mut batch = Batch::default();
    while lines.read(BATCH, &mut batch)? {
        words.extend(batch.iter().map(|line| line.text.to_owned()));
    }
    let rows = values.len() / width;
    if words.len() != rows {
        bail!(
            "{}: {} words for the {rows} vectors of {}; build both again",
            list.display(),
            words.len(),
            path.display()
        );
    }
    if words.is_empty() {
        return Err(empty(path));
    }
    words.truncate(most);
    values.truncate(words.len() * width);
    Ok((words, values, width))
}

fn empty(path: &Path) -> anyhow::Error {
    anyhow!("{}: there is no vector; expected a word and its numbers per line", path.display())
}

/// Reads word2vec's text, whose first line has the numbers of words and of features, or GloVe's, which has no such line.
/// A word of GloVe may have spaces, unless it is the file's first one.
fn text(path: &Path, most: usize) -> Result<Found> {
    let mut lines = Lines::of(Some(path), MAX_LINE_BYTES)?;
    let mut batch = Batch::default();
    let mut found = TextVectors { path: path.to_owned(), ..TextVectors::default() };
    'file: while lines.read(BATCH, &mut batch)? {
        for (number, line) in batch.numbered() {
            if found.words.len() == most {
                break 'file;
            }
            found.line(number, line.text)?;
        }
    }
    let TextVectors { words, values, width, announced, lines: n_lines, .. } = found;
    if words.is_empty() {
        return Err(empty(path));
    }
    // A repeated word is a line, too.
    if let Some(announced) = announced.filter(|announced| words.len() < most && n_lines < *announced) {
        bail!("{}: it ends after {n_lines} of {announced} words; get the whole file", path.display());
    }
    Ok((words, values, width))
}

#[derive(Default)]
struct TextVectors {
    path: PathBuf,
    words: Vec<String>,
    seen: HashSet<String>,
    values: Vec<f32>,
    /// 0 until it is known.
    width: usize,
    /// The number of words that the first line says.
    announced: Option<usize>,
    /// Lines with a word.
    lines: usize,
}

impl TextVectors {
    fn line(&mut self, number: usize, line: &str) -> Result<()> {
        let place = || format!("{}:{number}", self.path.display());
        let mut fields = line.trim_end().split([' ', '\t']).filter(|field| !field.is_empty());
        let Some(word) = fields.next() else { return Ok(()) };
        if number == 1
            && let (Ok(announced), Some(Ok(width)), None) =
                (word.parse(), fields.clone().next().map(str::parse::<usize>), fields.clone().nth(1))
        {
            if width == 0 {
                bail!("{}: vectors of no number; expected the numbers of words and of features", place());
            }
            (self.announced, self.width) = (Some(announced), width);
            return Ok(());
        }
        // GloVe has words with spaces, such as `. . .`, which end where the numbers of the width before begin.
        let n_extra = match self.width {
            0 => 0,
            width => fields.clone().count().saturating_sub(width),
        };
        let extra = fields.by_ref().take(n_extra).collect::<Vec<_>>();
        let is_number = |field: &&str| field.parse::<f32>().is_ok();
        if extra.last().is_some_and(is_number) {
            let (found, expected) = (self.width + n_extra, self.width);
            bail!("{}: {found} numbers for {word:?}; expected {expected}, as before", place());
        }
        let word = std::iter::once(word).chain(extra).collect::<Vec<_>>().join(" ");
        let start = self.values.len();
        for field in fields {
            let value = field.parse::<f32>().ok().filter(|value| value.is_finite());
            let Some(value) = value else {
                bail!("{}: {field:?} is not a number; expected a word and its numbers", place());
            };
            self.values.push(value);
        }
        let width = self.values.len() - start;
        if self.width == 0 && width > 0 {
            self.width = width;
        }
        if width != self.width || width == 0 {
            let expected = if self.width == 0 { "one or more".to_owned() } else { self.width.to_string() };
            bail!("{}: {width} numbers for {word:?}; expected {expected}, as before", place());
        }
        self.lines += 1;
        if self.seen.insert(word.clone()) {
            self.words.push(word);
        } else {
            // The first of a repeated word counts.
            self.values.truncate(start);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Result<Found> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.txt");
        std::fs::write(&path, lines)?;
        text(&path, usize::MAX)
    }

    #[test]
    fn words_may_have_spaces() {
        let words = [".", ". . .", "at name@domain.com", "sea"];
        let glove = ". 1 0\n. . . 0 1\nat name@domain.com -1 .5\nsea 1 1\n";
        let values = vec![1.0, 0.0, 0.0, 1.0, -1.0, 0.5, 1.0, 1.0];
        assert_eq!(read(glove).unwrap(), (words.map(str::to_owned).to_vec(), values.clone(), 2));
        // In word2vec's format the first line says how many numbers there are.
        let word2vec = format!("4 2\n{}", glove.replace(". 1 0\n. . . 0 1", ". . . 1 0\n. 0 1"));
        let (found, numbers, width) = read(&word2vec).unwrap();
        assert_eq!((&found[0][..], &found[1][..], numbers, width), (". . .", ".", values, 2));
    }

    #[test]
    fn a_number_too_many_is_no_word() {
        let told = |lines: &str| read(lines).unwrap_err().to_string();
        assert!(told("a 1 2\nb 1 2 3\n").ends_with("a.txt:2: 3 numbers for \"b\"; expected 2, as before"));
        assert!(told("a 1 2\nb 1\n").ends_with("a.txt:2: 1 numbers for \"b\"; expected 2, as before"));
    }
}
