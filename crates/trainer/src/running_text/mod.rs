//! Training on running text: a corpus as one stream of tokens, and the recipe of whatever is predicted in it.
//!
//! A [`TextObjective`] says what is predicted, a [`TextRecipe`] trains it on [`TextSplits`]. Left-to-right models
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

/// The names of the figures.
pub mod figure {
    /// Cross-entropy of a predicted token, in nats: the main figure, and the only term of the loss.
    pub const LOSS: &str = "loss";
    /// Its exponential: the effective number of choices.
    pub const PERPLEXITY: &str = "perplexity";
    /// Cross-entropy in bits, of a byte of the text: comparable between vocabularies. Only where every token is predicted.
    pub const BITS_PER_BYTE: &str = "bits_per_byte";
    /// The same of a character.
    pub const BITS_PER_CHARACTER: &str = "bits_per_character";
}
