//! Scores of translations: [`Bleu`], [`Chrf`] and [`Ter`], bit-identical to sacreBLEU 2.6.0; confidence
//! intervals ([`Corpus::score_with_confidence`]), and significance tests between systems ([`compare`]).
//!
//! ```
//! use cloze_evaluation::translation::{Bleu, score};
//!
//! let hypotheses = ["A man is in a boat.", "Two dogs run."];
//! let references = ["A man sits in a boat.", "Two dogs are running."];
//! let score = score(&Bleu::default(), &hypotheses, &[&references])?;
//! assert_eq!(score.number(1), "36.7");
//! # Ok::<(), cloze_evaluation::EvaluationError>(())
//! ```

pub mod bleu;
mod by_length;
mod chrf;
mod corpus;
mod generator;
mod lines;
mod ngrams;
mod number;
mod paired;
mod picture;
mod python;
mod samples;
mod score;
mod signature;
mod ter;
pub mod tokenization;

pub use bleu::{Bleu, Smoothing};
pub use by_length::{ByLength, OfLength};
pub use chrf::Chrf;
pub use corpus::Corpus;
pub(crate) use generator::Generator;
pub(crate) use ngrams::{count, matches, numbered};
pub use number::{Number, Single, Whole};
pub use paired::{Compared, PairedTest, compare};
pub use picture::draw_by_length;
pub use python::trimmed;
pub(crate) use python::words;
pub use score::{Confidence, Score};
pub use signature::{Signature, VERSION};
pub use ter::Ter;
pub use tokenization::Tokenization;

use crate::Result;

/// The seed of sacreBLEU's random numbers.
pub const SEED: u64 = 12345;

/// sacreBLEU's number of samples for confidence intervals.
pub const CONFIDENCE_SAMPLES: usize = 1_000;

/// A translation metric that is a function of sums over lines.
pub trait Metric {
    /// Number of statistics per line.
    fn width(&self) -> usize;

    /// Appends a line's statistics, `width` numbers, for a hypothesis and its references.
    ///
    /// # Panics
    /// Without a reference.
    fn statistics(&self, hypothesis: &str, references: &[&str], statistics: &mut Vec<f64>);

    /// The score of a corpus, from the sums of its lines' statistics.
    fn value<N: Number>(&self, sums: &[N]) -> N;

    /// Its name.
    fn name(&self) -> String;

    /// Details of a score; empty for most metrics.
    fn verbose(&self, _sums: &[f64]) -> String {
        String::new()
    }

    /// Its part of the signature.
    fn settings(&self) -> Vec<(&'static str, String)>;
}

/// A metric's score of hypotheses against lists of references, each with one line per hypothesis.
///
/// # Errors
/// [`EvaluationError::LineCount`](crate::EvaluationError::LineCount) for references with a different number
/// of lines, and [`EvaluationError::NoLines`](crate::EvaluationError::NoLines).
pub fn score<R: AsRef<[S]>, S: AsRef<str>>(
    metric: &impl Metric,
    hypotheses: &[impl AsRef<str>],
    references: &[R],
) -> Result<Score> {
    Corpus::of(metric, hypotheses, references)?.score(metric)
}
