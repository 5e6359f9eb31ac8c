//! Scores of translations: [`Bleu`], [`Chrf`] and [`Ter`], computed as sacreBLEU 2.6.0 computes them, to the last bit;
//! how far they can be trusted ([`Corpus::score_with_confidence`]), and whether systems differ ([`compare`]).
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
pub use number::{Number, Single, Whole};
pub use paired::{Compared, PairedTest, compare};
pub use picture::draw_by_length;
pub use python::trimmed;
pub use score::{Confidence, Score};
pub use signature::{Signature, VERSION};
pub use ter::Ter;
pub use tokenization::Tokenization;

use crate::Result;

/// The seed of sacreBLEU's random numbers.
pub const SEED: u64 = 12345;

/// How many samples sacreBLEU estimates a score's confidence from.
pub const CONFIDENCE_SAMPLES: usize = 1_000;

/// A measure of translations that is a function of sums over the lines.
pub trait Metric {
    /// How many numbers a line's statistics are.
    fn width(&self) -> usize;

    /// Appends a line's statistics: `width` numbers, of what was translated and of how it may be translated.
    ///
    /// # Panics
    /// Without a reference.
    fn statistics(&self, hypothesis: &str, references: &[&str], statistics: &mut Vec<f64>);

    /// The score of a corpus, from the sums of its lines' statistics.
    fn value<N: Number>(&self, sums: &[N]) -> N;

    /// Its name.
    fn name(&self) -> String;

    /// What else there is to say of a score; of most nothing.
    fn verbose(&self, _sums: &[f64]) -> String {
        String::new()
    }

    /// Its part of the signature.
    fn settings(&self) -> Vec<(&'static str, String)>;
}

/// A metric's score of hypotheses beside references, one list of which has a line for each hypothesis.
///
/// # Errors
/// [`EvaluationError::LineCount`](crate::EvaluationError::LineCount) of references that have another number of lines,
/// and [`EvaluationError::NoLines`](crate::EvaluationError::NoLines).
pub fn score<R: AsRef<[S]>, S: AsRef<str>>(
    metric: &impl Metric,
    hypotheses: &[impl AsRef<str>],
    references: &[R],
) -> Result<Score> {
    Corpus::of(metric, hypotheses, references)?.score(metric)
}
