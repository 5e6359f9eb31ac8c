//! CoNLL columns: one word per line, its tag in another column, a blank line between sentences.

use super::rows::{Read, file_problem, n_columns, row_problem};
use super::source::{Column, LabelledSource};
use super::tagged::{Numbered, TaggedSentence};
use super::tags::looks_like_tag;
use crate::corpus::Problem;
use crate::corpus::lines::Lines;
use std::path::Path;

/// A parsed line.
pub(super) enum Line {
    Blank,
    Comment,
    /// A word and its tag, empty if tags are not read.
    Word(String, String),
}

/// Column separators. Any other white space, such as a no-break space, is a character of a word.
const BLANKS: [char; 2] = [' ', '\t'];

/// A line or a column without blanks around it.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches(BLANKS)
}

/// How the lines of a file are read.
pub(super) trait ParseLine {
    /// Parses a line; `place` is the number of words already read in its sentence, or `None` after a bad
    /// line.
    fn parse(&self, number: u64, line: &str, place: Option<usize>) -> Result<Line, Problem>;
}

/// Sentences from lines of one word each, separated by blank lines.
pub(super) struct Sentences<P> {
    lines: Lines,
    parser: P,
    labelled: bool,
    ended: bool,
}

impl<P: ParseLine> Sentences<P> {
    pub fn open(path: &Path, source: &LabelledSource, parser: P, labelled: bool) -> Result<Self, Problem> {
        let lines = Lines::open(path, source.max_line_bytes, source.named.max_line_bytes())?;
        Ok(Self { lines, parser, labelled, ended: false })
    }
}

/// Columns identified by number.
struct Columns {
    delimiter: Option<char>,
    comment: Option<String>,
    /// Columns from 0.
    words: usize,
    /// `None`: the last column.
    tags: Option<usize>,
    labelled: bool,
}

pub(super) fn open(path: &Path, source: &LabelledSource, labelled: bool) -> Result<Read<Numbered>, Problem> {
    let number = |field: &str| match source.configured(field) {
        None => Ok(None),
        Some(Column::Number(number)) => Ok(Some(number.saturating_sub(1))),
        Some(Column::Name(name)) => {
            let column = source.named.column(field);
            let detail =
                format!("CoNLL columns have no names: set {column} to a number from 1 in place of `{name}`");
            Err(file_problem(None, "missing column", detail))
        }
    };
    let columns = Columns {
        words: number("words")?.unwrap_or(0),
        tags: number("tags")?,
        delimiter: source.delimiter,
        comment: source.comment.clone(),
        labelled,
    };
    Ok(Box::new(Sentences::open(path, source, columns, labelled)?))
}

impl Columns {
    fn columns<'a>(&self, line: &'a str) -> Vec<&'a str> {
        match self.delimiter {
            Some(delimiter) => line.split(delimiter).map(trimmed).collect(),
            None if line.contains('\t') => line.split('\t').map(trimmed).collect(),
            None => line.split(BLANKS).filter(|column| !column.is_empty()).collect(),
        }
    }
}

impl ParseLine for Columns {
    fn parse(&self, number: u64, line: &str, place: Option<usize>) -> Result<Line, Problem> {
        if trimmed(line).is_empty() {
            return Ok(Line::Blank);
        }
        let columns = self.columns(line);
        let comment = match &self.comment {
            Some(start) => !start.is_empty() && line.starts_with(start.as_str()),
            None => {
                place == Some(0)
                    && line.starts_with('#')
                    && !columns.last().is_some_and(|tag| looks_like_tag(tag))
            }
        };
        if comment {
            return Ok(Line::Comment);
        }
        if columns.first().is_some_and(|word| word.starts_with("-DOCSTART-")) {
            return Ok(Line::Blank);
        }
        let column = |place: usize, field: &str| match columns.get(place) {
            Some(text) if !text.is_empty() => Ok((*text).to_owned()),
            Some(_) => {
                let detail = format!("column {} is empty, expected the {field}", place + 1);
                Err(row_problem(Some(number), "missing column", detail))
            }
            None => {
                let found = n_columns(columns.len());
                let detail = format!("{found}, expected the {field} in column {}", place + 1);
                Err(row_problem(Some(number), "missing column", detail))
            }
        };
        let word = column(self.words, "word")?;
        let tag = match (self.labelled, self.tags) {
            (false, _) => String::new(),
            (true, Some(place)) => column(place, "tag")?,
            // The tag's column is another than the word's.
            (true, None) => column((columns.len() - 1).max(self.words + 1), "tag")?,
        };
        Ok(Line::Word(word, tag))
    }
}

impl<P: ParseLine> Iterator for Sentences<P> {
    type Item = Result<Numbered, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut sentence = TaggedSentence::default();
        let mut first = 0;
        // The first problem of the sentence: what follows up to a blank line goes with it.
        let mut bad = None;
        while !self.ended {
            let line = match self.lines.next() {
                None => {
                    self.ended = true;
                    break;
                }
                Some(Ok((number, line))) => {
                    let line = line.to_owned();
                    if sentence.words.is_empty() {
                        first = number;
                    }
                    let place = bad.is_none().then_some(sentence.words.len());
                    self.parser.parse(number, &line, place)
                }
                Some(Err(problem)) if problem.ends_file => return Some(Err(problem)),
                Some(Err(problem)) => Err(problem),
            };
            match line {
                Ok(Line::Word(word, tag)) => {
                    sentence.words.push(word);
                    if self.labelled {
                        sentence.tags.push(tag);
                    }
                }
                Ok(Line::Comment) => {}
                Ok(Line::Blank) if sentence.words.is_empty() && bad.is_none() => {}
                Ok(Line::Blank) => break,
                Err(problem) => bad = bad.or(Some(problem)),
            }
        }
        match bad {
            Some(problem) => Some(Err(problem)),
            None if sentence.words.is_empty() => None,
            None => Some(Ok((first, sentence))),
        }
    }
}
