use super::RecurrentEncoderDecoder;
use super::model::DecoderState;
use crate::Sequences;
use crate::blocks::SampledSoftmax;
use crate::generate::{NextToken, StepOutput};
use crate::scores::Score;
use crate::seq2seq::{DecodeOptions, EncoderDecoder};
use burn::tensor::{Device, Int, Tensor};

/// The state of a [`RecurrentEncoderDecoder`] between decoding steps.
#[derive(Debug, Clone)]
pub struct RecurrentDecoding {
    running: DecoderState,
    alignment: bool,
}

impl<S: Score> NextToken for RecurrentEncoderDecoder<S> {
    type State = RecurrentDecoding;

    fn step(&self, tokens: &[i32], state: &mut Self::State) -> StepOutput {
        let device = state.running.layers[0].hidden.device();
        let x = self.embed(tokens, &device);
        let (read, weights) = self.advance(x, &mut state.running);
        StepOutput::new(self.logits_of(read)).with_alignment(weights.filter(|_| state.alignment))
    }

    fn select(&self, state: &mut Self::State, rows: &[usize]) {
        let running = &mut state.running;
        let rows: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
        let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &running.layers[0].hidden.device());
        for layer in &mut running.layers {
            *layer = layer.clone().select(rows.clone());
        }
        running.fed = running.fed.take().map(|fed| fed.select(0, rows.clone()));
        running.memory = running.memory.take().map(|memory| memory.select(rows));
    }

    fn join(&self, state: &mut Self::State, other: Self::State) {
        let (running, other) = (&mut state.running, other.running);
        for (layer, other) in running.layers.iter_mut().zip(other.layers) {
            *layer = layer.clone().cat(other, 0);
        }
        let fed = running.fed.take().zip(other.fed);
        running.fed = fed.map(|(fed, other)| Tensor::cat(vec![fed, other], 0));
        let memory = running.memory.take().zip(other.memory);
        running.memory = memory.map(|(memory, other)| memory.join(other));
    }
}

impl<S: Score> EncoderDecoder for RecurrentEncoderDecoder<S> {
    fn logits(&self, source: &Sequences, target: &Sequences, device: &Device) -> Tensor<2> {
        self.logits_of(self.teach(source, target, device))
    }

    fn losses(
        &self,
        source: &Sequences,
        target: &Sequences,
        next: &[i32],
        sampled: Option<SampledSoftmax>,
        device: &Device,
    ) -> Tensor<1> {
        self.losses_of(self.teach(source, target, device), next, sampled)
    }

    fn begin(&self, source: &Sequences, options: DecodeOptions, device: &Device) -> Self::State {
        assert!(!source.is_empty(), "a source at least");
        RecurrentDecoding { running: self.encode(source, device), alignment: options.alignment }
    }

    fn max_source_tokens(&self) -> Option<usize> {
        self.attention.as_ref().and_then(Score::max_memory_tokens)
    }
}
