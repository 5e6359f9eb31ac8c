//! Token classification: pre-split words, each labelled on its first piece.

use super::{CHUNK, TokenSequence, check_length, cutting, sequence, specials};
use crate::labelled::labels::LabelSet;
use crate::labelled::tagged::TaggedSentence;
use crate::{DataError, Result};
use cloze_tokenizer::{
    ByteLevel, Encoding, Input, OffsetUnit, PreTokenizer, Sequence, Tokenizer, Truncation,
};
use serde::{Deserialize, Serialize};

/// The label of tokens to ignore: special tokens, pieces after a word's first, and words that belong to
/// another window. PyTorch's `ignore_index`.
pub const IGNORED: i32 = -100;

/// What to do with sentences that are too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LongSentences {
    /// Words that do not fit are dropped: never trained on, and tagged `O`.
    Truncate,
    /// Several windows, each overlapping the previous one by `stride` tokens. A word belongs to the window
    /// where it has the most context.
    Windows {
        /// Tokens shared by adjacent windows.
        stride: usize,
    },
}

impl Default for LongSentences {
    fn default() -> Self {
        Self::Windows { stride: 32 }
    }
}

/// A sentence, or a window of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagFeatures {
    /// The tokens.
    pub sequence: TokenSequence,
    /// The sentence's index among the examples.
    pub sentence: usize,
    /// Indices in the sentence of the words that this window tags, ascending. Each word of a sentence
    /// belongs to one window at most.
    pub words: Vec<usize>,
    /// Position of each of these words' first piece in the sequence.
    pub positions: Vec<usize>,
    /// A label for each token: the tag's id at `positions`, else [`IGNORED`]; all [`IGNORED`] if tags are
    /// unknown.
    pub labels: Vec<i32>,
}

/// Counts from making features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TagReport {
    /// Sentences that were too long.
    pub long_sentences: usize,
    /// Words dropped because they did not fit.
    pub truncated_words: usize,
    /// Words without tokens, such as control characters alone. They are tagged `O`.
    pub vanished_words: usize,
}

/// Sentences as sequences of at most `max_len` tokens, including special ones; `labels` is the set of
/// their tags, if any.
///
/// Each word is tokenised on its own, as transformers does with `is_split_into_words`; if a byte-level
/// tokenizer marks words by the preceding space, each gets one (`add_prefix_space`).
///
/// # Errors
/// [`DataError::UnknownTag`] for a tag outside the set; [`DataError::FeatureLength`] for lengths that leave
/// no room; [`DataError::Example`].
pub fn encode_tags(
    tokenizer: &Tokenizer,
    sentences: &[TaggedSentence],
    labels: &LabelSet,
    max_len: usize,
    long: LongSentences,
) -> Result<(Vec<TagFeatures>, TagReport)> {
    let specials = specials(tokenizer, false)?;
    check_length(max_len, specials + 1)?;
    let room = max_len - specials;
    let stride = match long {
        LongSentences::Truncate => 0,
        LongSentences::Windows { stride } if stride < room => stride,
        LongSentences::Windows { stride } => {
            let problem = format!(
                "expected less than {room}, the tokens that a window of `max_len` = {max_len} holds besides the special ones"
            );
            return Err(DataError::FeatureLength { key: "stride", value: stride, problem });
        }
    };
    let tokenizer = spaced(cutting(tokenizer, Truncation { stride, ..Truncation::to(max_len) })?);
    let mut features = Vec::with_capacity(sentences.len());
    let mut report = TagReport::default();
    for (chunk, first) in sentences.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
        let words: Vec<Vec<&str>> =
            chunk.iter().map(|sentence| sentence.words.iter().map(String::as_str).collect()).collect();
        let inputs: Vec<Input> =
            words.iter().map(|words| Input { first: Sequence::Words(words), second: None }).collect();
        let encodings = tokenizer.encode_inputs(&inputs, true, OffsetUnit::Bytes);
        let encodings = encodings.map_err(DataError::example(first))?;
        for ((sentence, encoding), number) in chunk.iter().zip(&encodings).zip(first..) {
            let ids = tag_ids(sentence, labels, number)?;
            report.long_sentences += usize::from(!encoding.overflowing.is_empty());
            let windows: Vec<&Encoding> = std::iter::once(encoding).chain(&encoding.overflowing).collect();
            let n_words = sentence.words.len();
            let mut owners = owners(&windows, n_words, room - stride);
            let has_pieces = owners.iter().filter(|owner| owner.is_some()).count();
            report.vanished_words += n_words - has_pieces;
            let kept = match long {
                LongSentences::Windows { .. } => &windows[..],
                LongSentences::Truncate => {
                    for owner in &mut owners {
                        // Of what is cut off the first window has nothing.
                        *owner = owner.filter(|(window, _)| *window == 0);
                    }
                    report.truncated_words += has_pieces - owners.iter().flatten().count();
                    &windows[..1]
                }
            };
            let mut owned = vec![(Vec::new(), Vec::new()); kept.len()];
            for (word, owner) in owners.iter().enumerate() {
                let Some((window, position)) = *owner else { continue };
                owned[window].0.push(word);
                owned[window].1.push(position);
            }
            for (window, (words, positions)) in kept.iter().zip(owned) {
                let mut labels = vec![IGNORED; window.len()];
                if let Some(ids) = &ids {
                    for (word, position) in words.iter().zip(&positions) {
                        labels[*position] = ids[*word];
                    }
                }
                let sequence = sequence(window, number)?;
                features.push(TagFeatures { sequence, sentence: number, words, positions, labels });
            }
        }
    }
    Ok((features, report))
}

/// Makes every word begin as after a space, for byte-level tokenizers that write the space into the
/// piece.
fn spaced(tokenizer: Tokenizer) -> Tokenizer {
    match tokenizer.pre_tokenizer() {
        Some(PreTokenizer::ByteLevel(level)) if !level.add_prefix_space => {
            let level = ByteLevel { add_prefix_space: true, ..level.clone() };
            tokenizer.with_pre_tokenizer(PreTokenizer::ByteLevel(level))
        }
        _ => tokenizer,
    }
}

/// The ids of a sentence's tags, if any.
fn tag_ids(sentence: &TaggedSentence, labels: &LabelSet, number: usize) -> Result<Option<Vec<i32>>> {
    if sentence.tags.is_empty() {
        return Ok(None);
    }
    let id = |(word, tag): (usize, &String)| {
        labels.id(tag).map(|id| id as i32).ok_or_else(|| DataError::UnknownTag {
            sentence: number + 1,
            word: word + 1,
            tag: tag.clone(),
            labels: labels.shown(),
        })
    };
    let mut ids = sentence.tags.iter().enumerate().map(id).collect::<Result<Vec<_>>>()?;
    ids.resize(sentence.words.len(), IGNORED);
    Ok(Some(ids))
}

/// For each word, its window and the position of its first piece there; `None` for words without
/// pieces. Windows start `step` pieces apart.
fn owners(windows: &[&Encoding], n_words: usize, step: usize) -> Vec<Option<(usize, usize)>> {
    // Pieces are numbered through the sentence.
    let pieces = |number: usize, window: &Encoding| {
        let range = window.sequence_range(0).unwrap_or(0..0);
        let start = range.start;
        range.map(move |position| (number * step + position - start, position))
    };
    let mut first_pieces = vec![usize::MAX; n_words];
    for (number, window) in windows.iter().enumerate() {
        for (piece, position) in pieces(number, window) {
            if let Some(word) = window.word_ids[position] {
                let first = &mut first_pieces[word as usize];
                *first = piece.min(*first);
            }
        }
    }
    let mut owners = vec![None; n_words];
    let mut most = vec![0; n_words];
    for (number, window) in windows.iter().enumerate() {
        let range = window.sequence_range(0).unwrap_or(0..0);
        for (piece, position) in pieces(number, window) {
            let Some(word) = window.word_ids[position].map(|word| word as usize) else { continue };
            let around = 1 + (position - range.start).min(range.end - 1 - position);
            // Of equals the first window.
            if first_pieces[word] == piece && around > most[word] {
                most[word] = around;
                owners[word] = Some((number, position));
            }
        }
    }
    owners
}

/// Merges the predictions for features into a tag for every word of every sentence. `predicted` has, for each
/// of the `features`, a tag for each of its `words`; a word in no window gets `outside`.
///
/// # Panics
/// If `predicted` has another shape, or the sentences are not those of the features.
pub fn tags_of_sentences<T: Clone>(
    features: &[TagFeatures],
    predicted: &[Vec<T>],
    sentences: &[TaggedSentence],
    outside: &T,
) -> Vec<Vec<T>> {
    assert_eq!(features.len(), predicted.len(), "one list of tags for each sequence");
    let mut tags: Vec<Vec<T>> =
        sentences.iter().map(|sentence| vec![outside.clone(); sentence.words.len()]).collect();
    for (feature, predicted) in features.iter().zip(predicted) {
        assert_eq!(feature.words.len(), predicted.len(), "one tag for each word of a sequence");
        for (word, tag) in feature.words.iter().zip(predicted) {
            tags[feature.sentence][*word] = tag.clone();
        }
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::super::tests::letters;
    use super::*;
    use proptest::prelude::*;

    fn sentence(words: &[&str]) -> TaggedSentence {
        let tag = |word: &&str| if word.contains('b') { "B-x" } else { "O" }.to_owned();
        TaggedSentence {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            tags: words.iter().map(tag).collect(),
        }
    }

    fn labels() -> LabelSet {
        LabelSet::given(["O", "B-x", "I-x"]).unwrap()
    }

    #[test]
    fn the_first_piece_carries_the_label_and_vanished_words_have_none() {
        let sentences = [sentence(&["ab", "\u{FE0F}\u{200D}", "", "c.", "b"])];
        let (features, report) =
            encode_tags(&letters(), &sentences, &labels(), 16, LongSentences::Truncate).unwrap();
        let [feature] = &features[..] else { panic!("{features:?}") };
        // U+FE0F is a combining mark and stays, as an unknown piece; only what is empty vanishes.
        let vanished = feature.words.len();
        assert_eq!(report.vanished_words, 5 - vanished);
        assert!(!feature.words.contains(&2));
        assert_eq!(feature.labels[0], IGNORED);
        assert_eq!(feature.labels[1..3], [1, IGNORED]);
        assert_eq!(*feature.labels.last().unwrap(), IGNORED);
        let tags = tags_of_sentences(&features, &[vec![2; vanished]], &sentences, &0);
        let expected: Vec<i32> =
            (0..5).map(|word| if feature.words.contains(&word) { 2 } else { 0 }).collect();
        assert_eq!(tags, [expected]);
    }

    #[test]
    fn long_sentences_are_cut_or_have_windows() {
        let sentences = [sentence(&["a", "b", "c", "d", "ef", "g", "h"]), sentence(&["b"])];
        let (features, report) =
            encode_tags(&letters(), &sentences, &labels(), 6, LongSentences::Truncate).unwrap();
        assert_eq!(features.len(), 2);
        assert_eq!(features[0].words, [0, 1, 2, 3]);
        assert_eq!(features[0].labels, [IGNORED, 0, 1, 0, 0, IGNORED]);
        assert_eq!(report, TagReport { long_sentences: 1, truncated_words: 3, vanished_words: 0 });

        let long = LongSentences::Windows { stride: 2 };
        let (features, report) = encode_tags(&letters(), &sentences, &labels(), 6, long).unwrap();
        // Pieces: a b c d | c d e ##f | e ##f g h
        let words: Vec<_> =
            features.iter().map(|feature| (feature.sentence, feature.words.clone())).collect();
        assert_eq!(words, [(0, vec![0, 1, 2]), (0, vec![3, 4]), (0, vec![5, 6]), (1, vec![0])]);
        assert_eq!(features[1].positions, [2, 3]);
        assert_eq!(report, TagReport { long_sentences: 1, ..TagReport::default() });
    }

    #[test]
    fn lengths_and_tags_are_checked() {
        let sentences = [sentence(&["a"]), sentence(&["b"])];
        let message = |labels, max_len, stride| {
            let long = LongSentences::Windows { stride };
            encode_tags(&letters(), &sentences, &labels, max_len, long).unwrap_err().to_string()
        };
        assert!(message(labels(), 2, 0).starts_with("invalid `max_len` = 2: "));
        assert!(message(labels(), 6, 4).starts_with("invalid `stride` = 4: "));
        let labels = LabelSet::given(["O", "B-y"]).unwrap();
        assert_eq!(message(labels, 6, 0), "sentence 2, word 1: tag `B-x`, expected one of O, B-y");
    }

    proptest! {
        #[test]
        fn every_word_has_one_place(
            words in prop::collection::vec("[a-c]{1,5}|\u{7}", 1..30),
            max_len in 4usize..20,
            stride in 0usize..8,
        ) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let sentences = [sentence(&words)];
            let long = LongSentences::Windows { stride: stride.min(max_len - 3) };
            let (features, report) = encode_tags(&letters(), &sentences, &labels(), max_len, long).unwrap();
            let mut seen: Vec<usize> = features.iter().flat_map(|feature| feature.words.clone()).collect();
            prop_assert!(seen.is_sorted(), "{:?}", seen);
            prop_assert_eq!(seen.len() + report.vanished_words, words.len());
            seen.dedup();
            let vanished = seen.iter().any(|word| words[*word] == "\u{7}");
            prop_assert!(!vanished);
            prop_assert_eq!(seen.len() + report.vanished_words, words.len());
            for feature in &features {
                prop_assert!(feature.sequence.len() <= max_len);
                for (word, position) in feature.words.iter().zip(&feature.positions) {
                    // The piece of a word's first letter.
                    let letter = words[*word].as_bytes()[0] - b'a';
                    prop_assert_eq!(feature.sequence.input_ids[*position], 5 + i32::from(letter));
                }
            }
        }
    }
}
