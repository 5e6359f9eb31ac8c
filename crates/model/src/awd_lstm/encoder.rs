use super::AwdLstmDropout;
use crate::blocks::Embedding;
use crate::ops::{self, Direction};
use crate::recurrent::{LayerOutput, RecurrentLayer, RecurrentState, between_layers};
use crate::{Backbone, BackboneShape, Sequences, linear_maps};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};

/// Embeddings and LSTM layers, shared by the language model and the classifier.
#[derive(Module, Debug)]
pub struct AwdLstmEncoder {
    /// `[vocab_size, d_embedding]`
    pub embedding: Embedding,
    /// From the lowest to the highest.
    pub layers: Vec<RecurrentLayer>,
    /// The dropouts.
    #[module(skip)]
    pub dropout: AwdLstmDropout,
}

linear_maps!(AwdLstmEncoder { layers });

/// What an [`AwdLstmEncoder`] returns.
#[derive(Debug, Clone)]
pub struct AwdLstmOutput {
    /// The last layer's states, `[n_tokens, d_embedding]`, in the order of [`Sequences::ids`].
    pub states: Tensor<2>,
    /// The same after the output dropout: the output layer's input.
    pub dropped: Tensor<2>,
    /// Each layer's state after each sequence.
    pub last: Vec<RecurrentState>,
}

impl AwdLstmEncoder {
    /// Reads sequences.
    ///
    /// - `initial`: each layer's state of each sequence; default zeros
    ///
    /// # Panics
    /// If there is no sequence, or an initial state does not match.
    pub fn forward(
        &self,
        sequences: &Sequences,
        initial: Option<Vec<RecurrentState>>,
        device: &Device,
    ) -> AwdLstmOutput {
        let packing = sequences.packing();
        let mut initial = initial.map(Vec::into_iter);
        let (mut states, mut dropout) = (self.embed(sequences, device), self.dropout.input);
        let mut last = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let initial =
                initial.as_mut().map(|states| states.next().expect("an initial state of each layer"));
            let x = between_layers(states, &packing, dropout, true);
            let output =
                layer.forward_dropping(x, &packing, initial, Direction::Forward, self.dropout.weight);
            let LayerOutput { states: of_layer, last: at_end } = output;
            (states, dropout) = (of_layer, self.dropout.hidden);
            last.push(at_end);
        }
        let dropped = between_layers(states.clone(), &packing, self.dropout.output, true);
        AwdLstmOutput { states, dropped, last }
    }

    /// The embeddings of all tokens, `[n_tokens, d_embedding]`.
    fn embed(&self, sequences: &Sequences, device: &Device) -> Tensor<2> {
        let x = self.embedding.forward(sequences.packed(device)).squeeze_dim::<2>(0);
        let dropout = self.dropout.word;
        if dropout == 0.0 || !ops::is_training(device) {
            return x;
        }
        // One factor a piece is a table whose rows are left out, at the price of a column.
        let [vocab_size, _] = self.embedding.weight.dims();
        let factors = ops::dropout(Tensor::<2>::ones([vocab_size, 1], device), dropout);
        x * factors.select(0, Tensor::<1, Int>::from_data(sequences.ids(), device))
    }
}

impl Backbone for AwdLstmEncoder {
    fn shape(&self) -> BackboneShape {
        let [vocab_size, d_embedding] = self.embedding.weight.lazy_shape().dims();
        BackboneShape::new(d_embedding, self.layers.len(), vocab_size)
    }

    fn embeddings_path(&self) -> String {
        "embedding".into()
    }

    fn layer_paths(&self) -> Vec<String> {
        (0..self.layers.len()).map(|layer| format!("layers.{layer}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::awd_lstm::AwdLstmConfig;
    use burn::tensor::Tolerance;

    fn small(dropout: AwdLstmDropout) -> AwdLstmConfig {
        AwdLstmConfig { d_embedding: 6, d_hidden: 9, n_layers: 2, dropout, ..AwdLstmConfig::new(30) }
    }

    #[test]
    fn a_text_read_in_parts_is_the_text() {
        for device in [Device::flex(), Device::flex().autodiff().gradient_checkpointing()] {
            let model = small(AwdLstmDropout::none()).init_encoder(&mut ParamInit::new(&device, 3));
            let texts = [[3, 4, 5, 6, 7], [8, 9, 10, 11, 12]];
            let read = |part: std::ops::Range<usize>, initial| {
                let parts = texts.iter().map(|text| &text[part.clone()]).collect();
                model.forward(&parts, initial, &device)
            };
            let whole = read(0..5, None);
            let first = read(0..2, None);
            let second = read(2..5, Some(first.last));
            for text in 0..2 {
                let expected = whole.states.clone().narrow(0, text * 5 + 2, 3).into_data();
                let found = second.states.clone().narrow(0, text * 3, 3).into_data();
                found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
            }
            for (found, expected) in second.last.into_iter().zip(whole.last) {
                let (found, expected) = (found.cell.unwrap().into_data(), expected.cell.unwrap().into_data());
                found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
            }
        }
    }

    /// Numbers of a tensor on a training device with this seed.
    fn values(make: impl Fn(&Device) -> Tensor<2>, seed: u64) -> Vec<f32> {
        let device = Device::flex().autodiff();
        device.seed(seed);
        make(&device).into_data().iter::<f32>().collect()
    }

    #[test]
    fn a_word_is_left_out_wherever_it_stands() {
        let dropout = AwdLstmDropout { word: 0.25, ..AwdLstmDropout::none() };
        let config =
            AwdLstmConfig { d_embedding: 4, ..AwdLstmConfig { vocab_size: 4_000, ..small(dropout) } };
        // Each piece twice, at two places of two texts.
        let texts: Vec<Vec<i32>> = vec![(0..4_000).collect(), (0..4_000).rev().collect()];
        let texts: Sequences = texts.iter().map(Vec::as_slice).collect();
        let embed = |device: &Device, dropout| {
            let mut model = config.init_encoder(&mut ParamInit::new(device, 3));
            model.dropout.word = dropout;
            model.embed(&texts, device)
        };
        let plain = values(|device| embed(device, 0.0), 1);
        let found = values(|device| embed(device, 0.25), 1);
        assert_eq!(found, values(|device| embed(device, 0.25), 1));
        assert_ne!(found, values(|device| embed(device, 0.25), 2));
        let kept = |row: usize| -> Option<bool> {
            let range = row * 4..row * 4 + 4;
            let (found, plain) = (&found[range.clone()], &plain[range]);
            let scaled = |by: f32| found.iter().zip(plain).all(|(x, y)| (x - by * y).abs() < 1e-6);
            if scaled(0.0) { Some(false) } else { scaled(1.0 / 0.75).then_some(true) }
        };
        let words: Vec<bool> = (0..4_000).map(|row| kept(row).expect("whole words")).collect();
        assert!((0..4_000).all(|row| kept(7_999 - row) == Some(words[row])));
        // Five standard deviations of a share of 4,000.
        let share = words.iter().filter(|kept| !**kept).count() as f64 / 4_000.0;
        assert!((share - 0.25).abs() < 0.035, "{share}");
    }

    #[test]
    fn features_are_left_out_of_a_whole_text() {
        let dropout = AwdLstmDropout { output: 0.5, ..AwdLstmDropout::none() };
        let config = AwdLstmConfig { d_embedding: 400, ..small(dropout) };
        let texts: Sequences = [&[3, 4, 5][..], &[6, 7, 8]].into_iter().collect();
        let device = Device::flex().autodiff();
        let model = config.init_encoder(&mut ParamInit::new(&device, 3));
        device.seed(5);
        let AwdLstmOutput { states, dropped, .. } = model.forward(&texts, None, &device);
        let ratios: Vec<f32> = (dropped / states).into_data().iter::<f32>().map(f32::round).collect();
        let rows: Vec<&[f32]> = ratios.chunks_exact(400).collect();
        assert!(ratios.iter().all(|ratio| *ratio == 0.0 || *ratio == 2.0));
        assert!(rows[0] == rows[1] && rows[1] == rows[2] && rows[3] == rows[4] && rows[4] == rows[5]);
        assert_ne!(rows[0], rows[3]);
        let left_out = rows[0].iter().filter(|ratio| **ratio == 0.0).count();
        assert!((150..250).contains(&left_out), "{left_out} of 400");
    }

    #[test]
    fn numbers_of_the_recurrent_weight_are_left_out_at_all_steps() {
        let device = Device::flex().autodiff();
        let dropout = AwdLstmDropout { weight: 0.5, ..AwdLstmDropout::none() };
        let mut model = AwdLstmConfig { n_layers: 1, d_embedding: 40, ..small(dropout) }
            .init_encoder(&mut ParamInit::new(&device, 3));
        let text: Sequences = [&[3, 4, 5, 6, 7, 8][..]].into_iter().collect();
        device.seed(7);
        let states = model.forward(&text, None, &device).states;
        let gradients = states.clone().powi_scalar(2).sum().backward();
        let gradient = model.layers[0].recurrent.val().grad(&gradients).unwrap();
        let gradient: Vec<f32> = gradient.into_data().iter::<f32>().collect();
        // A number that was left out at all steps has no gradient; one kept at a step has one.
        let none = gradient.iter().filter(|x| **x == 0.0).count() as f64 / gradient.len() as f64;
        assert!((none - 0.5).abs() < 0.03, "{none}");
        // The same weight with those numbers at 0 and the others doubled gives the same states.
        let mask: Vec<f32> = gradient.iter().map(|x| if *x == 0.0 { 0.0 } else { 2.0 }).collect();
        let weight = model.layers[0].recurrent.clone();
        let mask = Tensor::<1>::from_data(mask.as_slice(), &device).reshape(weight.dims());
        model.layers[0].recurrent = weight.map(|weight| weight.detach() * mask);
        model.dropout = AwdLstmDropout::none();
        let expected = model.forward(&text, None, &device).states.into_data();
        states.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
    }

    #[test]
    fn nothing_is_left_out_outside_training() {
        let device = Device::flex();
        let texts: Sequences = [&[3, 4, 5][..], &[6]].into_iter().collect();
        let [with, without] = [AwdLstmDropout::default(), AwdLstmDropout::none()].map(|dropout| {
            let model = small(dropout).init_encoder(&mut ParamInit::new(&device, 3));
            model.forward(&texts, None, &device).dropped.into_data()
        });
        assert_eq!(with, without);
    }
}
