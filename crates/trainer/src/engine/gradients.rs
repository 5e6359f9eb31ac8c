//! Gradients of a whole module: summing micro-batches, the global norm.

use crate::Result;
use crate::engine::replicas::Replicas;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use cloze_ops::SquaredSums;

/// Adds `more` to `sum`, if there is one, parameter by parameter.
pub fn add<M: Module>(module: &M, sum: Option<GradientsParams>, more: GradientsParams) -> GradientsParams {
    let Some(sum) = sum else { return more };
    let mut visitor = Add { sum, more };
    module.visit(&mut visitor);
    visitor.sum
}

/// The gradients summed over all replicas. A missing gradient on one replica counts as zeros; one missing on
/// all stays missing.
///
/// # Errors
/// [`TrainerError::Replicas`](crate::TrainerError::Replicas) if another replica cannot be reached.
pub(crate) fn summed<M: Module>(
    module: &M,
    gradients: GradientsParams,
    replicas: &dyn Replicas,
) -> Result<GradientsParams> {
    if replicas.size() <= 1 {
        return Ok(gradients);
    }
    let mut flat = Flatten { gradients: &gradients, there: Vec::new(), values: Vec::new() };
    module.visit(&mut flat);
    let Flatten { there, values, .. } = flat;
    let n_parameters = there.len();
    let mut buffer = there;
    buffer.extend(values);
    replicas.sum_gradients(&mut buffer)?;
    let (there, values) = buffer.split_at(n_parameters);
    let mut restored =
        Restore { there: there.iter(), values, gradients: GradientsParams::new(), old: gradients };
    module.visit(&mut restored);
    Ok(restored.gradients)
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

/// Concatenates all gradients in the order of the parameters.
struct Flatten<'a> {
    gradients: &'a GradientsParams,
    /// For each parameter 1, or 0 if it has no gradient.
    there: Vec<f32>,
    values: Vec<f32>,
}

impl ModuleVisitor for Flatten<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let gradient = self.gradients.get::<D>(param.id);
        self.there.push(f32::from(u8::from(gradient.is_some())));
        match gradient {
            Some(gradient) => self.values.extend(gradient.into_data().iter::<f32>()),
            None => self.values.resize(self.values.len() + param.shape().num_elements(), 0.0),
        }
    }
}

/// Splits them again.
struct Restore<'a> {
    there: std::slice::Iter<'a, f32>,
    values: &'a [f32],
    gradients: GradientsParams,
    /// The previous gradients, on their device.
    old: GradientsParams,
}

impl ModuleVisitor for Restore<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let shape = param.shape();
        let (values, rest) = self.values.split_at(shape.num_elements());
        self.values = rest;
        if self.there.next().is_none_or(|there| *there == 0.0) {
            return;
        }
        let device = match self.old.remove::<D>(param.id) {
            Some(old) => old.device(),
            None => param.val().device().inner(),
        };
        let sum = Tensor::from_data(TensorData::new(values.to_vec(), shape), &device);
        self.gradients.register::<D>(param.id, sum);
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
