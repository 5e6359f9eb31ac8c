use crate::squared_sum;
use burn::tensor::Tensor;

#[cfg(feature = "cube")]
use crate::cube;

/// Sums the squares of many tensors' elements, for the norm of a model's gradients: on GPUs with one launch
/// per six tensors, elsewhere by [`squared_sum`] of each.
#[derive(Debug, Default)]
pub struct SquaredSums {
    sums: Vec<Tensor<1>>,
    #[cfg(feature = "cube")]
    waiting: cube::squared_sum::Waiting,
}

impl SquaredSums {
    /// Adds a tensor. All tensors must be on one device.
    ///
    /// # Shapes
    /// - any
    pub fn push<const D: usize>(&mut self, x: Tensor<D>) {
        #[cfg(feature = "cube")]
        if cube::takes(&x) && !x.device().is_autodiff() {
            return self.waiting.push(x);
        }
        self.sums.push(squared_sum(x));
    }

    /// Partial sums of the squares, on the device; `None` without tensors. Nothing is read.
    ///
    /// # Shapes
    /// - returns `[n]`: one number per tensor, or on GPUs one per started 16,384 elements
    pub fn parts(self) -> Option<Tensor<1>> {
        #[cfg_attr(not(feature = "cube"), allow(unused_mut, reason = "nothing waits"))]
        let mut sums = self.sums;
        #[cfg(feature = "cube")]
        sums.extend(self.waiting.sums());
        (!sums.is_empty()).then(|| Tensor::cat(sums, 0))
    }

    /// The total, with a single device read.
    pub fn total(self) -> f64 {
        self.parts().map_or(0.0, |sums| sums.into_data().iter::<f32>().map(f64::from).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn the_sum_over_tensors_of_several_shapes() {
        let device = Device::flex();
        let mut sums = SquaredSums::default();
        sums.push(Tensor::<1>::from_data([1.0, 2.0], &device));
        sums.push(Tensor::<2>::from_data([[3.0], [-4.0]], &device));
        assert_eq!(sums.total(), 30.0);
        assert_eq!(SquaredSums::default().total(), 0.0);
    }
}
