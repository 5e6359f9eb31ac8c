use crate::{ParamInit, ops};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// Group normalisation of images, channels last, with a learned scale and shift ([`ops::group_norm`]).
#[derive(Module, Debug)]
pub struct GroupNorm {
    /// The scale, `[channels]`, initially ones.
    pub gamma: Param<Tensor<1>>,
    /// The shift, `[channels]`, initially zeros.
    pub beta: Param<Tensor<1>>,
    groups: usize,
    epsilon: f64,
}

impl GroupNorm {
    /// A new normalisation of so many channels in groups; `epsilon` is added to the variance.
    ///
    /// # Panics
    /// If `groups` does not divide the channels.
    pub fn new(channels: usize, groups: usize, epsilon: f64, init: &mut ParamInit) -> Self {
        assert!(groups > 0 && channels.is_multiple_of(groups), "{groups} groups of {channels} channels");
        Self { gamma: init.ones([channels]), beta: init.zeros([channels]), groups, epsilon }
    }

    /// # Shapes
    /// - `x`: `[batch, rows, columns, channels]`; returns the same
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        ops::group_norm(x, self.groups, self.gamma.val(), self.beta.val(), self.epsilon)
    }

    /// The normalised `x`, plus a residual if there is one, through a ReLU ([`ops::group_norm_relu`]).
    ///
    /// # Shapes
    /// - `x`, `residual`: `[batch, rows, columns, channels]`; returns the same
    pub fn forward_relu(&self, x: Tensor<4>, residual: Option<Tensor<4>>) -> Tensor<4> {
        let (gamma, beta) = (self.gamma.val(), self.beta.val());
        ops::group_norm_relu(x, residual, self.groups, gamma, beta, self.epsilon)
    }
}
