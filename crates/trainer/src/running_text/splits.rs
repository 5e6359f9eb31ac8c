//! The two parts of a corpus, cut into batches.

use super::TextSize;
use cloze_data::Assemble;
use std::fmt;
use std::sync::Arc;

/// The two parts of a corpus as running text: training data and evaluation batches.
pub struct TextSplits<D: Assemble> {
    pub(super) train: Arc<D>,
    pub(super) held_out: Vec<D::Batch>,
    /// The size of the held-out text, if all of it is predicted.
    pub(super) size: Option<TextSize>,
    /// Identifies the texts and the tokenizer.
    pub(super) key: String,
}

impl<D: Assemble> TextSplits<D> {
    /// Splits from these texts. The `key` must change with the texts or the tokenizer.
    pub fn new(train: D, held_out: Vec<D::Batch>, key: String) -> Self {
        Self { train: Arc::new(train), held_out, size: None, key }
    }

    /// Adds the size of the held-out text, all of which must be predicted: the loss is then also reported in
    /// bits.
    pub fn with_size(self, size: TextSize) -> Self {
        Self { size: Some(size), ..self }
    }

    /// Held-out batches, from the text's beginning.
    pub fn held_out(&self) -> &[D::Batch] {
        &self.held_out
    }
}

impl<D: Assemble> fmt::Debug for TextSplits<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextSplits").field("held_out", &self.held_out.len()).field("key", &self.key).finish()
    }
}
