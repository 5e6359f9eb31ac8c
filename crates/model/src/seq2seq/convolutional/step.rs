//! Decoding: one token per row in each step.

use super::ConvolutionalEncoderDecoder;
use crate::Sequences;
use crate::generate::{NextToken, StepOutput};
use crate::scores::{DotScore, Memory, attend};
use crate::seq2seq::DecodeOptions;
use burn::tensor::{Device, Int, Tensor};

/// The decoding state of a [`ConvolutionalEncoderDecoder`]: the encoder's outputs, computed once, and for
/// each layer the inputs that later windows see.
#[derive(Debug, Clone)]
pub struct ConvolutionalDecoding {
    /// For each layer the last `kernel − 1` inputs, `[rows, (kernel − 1) · d_model]`; `None` if windows have
    /// one token.
    before: Vec<Option<Tensor<2>>>,
    memory: Memory,
    /// The number of tokens in each row.
    lengths: Vec<usize>,
    options: DecodeOptions,
    device: Device,
}

impl ConvolutionalDecoding {
    /// Rows without tokens, one per source.
    pub(super) fn new(
        model: &ConvolutionalEncoderDecoder,
        source: &Sequences,
        options: DecodeOptions,
        device: &Device,
    ) -> Self {
        let encoded = model.encode(source, device);
        let d_model = model.readout.v.lazy_shape()[0];
        let begin = |layer: &super::ConvolutionalDecoderLayer| {
            layer.convolution.begin(source.len(), d_model, &encoded.keys)
        };
        let before = model.decoder.iter().map(begin).collect();
        let lengths = vec![0; source.len()];
        Self { before, memory: encoded.memory(), lengths, options, device: device.clone() }
    }
}

impl NextToken for ConvolutionalEncoderDecoder {
    type State = ConvolutionalDecoding;

    /// The alignment is the mean of all layers' attentions.
    ///
    /// # Panics
    /// If the numbers of tokens and rows differ, or a row is longer than the model's positions.
    fn step(&self, tokens: &[i32], state: &mut ConvolutionalDecoding) -> StepOutput {
        let ConvolutionalDecoding { before, memory, lengths, options, device } = state;
        let most = self.max_positions();
        assert_eq!(tokens.len(), lengths.len(), "a token for each row");
        let is_full = lengths.iter().any(|len| *len >= most);
        assert!(!is_full, "a row has {most} tokens, as many as the model has positions");
        let embedded = self.embed_target(tokens, lengths.iter().copied(), device);
        let mut x = self.decoder_input.forward(embedded.clone());
        let mut weights: Option<Tensor<2>> = None;
        for (layer, before) in self.decoder.iter().zip(before) {
            let ask = |query: Tensor<2>| {
                let attended = attend(&DotScore::new(), query.unsqueeze_dim::<3>(1), memory);
                if options.alignment {
                    let own = attended.weights.squeeze_dim::<2>(1);
                    weights = Some(match weights.take() {
                        Some(sum) => sum + own,
                        None => own,
                    });
                }
                attended.context.squeeze_dim::<2>(1)
            };
            x = layer.forward(x, embedded.clone(), |convolution, x| convolution.step(x, before), ask);
        }
        lengths.iter_mut().for_each(|len| *len += 1);
        let alignment = weights.map(|sum| sum.div_scalar(self.decoder.len() as f64));
        StepOutput::new(self.project(x)).with_alignment(alignment)
    }

    fn select(&self, state: &mut ConvolutionalDecoding, rows: &[usize]) {
        state.lengths = rows.iter().map(|row| state.lengths[*row]).collect();
        let rows: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
        let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &state.device);
        for before in state.before.iter_mut().flatten() {
            *before = before.clone().select(0, rows.clone());
        }
        state.memory = state.memory.clone().select(rows);
    }

    fn join(&self, state: &mut ConvolutionalDecoding, other: ConvolutionalDecoding) {
        for (before, other) in state.before.iter_mut().zip(other.before) {
            let both = before.take().zip(other);
            *before = both.map(|(before, other)| Tensor::cat(vec![before, other], 0));
        }
        state.memory = state.memory.clone().join(other.memory);
        state.lengths.extend(other.lengths);
    }

    fn max_tokens(&self) -> Option<usize> {
        Some(self.max_positions())
    }
}
