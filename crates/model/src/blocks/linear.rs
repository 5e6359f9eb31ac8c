use super::observed::{is_observed, observed};
use super::rounded::{is_rounded, rounded};
use super::{InferenceWeight, LoraAdapter};
use crate::huggingface::QuantizedTensor;
use crate::{ParamInit, ops};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};
use std::sync::Arc;

/// A linear map of the last axis, `x·W + b`, or `x·W` without a bias.
///
/// Weights are initially [truncated-normal](ParamInit::matrix) unless `init` says otherwise, biases zero, as in BERT
/// (burn's own default is Kaiming uniform).
#[derive(Module, Debug)]
pub struct Linear {
    /// `[d_in, d_out]`: the transpose of PyTorch's layout.
    pub weight: Param<Tensor<2>>,
    /// `[d_out]`
    pub bias: Option<Param<Tensor<1>>>,
    /// A trained addition to the weight, if one is attached, see [`LoraConfig`](super::LoraConfig).
    pub lora: Option<LoraAdapter>,
    /// `[2]`: the least and the greatest number between which [rounding](super::with_rounded_inputs) puts every input, if they
    /// are the same for all tokens.
    pub input_range: Option<Param<Tensor<1>>>,
    /// The weight for inference, if it is [quantised](super::quantize_int8) or [packed](super::pack_weights).
    #[module(skip)]
    pub(super) inference: Option<InferenceWeight>,
}

impl Linear {
    /// A new map from `d_in` to `d_out` features.
    pub fn new(d_in: usize, d_out: usize, init: &mut ParamInit) -> Self {
        // The weight is drawn before the bias.
        let map = Self::without_bias(d_in, d_out, init);
        Self { bias: Some(init.zeros([d_out])), ..map }
    }

    /// A new map from `d_in` to `d_out` features without a bias.
    pub fn without_bias(d_in: usize, d_out: usize, init: &mut ParamInit) -> Self {
        Self::from_parts(init.matrix([d_in, d_out]), None)
    }

    /// A new map [with](Self::new) a bias or [without](Self::without_bias).
    pub fn with_bias(bias: bool, d_in: usize, d_out: usize, init: &mut ParamInit) -> Self {
        match bias {
            true => Self::new(d_in, d_out, init),
            false => Self::without_bias(d_in, d_out, init),
        }
    }

    /// A new map, initialised like PyTorch's: weights and bias uniform between `±1/√d_in`.
    pub fn uniform(d_in: usize, d_out: usize, init: &mut ParamInit) -> Self {
        let bound = 1.0 / (d_in.max(1) as f64).sqrt();
        let weight = init.uniform([d_in, d_out], bound);
        Self::from_parts(weight, Some(init.uniform([d_out], bound)))
    }

    /// A map with these parameters.
    ///
    /// # Shapes
    /// - `weight`: `[d_in, d_out]`; `bias`: `[d_out]`
    pub fn from_parts(weight: Param<Tensor<2>>, bias: Option<Param<Tensor<1>>>) -> Self {
        Self { weight, bias, lora: None, input_range: None, inference: None }
    }

    /// The map with only these of its inputs, in this order: rows of the weight.
    ///
    /// # Panics
    /// With an adapter, which has to be [merged](super::merge_lora) first.
    pub fn keeping_inputs(self, inputs: &[usize]) -> Self {
        assert!(self.lora.is_none(), "an adapter is merged before its map is cut");
        Self { weight: selected(self.weight, 0, inputs), inference: None, ..self }
    }

    /// The map with only these of its outputs, in this order: columns of the weight, and as many biases.
    ///
    /// # Panics
    /// With an adapter, which has to be [merged](super::merge_lora) first.
    pub fn keeping_outputs(self, outputs: &[usize]) -> Self {
        assert!(self.lora.is_none(), "an adapter is merged before its map is cut");
        let bias = self.bias.map(|bias| selected(bias, 0, outputs));
        Self { weight: selected(self.weight, 1, outputs), bias, inference: None, ..self }
    }

    /// The weights of these output features, one a row.
    ///
    /// # Shapes
    /// - `outputs`: `[n]`; returns `[n, d_in]`
    pub(crate) fn rows(&self, outputs: Tensor<1, Int>) -> Tensor<2> {
        self.weight.val().select(1, outputs).transpose()
    }

    /// Stores the weight for inference. A packed one has the same numbers, so the parameter lets go of its own, and reads them back
    /// if somebody asks for them.
    pub(super) fn store(&mut self, stored: InferenceWeight) {
        let device = self.weight.lazy_device();
        if let Some(packed) = stored.packed_weight().filter(|_| !device.is_autodiff()).cloned() {
            let shape = self.weight.lazy_shape();
            let read = move |device: &Device, tracked: bool| {
                let weight = packed.weight().to_device(device);
                if tracked { weight.require_grad() } else { weight }
            };
            self.weight = Param::uninitialized(self.weight.id, read, device, true, shape);
        }
        self.inference = Some(stored);
    }

    /// The integers that are multiplied in place of the weight, if they were read from a file.
    pub fn integers(&self) -> Option<&Arc<QuantizedTensor>> {
        self.inference.as_ref()?.integers()
    }

    /// The weight, if the map is one product with it and nothing more: no bias, adapter, integers, and nobody who looks at its inputs. A
    /// packed weight is also there unpacked.
    pub(super) fn plain_weight(&self) -> Option<Tensor<2>> {
        let is_plain = self.bias.is_none()
            && self.lora.is_none()
            && self.inference.as_ref().is_none_or(InferenceWeight::is_packed)
            && !is_observed()
            && !is_rounded(self.weight.id);
        is_plain.then(|| self.weight.val())
    }

    /// # Shapes
    /// - `x`: `[..., d_in]`; returns `[..., d_out]`
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        self.product(x, self.bias.as_ref().map(Param::val))
    }

    /// [`forward`](Self::forward) of a map without a bias, plus a bias that belongs to the model. A weight
    /// stored for inference adds it within the product.
    pub(crate) fn forward_plus(&self, x: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
        match bias {
            Some(bias) if self.inference.is_none() => self.forward(x) + bias.unsqueeze(),
            bias => self.product(x, bias),
        }
    }

    fn product<const D: usize>(&self, x: Tensor<D>, bias: Option<Tensor<1>>) -> Tensor<D> {
        observed(self.weight.id, &x);
        let x = rounded(self.weight.id, self.input_range.as_ref(), x);
        let added = self.lora.as_ref().map(|adapter| adapter.forward(x.clone()));
        let y = match &self.inference {
            Some(weight) => weight.forward(x, bias),
            None => ops::linear(x, self.weight.val(), bias),
        };
        match added {
            Some(added) => y + added,
            None => y,
        }
    }
}

/// Parts of a parameter along an axis: a new parameter.
fn selected<const D: usize>(param: Param<Tensor<D>>, axis: usize, places: &[usize]) -> Param<Tensor<D>> {
    let value = param.val();
    let places: Vec<i32> = places.iter().map(|place| *place as i32).collect();
    let places = Tensor::<1, Int>::from_data(&places[..], &value.device());
    let tracked = value.is_require_grad();
    // A leaf of its own, whose values have no history.
    let value = value.detach().select(axis, places).detach();
    Param::from_tensor(value).set_require_grad(tracked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{pack_weights, quantize_int8};
    use crate::weights;
    use burn::tensor::Tolerance;

    #[test]
    fn a_map_may_have_no_bias() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 1);
        let mut linear = Linear::without_bias(3, 2, init);
        assert_eq!(weights::shapes(&linear), [("weight".to_string(), vec![3, 2])]);
        let x = init.truncated_normal([4, 3]).val();
        let expected = x.clone().matmul(linear.weight.val()).into_data();
        let close =
            |y: Tensor<2>| y.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-3));
        close(linear.forward(x.clone()));
        pack_weights(&mut linear);
        close(linear.forward(x.clone()));
        quantize_int8(&mut linear);
        close(linear.forward(x));
    }

    #[test]
    fn a_packed_map_has_its_weight_once_and_reads_it_back() {
        let device = Device::flex();
        let mut linear = Linear::new(70, 40, &mut ParamInit::new(&device, 1));
        let (weight, id) = (linear.weight.val().into_data(), linear.weight.id);
        pack_weights(&mut linear);
        linear.forward(Tensor::<2>::ones([3, 70], &device));
        assert!(!linear.weight.is_initialized(), "nobody has asked for it");
        assert_eq!((linear.weight.lazy_shape().to_vec(), linear.weight.id), (vec![70, 40], id));
        let clone = linear.clone();
        assert_eq!(linear.weight.val().into_data(), weight);
        assert_eq!(weights::collect(&clone)["weight"], weight);
    }

    #[test]
    fn maps_with_a_bias_keep_their_paths() {
        let linear = Linear::new(3, 2, &mut ParamInit::new(&Device::flex(), 1));
        let mut paths: Vec<String> = weights::shapes(&linear).into_iter().map(|(path, _)| path).collect();
        paths.sort();
        assert_eq!(paths, ["bias", "weight"]);
    }
}
