//! Labelled data: files to examples, examples to token ids, and batches of these.
//!
//! ```text
//! LabelledSource ─ texts, choices, tagged_sentences, questions ─► examples
//!   ─ encode_texts, … (a Tokenizer) ─► features: ids, type ids, labels, offsets ─ Buckets ─► TokenBatch
//! ```
//!
//! Everything here is plain vectors; examples are held in memory.

mod answers;
mod buckets;
#[cfg(feature = "images")]
mod captions;
mod choices;
mod conll;
mod conllu;
mod features;
#[cfg(feature = "images")]
mod images;
mod labels;
mod places;
mod questions;
mod records;
mod retrieval;
pub(crate) mod rows;
mod sentences;
pub(crate) mod source;
mod squad;
mod table;
mod tagged;
mod tags;
mod texts;

pub use crate::tokens::TokenSequence;
pub use answers::{AnswerConfig, Candidate, PredictedAnswer, WindowScores, best_answer};
pub use buckets::{BatchSize, Buckets, Step, restore};
#[cfg(feature = "images")]
pub use captions::{CaptionedImage, captioned_images};
pub use choices::{ChoiceExample, choices};
pub use features::{
    ChoiceFeatures, IGNORED, LongSentences, QuestionFeatures, TagFeatures, TagReport, TextFeatures,
    TokenPlace, Windows, encode_choices, encode_questions, encode_tags, encode_texts, tags_of_sentences,
    text_places,
};
#[cfg(feature = "images")]
pub use images::image_rows;
pub use labels::LabelSet;
pub use places::Places;
pub use questions::{Answer, Question, questions};
pub use records::{Record, RecordColumn, Records, records};
pub use retrieval::{RetrievalSet, retrieval_set};
pub(crate) use rows::n_columns;
pub use rows::{Named, found_delimiter, object_cell};
pub use sentences::{SentenceExample, classified_sentences, sentences};
pub use source::{Column, Columns, DataFormat, LabelledSource, Loaded, OnBadRow};
pub use table::{Layout, Table};
pub use tagged::{EntityTags, TaggedSentence, checked_sentences, entity_sentences, tagged_sentences};
pub use tags::{TagScheme, TagSpan, Transitions, tag_spans};
pub use texts::{Labels, Target, TextExample, texts};
