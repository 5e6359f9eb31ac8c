//! Why a caption cannot be read.

/// Why a text is not a caption of the grammar. Words are counted from 1, punctuation included.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptionError {
    /// A word that cannot be here.
    #[error("the caption cannot be read at word {word}, `{found}`: expected {expected}")]
    Unexpected {
        /// Its number.
        word: usize,
        /// The word.
        found: String,
        /// What can be here.
        expected: String,
    },

    /// The text ends within a sentence.
    #[error("the caption ends after {words} words: expected {expected}")]
    Ends {
        /// The number of its words.
        words: usize,
        /// What is missing.
        expected: String,
    },

    /// "the circle", or "them", without such things in an earlier clause.
    #[error(
        "word {word} of the caption, `{found}`, names nothing: no earlier clause has {expected}; name it with size and colour"
    )]
    Unknown {
        /// Its number.
        word: usize,
        /// The word.
        found: String,
        /// What it would name.
        expected: String,
    },

    /// "the circle", where there are several.
    #[error(
        "word {word} of the caption, `{found}`, may be the {first} or the {second}; name it with size and colour"
    )]
    Ambiguous {
        /// Its number.
        word: usize,
        /// The word.
        found: String,
        /// One of those that it may be.
        first: String,
        /// Another.
        second: String,
    },
}
