use crate::lora::LoraAdapter;
use crate::ops::Int8Weight;
use crate::{ParamInit, ops};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// An affine map of the last axis, `x·W + b`.
///
/// Weights start truncated-normal, biases zero, as in BERT (burn's own default is Kaiming uniform).
#[derive(Module, Debug)]
pub struct Linear {
    /// `[d_in, d_out]`: the transpose of PyTorch's layout.
    pub weight: Param<Tensor<2>>,
    /// `[d_out]`
    pub bias: Param<Tensor<1>>,
    /// A trained addition to the weight, where one is attached, see [`lora`](crate::lora).
    pub lora: Option<LoraAdapter>,
    /// The weight in 8 bits, once [quantised](Self::quantize_int8).
    #[module(skip)]
    int8: Option<Int8Weight>,
}

impl Linear {
    /// A new map from `d_in` to `d_out` features.
    pub fn new(d_in: usize, d_out: usize, init: &mut ParamInit) -> Self {
        let weight = init.truncated_normal([d_in, d_out]);
        Self { weight, bias: init.zeros([d_out]), lora: None, int8: None }
    }

    /// Multiplies in 8 bits from now on, see [`ops::linear_int8`]: for inference only. The weight itself stays
    /// as it is.
    pub fn quantize_int8(&mut self) {
        self.int8 = Some(Int8Weight::quantize(self.weight.val()));
    }

    /// Adds the adapter, where there is one, to the weight, and drops it.
    pub fn merge_lora(&mut self) {
        let Some(adapter) = self.lora.take() else {
            return;
        };
        self.weight = self.weight.clone().map(|weight| {
            let tracked = weight.is_require_grad();
            let merged = (weight.detach() + adapter.delta().detach()).detach();
            if tracked { merged.require_grad() } else { merged }
        });
        if self.int8.is_some() {
            self.quantize_int8();
        }
    }

    /// # Shapes
    /// - `x`: `[..., d_in]`; returns `[..., d_out]`
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let added = self.lora.as_ref().map(|adapter| adapter.forward(x.clone()));
        let y = match &self.int8 {
            Some(weight) => ops::linear_int8(x, weight, Some(self.bias.val())),
            None => ops::linear(x, self.weight.val(), Some(self.bias.val())),
        };
        match added {
            Some(added) => y + added,
            None => y,
        }
    }
}
