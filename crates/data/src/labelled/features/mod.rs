//! Examples as token ids, for each task.

mod choices;
mod questions;
mod tagged;
mod texts;

pub use choices::{ChoiceFeatures, encode_choices};
pub use questions::{QuestionFeatures, Windows, encode_questions};
pub use tagged::{IGNORED, LongSentences, TagFeatures, TagReport, encode_tags, tags_of_sentences};
pub use texts::{TextFeatures, TokenPlace, encode_texts, text_places};

use crate::{DataError, Result, TokenSequence};
use cloze_tokenizer::{Encoding, Error, Tokenizer, Truncation};

/// Examples tokenised at a time, since each piece is held as a string until its example is done.
const CHUNK: usize = 1024;

/// The model input for example `number`, counted from 0.
///
/// # Errors
/// An empty sequence, which no model accepts.
fn sequence(encoding: &Encoding, number: usize) -> Result<TokenSequence> {
    match encoding.is_empty() {
        true => Err(DataError::Example { number: number + 1, source: Error::NoTokens }),
        false => Ok(encoding.into()),
    }
}

/// The tokenizer with this truncation and no padding, overriding its file.
fn cutting(tokenizer: &Tokenizer, truncation: Truncation) -> Result<Tokenizer> {
    let mut tokenizer = tokenizer.clone();
    tokenizer.set_truncation(Some(truncation))?;
    tokenizer.set_padding(None)?;
    Ok(tokenizer)
}

/// The same when truncated tokens are not needed: texts are read only as far as necessary.
fn forgetting(tokenizer: &Tokenizer, truncation: Truncation) -> Result<Tokenizer> {
    let mut tokenizer = cutting(tokenizer, truncation)?;
    tokenizer.set_keep_overflow(false);
    Ok(tokenizer)
}

/// Special tokens around one text, or around and between two.
fn specials(tokenizer: &Tokenizer, pair: bool) -> Result<usize> {
    let mut tokenizer = tokenizer.clone();
    tokenizer.set_truncation(None)?;
    tokenizer.set_padding(None)?;
    Ok(match pair {
        true => tokenizer.encode_pair("", "", true)?.len(),
        false => tokenizer.encode("", true)?.len(),
    })
}

/// Fails unless `max_len` has room for `least` tokens.
fn check_length(max_len: usize, least: usize) -> Result<()> {
    if max_len >= least {
        return Ok(());
    }
    let problem = format!("the special tokens and a token of each text need {least}");
    Err(DataError::FeatureLength { key: "max_len", value: max_len, problem })
}

#[cfg(test)]
pub(super) mod tests {
    use cloze_tokenizer::{Tokenizer, Vocab};

    /// BERT's tokenizer for a few letters; the id of `a` is 5.
    pub fn letters() -> Tokenizer {
        let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
        let letters = ('a'..='z').map(String::from);
        let inside = ('a'..='z').map(|letter| format!("##{letter}"));
        let vocab = specials.into_iter().chain(letters).chain(inside).chain([".".into(), "é".into()]);
        let mut tokenizer = Tokenizer::bert(Vocab::from_tokens(vocab).unwrap(), false).unwrap();
        // What a file may declare has no effect.
        tokenizer.set_truncation(Some(cloze_tokenizer::Truncation::to(5))).unwrap();
        tokenizer
    }
}
