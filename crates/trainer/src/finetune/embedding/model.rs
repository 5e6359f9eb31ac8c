//! The trained model: an encoder, and what some losses need besides.

use burn::module::Module;
use cloze_model::HasBackbone;
use cloze_model::bert::Bert;
use cloze_model::blocks::Linear;

/// An encoder whose states are pooled to embeddings. Losses on classes add a classifier of pairs, which is kept
/// in checkpoints but not in the saved model.
#[derive(Module, Debug)]
pub struct SentenceEncoder {
    /// The encoder.
    pub bert: Bert,
    /// From [`pair_features`](super::pair_features) to logits, `[3 · width, classes]`.
    pub classifier: Option<Linear>,
}

impl From<Bert> for SentenceEncoder {
    fn from(bert: Bert) -> Self {
        Self { bert, classifier: None }
    }
}

impl HasBackbone for SentenceEncoder {
    type Backbone = Bert;
    const PATH: &'static str = "bert";

    fn backbone(&self) -> &Bert {
        &self.bert
    }

    fn backbone_mut(&mut self) -> &mut Bert {
        &mut self.bert
    }
}
