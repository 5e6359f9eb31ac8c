use super::HeadTransform;
use crate::bert::{Bert, BertInput};
use crate::blocks::{Attention, LearnedPositions, Linear, MultiHeadAttention, Positions};
use crate::ops::{CrossEntropy, Packing};
use burn::module::Module;
use burn::tensor::{Bool, Int, Tensor, TensorData};

/// The logit of a token that cannot begin or end an answer.
const OUTSIDE: f32 = -1e9;

/// An encoder that finds the answer to a question in a text: each token gets a logit for being the answer's first
/// token, and one for being its last (Devlin et al. 2019, §4.2).
#[derive(Module, Debug)]
pub struct BertForQuestionAnswering<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    /// The encoder.
    pub bert: Bert<A, P>,
    /// The transform before the output, in families that have one.
    pub transform: Option<HeadTransform>,
    /// `[d_model, 2]`: first and last token.
    pub output: Linear,
}

/// The logits of each token being an answer's first and its last; -1e9 where it cannot be.
#[derive(Debug, Clone)]
pub struct SpanLogits {
    /// `[sequences, longest]`
    pub start: Tensor<2>,
    /// `[sequences, longest]`
    pub end: Tensor<2>,
}

impl<A: Attention, P: Positions> BertForQuestionAnswering<A, P> {
    /// One row of logits per sequence, also for packed input. Besides padding, the tokens in `outside` are
    /// excluded: the question and the special tokens, except for the first token if it stands for no answer.
    /// (transformers' model leaves all of them in the softmax.)
    ///
    /// # Shapes
    /// - `outside`: `[sequences, longest]`, see [`BertInput::longest`], `true` where no answer may begin or end
    pub fn forward(&self, input: BertInput, outside: Option<Tensor<2, Bool>>) -> SpanLogits {
        let pad_mask = input.pad_mask.clone();
        let (logits, padding) = match input.packing.clone() {
            Some(packing) => self.spread_logits(input, &packing, outside.as_ref()),
            None => (self.head(self.bert.forward(input).last_hidden_state), pad_mask),
        };
        let masked: Vec<Tensor<2, Bool>> = [padding, outside].into_iter().flatten().collect();
        let side = |side: usize| {
            let logits = logits.clone().narrow(2, side, 1).squeeze_dim::<2>(2);
            masked.iter().fold(logits, |logits, masked| logits.mask_fill(masked.clone(), OUTSIDE))
        };
        SpanLogits { start: side(0), end: side(1) }
    }

    /// The logits of packed sequences, one sequence per row, `[sequences, longest, 2]`, and the padding mask,
    /// if there is any padding. Padding holds logits of other tokens.
    fn spread_logits(
        &self,
        input: BertInput,
        packing: &Packing,
        outside: Option<&Tensor<2, Bool>>,
    ) -> (Tensor<3>, Option<Tensor<2, Bool>>) {
        let device = input.input_ids.device();
        let shape = [packing.lengths().len(), packing.longest()];
        let mut tokens = packing.padded_tokens();
        let padding: Vec<bool> = tokens.iter().map(Option::is_none).collect();
        // States outside are not needed: on devices that can compute some states alone, skip them.
        if let Some(outside) = outside.filter(|_| self.bert.takes_packed()) {
            for (token, outside) in tokens.iter_mut().zip(outside.to_data().iter::<bool>()) {
                *token = token.filter(|_| !outside);
            }
        }
        let mut wanted: Vec<i32> = Vec::with_capacity(packing.n_tokens());
        let mut from: Vec<i32> = Vec::with_capacity(tokens.len());
        for token in tokens {
            // Places without a token take the first token's logits and are masked.
            from.push(token.map_or(0, |_| wanted.len() as i32));
            wanted.extend(token.map(|token| token as i32));
        }
        if wanted.is_empty() {
            wanted.push(0);
        }
        let states = match wanted.len() == packing.n_tokens() {
            true => self.bert.forward(input).last_hidden_state.squeeze_dim::<2>(0),
            false => self.bert.states_at(input, Tensor::from_data(wanted.as_slice(), &device)),
        };
        let from = Tensor::<1, Int>::from_data(from.as_slice(), &device);
        let logits = self.head(states).select(0, from).reshape([shape[0], shape[1], 2]);
        let padding = padding.contains(&true).then(|| TensorData::new(padding, shape));
        (logits, padding.map(|padding| Tensor::from_data(padding, &device)))
    }

    /// `[..., d_model]` to `[..., 2]`.
    fn head<const D: usize>(&self, states: Tensor<D>) -> Tensor<D> {
        self.output.forward(HeadTransform::apply(self.transform.as_ref(), states))
    }
}

/// The mean of each sequence's two cross-entropies, in nats. A position beyond the window does not contribute, as in
/// transformers, which moves negative positions to the first token.
///
/// # Shapes
/// - `starts`, `ends`: `[sequences]`, the answers' first and last tokens; returns `[sequences]`
pub fn span_loss(logits: SpanLogits, starts: Tensor<1, Int>, ends: Tensor<1, Int>) -> Tensor<1> {
    let [_, len] = logits.start.dims();
    let loss = CrossEntropy { ignored_label: Some(len as i64), ..CrossEntropy::default() };
    let side = |logits, positions: Tensor<1, Int>| loss.forward(logits, positions.clamp(0, len as i64));
    (side(logits.start, starts) + side(logits.end, ends)).div_scalar(2.0)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bert, close, inputs, matrix};
    use super::*;
    use crate::ParamInit;
    use burn::tensor::Device;

    #[test]
    fn packed_and_padded_have_the_same_logits_within_the_context() {
        let device = Device::flex().autodiff();
        let output = Linear::new(8, 2, &mut ParamInit::new(&device, 1).with_std(0.4));
        let model = BertForQuestionAnswering { bert: bert(&device), transform: None, output };
        let lengths = [3, 6];
        let inputs = inputs(&lengths, &device);
        // Of each the second token, and of the second sequence the last, too.
        let outside = [[false, true, false, false, false, false], [false, true, false, false, false, true]];
        let runs = inputs.clone().map(|input| {
            let logits = model.forward(input, Some(Tensor::from_data(outside, &device)));
            let labels = [[2, 3], [0, 4]].map(|labels| Tensor::<1, Int>::from_data(labels, &device));
            let [starts, ends] = labels;
            let gradients = span_loss(logits.clone(), starts, ends).sum().backward();
            let weight = model.output.weight.val().grad(&gradients).unwrap();
            (logits, weight)
        });
        let [(packed, packed_gradient), (padded, padded_gradient)] = runs;
        close(packed.start.clone(), padded.start.into_data());
        close(packed.end.clone(), padded.end.into_data());
        close(packed_gradient, padded_gradient.into_data());

        let [packed_input, _] = inputs;
        let states = model.bert.forward(packed_input).last_hidden_state;
        let each = model.output.forward(states).squeeze_dim::<2>(0).into_data();
        let each: Vec<f32> = each.iter::<f32>().collect();
        for (side, logits) in [packed.start, packed.end].into_iter().enumerate() {
            let x = |token: usize| each[2 * token + side];
            let out = OUTSIDE;
            close(logits, [[x(0), out, x(2), out, out, out], [x(3), out, x(5), x(6), x(7), out]]);
        }
    }

    #[test]
    fn the_loss_is_transformers() {
        // torch 2.9, after BertForQuestionAnswering.forward: f(3, 4, p=1.1) and f(3, 4, p=1.7) with f as for
        // the head; a, b = tensor([1, 9, 0]).clamp(0, 4), tensor([2, 9, -1]).clamp(0, 4);
        // (cross_entropy(s, a, ignore_index=4) + cross_entropy(e, b, ignore_index=4)) / 2, the mean over two.
        let device = Device::flex().autodiff();
        let start = matrix([3, 4], 1.1, &device).require_grad();
        let end = matrix([3, 4], 1.7, &device).require_grad();
        let logits = SpanLogits { start: start.clone(), end: end.clone() };
        let starts = Tensor::<1, Int>::from_data([1, 9, 0], &device);
        let ends = Tensor::<1, Int>::from_data([2, 9, -1], &device);
        let loss = span_loss(logits, starts, ends);
        close(loss.clone(), [1.800_934f32, 0.0, 1.496_730_6]);
        let mean = loss.sum().div_scalar(2.0);
        close(mean.clone(), [1.648_832_3f32]);
        let gradients = mean.backward();
        close(
            start.grad(&gradients).unwrap(),
            [
                [0.102_910_6f32, -0.155_258_7, 0.036_05, 0.016_298_1],
                [0.0, 0.0, 0.0, 0.0],
                [-0.204_092_9, 0.026_686_7, 0.046_270_7, 0.131_135_4],
            ],
        );
        close(
            end.grad(&gradients).unwrap().narrow(0, 0, 1),
            [[0.122_411f32, 0.035_169_5, -0.232_008_4, 0.074_428]],
        );
    }
}
