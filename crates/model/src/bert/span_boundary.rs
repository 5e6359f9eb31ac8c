use super::BertConfig;
use crate::blocks::{Activation, Embedding, LayerNorm, Linear};
use crate::{ParamInit, linear_maps, ops};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};
use std::ops::Range;

/// SpanBERT's span boundary objective (Joshi et al. 2020, §3.2): predicts each token of a masked span from the states of
/// the two tokens around the span, and from its place in the span.
///
/// ```text
/// h₀ = [x₍s−1₎; x₍e+1₎; p₍i−s+1₎]    h₁ = LayerNorm(GeLU(W₁·h₀ + b₁))    y = LayerNorm(GeLU(W₂·h₁ + b₂))
/// ```
///
/// `y` is projected onto the token embeddings, which are passed in as in [`MlmHead`](super::MlmHead).
///
/// A token beyond the last row of the position table uses that row; the authors' code predicts no such token.
#[derive(Module, Debug)]
pub struct SpanBoundaryHead {
    /// `[max_span, d_position]`: one row for each place in a span.
    pub positions: Embedding,
    /// `[2 · d_model + d_position, d_model]`
    pub first: Linear,
    /// The normalisation after the first layer.
    pub first_norm: LayerNorm,
    /// `[d_model, d_embedding]`
    pub second: Linear,
    /// The normalisation after the second layer.
    pub second_norm: LayerNorm,
    /// One output bias per piece, `[vocab_size]`.
    pub bias: Param<Tensor<1>>,
}

linear_maps!(SpanBoundaryHead { first, second });

/// The masked spans of a batch, as [`SpanBoundaryHead`] needs them.
#[derive(Debug, Clone)]
pub struct SpanBoundaries {
    /// `[n_spans]`: the token before each span, by its index in the flattened batch.
    before: Vec<i32>,
    /// `[n_spans]`: the token after each span.
    after: Vec<i32>,
    /// `[n]`: for each predicted token, the number of its span.
    span_of: Vec<i32>,
    /// `[n]`: for each predicted token, its place in its span, from 0.
    place: Vec<i32>,
}

impl SpanBoundaries {
    /// The boundaries of `spans`, each the range of its tokens' indices in the flattened batch. Every span needs a token
    /// of its sequence on both sides, such as the pieces that begin and end it.
    pub fn new(spans: &[Range<i32>]) -> Self {
        let numbered = || (0..).zip(spans);
        Self {
            before: spans.iter().map(|span| span.start - 1).collect(),
            after: spans.iter().map(|span| span.end).collect(),
            span_of: numbered().flat_map(|(number, span)| span.clone().map(move |_| number)).collect(),
            place: spans.iter().flat_map(|span| span.clone().map(|token| token - span.start)).collect(),
        }
    }

    /// The number of spans.
    pub fn n_spans(&self) -> usize {
        self.before.len()
    }

    /// `[2 · n_spans]`: the tokens whose states are needed, those before the spans first.
    pub fn tokens(&self, device: &Device) -> Tensor<1, Int> {
        let tokens: Vec<i32> = self.before.iter().chain(&self.after).copied().collect();
        Tensor::from_data(tokens.as_slice(), device)
    }
}

impl SpanBoundaryHead {
    /// The rows of the position table, and their features, in the authors' code.
    pub const MAX_SPAN: usize = 20;
    /// See [`MAX_SPAN`](Self::MAX_SPAN).
    pub const D_POSITION: usize = 200;

    /// A new head for `config`.
    pub fn new(config: &BertConfig, init: &mut ParamInit) -> Self {
        let (d_model, d_embedding) = (config.d_model, config.embedding_width());
        Self {
            positions: Embedding::new(Self::MAX_SPAN, Self::D_POSITION, init),
            first: Linear::new(2 * d_model + Self::D_POSITION, d_model, init),
            first_norm: LayerNorm::new(d_model, config.layer_norm_eps, init),
            second: Linear::new(d_model, d_embedding, init),
            second_norm: LayerNorm::new(d_embedding, config.layer_norm_eps, init),
            bias: init.zeros([config.vocab_size]),
        }
    }

    /// # Shapes
    /// - `states`: `[2 · n_spans, d_model]`, those of [`SpanBoundaries::tokens`]; `token_embeddings`:
    ///   `[vocab_size, d_embedding]`; returns `[n, vocab_size]`, one row for each token of the spans, in
    ///   order
    pub fn forward(
        &self,
        states: Tensor<2>,
        spans: &SpanBoundaries,
        token_embeddings: Tensor<2>,
    ) -> Tensor<2> {
        let device = states.device();
        let n_spans = spans.n_spans();
        let last = self.positions.weight.dims()[0] as i32 - 1;
        let places: Vec<i32> = spans.place.iter().map(|place| (*place).min(last)).collect();
        let numbers = |numbers: &[i32]| Tensor::<1, Int>::from_data(numbers, &device);
        let span_of = numbers(&spans.span_of);
        let before = states.clone().slice(0..n_spans).select(0, span_of.clone());
        let after = states.slice(n_spans..2 * n_spans).select(0, span_of);
        let place = self.positions.forward(numbers(&places).unsqueeze_dim::<2>(0)).squeeze_dim::<2>(0);
        let hidden = self.first.forward(Tensor::cat(vec![before, after, place], 1));
        let hidden = self.first_norm.forward(Activation::Gelu.forward(hidden));
        let hidden = self.second_norm.forward(Activation::Gelu.forward(self.second.forward(hidden)));
        ops::linear_tied(hidden, token_embeddings, Some(self.bias.val()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bert::BertInput;

    #[test]
    fn each_token_of_a_span_knows_its_boundaries_and_its_place() {
        let spans = SpanBoundaries::new(&[2..5, 7..8]);
        assert_eq!((spans.before, spans.after), (vec![1, 6], vec![5, 8]));
        assert_eq!((spans.span_of, spans.place), (vec![0, 0, 0, 1], vec![0, 1, 2, 0]));
    }

    /// `LayerNorm(GELU(x·W + b))`, number by number.
    fn layer(x: &[f64], linear: &Linear, norm: &LayerNorm) -> Vec<f64> {
        let values = |tensor: Tensor<1>| tensor.into_data().iter::<f64>().collect::<Vec<_>>();
        let weight = values(linear.weight.val().reshape([-1]));
        let bias = values(linear.bias.as_ref().expect("a bias").val());
        let n = bias.len();
        let sums: Vec<f64> = (0..n)
            .map(|j| bias[j] + x.iter().zip(weight[j..].iter().step_by(n)).map(|(x, w)| x * w).sum::<f64>())
            .collect();
        let active = Tensor::<1>::from_data(sums.as_slice(), &Device::flex());
        let active = values(burn::tensor::activation::gelu(active));
        let mean = active.iter().sum::<f64>() / n as f64;
        let variance = active.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        let (gamma, beta) = (values(norm.gamma.val()), values(norm.beta.as_ref().expect("a shift").val()));
        (0..n).map(|j| (active[j] - mean) / (variance + 1e-12).sqrt() * gamma[j] + beta[j]).collect()
    }

    #[test]
    fn a_token_is_predicted_as_by_the_equation() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 3).with_std(0.3);
        let config = BertConfig::new(31, 1, 16).with_d_embedding(Some(8));
        let head = SpanBoundaryHead::new(&config, init);
        let table = init.truncated_normal([31, 8]).val();
        let states = init.truncated_normal([4, 16]).val();
        // One span is longer than the position table has rows.
        let spans = SpanBoundaries::new(&[2..4, 5..27]);
        let logits = head.forward(states.clone(), &spans, table.clone()).into_data();
        let logits: Vec<f64> = logits.iter::<f64>().collect();
        let rows = |tensor: Tensor<2>| {
            let [_, d] = tensor.dims();
            let values: Vec<f64> = tensor.into_data().iter::<f64>().collect();
            values.chunks(d).map(<[f64]>::to_vec).collect::<Vec<_>>()
        };
        let (states, table, positions) = (rows(states), rows(table), rows(head.positions.weight.val()));
        let tokens = (0..2).map(|place| (0, place)).chain((0..22).map(|place| (1, place)));
        let mut expected = Vec::new();
        for (span, place) in tokens {
            let input = [&states[span][..], &states[2 + span], &positions[place.min(19)]].concat();
            let hidden = layer(&input, &head.first, &head.first_norm);
            let y = layer(&hidden, &head.second, &head.second_norm);
            expected.extend(table.iter().map(|row| row.iter().zip(&y).map(|(a, b)| a * b).sum::<f64>()));
        }
        assert_eq!(logits.len(), 24 * 31);
        for (found, expected) in logits.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-4, "{found} is not {expected}");
        }
    }

    #[test]
    fn spans_of_packed_sequences_are_predicted_as_those_of_padded_ones() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 5).with_std(0.2);
        let config = BertConfig::new(31, 2, 16).with_n_heads(2).with_d_ff(24);
        let model = config.init(init).with_span_boundary(&config, init);
        let (first, second) = ([2, 7, 9, 11, 8, 3], [2, 12, 3]);
        let packed = BertInput::packed(&[&first[..], &second].concat(), &[6, 3], &device);
        let ids = [&first[..], &second, &[0; 3]].concat();
        let padded = BertInput::new(Tensor::<1, Int>::from_data(ids.as_slice(), &device).reshape([2, 6]));
        let ignored = (0..12).map(|at| at >= 9).collect::<Vec<_>>();
        let mask = Tensor::<1, burn::tensor::Bool>::from_data(ignored.as_slice(), &device);
        let padded = padded.with_pad_mask(mask.reshape([2, 6]));
        // The first two spans share a boundary, and a sequence's first token is one of the third.
        let spans = [1..2, 3..5, 7..8];
        let masked = Tensor::<1, Int>::from_data([1, 3, 4, 7], &device);
        let logits =
            |input| model.forward_with_spans(input, masked.clone(), Some(&SpanBoundaries::new(&spans)));
        let (packed, padded) = (logits(packed), logits(padded));
        let tolerance = burn::tensor::Tolerance::<f32>::rel_abs(1e-4, 1e-5);
        for (packed, padded) in [
            (packed.mlm, padded.mlm),
            (packed.span_boundary.unwrap(), padded.span_boundary.unwrap()),
            (packed.next_sentence.unwrap(), padded.next_sentence.unwrap()),
        ] {
            packed.into_data().assert_approx_eq(&padded.into_data(), tolerance);
        }
    }
}
