use super::{Cell, LayerOutput, RecurrentLayer, RecurrentState};
use crate::ops::{self, Direction, Packing};
use crate::sizes::check_recurrent_sizes;
use crate::{ModelError, ParamInit, Result, linear_maps};
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

/// The direction in which a stack reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reading {
    /// From the first token on.
    #[default]
    Forward,
    /// From the last token back (Sutskever et al. 2014, §3.3).
    Reverse,
    /// Both, with concatenated states (Schuster & Paliwal 1997).
    Both,
}

impl Reading {
    /// Number of directions.
    pub fn directions(self) -> usize {
        if self == Self::Both { 2 } else { 1 }
    }
}

/// A stack of recurrent layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentConfig {
    /// LSTM or GRU.
    pub cell: Cell,
    /// Features of the input.
    pub d_in: usize,
    /// Features of a state in each direction.
    pub d: usize,
    /// Layers.
    pub n_layers: usize,
    /// The reading direction.
    pub reading: Reading,
    /// Dropout between layers; not on the last one's states.
    pub dropout: f64,
    /// Whether dropout drops the same features for all tokens of a sequence (Gal & Ghahramani 2016, §4).
    pub same_features: bool,
}

impl RecurrentConfig {
    /// A single layer, forward, without dropout.
    pub fn new(cell: Cell, d_in: usize, d: usize) -> Self {
        Self { cell, d_in, d, n_layers: 1, reading: Reading::Forward, dropout: 0.0, same_features: false }
    }

    /// Sets the number of layers.
    pub fn with_layers(self, n_layers: usize) -> Self {
        Self { n_layers, ..self }
    }

    /// Sets the reading direction.
    pub fn with_reading(self, reading: Reading) -> Self {
        Self { reading, ..self }
    }

    /// Sets the dropout between layers.
    pub fn with_dropout(self, dropout: f64) -> Self {
        Self { dropout, ..self }
    }

    /// Features of a token's state.
    pub fn d_out(&self) -> usize {
        self.reading.directions() * self.d
    }

    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_recurrent_sizes([("d_in", self.d_in), ("d", self.d), ("n_layers", self.n_layers)])?;
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ModelError::setting("dropout", self.dropout, "0 or more and below 1"));
        }
        Ok(())
    }

    /// A new stack.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> Recurrent {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        let layers = (0..self.n_layers).map(|layer| {
            let d_in = if layer == 0 { self.d_in } else { self.d_out() };
            let mut one = |wanted: bool| wanted.then(|| RecurrentLayer::new(self.cell, d_in, self.d, init));
            let forward = one(self.reading != Reading::Reverse);
            Directions { forward, reverse: one(self.reading != Reading::Forward) }
        });
        Recurrent { layers: layers.collect(), dropout: self.dropout, same_features: self.same_features }
    }
}

/// One layer in one direction or in both.
#[derive(Module, Debug)]
pub struct Directions {
    /// From the first token on.
    pub forward: Option<RecurrentLayer>,
    /// From the last token back.
    pub reverse: Option<RecurrentLayer>,
}

linear_maps!(Directions { forward, reverse });

impl Directions {
    fn forward(&self, x: Tensor<2>, packing: &Packing, initial: Option<RecurrentState>) -> LayerOutput {
        let run =
            |layer: &RecurrentLayer, x, initial, direction| layer.forward(x, packing, initial, direction);
        match (&self.forward, &self.reverse) {
            (Some(forward), Some(reverse)) => {
                let d = forward.d();
                let [first, second] =
                    [0, d].map(|start| initial.clone().map(|initial| initial.map(|x| x.narrow(1, start, d))));
                let forward = run(forward, x.clone(), first, Direction::Forward);
                let reverse = run(reverse, x, second, Direction::Reverse);
                LayerOutput {
                    states: Tensor::cat(vec![forward.states, reverse.states], 1),
                    last: forward.last.cat(reverse.last, 1),
                }
            }
            (Some(forward), None) => run(forward, x, initial, Direction::Forward),
            (None, Some(reverse)) => run(reverse, x, initial, Direction::Reverse),
            (None, None) => panic!("a layer has a direction"),
        }
    }
}

/// Recurrent layers, each reading the states of the one below.
#[derive(Module, Debug)]
pub struct Recurrent {
    /// From the lowest to the highest.
    pub layers: Vec<Directions>,
    /// Dropout between layers.
    pub dropout: f64,
    /// Whether it drops the same features for all tokens of a sequence.
    pub same_features: bool,
}

linear_maps!(Recurrent { layers });

/// The output of a stack.
#[derive(Debug, Clone)]
pub struct RecurrentOutput {
    /// The last layer's states, `[n_tokens, d_out]`, in token order: forward, then reverse.
    pub states: Tensor<2>,
    /// Each layer's final states, `[sequences, d_out]`; a reverse direction's is after a sequence's first
    /// token.
    pub last: Vec<RecurrentState>,
}

impl Recurrent {
    /// # Shapes
    /// - `x`: `[n_tokens, d_in]`, packed; `initial`: for each layer, `[sequences, d_out]`; default zeros
    ///
    /// # Panics
    /// If sizes do not match, or there is no sequence.
    pub fn forward(
        &self,
        x: Tensor<2>,
        packing: &Packing,
        initial: Option<Vec<RecurrentState>>,
    ) -> RecurrentOutput {
        let n_layers = self.layers.len();
        let initial: Vec<Option<RecurrentState>> = match initial {
            Some(initial) => initial.into_iter().map(Some).collect(),
            None => vec![None; n_layers],
        };
        assert_eq!(initial.len(), n_layers, "an initial state of each layer");
        let (mut states, mut last) = (x, Vec::with_capacity(n_layers));
        for (i, (layer, initial)) in self.layers.iter().zip(initial).enumerate() {
            if i > 0 {
                states = between_layers(states, packing, self.dropout, self.same_features);
            }
            let output = layer.forward(states, packing, initial);
            states = output.states;
            last.push(output.last);
        }
        RecurrentOutput { states, last }
    }
}

/// Dropout on the states of packed sequences: of each token's features independently, or of the same features
/// for all tokens of a sequence.
pub(crate) fn between_layers(
    states: Tensor<2>,
    packing: &Packing,
    dropout: f64,
    same_features: bool,
) -> Tensor<2> {
    let device = states.device();
    if !same_features || dropout == 0.0 || !ops::is_training(&device) {
        return ops::dropout(states, dropout);
    }
    let [_, d] = states.dims();
    let factors = ops::dropout(Tensor::<2>::ones([packing.lengths().len(), d], &device), dropout);
    let sequences: Vec<i32> = packing.sequences().map(|sequence| sequence as i32).collect();
    states * factors.select(0, Tensor::<1, Int>::from_data(sequences.as_slice(), &device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn each_sequence_is_read_by_itself() {
        let device = Device::flex();
        for cell in [Cell::Lstm, Cell::Gru] {
            for reading in [Reading::Forward, Reading::Reverse, Reading::Both] {
                let init = &mut ParamInit::new(&device, 3);
                let config = RecurrentConfig::new(cell, 5, 7).with_layers(2).with_reading(reading);
                let stack = config.init(init);
                let x = init.uniform([6, 5], 1.0).val();
                let all = stack.forward(x.clone(), &Packing::new([2, 1, 3]), None);
                for (sequence, (start, len)) in [(0, 2), (2, 1), (3, 3)].into_iter().enumerate() {
                    let alone = stack.forward(x.clone().narrow(0, start, len), &Packing::new([len]), None);
                    let close = |found: Tensor<2>, expected: Tensor<2>| {
                        let tolerance = Tolerance::absolute(1e-6);
                        found.into_data().assert_approx_eq::<f32>(&expected.into_data(), tolerance);
                    };
                    close(alone.states, all.states.clone().narrow(0, start, len));
                    for (alone, all) in alone.last.into_iter().zip(&all.last) {
                        close(alone.hidden, all.hidden.clone().narrow(0, sequence, 1));
                    }
                }
            }
        }
    }

    #[test]
    fn a_reversed_text_read_in_reverse_is_the_text() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 3);
        let stack = RecurrentConfig::new(Cell::Gru, 5, 7).with_reading(Reading::Reverse).init(init);
        let x = init.uniform([4, 5], 1.0).val();
        let layer = stack.layers[0].reverse.clone().unwrap();
        let forward =
            Recurrent { layers: vec![Directions { forward: Some(layer), reverse: None }], ..stack.clone() };
        let packing = Packing::new([4]);
        let reverse = stack.forward(x.clone(), &packing, None);
        let forward = forward.forward(x.flip([0]), &packing, None);
        assert_eq!(reverse.last[0].hidden.to_data(), forward.last[0].hidden.to_data());
        assert_eq!(reverse.states.flip([0]).into_data(), forward.states.into_data());
    }

    #[test]
    fn the_same_features_are_dropped_of_all_tokens() {
        let device = Device::flex().autodiff();
        device.seed(3);
        let packing = Packing::new([3, 5]);
        let x = Tensor::<2>::ones([8, 64], &device);
        let y: Vec<f32> = between_layers(x, &packing, 0.5, true).into_data().iter().collect();
        let rows: Vec<&[f32]> = y.chunks_exact(64).collect();
        assert!(rows[..3].windows(2).all(|pair| pair[0] == pair[1]));
        assert!(rows[3..].windows(2).all(|pair| pair[0] == pair[1]));
        assert_ne!(rows[0], rows[3]);
        assert!(y.iter().all(|y| *y == 0.0 || *y == 2.0));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let config = RecurrentConfig::new(Cell::Lstm, 5, 0);
        let message = config.validate().unwrap_err().to_string();
        assert_eq!(message, "model configuration: `d` is 0, expected at least 1");
        let config = RecurrentConfig::new(Cell::Lstm, 5, 4).with_dropout(1.0);
        let message = config.validate().unwrap_err().to_string();
        assert_eq!(message, "model configuration: `dropout` is 1, expected 0 or more and below 1");
    }
}
