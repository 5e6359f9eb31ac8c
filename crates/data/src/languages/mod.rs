//! Several languages: sampling probabilities, and batches of each language and of translations.
//!
//! ```text
//! corpus.languages ─ sampled_texts ─► one tokenizer
//!   ─ a PretrainingData a language ─┐
//! parallel text ─ Translations ─────┴► MultilingualData ─ Loader (batch size 1) ─► a batch of one language or pair
//! ```

mod data;
mod sampling;
mod texts;
mod translations;

pub use data::{LanguageStream, MultilingualData, MultilingualPlan};
pub use sampling::LanguageSampling;
pub use texts::{check_languages, sampled_texts};
pub use translations::{TranslationFiles, Translations};
