//! The two parts of a corpus, cut into batches.

use super::TextSize;
use cloze_data::Assemble;
use std::fmt;
use std::sync::Arc;

/// The two parts of a corpus as running text: what is trained on, and batches to measure with.
pub struct TextSplits<D: Assemble> {
    pub(super) train: Arc<D>,
    pub(super) held_out: Vec<D::Batch>,
    /// Of the held-out text that is predicted, if that is all of it.
    pub(super) size: Option<TextSize>,
    /// Which texts, and which tokenizer.
    pub(super) key: String,
}

impl<D: Assemble> TextSplits<D> {
    /// These texts. The `key` differs if the texts or the tokenizer do.
    pub fn new(train: D, held_out: Vec<D::Batch>, key: String) -> Self {
        Self { train: Arc::new(train), held_out, size: None, key }
    }

    /// With the size of the held-out text, all of which is predicted: the loss is told in bits too.
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
