//! Padding encodings to a length.

use serde::{Deserialize, Serialize};

use crate::{Encoding, Error, Result};

/// Longer padding is considered a mistake: it would not fit in memory.
const LONGEST: usize = 1 << 24;

/// The length to pad to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PaddingStrategy {
    /// That of the longest in the batch.
    BatchLongest,
    /// This many pieces.
    Fixed(usize),
}

/// Which end is padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PaddingDirection {
    /// The beginning.
    Left,
    /// The end.
    Right,
}

/// How to pad encodings, as in `tokenizer.json`.
///
/// ```
/// # use cloze_tokenizer::{Padding, PaddingDirection, PaddingStrategy, Tokenizer, Vocab};
/// let mut tokenizer = Tokenizer::bert(Vocab::from_tokens(["[PAD]", "[UNK]", "old", "sea"])?, true)?;
/// tokenizer.set_padding(Some(Padding {
///     strategy: PaddingStrategy::BatchLongest,
///     direction: PaddingDirection::Right,
///     pad_to_multiple_of: Some(4),
///     pad_id: 0,
///     pad_type_id: 0,
///     pad_token: "[PAD]".into(),
/// }))?;
/// let batch = tokenizer.encode_batch(&["old sea", "sea"], false)?;
/// assert_eq!(batch[0].ids, [2, 3, 0, 0]);
/// assert_eq!(batch[1].attention_mask, [1, 0, 0, 0]);
/// # Ok::<_, cloze_tokenizer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Padding {
    /// The length to pad to.
    pub strategy: PaddingStrategy,
    /// Which end is padded.
    pub direction: PaddingDirection,
    /// Round the length up to a multiple.
    #[serde(default)]
    pub pad_to_multiple_of: Option<usize>,
    /// The id to pad with.
    pub pad_id: u32,
    /// The type id to pad with.
    pub pad_type_id: u32,
    /// The token to pad with.
    pub pad_token: String,
}

impl Padding {
    pub(crate) fn check(&self) -> Result<()> {
        let fixed = match self.strategy {
            PaddingStrategy::Fixed(length) => length,
            PaddingStrategy::BatchLongest => 0,
        };
        let length = fixed.max(self.pad_to_multiple_of.unwrap_or(0));
        if length > LONGEST {
            let message = format!("cannot pad to {length} pieces; at most {LONGEST}");
            return Err(Error::invalid("padding", message));
        }
        Ok(())
    }

    /// Pads every encoding of a batch to the same length.
    pub(crate) fn apply(&self, batch: &mut [Encoding]) {
        let length = self.length(batch.iter().map(Encoding::len).max().unwrap_or(0));
        for encoding in batch {
            self.fill(encoding, length);
        }
    }

    /// Pads the ids of one text, which begin at `start` of `ids`, as a batch of its own.
    ///
    /// ```
    /// # use cloze_tokenizer::{Padding, PaddingDirection, PaddingStrategy};
    /// let padding = Padding {
    ///     strategy: PaddingStrategy::Fixed(3),
    ///     direction: PaddingDirection::Right,
    ///     pad_to_multiple_of: None,
    ///     pad_id: 0,
    ///     pad_type_id: 0,
    ///     pad_token: "[PAD]".into(),
    /// };
    /// let mut ids = vec![7, 8, 9, 10];
    /// padding.apply_to_ids(&mut ids, 3);
    /// assert_eq!(ids, [7, 8, 9, 10, 0, 0]);
    /// ```
    pub fn apply_to_ids(&self, ids: &mut Vec<u32>, start: usize) {
        let found = ids.len().saturating_sub(start);
        let missing = self.length(found).saturating_sub(found);
        ids.resize(ids.len() + missing, self.pad_id);
        if self.direction == PaddingDirection::Left
            && let Some(text) = ids.get_mut(start..)
        {
            text.rotate_right(missing);
        }
    }

    /// The padded length of a batch whose longest text has `longest` pieces.
    fn length(&self, longest: usize) -> usize {
        let length = match self.strategy {
            PaddingStrategy::Fixed(length) => length,
            PaddingStrategy::BatchLongest => longest,
        };
        match self.pad_to_multiple_of.filter(|&m| m > 0) {
            Some(multiple) => length.next_multiple_of(multiple),
            None => length,
        }
    }

    fn fill(&self, encoding: &mut Encoding, length: usize) {
        for overflow in &mut encoding.overflowing {
            self.fill(overflow, length);
        }
        let missing = length.saturating_sub(encoding.len());
        if missing == 0 {
            return;
        }
        let overflowing = std::mem::take(&mut encoding.overflowing);
        let truncated = encoding.truncated;
        let mut padding = Encoding::default();
        for _ in 0..missing {
            padding.push_special(self.pad_id, &self.pad_token, self.pad_type_id);
        }
        padding.attention_mask.fill(0);
        match self.direction {
            PaddingDirection::Right => encoding.append(padding),
            PaddingDirection::Left => {
                padding.append(std::mem::take(encoding));
                *encoding = padding;
            }
        }
        (encoding.overflowing, encoding.truncated) = (overflowing, truncated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_a_multiple_at_either_end() {
        let mut padding = Padding {
            strategy: PaddingStrategy::BatchLongest,
            direction: PaddingDirection::Right,
            pad_to_multiple_of: Some(4),
            pad_id: 9,
            pad_type_id: 3,
            pad_token: "[PAD]".into(),
        };
        let mut encoding = Encoding::default();
        encoding.push(1, "a", (0, 1), Some(0), 0);
        let mut batch = [encoding.clone()];
        padding.apply(&mut batch);
        assert_eq!(batch[0].ids, [1, 9, 9, 9]);
        let mut ids = vec![5, 1];
        padding.apply_to_ids(&mut ids, 1);
        assert_eq!(ids, [5, 1, 9, 9, 9]);
        assert_eq!(batch[0].attention_mask, [1, 0, 0, 0]);
        assert_eq!(batch[0].special_tokens_mask, [0, 1, 1, 1]);
        assert_eq!(batch[0].type_ids, [0, 3, 3, 3]);
        padding.direction = PaddingDirection::Left;
        padding.strategy = PaddingStrategy::Fixed(2);
        padding.pad_to_multiple_of = None;
        let mut batch = [encoding];
        padding.apply(&mut batch);
        assert_eq!(batch[0].ids, [9, 1]);
        let mut ids = vec![5, 1];
        padding.apply_to_ids(&mut ids, 1);
        assert_eq!(ids, [5, 9, 1]);
        assert_eq!(batch[0].sequence_ids, [None, Some(0)]);
    }
}
