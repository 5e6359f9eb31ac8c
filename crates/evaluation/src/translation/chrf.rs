//! chrF (Popović 2015) and chrF++ (Popović 2017), as in sacreBLEU.

use super::Metric;
use super::ngrams::{count, matches, numbered};
use super::number::Number;
use super::python::{is_space, words};
use super::signature::{case, yes};

/// Substitute for a precision or recall without any n-gram.
const EPSILON: f64 = 1e-16;

/// chrF: the F-score of the character n-grams (and word n-grams in chrF++) that a hypothesis shares with its
/// reference; each line uses its best reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chrf {
    /// The maximum character n-gram order.
    pub char_order: usize,
    /// The maximum word n-gram order; 2 in chrF++.
    pub word_order: usize,
    /// Weight of recall relative to precision.
    pub beta: u32,
    /// Whether text is lower-cased first.
    pub lowercase: bool,
    /// Whether white space counts as characters.
    pub whitespace: bool,
    /// Whether orders without n-grams count as almost zero, as in NLTK, Moses and `chrF++.py`, instead of
    /// being left out; the score is then the mean of the orders' F-scores instead of the F-score of the
    /// means.
    pub epsilon_smoothing: bool,
}

impl Default for Chrf {
    /// chrF2 with n-grams of up to six characters and no words.
    fn default() -> Self {
        Self {
            char_order: 6,
            word_order: 0,
            beta: 2,
            lowercase: false,
            whitespace: false,
            epsilon_smoothing: false,
        }
    }
}

impl Chrf {
    /// Number of orders, of characters and words.
    fn n_orders(&self) -> usize {
        self.char_order + self.word_order
    }

    fn characters(&self, line: &str) -> Vec<u32> {
        line.chars().filter(|c| self.whitespace || !is_space(*c)).map(u32::from).collect()
    }

    /// The statistics of a line against one reference.
    fn beside(&self, hypothesis: &str, reference: &str, statistics: &mut Vec<f64>) {
        let mut put = |hypothesis: &[u32], reference: Vec<u32>, n_orders| {
            let lens = (hypothesis.len(), reference.len());
            let matched = matches(hypothesis, &[reference], n_orders);
            for (order, matched) in (1..).zip(matched) {
                let n_reference = count(lens.1, order);
                // What no reference has to compare with is not counted.
                let n_hypothesis = if n_reference > 0 { count(lens.0, order) } else { 0 };
                statistics.extend([n_hypothesis as f64, n_reference as f64, matched as f64]);
            }
        };
        put(&self.characters(hypothesis), self.characters(reference), self.char_order);
        if self.word_order > 0 {
            let (hypothesis, mut references) = numbered(separated(hypothesis), [separated(reference)]);
            put(&hypothesis, references.pop().unwrap_or_default(), self.word_order);
        }
    }
}

/// The words of a line, with at most one punctuation mark split off each: the last, else the first.
fn separated(line: &str) -> impl Iterator<Item = &str> {
    words(line).flat_map(|word| {
        let mut chars = word.chars();
        let (first, last) = (chars.next().filter(char::is_ascii_punctuation), chars.next_back());
        // A word of one character has no last one beside the first.
        let (start, end) = match (first, last) {
            (_, None) => (word, ""),
            (_, Some(last)) if last.is_ascii_punctuation() => word.split_at(word.len() - 1),
            (Some(_), _) => word.split_at(1),
            _ => (word, ""),
        };
        [start, end].into_iter().filter(|part| !part.is_empty())
    })
}

/// Statistics: for each order of characters, then of words, the n-grams of the hypothesis, those of the best reference,
/// and those that match.
impl Metric for Chrf {
    fn width(&self) -> usize {
        3 * self.n_orders()
    }

    fn statistics(&self, hypothesis: &str, references: &[&str], statistics: &mut Vec<f64>) {
        assert!(!references.is_empty(), "a line without a reference");
        let prepared = |line: &str| if self.lowercase { line.to_lowercase() } else { line.to_owned() };
        let hypothesis = prepared(hypothesis);
        let start = statistics.len();
        let mut best = f64::NEG_INFINITY;
        for reference in references {
            let end = statistics.len();
            self.beside(&hypothesis, &prepared(reference), statistics);
            let value = self.value::<f64>(&statistics[end..]);
            if value > best {
                best = value;
                statistics.drain(start..end);
            } else {
                statistics.truncate(end);
            }
        }
    }

    fn value<N: Number>(&self, sums: &[N]) -> N {
        let float = |number: N| -> f64 { number.into() };
        let [zero, epsilon, hundred] = [0.0, EPSILON, 100.0].map(N::from);
        let factor = f64::from(self.beta).powi(2);
        let [factor, factor_1] = [factor, 1.0 + factor].map(N::from);
        let (mut smoothed, mut precision_sum, mut recall_sum, mut n_orders) = (zero, zero, zero, 0);
        for order in sums.chunks_exact(3) {
            let [n_hypothesis, n_reference, matched] = [order[0], order[1], order[2]];
            let [some_hypothesis, some_reference] = [n_hypothesis, n_reference].map(|n| float(n) > 0.0);
            let precision = if some_hypothesis { matched / n_hypothesis } else { epsilon };
            let recall = if some_reference { matched / n_reference } else { epsilon };
            let denominator = factor * precision + recall;
            smoothed = smoothed
                + if float(denominator) > 0.0 {
                    factor_1 * precision * recall / denominator
                } else {
                    epsilon
                };
            if some_hypothesis && some_reference {
                precision_sum = precision_sum + precision;
                recall_sum = recall_sum + recall;
                n_orders += 1;
            }
        }
        if self.epsilon_smoothing {
            return hundred * smoothed / N::from(self.n_orders() as f64);
        }
        if n_orders == 0 {
            return zero;
        }
        let [precision, recall] = [precision_sum, recall_sum].map(|sum| sum / N::from(f64::from(n_orders)));
        if float(precision + recall) == 0.0 {
            return zero;
        }
        hundred * (factor_1 * precision * recall / (factor * precision + recall))
    }

    fn name(&self) -> String {
        format!("chrF{}{}", self.beta, "+".repeat(self.word_order))
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("case", case(self.lowercase)),
            ("eff", yes(!self.epsilon_smoothing)),
            ("nc", self.char_order.to_string()),
            ("nw", self.word_order.to_string()),
            ("space", yes(self.whitespace)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mark_is_separated_from_a_word() {
        let cut = separated("(hi) \"so\", ... . a, é! !é «x» (b").collect::<Vec<_>>();
        let expected =
            ["(hi", ")", "\"so\"", ",", "..", ".", ".", "a", ",", "é", "!", "!", "é", "«x»", "(", "b"];
        assert_eq!(cut, expected);
    }
}
