//! Patterns (a string or a regular expression), and what to do with the matches.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use fancy_regex::Regex;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    pre_tokenizers::{Splitter, splitter},
};

/// A string or a regular expression (with look-around and back-references).
///
/// In a file, `{"String": "..."}` or `{"Regex": "..."}`. The splitting patterns of GPT-2, `cl100k_base` and
/// Llama 3, Qwen 2, and `o200k_base` (GPT-4o) are recognised verbatim and matched in one pass. All others run
/// on a backtracking engine, which gives up ([`Error::PatternGaveUp`]) on a text that needs too many
/// attempts.
///
/// ```
/// use cloze_tokenizer::{Normalizer, Pattern, Replace};
///
/// let pattern = Pattern::regex(r"(\w)\1+")?;
/// let once = Normalizer::Replace(Replace { pattern, content: "-".into() });
/// assert_eq!(once.normalize("hello book")?, "he-o b-k");
/// assert_eq!(serde_json::to_string(&Pattern::string("a+")).unwrap(), r#"{"String":"a+"}"#);
/// assert!(Pattern::regex("a(").unwrap_err().to_string().contains(r#""a(" is not a regular expression"#));
/// # Ok::<_, cloze_tokenizer::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Source", into = "Source")]
pub struct Pattern {
    source: Source,
    /// `None` for a literal string.
    regex: Option<Arc<Regex>>,
    /// A faster equivalent.
    splitter: Option<Splitter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Source {
    String(String),
    Regex(String),
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl From<Pattern> for Source {
    fn from(pattern: Pattern) -> Self {
        pattern.source
    }
}

impl TryFrom<Source> for Pattern {
    type Error = Error;

    fn try_from(source: Source) -> Result<Self> {
        let regex = match &source {
            // The empty string is found between all characters: the engine knows how.
            Source::String(text) if !text.is_empty() => None,
            Source::String(text) | Source::Regex(text) => {
                let regex = Regex::new(text).map_err(|error| {
                    Error::invalid("pattern", format!("{text:?} is not a regular expression: {error}"))
                })?;
                Some(Arc::new(regex))
            }
        };
        let splitter = match &source {
            Source::Regex(text) => splitter(text),
            Source::String(_) => None,
        };
        Ok(Self { source, regex, splitter })
    }
}

impl Pattern {
    /// A string.
    pub fn string(text: &str) -> Self {
        Source::String(text.to_owned()).try_into().expect("only an expression can be wrong")
    }

    /// A regular expression.
    ///
    /// # Errors
    /// It is invalid.
    pub fn regex(pattern: &str) -> Result<Self> {
        Source::Regex(pattern.to_owned()).try_into()
    }

    /// The hand-written matcher for the patterns of well-known models, whose matches cover every
    /// text.
    pub(crate) fn splitter(&self) -> Option<Splitter> {
        self.splitter
    }

    /// The literal string, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.source {
            Source::String(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// The expression, if it is one.
    pub(crate) fn expression(&self) -> Option<&str> {
        match &self.source {
            Source::Regex(expression) => Some(expression),
            Source::String(_) => None,
        }
    }

    /// All of `text` in parts: matches and what is between them.
    ///
    /// # Errors
    /// [`Error::PatternGaveUp`].
    pub(crate) fn parts(&self, text: &str) -> Result<Vec<(Range<usize>, bool)>> {
        if let Some(splitter) = self.splitter {
            let mut parts = Vec::new();
            splitter(text, &mut |range| parts.push((range, true)));
            return Ok(parts);
        }
        let (Source::String(source) | Source::Regex(source)) = &self.source;
        let Some(regex) = &self.regex else {
            let found = text.match_indices(source.as_str());
            return Ok(parts(text, found.map(|(at, found)| at..at + found.len())));
        };
        in_reasonable_time(regex, text).map_err(|problem| Error::gave_up(source, text, problem))?;
        let mut failed = None;
        let found = regex.find_iter(text).map_while(|found| found.map_err(|error| failed = Some(error)).ok());
        let parts = parts(text, found.map(|found| found.range()));
        match failed {
            None => Ok(parts),
            Some(error) => Err(Error::gave_up(source, text, error)),
        }
    }
}

/// Tries an expression on ever longer beginnings of a long text, and fails when it takes too long: an
/// expression that looks far ahead from every position, such as `(?=(a+))\1b`, takes quadratic time.
///
/// The engine limits the number of attempts, not how far it looks, and cannot be interrupted: hence this
/// trial. For linear expressions it doubles the time, for texts of more than [`BEGINNING`] bytes only. A
/// longer run without any match may be rejected even if later text would complete a match.
fn in_reasonable_time(regex: &Regex, text: &str) -> std::result::Result<(), String> {
    /// Bytes for which quadratic time takes half a second.
    const BEGINNING: usize = 1 << 14;
    /// A thousand times what a linear expression needs for a beginning.
    const PATIENCE: Duration = Duration::from_secs(1);
    let mut length = BEGINNING;
    while length < text.len() {
        // Not at the end of the text, where `$` would match.
        let beginning = [&text[..text.floor_char_boundary(length)], "\0"].concat();
        let start = Instant::now();
        // What the engine gives up on is told of the whole text.
        let _ = regex.find_iter(&beginning).take_while(std::result::Result::is_ok).count();
        let took = start.elapsed();
        if took > PATIENCE.mul_f64((length as f64 / (1 << 20) as f64).max(1.0)) {
            return Err(format!("the first {} bytes took {:.1} s", beginning.len(), took.as_secs_f64()));
        }
        length *= 2;
    }
    Ok(())
}

/// All of `text` in parts: matches and what is between them.
fn parts(text: &str, matches: impl Iterator<Item = Range<usize>>) -> Vec<(Range<usize>, bool)> {
    let mut parts = Vec::new();
    let mut end = 0;
    for found in matches {
        if end != found.start {
            parts.push((end..found.start, false));
        }
        end = found.end;
        parts.push((found, true));
    }
    if end != text.len() {
        parts.push((end..text.len(), false));
    }
    parts
}

/// The same, where every `wanted` character is a match.
pub(crate) fn char_parts(text: &str, wanted: impl Fn(char) -> bool) -> Vec<(Range<usize>, bool)> {
    parts(text, text.char_indices().filter(|(_, c)| wanted(*c)).map(|(at, c)| at..at + c.len_utf8()))
}

/// What to do with the delimiter at which text is split. For `-` in `the-final--countdown`:
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SplitBehavior {
    /// `the`, `final`, `countdown`
    Removed,
    /// `the`, `-`, `final`, `-`, `-`, `countdown`
    Isolated,
    /// `the-`, `final-`, `-`, `countdown`
    MergedWithPrevious,
    /// `the`, `-final`, `-`, `-countdown`
    MergedWithNext,
    /// `the`, `-`, `final`, `--`, `countdown`
    Contiguous,
}

impl SplitBehavior {
    /// The resulting ranges from parts with and without a match.
    pub(crate) fn ranges(self, parts: Vec<(Range<usize>, bool)>) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::with_capacity(parts.len());
        let mut before = false;
        match self {
            Self::Removed => return parts.into_iter().filter(|(_, found)| !found).map(|(r, _)| r).collect(),
            Self::Isolated => return parts.into_iter().map(|(range, _)| range).collect(),
            Self::Contiguous => {
                for (range, found) in parts {
                    match ranges.last_mut() {
                        Some(last) if found == before => last.end = range.end,
                        _ => ranges.push(range),
                    }
                    before = found;
                }
            }
            Self::MergedWithPrevious => {
                for (range, found) in parts {
                    match ranges.last_mut() {
                        Some(last) if found && !before => last.end = range.end,
                        _ => ranges.push(range),
                    }
                    before = found;
                }
            }
            Self::MergedWithNext => {
                for (range, found) in parts.into_iter().rev() {
                    match ranges.last_mut() {
                        Some(last) if found && !before => last.start = range.start,
                        _ => ranges.push(range),
                    }
                    before = found;
                }
                ranges.reverse();
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_example() {
        use SplitBehavior::*;
        let text = "the-final--countdown";
        for (behavior, expected) in [
            (Removed, &["the", "final", "", "countdown"][..]),
            (Isolated, &["the", "-", "final", "-", "-", "countdown"]),
            (MergedWithPrevious, &["the-", "final-", "-", "countdown"]),
            (MergedWithNext, &["the", "-final", "-", "-countdown"]),
            (Contiguous, &["the", "-", "final", "--", "countdown"]),
        ] {
            for parts in [
                Pattern::string("-").parts(text).unwrap(),
                Pattern::regex("-").unwrap().parts(text).unwrap(),
                char_parts(text, |c| c == '-'),
            ] {
                let found: Vec<&str> = behavior.ranges(parts).into_iter().map(|r| &text[r]).collect();
                let expected: Vec<&str> = expected.iter().copied().filter(|w| !w.is_empty()).collect();
                assert_eq!(found, expected, "{behavior:?}");
            }
        }
    }

    #[test]
    fn a_bad_expression_is_named() {
        let error = Pattern::regex("a(b").unwrap_err().to_string();
        assert!(error.contains("\"a(b\" is not a regular expression"), "{error}");
        let error = serde_json::from_str::<Pattern>(r#"{"Regex": "["}"#).unwrap_err().to_string();
        assert!(error.contains("is not a regular expression"), "{error}");
        let json = r#"{"String":"a"}"#;
        assert_eq!(serde_json::to_string(&serde_json::from_str::<Pattern>(json).unwrap()).unwrap(), json);
    }

    #[test]
    fn an_expression_that_takes_the_square_of_the_length_is_an_error() {
        let long = "a".repeat(1 << 20);
        for slow in [r"(?=(a+))\1b", r"(?>a+)+$|c"] {
            let start = Instant::now();
            let error = Pattern::regex(slow).unwrap().parts(&(long.clone() + "c")).unwrap_err().to_string();
            assert!(error.contains(&format!("{slow:?}")) && error.contains(" bytes took "), "{error}");
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
        }
        // One whose time grows with the length is as it was.
        let linear = Pattern::regex(r"\w+(?!\w)|c").unwrap();
        let words = "abc ".repeat(1 << 18);
        assert_eq!(linear.parts(&words).unwrap().len(), 2 << 18);
    }

    #[test]
    fn an_expression_that_gives_up_is_an_error() {
        let slow = Pattern::regex(r"(?=(a*)*b)\1c").unwrap();
        let error = slow.parts(&"a".repeat(10_000)).unwrap_err().to_string();
        assert_eq!(
            error,
            r#"the tokenizer's pattern "(?=(a*)*b)\\1c" gave up on a text of 10000 bytes (Error executing regex: Max limit for backtracking count exceeded): cut the text into shorter ones, or write the pattern without nested repetitions"#
        );
        let long = Pattern::regex(&format!(r"(?=(a*)*b)\1c{}", "é".repeat(1000))).unwrap();
        let error = long.parts(&"a".repeat(10_000)).unwrap_err().to_string();
        assert!(error.contains("é…\" gave up") && error.len() < 600, "{error}");
    }
}
