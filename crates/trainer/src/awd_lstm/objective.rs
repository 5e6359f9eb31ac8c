use super::exchange;
use crate::Result;
use crate::config::RegularisationSection;
use crate::engine::replicas::Replicas;
use crate::engine::{Objective, Term};
use crate::language_model::{figure, sequences};
use burn::tensor::{Device, Tensor};
use cloze_data::StreamBatch;
use cloze_model::awd_lstm::{StreamedAwdLstm, activation_squares, temporal_squares};
use cloze_model::blocks::SampledSoftmax;

/// The mean cross-entropy of each token given the previous tokens of its stream, in nats, plus AWD-LSTM's
/// regularisers (Merity et al. 2018, §3.5).
///
/// A batch starts from the streams' recurrent state, which is carried over to the next. Gradients stop at the
/// start of the batch: truncated back-propagation through time.
#[derive(Debug, Clone, Copy)]
pub struct StreamedLeftToRight {
    /// Weights of the regularisers.
    pub regularisation: RegularisationSection,
    /// Width of the last layer's states.
    pub d_model: usize,
    /// How pieces are drawn in training; none: the softmax is over the whole vocabulary.
    pub sampled: Option<SampledSoftmax>,
}

impl Objective for StreamedLeftToRight {
    type Model = StreamedAwdLstm;
    type Batch = StreamBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        let RegularisationSection { activation, temporal, .. } = self.regularisation;
        let mut terms = vec![Term::new(figure::LOSS)];
        if self.regularisation.is_on() {
            terms.push(Term::new("activation").with_weight(activation));
            terms.push(Term::new("temporal").with_weight(temporal));
        }
        terms
    }

    fn counts(&self, batch: &StreamBatch) -> Vec<f64> {
        let (tokens, streams) = (batch.tokens.ids.len(), batch.tokens.lengths.len());
        let of_states = |tokens: usize| (tokens * self.d_model) as f64;
        match self.regularisation.is_on() {
            true => vec![tokens as f64, of_states(tokens), of_states(tokens - streams)],
            false => vec![tokens as f64],
        }
    }

    fn sums(&self, model: &StreamedAwdLstm, batch: &StreamBatch, device: &Device) -> Vec<Tensor<1>> {
        let StreamedAwdLstm { model, memory } = model;
        let (tokens, n_streams) = (sequences(&batch.tokens), batch.tokens.lengths.len());
        let before = (!batch.begins).then(|| memory.read(batch.first, n_streams));
        let output = model.forward(&tokens, before, device);
        memory.write(batch.first, &output.last);
        let (states, next) = (output.dropped.clone(), &batch.tokens.next);
        let loss = match self.sampled {
            Some(sampled) => model.sampled_losses(sampled, states, next).sum(),
            None => model.losses(states, next).sum(),
        };
        match self.regularisation.is_on() {
            true => {
                let temporal = temporal_squares(output.states, &tokens.packing());
                vec![loss, activation_squares(output.dropped), temporal]
            }
            false => vec![loss],
        }
    }

    /// Replicas read streams of their own.
    fn share_state(
        &self,
        model: &StreamedAwdLstm,
        own: &[StreamBatch],
        replicas: &dyn Replicas,
    ) -> Result<()> {
        exchange::share_states(&model.memory, own, replicas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;
    use cloze_data::BlockBatch;
    use cloze_model::awd_lstm::{AwdLstmConfig, AwdLstmDropout, StreamMemory};
    use cloze_model::{ParamInit, weights};

    /// Two streams: a stretch of them.
    fn batch(range: std::ops::Range<i32>, begins: bool) -> StreamBatch {
        let stream = |start: i32| range.clone().map(move |at| start + at);
        let tokens = BlockBatch {
            ids: stream(0).chain(stream(20)).collect(),
            next: stream(1).chain(stream(21)).collect(),
            lengths: vec![range.len(); 2],
            prefixes: vec![0; 2],
        };
        StreamBatch { tokens, first: 1, begins }
    }

    #[test]
    fn a_stretch_is_read_with_what_is_remembered_of_its_streams() {
        let device = Device::flex().autodiff();
        let dropout = AwdLstmDropout::none();
        let shape =
            AwdLstmConfig { d_embedding: 6, d_hidden: 9, n_layers: 2, dropout, ..AwdLstmConfig::new(40) };
        let model = shape.init(&mut ParamInit::new(&device, 3));
        // Larger weights, so that states tell much of the tokens before.
        let larger = weights::collect(&model).into_iter().map(|(path, data)| {
            let values: Vec<f32> = data.iter::<f32>().map(|x| 4.0 * x).collect();
            (path, TensorData::new(values, data.shape().clone()))
        });
        let model = weights::replace(model.clone(), larger.collect());
        let memory = StreamMemory::new(&shape, 4, &device);
        let model = StreamedAwdLstm { model, memory };
        let mut regularisation = RegularisationSection::default();
        (regularisation.activation, regularisation.temporal) = (2.0, 1.0);
        let objective = StreamedLeftToRight { regularisation, d_model: 6, sampled: None };
        let sums = |batch: &StreamBatch| -> Vec<f64> {
            let sums = objective.sums(&model, batch, &device).into_iter();
            sums.map(|sum| sum.into_data().iter::<f64>().sum()).collect()
        };
        let whole = sums(&batch(0..12, true));
        let first = sums(&batch(0..5, true));
        let second = sums(&batch(5..12, false));
        // Another reading of the first stretch begins anew.
        assert_eq!(sums(&batch(0..5, true)), first);
        let anew = sums(&batch(5..12, true));
        for term in 0..2 {
            let sum = first[term] + second[term];
            assert!((sum - whole[term]).abs() < 1e-4, "{term}: {sum} is not {}", whole[term]);
            assert!((second[term] - anew[term]).abs() > 1e-3, "{term}: nothing is remembered");
        }
        let expected = [("loss", 1.0), ("activation", 2.0), ("temporal", 1.0)];
        let expected = expected.map(|(name, weight)| Term::new(name).with_weight(weight));
        assert_eq!(objective.terms(1), expected);
        // A token of each stream has none after it.
        assert_eq!(objective.counts(&batch(0..5, true)), [10.0, 60.0, 48.0]);
        let plain = StreamedLeftToRight { regularisation: RegularisationSection::default(), ..objective };
        assert_eq!((plain.terms(1).len(), plain.counts(&batch(0..5, true))), (1, vec![10.0]));
    }
}
