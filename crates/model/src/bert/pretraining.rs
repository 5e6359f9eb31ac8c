use super::{Bert, BertInput, MlmHead, NextSentenceHead};
use crate::backbone::has_bert;
use crate::blocks::{Attention, LearnedPositions, MultiHeadAttention, Positions};
use burn::module::Module;
use burn::tensor::{Int, Tensor};

/// BERT with both pretraining heads (Devlin et al. 2019, §3.1), or with the masked-LM head alone, as in RoBERTa (Liu et
/// al. 2019, §4.2).
#[derive(Module, Debug)]
pub struct BertForPreTraining<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    /// The encoder.
    pub bert: Bert<A, P>,
    /// Predicts the masked pieces.
    pub mlm: MlmHead,
    /// Predicts whether the second segment follows the first; none in a model without that objective.
    pub next_sentence: Option<NextSentenceHead>,
}

/// The two heads' outputs.
#[derive(Debug, Clone)]
pub struct PreTrainingLogits {
    /// `[n_masked, vocab_size]`, in the order of the masked positions.
    pub mlm: Tensor<2>,
    /// `[batch, 2]`; none if the model lacks this head.
    pub next_sentence: Option<Tensor<2>>,
}

has_bert!(BertForPreTraining);

impl<A: Attention, P: Positions> BertForPreTraining<A, P> {
    /// The same model with other [positions](Bert::with_positions).
    pub fn with_positions<Q: Positions>(self, positions: Q) -> BertForPreTraining<A, Q> {
        let Self { bert, mlm, next_sentence } = self;
        BertForPreTraining { bert: bert.with_positions(positions), mlm, next_sentence }
    }

    /// Computes logits only at the masked positions: the projection onto the vocabulary is the largest product of a
    /// small model, and six of seven rows of it would be unused.
    ///
    /// # Shapes
    /// - `masked_positions`: `[n_masked]`, indices into the flattened batch: `row · len + column`, or the token's index
    ///   in packed sequences
    ///
    /// # Panics
    /// If the model has a next-sentence head and its encoder no pooler.
    pub fn forward(&self, input: BertInput, masked_positions: Tensor<1, Int>) -> PreTrainingLogits {
        let (mut tokens, [n_masked]) = (masked_positions.clone(), masked_positions.dims());
        if self.next_sentence.is_some() {
            tokens = Tensor::cat(vec![tokens, input.first_tokens()], 0);
        }
        let [n] = tokens.dims();
        let states = self.bert.states_at(input, tokens);
        let next_sentence = self.next_sentence.as_ref().map(|head| {
            let pooler = self.bert.pooler.as_ref().expect("the next-sentence head needs a pooler");
            head.forward(pooler.forward(states.clone().slice(n_masked..n)))
        });
        let table = self.bert.embeddings.tokens.weight.val();
        let mlm = self.mlm.forward(states.slice(0..n_masked), table);
        PreTrainingLogits { mlm, next_sentence }
    }
}
