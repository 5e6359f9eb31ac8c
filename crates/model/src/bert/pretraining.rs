use super::{Bert, BertConfig, BertInput, MlmHead, NextSentenceHead, SpanBoundaries, SpanBoundaryHead};
use crate::ParamInit;
use crate::backbone::has_bert;
use crate::blocks::{Attention, LearnedPositions, MultiHeadAttention, Positions};
use burn::module::Module;
use burn::tensor::{Int, Tensor};

/// BERT with both pretraining heads (Devlin et al. 2019, §3.1), or only the masked-LM head, as in RoBERTa
/// (Liu et al. 2019, §4.2).
#[derive(Module, Debug)]
pub struct BertForPreTraining<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    /// The encoder.
    pub bert: Bert<A, P>,
    /// Predicts the masked pieces.
    pub mlm: MlmHead,
    /// Predicts whether the second segment follows the first; none in a model without that objective.
    pub next_sentence: Option<NextSentenceHead>,
    /// Predicts masked spans from the tokens around them; none in a model without that objective.
    pub span_boundary: Option<SpanBoundaryHead>,
}

/// The heads' outputs.
#[derive(Debug, Clone)]
pub struct PreTrainingLogits {
    /// `[n_masked, vocab_size]`, in the order of the masked positions.
    pub mlm: Tensor<2>,
    /// `[batch, 2]`; none if the model lacks this head.
    pub next_sentence: Option<Tensor<2>>,
    /// `[n, vocab_size]`, one row for each token of the masked spans; none if the model lacks this head or no spans were
    /// given.
    pub span_boundary: Option<Tensor<2>>,
}

has_bert!(BertForPreTraining { mlm, next_sentence, span_boundary });

impl<A: Attention, P: Positions> BertForPreTraining<A, P> {
    /// The same model with other [positions](Bert::with_positions).
    pub fn with_positions<Q: Positions>(self, positions: Q) -> BertForPreTraining<A, Q> {
        let Self { bert, mlm, next_sentence, span_boundary } = self;
        BertForPreTraining { bert: bert.with_positions(positions), mlm, next_sentence, span_boundary }
    }

    /// The same model with a new head for the span boundary objective; `config` is the encoder's.
    pub fn with_span_boundary(mut self, config: &BertConfig, init: &mut ParamInit) -> Self {
        self.span_boundary = Some(SpanBoundaryHead::new(config, init));
        self
    }

    /// Computes logits only at the masked positions: the projection onto the vocabulary is a small model's
    /// largest product, and six of seven rows would be unused.
    ///
    /// # Shapes
    /// - `masked_positions`: `[n_masked]`, indices into the flattened batch: `row · len + column`, or the token's index
    ///   in packed sequences
    ///
    /// # Panics
    /// If the model has a next-sentence head and its encoder no pooler.
    pub fn forward(&self, input: BertInput, masked_positions: Tensor<1, Int>) -> PreTrainingLogits {
        self.forward_with_spans(input, masked_positions, None)
    }

    /// [`forward`](Self::forward), with the logits of the span boundary objective for the `spans`. Without the head they
    /// change nothing.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_with_spans(
        &self,
        input: BertInput,
        masked_positions: Tensor<1, Int>,
        spans: Option<&SpanBoundaries>,
    ) -> PreTrainingLogits {
        let spans = self.span_boundary.as_ref().zip(spans.filter(|spans| spans.n_spans() > 0));
        let [n_masked] = masked_positions.dims();
        let n_boundaries = spans.map_or(0, |(_, spans)| 2 * spans.n_spans());
        let mut tokens = vec![masked_positions];
        if let Some((_, spans)) = spans {
            tokens.push(spans.tokens(&tokens[0].device()));
        }
        if self.next_sentence.is_some() {
            tokens.push(input.first_tokens());
        }
        let tokens = match tokens.len() {
            1 => tokens.remove(0),
            _ => Tensor::cat(tokens, 0),
        };
        let [n] = tokens.dims();
        let states = self.bert.states_at(input, tokens);
        let next_sentence = self.next_sentence.as_ref().map(|head| {
            let pooler = self.bert.pooler.as_ref().expect("the next-sentence head needs a pooler");
            head.forward(pooler.forward(states.clone().slice(n_masked + n_boundaries..n)))
        });
        let table = self.bert.embeddings.tokens.weight.val();
        let span_boundary = spans.map(|(head, spans)| {
            let boundaries = states.clone().slice(n_masked..n_masked + n_boundaries);
            head.forward(boundaries, spans, table.clone())
        });
        let mlm = self.mlm.forward(states.slice(0..n_masked), table);
        PreTrainingLogits { mlm, next_sentence, span_boundary }
    }
}
