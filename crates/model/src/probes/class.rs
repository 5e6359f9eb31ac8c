use crate::blocks::Linear;
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::{Tensor, activation};

/// A classification probe: `softmax(W·h + b)`, or `softmax(W_2·ReLU(W_1·h + b_1) + b_2)` with a hidden layer
/// (Hewitt & Liang 2019, §3.1).
///
/// Deviation: the paper's MLP has two hidden layers.
#[derive(Module, Debug)]
pub struct ClassProbe {
    /// `[d, d_hidden]`; a linear probe has none.
    pub hidden: Option<Linear>,
    /// `[d or d_hidden, n_classes]`
    pub output: Linear,
}

linear_maps!(ClassProbe { hidden, output });

impl ClassProbe {
    /// A new probe of `d` features, linear unless there are `d_hidden` hidden features. It is initialised
    /// like PyTorch's linear maps.
    pub fn new(d: usize, d_hidden: Option<usize>, n_classes: usize, init: &mut ParamInit) -> Self {
        let hidden = d_hidden.map(|d_hidden| Linear::uniform(d, d_hidden, init));
        Self { hidden, output: Linear::uniform(d_hidden.unwrap_or(d), n_classes, init) }
    }

    /// The logits of each class.
    ///
    /// # Shapes
    /// - `states`: `[n, d]`; returns `[n, n_classes]`
    pub fn forward(&self, states: Tensor<2>) -> Tensor<2> {
        match &self.hidden {
            Some(hidden) => self.output.forward(activation::relu(hidden.forward(states))),
            None => self.output.forward(states),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn a_hidden_layer_is_rectified() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 5);
        let states = Tensor::<2>::from_data([[0.5, -1.0, 2.0], [1.0, 0.0, -3.0]], &device);
        let linear = ClassProbe::new(3, None, 4, init);
        assert!(linear.hidden.is_none());
        assert_eq!(linear.forward(states.clone()).dims(), [2, 4]);

        let mlp = ClassProbe::new(3, Some(6), 4, init);
        let hidden = mlp.hidden.as_ref().unwrap().forward(states.clone()).clamp_min(0.0);
        let expected = mlp.output.forward(hidden).into_data();
        mlp.forward(states).into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
    }
}
