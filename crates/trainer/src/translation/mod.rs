//! Trains translation models: from a config and parallel text to the saved model.
//!
//! [`TranslationConfig`] describes a run, [`train_translation`] runs it, as a recipe of the
//! [engine](crate::engine). [`TranslationRecipe`] takes any
//! [`EncoderDecoder`](cloze_model::seq2seq::EncoderDecoder), including your own.

mod config;
mod decode;
mod folder;
mod memory;
pub(crate) mod model;
mod recipe;
mod run;
pub(crate) mod validate;
pub(crate) mod vocabulary;

pub use crate::pairs::inputs;
pub use config::{
    ParallelSection, TranslationConfig, TranslationEval, TranslationRun, TranslationTrain, VocabularySection,
};
pub use folder::{
    DecodingDefaults, TRANSLATION_FILE, TokenizerPlaces, TranslationFile, load_vocabularies,
    read_translation_file,
};
pub use model::{ConvolutionalSection, RecurrentSection, TransformerSection, TranslationModel};
pub use recipe::{TranslationData, TranslationRecipe, figure};
pub use run::{train_translation, train_translation_model};
pub use vocabulary::{TargetPieces, Vocabularies, VocabularySizes};
