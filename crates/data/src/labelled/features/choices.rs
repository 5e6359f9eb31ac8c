//! Multiple choice: each choice with its context as a pair.

use super::{CHUNK, TokenSequence, check_length, forgetting, sequence, specials};
use crate::labelled::choices::ChoiceExample;
use crate::{DataError, Result};
use cloze_tokenizer::{Error, OffsetUnit, Tokenizer, Truncation};

/// The choices of an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceFeatures {
    /// Context and choice, for each choice.
    pub choices: Vec<TokenSequence>,
    /// The index of the correct one, if known.
    pub label: Option<usize>,
    /// Choices with tokens cut off.
    pub truncated: usize,
}

impl ChoiceFeatures {
    /// The tokens of the padded rectangle of choices: the example's size in a batch.
    pub fn len(&self) -> usize {
        self.choices.len() * self.choices.iter().map(TokenSequence::len).max().unwrap_or(0)
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Choices as pairs of at most `max_len` tokens, truncated as in [`encode_texts`](super::encode_texts).
///
/// # Errors
/// A `max_len` without room for one token of each text; [`DataError::Example`].
pub fn encode_choices(
    tokenizer: &Tokenizer,
    examples: &[ChoiceExample],
    max_len: usize,
) -> Result<Vec<ChoiceFeatures>> {
    check_length(max_len, specials(tokenizer, true)? + 2)?;
    let tokenizer = forgetting(tokenizer, Truncation::to(max_len))?;
    let mut features = Vec::with_capacity(examples.len());
    for (chunk, before) in examples.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
        let pairs: Vec<(&str, &str)> = chunk
            .iter()
            .flat_map(|example| {
                example.choices.iter().map(|choice| (example.context.as_str(), choice.as_str()))
            })
            .collect();
        let encodings =
            tokenizer.encode_inputs(&pairs, true, OffsetUnit::Bytes).map_err(|error| match error {
                Error::Batch { index, source, .. } => {
                    let mut ends = chunk.iter().scan(0, |end, example| {
                        *end += example.choices.len();
                        Some(*end)
                    });
                    let number = before + 1 + ends.position(|end| index < end).unwrap_or_default();
                    DataError::Example { number, source: *source }
                }
                error => error.into(),
            });
        let mut encodings = encodings?.into_iter();
        for (example, number) in chunk.iter().zip(before..) {
            let choices: Vec<_> = encodings.by_ref().take(example.choices.len()).collect();
            features.push(ChoiceFeatures {
                truncated: choices.iter().filter(|choice| choice.truncated).count(),
                choices: choices.iter().map(|choice| sequence(choice, number)).collect::<Result<_>>()?,
                label: example.label,
            });
        }
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::super::tests::letters;
    use super::*;

    #[test]
    fn every_choice_has_the_context() {
        let example = |choices: &[&str], label| ChoiceExample {
            context: "a b".into(),
            choices: choices.iter().map(|choice| (*choice).into()).collect(),
            label,
        };
        let examples = [example(&["c", "d e f g"], Some(1)), example(&["g", "h", "i"], None)];
        let features = encode_choices(&letters(), &examples, 8).unwrap();
        assert_eq!(features[0].choices[0].input_ids, [2, 5, 6, 3, 7, 3]);
        assert_eq!(features[0].choices[1].input_ids, [2, 5, 6, 3, 8, 9, 10, 3]);
        assert_eq!((features[0].label, features[0].truncated, features[0].len()), (Some(1), 1, 16));
        assert_eq!(features[1].choices[2].input_ids, [2, 5, 6, 3, 13, 3]);
        assert_eq!((features[1].label, features[1].truncated, features[1].len()), (None, 0, 18));
    }
}
