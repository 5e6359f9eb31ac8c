use super::{Activation, Linear};
use crate::{ParamInit, linear_maps, ops};
use burn::module::Module;
use burn::tensor::Tensor;

/// Configuration of [`FeedForward`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FeedForwardConfig {
    /// Features of the input and of the output.
    pub d_model: usize,
    /// Features of the inner layer, usually `4 · d_model`.
    pub d_ff: usize,
    /// The non-linearity of the inner layer.
    pub activation: Activation,
    /// Whether the non-linearity acts on a separate map, whose output is multiplied with the other's: SwiGLU with
    /// [`Activation::Silu`], GeGLU with [`Activation::Gelu`].
    pub gated: bool,
    /// Whether the maps have biases.
    pub bias: bool,
    /// The same for the up and gate maps, if it differs.
    pub up_bias: Option<bool>,
    /// Dropout after the non-linearity: none in BERT, `activation_dropout` in BART and Marian.
    pub dropout: f64,
}

impl FeedForwardConfig {
    /// The original network: no gate, with biases, without dropout.
    pub fn new(d_model: usize, d_ff: usize, activation: Activation) -> Self {
        Self { d_model, d_ff, activation, gated: false, bias: true, up_bias: None, dropout: 0.0 }
    }

    /// Adds a gate.
    pub fn with_gate(mut self) -> Self {
        self.gated = true;
        self
    }

    /// Removes the biases.
    pub fn without_bias(mut self) -> Self {
        (self.bias, self.up_bias) = (false, None);
        self
    }

    /// Sets the dropout after the non-linearity.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// A new block.
    pub fn init(&self, init: &mut ParamInit) -> FeedForward {
        let Self { d_model, d_ff, activation, gated, bias, up_bias, dropout } = *self;
        let up_bias = up_bias.unwrap_or(bias);
        FeedForward {
            up: Linear::with_bias(up_bias, d_model, d_ff, init),
            down: Linear::with_bias(bias, d_ff, d_model, init),
            gate: gated.then(|| Linear::with_bias(up_bias, d_model, d_ff, init)),
            activation,
            dropout,
        }
    }
}

/// The position-wise feed-forward network, `f(x·W₁ + b₁)·W₂ + b₂` (Vaswani et al. 2017, eq. 2), or `(f(x·V) ⊙ x·W₁)·W₂`
/// with a gate (Shazeer 2020, "GLU Variants Improve Transformer", eq. 6).
#[derive(Module, Debug)]
pub struct FeedForward {
    /// `[d_model, d_ff]`
    pub up: Linear,
    /// `[d_ff, d_model]`
    pub down: Linear,
    /// `[d_model, d_ff]`, the map that the non-linearity acts on, if there is a gate.
    pub gate: Option<Linear>,
    #[module(skip)]
    activation: Activation,
    dropout: f64,
}

linear_maps!(FeedForward { up, down, gate });

impl FeedForward {
    /// The network with only these of its inner features, in ascending order. It computes what the whole network
    /// computes with zeros in the other rows of the map down.
    ///
    /// # Panics
    /// If a feature is not there.
    pub fn keeping_neurons(self, neurons: &[usize]) -> Self {
        Self {
            up: self.up.keeping_outputs(neurons),
            down: self.down.keeping_inputs(neurons),
            gate: self.gate.map(|gate| gate.keeping_outputs(neurons)),
            ..self
        }
    }

    /// # Shapes
    /// - `x`: `[..., d_model]`; returns the same
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let inner = match &self.gate {
            Some(gate) => self.activation.gated(gate.forward(x.clone()), self.up.forward(x)),
            None => self.activation.forward(self.up.forward(x)),
        };
        self.down.forward(ops::dropout(inner, self.dropout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::LinearMaps;
    use crate::weights;
    use burn::tensor::{Device, Distribution, Tolerance};

    #[test]
    fn a_gate_multiplies() {
        let device = Device::flex();
        for activation in [
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Relu,
            Activation::Tanh,
            Activation::Silu,
            Activation::QuickGelu,
        ] {
            let init = &mut ParamInit::new(&device, 1).with_std(0.5);
            let config = FeedForwardConfig::new(6, 10, activation).with_gate().without_bias();
            let mut block = config.init(init);
            let x = Tensor::<2>::random([5, 6], Distribution::Default, &device);
            let map = |linear: &Linear, x: Tensor<2>| x.matmul(linear.weight.val());
            let gate = activation.forward(map(block.gate.as_ref().unwrap(), x.clone()));
            let expected = map(&block.down, gate * map(&block.up, x.clone())).into_data();
            block.forward(x).into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
            let names: Vec<String> = block.linear_maps_mut().into_iter().map(|map| map.path).collect();
            assert_eq!(names, ["up", "down", "gate"]);
            assert_eq!(weights::shapes(&block).len(), 3, "no biases");
        }
    }

    #[test]
    fn a_block_without_a_gate_draws_what_it_drew() {
        let init = || ParamInit::new(&Device::flex(), 1);
        let block = FeedForwardConfig::new(4, 8, Activation::Relu).init(&mut init());
        let init = &mut init();
        let (up, down) = (Linear::new(4, 8, init), Linear::new(8, 4, init));
        assert_eq!(block.up.weight.val().into_data(), up.weight.val().into_data());
        assert_eq!(block.down.weight.val().into_data(), down.weight.val().into_data());
    }
}
