//! Tokenizers that cut long texts.

use crate::Result;
use cloze_tokenizer::{Tokenizer, Truncation, TruncationDirection};
use std::sync::OnceLock;

/// Copies of a tokenizer that cut long texts at their beginnings or ends, each made when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Cutting {
    left: OnceLock<Tokenizer>,
    right: OnceLock<Tokenizer>,
}

impl Cutting {
    /// The copy of `tokenizer` that cuts there, to `max_len` tokens: the same two each time.
    ///
    /// # Errors
    /// A length that has no room for the special tokens.
    pub fn of(
        &self,
        tokenizer: &Tokenizer,
        direction: TruncationDirection,
        max_len: usize,
    ) -> Result<&Tokenizer> {
        let place = match direction {
            TruncationDirection::Left => &self.left,
            TruncationDirection::Right => &self.right,
        };
        if let Some(cutting) = place.get() {
            return Ok(cutting);
        }
        let mut cutting = tokenizer.clone();
        cutting.set_truncation(Some(Truncation { direction, ..Truncation::to(max_len) }))?;
        Ok(place.get_or_init(|| cutting))
    }
}
