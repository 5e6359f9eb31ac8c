//! TER, the translation edit rate (Snover et al. 2006), as in sacreBLEU's implementation of Tercom.

mod edit_distance;
mod normalization;
mod shifts;

use super::Metric;
use super::ngrams::numbered;
use super::number::Number;
use super::python::{trimmed, words};
use super::signature::{case, yes};

/// TER: the number of edits that turn a hypothesis into a reference, per reference word: insertions,
/// deletions, substitutions, and shifts of word sequences.
///
/// The best shifts are searched as in Tercom, with its limits, so the edits are not always minimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ter {
    /// Whether to split off punctuation and replace XML entities by their characters.
    pub normalized: bool,
    /// Whether to remove punctuation.
    pub no_punctuation: bool,
    /// Whether both also apply to Chinese and Japanese characters and punctuation; each character becomes a
    /// word.
    pub asian_support: bool,
    /// Whether case counts; otherwise text is lower-cased first.
    pub case_sensitive: bool,
}

impl Ter {
    fn prepared(&self, line: &str) -> String {
        let line = trimmed(line);
        let mut line = if self.case_sensitive { line.to_owned() } else { line.to_lowercase() };
        if self.normalized {
            line = normalization::western(&line);
            if self.asian_support {
                line = normalization::asian(&line);
            }
        }
        if self.no_punctuation {
            line = normalization::without_punctuation(&line, self.asian_support);
        }
        words(&line).collect::<Vec<_>>().join(" ")
    }
}

/// Statistics: the edits, the fewest for any of the references; the mean length of the references, in words.
impl Metric for Ter {
    fn width(&self) -> usize {
        2
    }

    fn statistics(&self, hypothesis: &str, references: &[&str], statistics: &mut Vec<f64>) {
        let hypothesis = self.prepared(hypothesis);
        // sacreBLEU prepares references twice, which changes some: "'s" before a full stop is cut off the second time.
        let references: Vec<String> =
            references.iter().map(|line| self.prepared(&self.prepared(line))).collect();
        let (hypothesis, references) =
            numbered(words(&hypothesis), references.iter().map(|reference| words(reference)));
        let edits = references.iter().map(|reference| shifts::edits(&hypothesis, reference)).min();
        assert!(edits.is_some(), "a line without a reference");
        let len: usize = references.iter().map(Vec::len).sum();
        statistics.extend([edits.unwrap_or(0) as f64, len as f64 / references.len() as f64]);
    }

    fn value<N: Number>(&self, sums: &[N]) -> N {
        let [edits, len] = [sums[0], sums[1]];
        let rate = match (len.into() > 0.0, edits.into() > 0.0) {
            (true, _) => edits / len,
            (false, some) => N::from(f64::from(u8::from(some))),
        };
        N::from(100.0) * rate
    }

    fn name(&self) -> String {
        "TER".to_owned()
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("case", case(!self.case_sensitive)),
            ("tok", "tercom".to_owned()),
            ("norm", yes(self.normalized)),
            ("punct", yes(!self.no_punctuation)),
            ("asian", yes(self.asian_support)),
        ]
    }
}
