//! Linear maps, normalisations and non-linearities.

use crate::error::{OnnxError, Result};
use crate::graph::{Graph, Value, float, int, ints};
use burn::module::Param;
use burn::tensor::Tensor;
use cloze_model::bert::BertConfig;
use cloze_model::blocks::{Activation, LayerNorm, Linear, Norm, NormKind};

impl Graph {
    /// `x·W + b`, the one place where a linear map becomes nodes.
    ///
    /// # Errors
    /// [`OnnxError::Unsupported`] for a map with an adapter.
    ///
    /// # Shapes
    /// - `x`: `[…, d_in]`; returns `[…, d_out]`
    pub(crate) fn linear(&mut self, part: &str, map: &Linear, x: &Value) -> Result<Value> {
        if map.lora.is_some() {
            return Err(OnnxError::unsupported("an adapter", "merge it into the weights first"));
        }
        self.within(part, |graph| {
            let product = match map.integers() {
                Some(tensor) => graph.integer_product(tensor, x),
                None => {
                    let weight = graph.parameter("weight", map.weight.val());
                    graph.op("MatMul", &[x, &weight])
                }
            };
            Ok(graph.plus_bias(&product, map.bias.as_ref()))
        })
    }

    /// A bias of the last axis added, if there is one.
    pub(crate) fn plus_bias(&mut self, x: &Value, bias: Option<&Param<Tensor<1>>>) -> Value {
        match bias {
            Some(bias) => {
                let bias = self.parameter("bias", bias.val());
                self.op("Add", &[x, &bias])
            }
            None => x.clone(),
        }
    }

    /// A normalisation of one of the two kinds.
    pub(crate) fn norm(&mut self, part: &str, norm: &Norm, config: &BertConfig, x: &Value) -> Result<Value> {
        let beta = norm.beta.as_ref();
        match config.norm_kind {
            NormKind::Layer => self.normalized(part, [Some(&norm.gamma), beta], config.layer_norm_eps, x),
            NormKind::Rms => self.within(part, |graph| {
                // x · γ / √(mean(x²) + ε); ONNX has no operator for it before opset 23.
                let gamma = graph.parameter("weight", norm.gamma.val());
                let squares = graph.op("Mul", &[x, x]);
                let mean =
                    graph.op_with("ReduceMean", &[&squares], vec![ints("axes", &[-1]), int("keepdims", 1)]);
                let epsilon = graph.float(config.layer_norm_eps as f32);
                let sum = graph.op("Add", &[&mean, &epsilon]);
                let root = graph.op("Sqrt", &[&sum]);
                let scaled = graph.op("Div", &[x, &root]);
                Ok(graph.op("Mul", &[&scaled, &gamma]))
            }),
            other => Err(OnnxError::unsupported(
                format!("the normalisation {other:?}"),
                "layer normalisation and the root mean square can",
            )),
        }
    }

    /// A layer normalisation.
    pub(crate) fn layer_norm(
        &mut self,
        part: &str,
        norm: &LayerNorm,
        config: &BertConfig,
        x: &Value,
    ) -> Result<Value> {
        self.normalized(part, [Some(&norm.gamma), norm.beta.as_ref()], config.layer_norm_eps, x)
    }

    fn normalized(
        &mut self,
        part: &str,
        parameters: [Option<&Param<Tensor<1>>>; 2],
        epsilon: f64,
        x: &Value,
    ) -> Result<Value> {
        self.within(part, |graph| {
            let names = ["weight", "bias"].into_iter().zip(parameters);
            let parameters: Vec<Value> =
                names.filter_map(|(name, of)| Some(graph.parameter(name, of?.val()))).collect();
            let inputs: Vec<&Value> = [x].into_iter().chain(&parameters).collect();
            let attributes = vec![int("axis", -1), float("epsilon", epsilon as f32)];
            Ok(graph.op_with("LayerNormalization", &inputs, attributes))
        })
    }

    /// A non-linearity, element by element.
    ///
    /// # Errors
    /// [`OnnxError::Unsupported`] for one that this crate does not know yet.
    pub(crate) fn activation(&mut self, activation: Activation, x: &Value) -> Result<Value> {
        Ok(match activation {
            Activation::Gelu => self.gelu(x),
            Activation::GeluTanh => {
                let cube = self.scalar_op("Pow", x, 3.0);
                let cube = self.scalar_op("Mul", &cube, 0.044_715);
                let inner = self.op("Add", &[x, &cube]);
                let inner = self.scalar_op("Mul", &inner, (2.0 / std::f32::consts::PI).sqrt());
                let tanh = self.op("Tanh", &[&inner]);
                self.half_of_one_plus(&tanh, x)
            }
            Activation::Relu => self.op("Relu", &[x]),
            Activation::Tanh => self.op("Tanh", &[x]),
            Activation::Silu => {
                let gate = self.op("Sigmoid", &[x]);
                self.op("Mul", &[x, &gate])
            }
            Activation::GeluClipped => {
                let gelu = self.gelu(x);
                self.clip(&gelu, -10.0, 10.0)
            }
            Activation::QuickGelu => {
                let scaled = self.scalar_op("Mul", x, 1.702);
                let gate = self.op("Sigmoid", &[&scaled]);
                self.op("Mul", &[x, &gate])
            }
            Activation::ReluSquared => {
                let relu = self.op("Relu", &[x]);
                self.op("Mul", &[&relu, &relu])
            }
            Activation::Relu6 => self.clip(x, 0.0, 6.0),
            Activation::LeakyRelu => self.op_with("LeakyRelu", &[x], vec![float("alpha", 0.01)]),
            Activation::Mish => {
                let softplus = self.op("Softplus", &[x]);
                let tanh = self.op("Tanh", &[&softplus]);
                self.op("Mul", &[x, &tanh])
            }
            Activation::Laplace => {
                // As transformers rounds it.
                const MEAN: f32 = 707_107e-6;
                let shifted = self.scalar_op("Sub", x, MEAN);
                let scaled = self.scalar_op("Div", &shifted, 0.282_095 * std::f32::consts::SQRT_2);
                let erf = self.op("Erf", &[&scaled]);
                let sum = self.scalar_op("Add", &erf, 1.0);
                self.scalar_op("Mul", &sum, 0.5)
            }
            Activation::HardSwish => self.op("HardSwish", &[x]),
            Activation::Sigmoid => self.op("Sigmoid", &[x]),
            Activation::Identity => x.clone(),
            other => {
                let expected = "those of published encoders can, such as gelu";
                return Err(OnnxError::unsupported(format!("the activation {other:?}"), expected));
            }
        })
    }

    /// `x · (1 + erf(x / √2)) / 2`, in the order of operators that ONNX Runtime replaces by one of its own.
    fn gelu(&mut self, x: &Value) -> Value {
        let scaled = self.scalar_op("Div", x, std::f32::consts::SQRT_2);
        let erf = self.op("Erf", &[&scaled]);
        self.half_of_one_plus(&erf, x)
    }

    /// `x · (1 + y) / 2`
    fn half_of_one_plus(&mut self, y: &Value, x: &Value) -> Value {
        let sum = self.scalar_op("Add", y, 1.0);
        let product = self.op("Mul", &[x, &sum]);
        self.scalar_op("Mul", &product, 0.5)
    }

    fn clip(&mut self, x: &Value, least: f32, most: f32) -> Value {
        let (least, most) = (self.float(least), self.float(most));
        self.op("Clip", &[x, &least, &most])
    }

    /// An operator of values and a number.
    pub(crate) fn scalar_op(&mut self, kind: &str, x: &Value, number: f32) -> Value {
        let number = self.float(number);
        self.op(kind, &[x, &number])
    }
}
