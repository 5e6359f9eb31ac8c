//! Texts and pairs of texts.

use super::{CHUNK, TokenSequence, check_length, forgetting, sequence, specials};
use crate::labelled::texts::{Target, TextExample};
use crate::{DataError, Result, SpecialPieces};
use cloze_tokenizer::{Encoding, Input, OffsetUnit, Sequence, Tokenizer, Truncation};
use std::ops::Range;

/// A text or a pair of texts.
#[derive(Debug, Clone, PartialEq)]
pub struct TextFeatures {
    /// The tokens.
    pub sequence: TokenSequence,
    /// The target to predict.
    pub target: Target,
    /// Whether tokens were cut off.
    pub truncated: bool,
}

/// Texts as at most `max_len` tokens, including special ones. The longer text of a pair is cut first, at its
/// end. A text without tokens (an empty text with a tokenizer that adds no special tokens) becomes a language
/// model's end-of-text token, or the unknown token.
///
/// # Errors
/// A `max_len` without room for one token of each text; [`DataError::Example`].
pub fn encode_texts(
    tokenizer: &Tokenizer,
    examples: &[TextExample],
    max_len: usize,
) -> Result<Vec<TextFeatures>> {
    let nothing = SpecialPieces::find(tokenizer).end.or(tokenizer.special_ids().unk);
    let mut features = Vec::with_capacity(examples.len());
    each_encoding(tokenizer, examples, max_len, |encoding, example, number| {
        let sequence = match nothing.filter(|_| encoding.is_empty()) {
            Some(id) => TokenSequence { input_ids: vec![id as i32], token_type_ids: vec![0] },
            None => sequence(encoding, number)?,
        };
        let (target, truncated) = (example.target.clone(), encoding.truncated);
        features.push(TextFeatures { sequence, target, truncated });
        Ok(())
    })?;
    Ok(features)
}

/// Where a token of [`encode_texts`] comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenPlace {
    /// 0 for the first text, 1 for the second; none for a special token.
    pub text: Option<u32>,
    /// Its bytes in the text.
    pub bytes: Range<usize>,
}

/// For the tokens that [`encode_texts`] makes of each example: where they come from.
///
/// # Errors
/// Those of [`encode_texts`].
pub fn text_places(
    tokenizer: &Tokenizer,
    examples: &[TextExample],
    max_len: usize,
) -> Result<Vec<Vec<TokenPlace>>> {
    let mut all = Vec::with_capacity(examples.len());
    each_encoding(tokenizer, examples, max_len, |encoding, _, _| {
        let tokens = encoding.offsets.iter().zip(&encoding.sequence_ids);
        let mut places: Vec<TokenPlace> =
            tokens.map(|((start, end), text)| TokenPlace { text: *text, bytes: *start..*end }).collect();
        // In the place of nothing there is a special token.
        if places.is_empty() {
            places.push(TokenPlace { text: None, bytes: 0..0 });
        }
        all.push(places);
        Ok(())
    })?;
    Ok(all)
}

/// Calls `each` with the tokens of every example, and its number.
fn each_encoding(
    tokenizer: &Tokenizer,
    examples: &[TextExample],
    max_len: usize,
    mut each: impl FnMut(&Encoding, &TextExample, usize) -> Result<()>,
) -> Result<()> {
    let pairs = examples.iter().any(|example| example.pair.is_some());
    check_length(max_len, specials(tokenizer, pairs)? + if pairs { 2 } else { 1 })?;
    let tokenizer = forgetting(tokenizer, Truncation::to(max_len))?;
    for (chunk, before) in examples.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
        let inputs: Vec<Input> = chunk
            .iter()
            .map(|example| Input {
                first: Sequence::Text(&example.text),
                second: example.pair.as_deref().map(Sequence::Text),
            })
            .collect();
        let encodings = tokenizer.encode_inputs(&inputs, true, OffsetUnit::Bytes);
        let encodings = encodings.map_err(DataError::example(before))?;
        for ((encoding, example), number) in encodings.iter().zip(chunk).zip(before..) {
            each(encoding, example, number)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::letters;
    use super::*;

    #[test]
    fn a_text_without_tokens_is_the_end_of_a_text() {
        use cloze_tokenizer::train::BpeTrainer;
        let special_tokens = vec!["<|endoftext|>".into()];
        let trainer = BpeTrainer { vocab_size: 270, special_tokens, ..Default::default() };
        let tokenizer = trainer.train(["a b"]).unwrap();
        let example = |text: &str| TextExample { text: text.into(), pair: None, target: Target::None };
        let features = encode_texts(&tokenizer, &[example(""), example("a")], 7).unwrap();
        let end = tokenizer.token_to_id("<|endoftext|>").unwrap() as i32;
        assert_eq!(features[0].sequence.input_ids, [end]);
        assert_eq!(features[0].sequence.token_type_ids, [0]);
        assert_eq!(features[1].sequence.len(), 1);
        assert_ne!(features[1].sequence.input_ids, [end]);
    }

    #[test]
    fn texts_and_pairs_are_cut() {
        let example = |text: &str, pair: Option<&str>| TextExample {
            text: text.into(),
            pair: pair.map(Into::into),
            target: Target::Class(1),
        };
        let examples = [
            example("a b", None),
            example("a b c d e f g h", None),
            example("a", Some("a b c d e f g h")),
            example("", Some("")),
        ];
        let features = encode_texts(&letters(), &examples, 7).unwrap();
        assert_eq!(features[0].sequence.input_ids, [2, 5, 6, 3]);
        assert_eq!(features[1].sequence.input_ids, [2, 5, 6, 7, 8, 9, 3]);
        assert_eq!(features[2].sequence.input_ids, [2, 5, 3, 5, 6, 7, 3]);
        assert_eq!(features[2].sequence.token_type_ids, [0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(features[3].sequence.input_ids, [2, 3, 3]);
        let truncated: Vec<bool> = features.iter().map(|feature| feature.truncated).collect();
        assert_eq!(truncated, [false, true, true, false]);
        assert!(features.iter().all(|feature| feature.target == Target::Class(1)));
        let message = encode_texts(&letters(), &examples, 4).unwrap_err().to_string();
        assert_eq!(message, "invalid `max_len` = 4: the special tokens and a token of each text need 5");
    }
}
