//! BLEU (Papineni et al. 2002), as in sacreBLEU (Post 2018).

use super::Metric;
use super::ngrams::{count, matches, numbered};
use super::number::Number;
use super::python::{trimmed, words};
use super::signature::{case, yes};
use super::tokenization::Tokenization;

/// The maximum n-gram order.
pub const MAX_ORDER: usize = 4;

/// Substitute for the logarithm of zero.
const LOG_OF_ZERO: f64 = -9_999_999_999.0;

/// BLEU: the geometric mean of the precisions of n-grams up to four words, times a brevity penalty.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bleu {
    /// How lines are tokenised.
    pub tokenization: Tokenization,
    /// How to smooth zero precisions.
    pub smoothing: Smoothing,
    /// Whether text is lower-cased first.
    pub lowercase: bool,
    /// Whether to leave orders longer than the hypothesis out of the mean. Meant for sentence scores.
    pub effective_order: bool,
}

/// How to smooth zero precisions (Chen and Cherry 2014).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Smoothing {
    /// `exp`: the first order without a match counts as half a match, the next as a quarter, and so on
    /// (method 3).
    #[default]
    Exponential,
    /// `floor`: an order without a match counts as this many (method 1; default 0.1).
    Floor(f64),
    /// `add-k`: adds this to the matches and n-grams of all orders but the first (method 2; default 1).
    Add(f64),
    /// `none`: without a match in some order, the score is practically zero.
    None,
}

impl Smoothing {
    /// The names, as in sacreBLEU.
    pub const NAMES: [&str; 4] = ["exp", "floor", "add-k", "none"];

    /// The smoothing of this name, with this value or the default. `None` for an unknown name, or for a value
    /// it does not take.
    pub fn named(name: &str, value: Option<f64>) -> Option<Self> {
        match (name, value) {
            ("exp", None) => Some(Self::Exponential),
            ("floor", value) => Some(Self::Floor(value.unwrap_or(0.1))),
            ("add-k", value) => Some(Self::Add(value.unwrap_or(1.0))),
            ("none", None) => Some(Self::None),
            _ => None,
        }
    }

    fn signature(self) -> String {
        match self {
            Self::Exponential => "exp".to_owned(),
            Self::Floor(value) => format!("floor[{value:.2}]"),
            Self::Add(value) => format!("add-k[{value:.2}]"),
            Self::None => "none".to_owned(),
        }
    }
}

/// The components of a score.
struct Parts<N> {
    /// In percent, by order.
    precisions: [N; MAX_ORDER],
    brevity_penalty: f64,
    score: f64,
}

impl Bleu {
    fn prepared(&self, line: &str) -> String {
        let line = if self.lowercase { &line.to_lowercase() } else { line };
        self.tokenization.apply(trimmed(line)).into_owned()
    }

    fn parts<N: Number>(&self, sums: &[N]) -> Parts<N> {
        let float = |number: N| -> f64 { number.into() };
        let (hypothesis_len, reference_len) = (float(sums[0]).trunc(), float(sums[1]).trunc());
        let brevity_penalty = match (hypothesis_len < reference_len, hypothesis_len > 0.0) {
            (true, true) => (1.0 - reference_len / hypothesis_len).exp(),
            (true, false) => 0.0,
            (false, _) => 1.0,
        };
        let (correct, total) = sums[2..].split_at(MAX_ORDER);
        let mut precisions = [N::from(0.0); MAX_ORDER];
        if correct.iter().all(|correct| float(*correct) == 0.0) {
            return Parts { precisions, brevity_penalty, score: 0.0 };
        }
        let mut missed = 1.0;
        let mut n_orders = MAX_ORDER;
        let hundred = N::from(100.0);
        for (place, precision) in precisions.iter_mut().enumerate() {
            let (mut correct, mut total) = (correct[place], total[place]);
            if let (Smoothing::Add(k), 1..) = (self.smoothing, place) {
                (correct, total) = (correct.raised(k), total.raised(k));
            }
            if float(total) == 0.0 {
                break;
            }
            if self.effective_order {
                n_orders = place + 1;
            }
            *precision = match self.smoothing {
                _ if float(correct) != 0.0 => hundred * correct / total,
                Smoothing::Exponential => {
                    missed *= 2.0;
                    hundred / (N::from(missed) * total)
                }
                Smoothing::Floor(value) => N::from(100.0 * value) / total,
                Smoothing::Add(_) | Smoothing::None => *precision,
            };
        }
        let log = |precision: &N| match float(*precision) {
            0.0 => LOG_OF_ZERO,
            precision => precision.ln(),
        };
        let logs: f64 = precisions[..n_orders].iter().map(log).sum();
        Parts { precisions, brevity_penalty, score: brevity_penalty * (logs / n_orders as f64).exp() }
    }
}

/// Statistics: the lengths of the hypothesis and of the reference that is closest in length, in tokens; the matches of
/// each order; the n-grams of each order.
impl Metric for Bleu {
    fn width(&self) -> usize {
        2 + 2 * MAX_ORDER
    }

    fn statistics(&self, hypothesis: &str, references: &[&str], statistics: &mut Vec<f64>) {
        let hypothesis = self.prepared(hypothesis);
        let references: Vec<String> = references.iter().map(|line| self.prepared(line)).collect();
        let (hypothesis, references) =
            numbered(words(&hypothesis), references.iter().map(|reference| words(reference)));
        let len = hypothesis.len();
        // Of two that are as close, the shorter one.
        let closest = references.iter().map(Vec::len).min_by_key(|other| (len.abs_diff(*other), *other));
        assert!(closest.is_some(), "a line without a reference");
        statistics.extend([len, closest.unwrap_or(0)].map(|len| len as f64));
        statistics.extend(matches(&hypothesis, &references, MAX_ORDER).into_iter().map(|n| n as f64));
        statistics.extend((1..=MAX_ORDER).map(|order| count(len, order) as f64));
    }

    fn value<N: Number>(&self, sums: &[N]) -> N {
        self.parts(sums).score.into()
    }

    fn name(&self) -> String {
        "BLEU".to_owned()
    }

    fn verbose(&self, sums: &[f64]) -> String {
        let Parts { precisions, brevity_penalty, .. } = self.parts(sums);
        let (len, reference_len) = (sums[0], sums[1]);
        let ratio = if reference_len > 0.0 { len / reference_len } else { 0.0 };
        let precisions = precisions.map(|precision| format!("{precision:.1}")).join("/");
        format!(
            "{precisions} (BP = {brevity_penalty:.3} ratio = {ratio:.3} hyp_len = {len} ref_len = {reference_len})"
        )
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("case", case(self.lowercase)),
            ("eff", yes(self.effective_order)),
            ("tok", self.tokenization.name().to_owned()),
            ("smooth", self.smoothing.signature()),
        ]
    }
}
