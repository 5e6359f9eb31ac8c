use crate::blocks::{Activation, LayerNorm, Linear};
use crate::{ParamInit, linear_maps, ops};
use burn::module::Module;
use burn::tensor::Tensor;

/// Maps one vector for each sequence to numbers: logits of classes, or one score of a regression or a choice.
///
/// BERT and ALBERT have only the output layer, after the pooler. Before it, RoBERTa has a dense layer with
/// tanh, ELECTRA and DeBERTa one with GELU, DistilBERT one with ReLU and XLNet one with tanh (the last three
/// without dropout before it), and ModernBERT one with GELU and a normalisation.
#[derive(Module, Debug)]
pub struct SequenceHead {
    /// The dense layer, `[d_model, d_model]`, if there is one.
    pub dense: Option<Linear>,
    /// The normalisation of the dense layer's output, if there is one.
    pub norm: Option<LayerNorm>,
    /// The output layer, `[d_model, n_outputs]`.
    pub output: Linear,
    /// Dropout before the output layer.
    pub dropout: f64,
    /// Dropout before the dense layer.
    pub dense_dropout: f64,
    /// The activation after the dense layer.
    #[module(skip)]
    pub activation: Activation,
}

linear_maps!(SequenceHead { dense, output });

impl SequenceHead {
    /// A new head without a dense layer.
    pub fn new(d_model: usize, n_outputs: usize, dropout: f64, init: &mut ParamInit) -> Self {
        let output = Linear::new(d_model, n_outputs, init);
        Self {
            dense: None,
            norm: None,
            output,
            dropout,
            dense_dropout: dropout,
            activation: Activation::Tanh,
        }
    }

    /// Adds a new dense layer before the output, with the same dropout before it.
    pub fn with_dense(mut self, activation: Activation, init: &mut ParamInit) -> Self {
        let [d_model, _] = self.output.weight.lazy_shape().dims();
        self.dense = Some(Linear::new(d_model, d_model, init));
        self.activation = activation;
        self
    }

    /// # Shapes
    /// - `states`: `[n, d_model]`; returns `[n, n_outputs]`
    pub fn forward(&self, states: Tensor<2>) -> Tensor<2> {
        let Some(dense) = &self.dense else { return self.output.forward(ops::dropout(states, self.dropout)) };
        let states = dense.forward(ops::dropout(states, self.dense_dropout));
        let states = self.activation.forward(states);
        let states = match &self.norm {
            Some(norm) => norm.forward(states),
            None => states,
        };
        self.output.forward(ops::dropout(states, self.dropout))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{close, matrix};
    use super::*;
    use burn::module::Param;
    use burn::tensor::Device;

    #[test]
    fn a_dense_layer_is_torchs() {
        // torch 2.9: f = lambda *s, p: tensor([sin((i + 1) * p) for i in range(prod(s))]).view(*s);
        // tanh(f(2, 3, p=.4) @ f(3, 3, p=.7) + f(3, p=.2)) @ f(3, 2, p=1.3) + f(2, p=.9)
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 0);
        let mut head = SequenceHead::new(3, 2, 0.5, init).with_dense(Activation::Tanh, init);
        let fill = |linear: &mut Linear, p, bias| {
            linear.weight = Param::from_tensor(matrix(linear.weight.dims(), p, &device));
            let [n] = linear.bias.as_ref().unwrap().dims();
            linear.bias = Some(Param::from_tensor(matrix([1, n], bias, &device).squeeze_dim::<1>(0)));
        };
        fill(&mut head.output, 1.3, 0.9);
        fill(head.dense.as_mut().unwrap(), 0.7, 0.2);
        let states = matrix([2, 3], 0.4, &device);
        close(head.forward(states.clone()), [[0.6762f32, 1.2012], [0.9552, 1.2813]]);
        head.dense = None;
        close(head.forward(states.clone()), head.output.forward(states).into_data());
    }

    #[test]
    fn dropout_stands_before_both_layers() {
        let device = Device::flex().autodiff();
        device.seed(3);
        let init = &mut ParamInit::new(&device, 0);
        let ones = Tensor::<2>::ones([400, 16], &device);
        // Rows differ only by dropout.
        let rows = |head: &SequenceHead| {
            let values = head.forward(ones.clone()).into_data();
            let first = values.iter::<f32>().next();
            values.iter::<f32>().filter(|value| Some(*value) != first).count()
        };
        let head = SequenceHead::new(16, 1, 0.3, init);
        assert!(rows(&head) > 350);
        assert_eq!(rows(&SequenceHead { dropout: 0.0, dense_dropout: 0.5, ..head.clone() }), 0);
        let dense = head.with_dense(Activation::Relu, init);
        assert!(rows(&dense) > 350);
        assert!(rows(&SequenceHead { dropout: 0.0, ..dense.clone() }) > 350);
        assert!(rows(&SequenceHead { dense_dropout: 0.0, ..dense.clone() }) > 350);
        assert_eq!(rows(&SequenceHead { dropout: 0.0, dense_dropout: 0.0, ..dense }), 0);
    }
}
