//! Question answering: a question with windows over its context.

use super::{CHUNK, TokenSequence, cutting, forgetting, sequence, specials};
use crate::labelled::questions::Question;
use crate::{DataError, Result};
use cloze_tokenizer::{OffsetUnit, Tokenizer, Truncation, TruncationStrategy};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How contexts are cut into overlapping windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Windows {
    /// Maximum tokens per sequence: question, window and special ones.
    pub max_len: usize,
    /// Context tokens shared with the previous window.
    pub stride: usize,
    /// Maximum tokens of a question; a longer one is cut at its end.
    pub max_question: usize,
}

impl Default for Windows {
    /// The defaults of BERT's and transformers' examples.
    fn default() -> Self {
        Self { max_len: 384, stride: 128, max_question: 64 }
    }
}

/// A question with a window of its context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionFeatures {
    /// The tokens.
    pub sequence: TokenSequence,
    /// The question's index among the examples.
    pub question: usize,
    /// Token range of the context.
    pub context: Range<usize>,
    /// Each context token's byte range in the context.
    pub offsets: Vec<(usize, usize)>,
    /// Position of the null-answer token: `[CLS]`, or the first.
    pub null: usize,
    /// The first and the last token of the first answer, or `null` twice if the window does not contain it
    /// entirely.
    pub answer: (usize, usize),
}

/// Questions with their windows, question first, as in transformers' `run_qa`; a question's windows
/// are consecutive.
///
/// # Errors
/// [`DataError::FeatureLength`] if a window is no longer than the stride; [`DataError::Example`].
pub fn encode_questions(
    tokenizer: &Tokenizer,
    questions: &[Question],
    windows: Windows,
) -> Result<Vec<QuestionFeatures>> {
    let Windows { max_len, stride, max_question } = windows;
    let specials = specials(tokenizer, true)?;
    let taken = max_question.saturating_add(specials).saturating_add(stride);
    if max_len <= taken {
        let problem = format!(
            "expected more than {taken}, which `max_question`, `stride` and the special tokens take up"
        );
        return Err(DataError::FeatureLength { key: "max_len", value: max_len, problem });
    }
    if max_question == 0 {
        let problem = "expected a number above 0".into();
        return Err(DataError::FeatureLength { key: "max_question", value: 0, problem });
    }
    let cls = tokenizer.special_ids().cls;
    let for_questions = forgetting(tokenizer, Truncation::to(max_question))?;
    let strategy = TruncationStrategy::OnlySecond;
    let tokenizer = cutting(tokenizer, Truncation { stride, strategy, ..Truncation::to(max_len) })?;
    let mut features = Vec::with_capacity(questions.len());
    for (chunk, first) in questions.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
        let texts: Vec<&str> = chunk.iter().map(|question| question.question.trim_start()).collect();
        let alone = for_questions.encode_inputs(&texts, false, OffsetUnit::Bytes);
        let alone = alone.map_err(DataError::example(first))?;
        let pairs: Vec<(&str, &str)> = chunk
            .iter()
            .zip(texts.iter().zip(&alone))
            .map(|(question, (text, alone))| {
                let end = match alone.truncated {
                    false => text.len(),
                    true => alone.offsets.last().map_or(0, |(_, end)| text.floor_char_boundary(*end)),
                };
                (&text[..end], &*question.context)
            })
            .collect();
        let encodings = tokenizer.encode_inputs(&pairs, true, OffsetUnit::Bytes);
        let encodings = encodings.map_err(DataError::example(first))?;
        for ((question, encoding), number) in chunk.iter().zip(&encodings).zip(first..) {
            for window in std::iter::once(encoding).chain(&encoding.overflowing) {
                let context = window.sequence_range(1).unwrap_or(0..0);
                let null = cls.and_then(|cls| window.ids.iter().position(|id| *id == cls)).unwrap_or(0);
                let mut feature = QuestionFeatures {
                    sequence: sequence(window, number)?,
                    question: number,
                    offsets: window.offsets[context.clone()].to_vec(),
                    context,
                    null,
                    answer: (null, null),
                };
                if let Some(answer) = question.answers.first() {
                    let bytes = answer.start..answer.start + answer.text.len();
                    feature.answer = feature.tokens(&bytes).unwrap_or((null, null));
                }
                features.push(feature);
            }
        }
    }
    Ok(features)
}

impl QuestionFeatures {
    /// The first and last token of a byte range of the context, if the window contains it.
    fn tokens(&self, bytes: &Range<usize>) -> Option<(usize, usize)> {
        let (first, last) = (self.offsets.first()?, self.offsets.last()?);
        if first.0 > bytes.start || last.1 < bytes.end {
            return None;
        }
        let start = self.offsets.iter().rposition(|(start, _)| *start <= bytes.start)?;
        let end = self.offsets.iter().position(|(_, end)| *end >= bytes.end)?;
        Some((self.context.start + start, self.context.start + end))
    }

    /// The byte range of the context from one token to another; `None` unless both are in the context, in
    /// order.
    pub fn bytes(&self, first: usize, last: usize) -> Option<Range<usize>> {
        if first > last {
            return None;
        }
        let offsets = |token: usize| self.offsets.get(token.checked_sub(self.context.start)?);
        Some(offsets(first)?.0..offsets(last)?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::letters;
    use super::*;
    use crate::labelled::questions::Answer;

    fn question(question: &str, context: &str, answer: &str) -> Question {
        let start = context.find(answer).unwrap();
        Question {
            id: "1".into(),
            title: String::new(),
            context: context.into(),
            question: question.into(),
            answers: vec![Answer { start, text: answer.into() }],
            is_impossible: false,
        }
    }

    #[test]
    fn windows_overlap_and_hold_the_answer_or_point_to_cls() {
        let questions = [question(" q", "a b é d ef g h", "d ef"), question("q q q q", "a b", "b")];
        let windows = Windows { max_len: 9, stride: 2, max_question: 2 };
        let features = encode_questions(&letters(), &questions, windows).unwrap();
        // [CLS] q [SEP] and five pieces, the last two of which come again, and [SEP].
        let of_first: Vec<_> = features.iter().filter(|feature| feature.question == 0).collect();
        assert_eq!(of_first.len(), 2);
        assert_eq!(of_first[0].context, 3..8);
        assert_eq!(of_first[0].offsets, [(0, 1), (2, 3), (4, 6), (7, 8), (9, 10)]);
        assert_eq!(of_first[0].answer, (0, 0), "the answer goes on in the next window");
        assert_eq!(of_first[1].offsets, [(7, 8), (9, 10), (10, 11), (12, 13), (14, 15)]);
        assert_eq!(of_first[1].answer, (3, 5));
        assert_eq!(of_first[1].bytes(3, 5), Some(7..11));
        assert_eq!(of_first[1].bytes(2, 5), None);
        assert_eq!(of_first[1].bytes(5, 3), None);
        // A question that is too long is cut.
        let second = features.last().unwrap();
        assert_eq!(second.sequence.input_ids, [2, 21, 21, 3, 5, 6, 3]);
        assert_eq!(second.answer, (5, 5));
    }

    #[test]
    fn lengths_must_leave_room() {
        let message = |windows| encode_questions(&letters(), &[], windows).unwrap_err().to_string();
        assert_eq!(
            message(Windows { max_len: 195, ..Windows::default() }),
            "invalid `max_len` = 195: expected more than 195, which `max_question`, `stride` and the special tokens take up"
        );
        assert!(message(Windows { max_question: 0, ..Windows::default() }).contains("above 0"));
    }

    #[test]
    fn an_empty_context_has_one_window_without_tokens() {
        let mut empty = question("q", "a", "a");
        (empty.context, empty.answers) = ("".into(), vec![]);
        let features = encode_questions(&letters(), &[empty], Windows::default()).unwrap();
        assert_eq!(features.len(), 1);
        assert_eq!((features[0].answer, features[0].offsets.len()), ((0, 0), 0));
    }
}
