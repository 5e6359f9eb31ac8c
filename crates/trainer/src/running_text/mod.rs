//! Training on running text: a corpus as one stream of tokens, and a recipe for any objective on it.
//!
//! A [`TextObjective`] defines the predictions, a [`TextRecipe`] trains it on [`TextSplits`]. Left-to-right
//! models
//! ([`language_model`](crate::language_model)) and XLNet ([`permutation`](crate::permutation)) are two of them.

pub(crate) mod figures;
pub(crate) mod initial;
mod objective;
mod recipe;
mod source;
mod splits;

pub use figures::TextSize;
pub use objective::TextObjective;
pub use recipe::TextRecipe;
pub(crate) use source::{TextParts, TextSource};
pub use splits::TextSplits;

/// The names of the metrics.
pub mod figure {
    /// Cross-entropy of a predicted token, in nats: the main metric, and the only term of the loss.
    pub const LOSS: &str = "loss";
    /// Its exponential: the effective number of choices.
    pub const PERPLEXITY: &str = "perplexity";
    /// Cross-entropy in bits per byte of the text: comparable across vocabularies. Only if every token is
    /// predicted.
    pub const BITS_PER_BYTE: &str = "bits_per_byte";
    /// The same per character.
    pub const BITS_PER_CHARACTER: &str = "bits_per_character";
}
