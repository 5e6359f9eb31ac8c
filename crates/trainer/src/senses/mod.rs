//! Word sense disambiguation by nearest sense vectors.
//!
//! ```text
//! labelled sentences ─ sentences ─► words with lemma, part of speech and sense
//!   ─ target_vectors ─► each word's vector in its sentence ─ vectors ─► each sense's vector: their mean
//! a word to tag ─ tagger ─► the nearest of its lemma's senses, else the most frequent one
//!   wordnet, related: candidates that the labelled sentences lack, and vectors for them
//! ```
//!
//! A sense's vector is the mean of the contextual vectors of its occurrences, and a word gets the sense whose
//! vector has the smallest angle to its own (Peters et al. 2018, section 5.3; Wiedemann et al. 2019; Loureiro &
//! Jorge 2019). Only senses of the word's lemma and part of speech are compared. A prior can favour frequent
//! senses ([`SenseTagger::with_prior`]). An unseen lemma gets its most frequent sense in WordNet, or with
//! WordNet's relations the nearest of its senses' related vectors.

mod evaluate;
mod file;
mod related;
mod sentences;
mod tagger;
mod target_vectors;
mod vectors;
mod wordnet;

pub use evaluate::{MOST_FREQUENT, NEAREST, RELATED, SenseReport, WEIGHED, evaluate};
pub use file::{SENSES_FILE, VECTORS_FILE};
pub use related::Origin;
pub use sentences::{
    SenseData, SensePart, SenseSentence, SenseSentences, SenseTarget, SenseText, sense_sentence,
};
pub use tagger::{Candidate, Choice, SenseTagger, WordNetFit};
pub use target_vectors::TargetEmbedder;
pub(crate) use target_vectors::with_spaces;
pub use vectors::{LearnReport, SenseModel, SenseOrigin, SenseVectors, learn};
pub use wordnet::{Pointer, Synset, SynsetId, WordNet};
