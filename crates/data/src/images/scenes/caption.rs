//! A caption and what its words name.

use std::ops::Range;

/// A caption of a scene.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caption {
    /// The text, in lower case, with a space between words and before punctuation.
    pub text: String,
    /// Its words, punctuation included.
    pub words: Vec<CaptionWord>,
}

/// A word of a caption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptionWord {
    /// Its bytes in the text.
    pub range: Range<usize>,
    /// What it says.
    pub role: WordRole,
    /// The place in [`Scene::things`](super::Scene::things) of the thing that a noun, colour or size names. `None` for
    /// other words, "it" and "them" included, and if the scene has no such thing.
    pub thing: Option<usize>,
}

/// What a word of a caption says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WordRole {
    /// A thing's size.
    Size,
    /// A thing's colour.
    Colour,
    /// A thing's shape: the noun.
    Shape,
    /// Anything else: relations, articles, pronouns, punctuation.
    Other,
}
