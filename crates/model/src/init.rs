//! Initial values of parameters, from an explicit random generator.

use crate::ops;
use burn::module::{Param, ParamId};
use burn::tensor::{Device, Shape, Tensor, TensorData};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Draws the initial value of every parameter of a model, in the order of construction.
///
/// The values are drawn on the host, so the same seed gives the same model on every device.
///
/// ```
/// # use burn::tensor::Device;
/// # use cloze_model::ParamInit;
/// let device = Device::flex();
/// let mut init = ParamInit::new(&device, 42);
/// let weight = init.truncated_normal([2, 3]);
/// assert!(weight.val().abs().max().into_scalar::<f32>() <= 2.0 * 0.02);
/// ```
#[derive(Debug)]
pub struct ParamInit {
    device: Device,
    rng: Pcg64Mcg,
    std: f64,
    xavier: bool,
    spare: Option<f64>,
    deferred: bool,
}

impl ParamInit {
    /// A generator for parameters on `device`; the standard deviation starts at BERT's 0.02.
    pub fn new(device: &Device, seed: u64) -> Self {
        ops::warn_unfused(device);
        let rng = Pcg64Mcg::seed_from_u64(seed);
        Self { device: device.clone(), rng, std: 0.02, xavier: false, spare: None, deferred: false }
    }

    /// A generator whose parameters draw their values at first use, each from its own generator: for
    /// models whose weights come from a file, where most are never drawn.
    pub fn deferred(&mut self) -> Self {
        let rng = Pcg64Mcg::seed_from_u64(self.rng.next_u64());
        Self { device: self.device.clone(), rng, spare: None, deferred: true, ..*self }
    }

    /// Sets the standard deviation for [`truncated_normal`](Self::truncated_normal).
    pub fn with_std(mut self, std: f64) -> Self {
        self.std = std;
        self
    }

    /// Initialises the [matrices](Self::matrix) of linear maps from Xavier's distribution.
    pub fn with_xavier(mut self) -> Self {
        self.xavier = true;
        self
    }

    /// Changes the initialisation from here on; returns the previous one.
    pub(crate) fn replace_values(&mut self, (std, xavier): (f64, bool)) -> (f64, bool) {
        (std::mem::replace(&mut self.std, std), std::mem::replace(&mut self.xavier, xavier))
    }

    /// Makes parameters with the standard deviation multiplied by `factor`.
    pub fn scaled<T>(&mut self, factor: f64, make: impl FnOnce(&mut Self) -> T) -> T {
        let std = self.std;
        self.std *= factor;
        let made = make(self);
        self.std = std;
        made
    }

    /// The device that the parameters are made on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Normal with mean 0, truncated at two standard deviations by redrawing, as in
    /// `tf.truncated_normal_initializer` (google-research/bert, `create_initializer`).
    pub fn truncated_normal<const D: usize>(&mut self, shape: [usize; D]) -> Param<Tensor<D>> {
        let std = self.std;
        self.param(shape, move |init| {
            loop {
                let z = init.standard_normal();
                if z.abs() <= 2.0 {
                    return (z * std) as f32;
                }
            }
        })
    }

    /// A linear map's matrix, `[d_in, d_out]`: [truncated normal](Self::truncated_normal), or uniform between
    /// `±√(6 / (d_in + d_out))` if [requested](Self::with_xavier) (Glorot & Bengio 2010, eq. 16).
    pub fn matrix(&mut self, shape: [usize; 2]) -> Param<Tensor<2>> {
        if !self.xavier {
            return self.truncated_normal(shape);
        }
        let bound = (6.0 / (shape[0] + shape[1]) as f64).sqrt();
        self.uniform(shape, bound)
    }

    /// Normal with mean 0 and this standard deviation.
    pub fn normal<const D: usize>(&mut self, shape: [usize; D], std: f64) -> Param<Tensor<D>> {
        self.param(shape, move |init| (init.standard_normal() * std) as f32)
    }

    /// Zeros, as for biases.
    pub fn zeros<const D: usize>(&mut self, shape: [usize; D]) -> Param<Tensor<D>> {
        self.param(shape, |_| 0.0)
    }

    /// Ones, as for the scale of a normalisation.
    pub fn ones<const D: usize>(&mut self, shape: [usize; D]) -> Param<Tensor<D>> {
        self.param(shape, |_| 1.0)
    }

    /// Uniform between `-bound` and `bound`, as for recurrent networks and PyTorch's linear maps.
    pub fn uniform<const D: usize>(&mut self, shape: [usize; D], bound: f64) -> Param<Tensor<D>> {
        self.param(shape, move |init| {
            // 53 random bits.
            let zero_to_one = (init.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            (bound * (2.0 * zero_to_one - 1.0)) as f32
        })
    }

    /// A parameter filled by `draw`, element by element in row-major order.
    pub fn param<const D: usize>(
        &mut self,
        shape: [usize; D],
        mut draw: impl FnMut(&mut Self) -> f32 + Send + Sync + 'static,
    ) -> Param<Tensor<D>> {
        let mut values = move |init: &mut Self| -> TensorData {
            let values: Vec<f32> = (0..shape.iter().product()).map(|_| draw(init)).collect();
            TensorData::new(values, shape)
        };
        if !self.deferred {
            return Param::from_tensor(Tensor::from_data(values(self), &self.device));
        }
        let seed = self.rng.next_u64();
        let init = move |device: &Device, tracked: bool| {
            let tensor = Tensor::from_data(values(&mut Self::new(device, seed)), device);
            if tracked { tensor.require_grad() } else { tensor }
        };
        Param::uninitialized(ParamId::new(), init, self.device.clone(), true, Shape::from(shape.to_vec()))
    }

    /// A standard normal draw by the Box–Muller transform.
    pub fn standard_normal(&mut self) -> f64 {
        if let Some(z) = self.spare.take() {
            return z;
        }
        let radius = (-2.0 * self.zero_to_one().ln()).sqrt();
        let angle = std::f64::consts::TAU * self.zero_to_one();
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// A uniform draw between 0 and 1, both excluded.
    fn zero_to_one(&mut self) -> f64 {
        // 53 random bits; the shift by half a step keeps logarithms away from zero.
        ((self.rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_normal_has_the_moments_of_its_distribution() {
        let mut init = ParamInit::new(&Device::flex(), 7);
        let values = init.truncated_normal([200, 500]).val().into_data();
        let values: Vec<f64> = values.iter::<f64>().map(|v| v / 0.02).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(values.iter().all(|v| v.abs() <= 2.0 + 1e-5));
        assert!(mean.abs() < 0.01, "mean {mean}");
        // The variance of a standard normal cut at ±2 is 0.7737.
        assert!((variance - 0.7737).abs() < 0.01, "variance {variance}");
    }

    #[test]
    fn uniform_has_the_moments_of_its_distribution() {
        let mut init = ParamInit::new(&Device::flex(), 7);
        let values = init.uniform([200, 500], 0.3).val().into_data();
        let values: Vec<f64> = values.iter::<f64>().collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(values.iter().all(|v| v.abs() <= 0.3 + 1e-6));
        assert!(mean.abs() < 0.003 && (variance - 0.03).abs() < 5e-4, "{mean}, {variance}");
    }

    #[test]
    fn matrices_may_be_uniform() {
        let init = || ParamInit::new(&Device::flex(), 7);
        let plain = init().truncated_normal([30, 20]).val().into_data();
        assert_eq!(init().matrix([30, 20]).val().into_data(), plain);
        let values = init().with_xavier().matrix([300, 200]).val().into_data();
        let bound = (6.0f64 / 500.0).sqrt();
        assert!(values.iter::<f64>().all(|v| v.abs() <= bound));
        let mean_square = values.iter::<f64>().map(|v| v * v).sum::<f64>() / 60_000.0;
        // The variance of a uniform distribution of this width is a third of the bound's square.
        assert!((mean_square / (bound * bound / 3.0) - 1.0).abs() < 0.02, "{mean_square}");
        let normal = init().normal([300, 200], 0.5).val().into_data();
        let mean_square = normal.iter::<f64>().map(|v| v * v).sum::<f64>() / 60_000.0;
        assert!((mean_square / 0.25 - 1.0).abs() < 0.02, "{mean_square}");
    }

    #[test]
    fn deferred_parameters_are_a_function_of_seed_and_place() {
        let draw = |which: usize| {
            let mut init = ParamInit::new(&Device::flex(), 3).deferred();
            let params = [init.truncated_normal([4]), init.truncated_normal([4])];
            assert!(!params[which].is_initialized());
            params[which].val().into_data()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(0), draw(1));
        let device = Device::flex().autodiff();
        assert!(ParamInit::new(&device, 3).deferred().ones([2]).val().is_require_grad());
    }

    #[test]
    fn the_same_seed_gives_the_same_bits() {
        let draw = |seed| {
            let mut init = ParamInit::new(&Device::flex(), seed);
            init.truncated_normal([3, 5]).val().into_data()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
