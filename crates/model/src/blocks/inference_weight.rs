use crate::huggingface::QuantizedTensor;
use crate::ops::{self, IntegerWeight, PackedWeight};
use burn::tensor::{Device, Tensor};
use std::sync::Arc;

/// The matrix of a linear map that is no longer trained, stored for fast inference.
#[derive(Debug, Clone)]
pub struct InferenceWeight(Form);

#[derive(Debug, Clone)]
enum Form {
    Packed(Box<PackedWeight>),
    Int8(IntegerWeight),
    /// Integers that were read from a file, and what was read.
    Stored(IntegerWeight, Arc<QuantizedTensor>),
}

impl InferenceWeight {
    /// Packed in the order in which products read it, see [`ops::linear_packed`].
    ///
    /// # Shapes
    /// - `weight`: `[d_in, d_out]`, with any strides, such as a transposed table of embeddings
    pub fn packed(weight: Tensor<2>) -> Self {
        Self(Form::Packed(Box::new(PackedWeight::new(weight))))
    }

    /// Quantised to 8 bits, see [`ops::linear_integer`]. Shapes are those of [`packed`](Self::packed).
    pub fn int8(weight: Tensor<2>) -> Self {
        Self(Form::Int8(IntegerWeight::quantize(weight)))
    }

    /// The integers of a file, which are multiplied as they are. Tokens are rounded as the file says, each in a range of
    /// its own if it says nothing.
    pub(crate) fn stored(tensor: &Arc<QuantizedTensor>, device: &Device) -> Self {
        let tokens = tensor.tokens.clone().unwrap_or_default();
        let weight = IntegerWeight::new(&tensor.matrix, tokens, device);
        Self(Form::Stored(weight, Arc::clone(tensor)))
    }

    /// The [integers of a file](Self::stored), if it holds such.
    pub(super) fn integers(&self) -> Option<&Arc<QuantizedTensor>> {
        match &self.0 {
            Form::Stored(_, tensor) => Some(tensor),
            Form::Packed(_) | Form::Int8(_) => None,
        }
    }

    /// The weight itself, in another order, if it is that.
    pub(super) fn packed_weight(&self) -> Option<&PackedWeight> {
        match &self.0 {
            Form::Packed(weight) => Some(weight),
            Form::Int8(_) | Form::Stored(..) => None,
        }
    }

    /// Whether it is the weight itself, in another order.
    pub(super) fn is_packed(&self) -> bool {
        self.packed_weight().is_some()
    }

    /// Another weight in the same form.
    pub(super) fn with_weight(&self, weight: Tensor<2>) -> Self {
        match self.0 {
            Form::Packed(_) => Self::packed(weight),
            Form::Int8(_) | Form::Stored(..) => Self::int8(weight),
        }
    }

    /// # Shapes
    /// - `x`: `[..., d_in]`; `bias`: `[d_out]`; returns `[..., d_out]`
    pub fn forward<const D: usize>(&self, x: Tensor<D>, bias: Option<Tensor<1>>) -> Tensor<D> {
        match &self.0 {
            Form::Int8(weight) | Form::Stored(weight, _) => ops::linear_integer(x, weight, bias),
            Form::Packed(weight) => ops::linear_packed(x, weight, bias),
        }
    }
}
