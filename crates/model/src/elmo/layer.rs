use crate::blocks::Linear;
use crate::ops::{self, Direction, LstmOutput, Packing};
use crate::{ParamInit, linear_maps};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// An LSTM layer in one direction whose states are projected (Sak et al. 2014), as AllenNLP's `LstmCellWithProjection`:
///
/// `i, f, o = σ(W x + U h + b)`, `g = tanh(W x + U h + b)`, `c' = f ⊙ c + i ⊙ g`, `h' = P (o ⊙ tanh(c'))`
///
/// As `U h = (U P) m` for `m = o ⊙ tanh(c)`, the layer is an LSTM without projection whose recurrent weight
/// is the product of the two: the same numbers, by the fused loop over time steps of [`ops::lstm`]. A time
/// step multiplies by `[d, 4·d]`, instead of by `[d, p]` and `[p, 4·d]`.
///
/// Deviation: neither cells nor projected states are clipped; the code clips both to ±3.
#[derive(Module, Debug)]
pub struct ProjectedLstm {
    /// `[d_in, 4·d]`, with a bias: `W x + b`, gates in the order `i, f, g, o`.
    pub input: Linear,
    /// `[p, 4·d]`: `U`.
    pub recurrent: Param<Tensor<2>>,
    /// `[d, p]`: `P`.
    pub projection: Param<Tensor<2>>,
}

linear_maps!(ProjectedLstm { input });

impl ProjectedLstm {
    /// A new layer: weights are uniform between `±1/√d`, as in PyTorch's LSTM with `proj_size`, and biases
    /// zero, except the forget gate's, which is 1 (Jozefowicz et al. 2015, §2.2).
    pub fn new(d_in: usize, d: usize, p: usize, init: &mut ParamInit) -> Self {
        let bound = 1.0 / (d.max(1) as f64).sqrt();
        let weight = init.uniform([d_in, 4 * d], bound);
        let mut place = 0;
        let bias = init.param([4 * d], move |_| {
            place += 1;
            if (d..2 * d).contains(&(place - 1)) { 1.0 } else { 0.0 }
        });
        Self {
            input: Linear::from_parts(weight, Some(bias)),
            recurrent: init.uniform([p, 4 * d], bound),
            projection: init.uniform([d, p], bound),
        }
    }

    /// The states `h` after each token, from a state of zeros.
    ///
    /// # Shapes
    /// - `x`: `[n_tokens, d_in]`, packed; returns `[n_tokens, p]`
    ///
    /// # Panics
    /// If sizes do not match, or there is no sequence.
    pub fn forward(&self, x: Tensor<2>, packing: &Packing, direction: Direction) -> Tensor<2> {
        let projection = self.projection.val();
        let recurrent = ops::linear(projection.clone(), self.recurrent.val(), None);
        let LstmOutput { states, .. } = ops::lstm(self.input.forward(x), recurrent, None, packing, direction);
        ops::linear(states, projection, None)
    }
}

/// A bidirectional layer, whose directions share nothing.
#[derive(Module, Debug)]
pub struct ElmoLayer {
    /// From the first token on.
    pub forward: ProjectedLstm,
    /// From the last token back.
    pub reverse: ProjectedLstm,
}

linear_maps!(ElmoLayer { forward, reverse });

impl ElmoLayer {
    /// The directions' states, from the layer below's.
    ///
    /// - `skips`: whether the layer's input is added to its states
    pub(super) fn forward_both(
        &self,
        [forward, reverse]: [Tensor<2>; 2],
        packing: &Packing,
        skips: bool,
        dropout: f64,
    ) -> [Tensor<2>; 2] {
        let run = |layer: &ProjectedLstm, x: Tensor<2>, direction| {
            let x = ops::dropout(x, dropout);
            let states = layer.forward(x.clone(), packing, direction);
            if skips { states + x } else { states }
        };
        [run(&self.forward, forward, Direction::Forward), run(&self.reverse, reverse, Direction::Reverse)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::activation::sigmoid;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn the_product_of_the_weights_is_both_of_them() {
        let device = Device::flex();
        let (d_in, d, p) = (3, 5, 2);
        let layer = ProjectedLstm::new(d_in, d, p, &mut ParamInit::new(&device, 7));
        let values: Vec<f32> = (0..4 * d_in).map(|i| (i as f32 * 0.7).sin() * 2.0).collect();
        let x = Tensor::<1>::from_data(values.as_slice(), &device).reshape([4, d_in]);
        let found = layer.forward(x.clone(), &Packing::new([4]), Direction::Forward);
        let (mut h, mut c) = (Tensor::<2>::zeros([1, p], &device), Tensor::<2>::zeros([1, d], &device));
        for step in 0..4 {
            let gates = layer.input.forward(x.clone().narrow(0, step, 1)) + h.matmul(layer.recurrent.val());
            let gate = |i: usize| gates.clone().narrow(1, i * d, d);
            c = sigmoid(gate(1)) * c + sigmoid(gate(0)) * gate(2).tanh();
            h = (sigmoid(gate(3)) * c.clone().tanh()).matmul(layer.projection.val());
            let state = found.clone().narrow(0, step, 1).into_data();
            state.assert_approx_eq::<f32>(&h.to_data(), Tolerance::absolute(1e-6));
        }
    }
}
