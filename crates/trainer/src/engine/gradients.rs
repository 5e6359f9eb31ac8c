//! Gradients of a whole module: summing micro-batches, the global norm.

use super::settings::Exchange;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor};
use cloze_ops::SquaredSums;

/// Adds `more` to `sum`, if there is one, parameter by parameter.
pub fn add<M: Module>(module: &M, sum: Option<GradientsParams>, more: GradientsParams) -> GradientsParams {
    let Some(sum) = sum else { return more };
    let mut visitor = Add { sum, more };
    module.visit(&mut visitor);
    visitor.sum
}

/// [Adds](add) `right` to `left`, both rounded to the format of exchange.
pub(super) fn add_rounded<M: Module>(
    module: &M,
    left: GradientsParams,
    right: GradientsParams,
    exchange: Exchange,
) -> GradientsParams {
    let [left, right] = [left, right].map(|gradients| rounded(module, gradients, exchange));
    add(module, Some(left), right)
}

/// Gradients rounded to a format of exchange.
pub(super) fn rounded<M: Module>(
    module: &M,
    gradients: GradientsParams,
    exchange: Exchange,
) -> GradientsParams {
    match exchange {
        Exchange::F32 => gradients,
        Exchange::Bf16 => {
            let mut visitor = Round { gradients };
            module.visit(&mut visitor);
            visitor.gradients
        }
    }
}

/// The Euclidean norm of all gradients as one vector. Not finite if any of them is not.
///
/// Takes a single device read, regardless of the number of parameters.
pub fn global_norm<M: Module>(module: &M, gradients: &GradientsParams) -> f64 {
    squared_norms(module, gradients).map_or(0.0, norm_of)
}

/// Partial sums of the squared [norm of all gradients](global_norm), on the device; none without gradients.
///
/// # Shapes
/// - returns `[n]`, as in [`SquaredSums::parts`](cloze_ops::SquaredSums::parts)
pub(crate) fn squared_norms<M: Module>(module: &M, gradients: &GradientsParams) -> Option<Tensor<1>> {
    let mut visitor = SquaredNorms { gradients, squares: SquaredSums::default() };
    module.visit(&mut visitor);
    visitor.squares.parts()
}

/// Reads squared norms and returns the total norm.
pub(crate) fn norm_of(squares: Tensor<1>) -> f64 {
    squares.into_data().iter::<f32>().map(f64::from).sum::<f64>().sqrt()
}

struct Add {
    sum: GradientsParams,
    more: GradientsParams,
}

impl ModuleVisitor for Add {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(more) = self.more.remove::<D>(param.id) else {
            return;
        };
        let sum = match self.sum.remove::<D>(param.id) {
            Some(sum) => sum + more,
            None => more,
        };
        self.sum.register(param.id, sum);
    }
}

struct Round {
    gradients: GradientsParams,
}

impl ModuleVisitor for Round {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return };
        let device = gradient.device();
        let rounded = if device.supports_dtype(DType::BF16) {
            gradient.cast(DType::BF16).cast(DType::F32)
        } else {
            let data = gradient.into_data().convert_dtype(DType::BF16).convert_dtype(DType::F32);
            Tensor::from_data(data, &device)
        };
        self.gradients.register(param.id, rounded);
    }
}

struct SquaredNorms<'a> {
    gradients: &'a GradientsParams,
    squares: SquaredSums,
}

impl ModuleVisitor for SquaredNorms<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            self.squares.push(gradient);
        }
    }
}
