use crate::squared_sum;
use burn::tensor::{Device, Tensor};

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "flex")]
use crate::flex;

/// Sums the squares of many tensors' elements, for the norm of a model's gradients: on GPUs with one launch
/// per six tensors, elsewhere by [`squared_sum`] of each.
#[derive(Debug, Default)]
pub struct SquaredSums {
    sums: Vec<Tensor<1>>,
    #[cfg(feature = "cube")]
    waiting: cube::squared_sum::Waiting,
}

impl SquaredSums {
    /// On flex and on GPUs, a tensor has the same sums as its consecutive pieces, in their order, if each but the last has a
    /// multiple of this many elements.
    pub const PIECE: usize = 32 << 10;

    /// Whether tensors on a device have the [sums of their pieces](Self::PIECE).
    pub fn are_of_pieces(device: &Device) -> bool {
        let _ = device;
        #[cfg(feature = "flex")]
        if flex::is_flex(device) {
            return true;
        }
        #[cfg(feature = "cube")]
        if cube::is_cube(device) {
            return true;
        }
        false
    }

    /// Adds a tensor. All tensors must be on one device.
    ///
    /// # Shapes
    /// - any
    pub fn push<const D: usize>(&mut self, x: Tensor<D>) {
        #[cfg(feature = "cube")]
        if cube::takes(&x) && !x.device().is_autodiff() {
            return self.waiting.push(x);
        }
        #[cfg(feature = "flex")]
        if flex::takes(&x) && !x.device().is_autodiff() {
            return self.sums.push(flex::adamw::squared_sums(x));
        }
        self.sums.push(squared_sum(x));
    }

    /// Partial sums of the squares, on the device; `None` without tensors. Nothing is read.
    ///
    /// # Shapes
    /// - returns `[n]`: on flex one number per started 32,768 elements of each tensor, on GPUs per started 16,384, elsewhere
    ///   one per tensor
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

    #[test]
    fn pieces_have_the_sums_of_the_whole() {
        let device = Device::flex();
        assert!(SquaredSums::are_of_pieces(&device));
        let values: Vec<f32> = (0..100_000).map(|i| (i as f32 * 0.37).sin()).collect();
        let sums = |cuts: &[usize]| {
            let mut sums = SquaredSums::default();
            for pair in cuts.windows(2) {
                sums.push(Tensor::<1>::from_data(&values[pair[0]..pair[1]], &device));
            }
            sums.parts().unwrap().into_data().iter::<f32>().collect::<Vec<f32>>()
        };
        let whole = sums(&[0, 100_000]);
        assert_eq!(whole, sums(&[0, SquaredSums::PIECE, 3 * SquaredSums::PIECE, 100_000]));
        assert_eq!(whole.len(), 100_000_usize.div_ceil(flex::adamw::TASK));
    }
}
