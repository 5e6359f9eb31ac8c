//! Sums of squares: of one tensor or many at once, for the norm of a model's gradients.
//!
//! A cube sums its part of a tensor, 16,384 elements, each read once. A tensor may have any memory order
//! without gaps.

use super::reduce::cube_sum;
use super::{Input, Primitive, arg, cubes, dense, dim, empty, floats, owned, units, untracked};
use burn::backend::{Backend, Cube, backend_extension};
use burn::tensor::{DType, Device, Tensor};
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Elements per cube: a few dozen per unit. Constant, so that the order of sums is fixed.
const PART: usize = 16 << 10;

/// A unit's share of the sum of a part.
#[cube]
fn unit_sum(x: &[f32], part: usize, n: usize, #[comptime] squared: bool, #[comptime] units: usize) -> f32 {
    let first = part * PART;
    let last = min(first + PART, n);
    let mut sum = 0.0f32;
    let mut i = first + UNIT_POS as usize;
    while i < last {
        let value = x[i];
        if comptime!(squared) {
            sum += value * value;
        } else {
            sum += value;
        }
        i += units;
    }
    sum
}

/// Each part's sum of the elements, or of their squares.
#[cube(launch)]
fn parts_kernel(x: &[f32], sums: &mut [f32], n: usize, #[comptime] squared: bool, #[comptime] units: usize) {
    let part = CUBE_POS;
    if part * PART >= n {
        terminate!();
    }
    let mut scratch = Shared::<[f32]>::new_slice(units);
    let sum = cube_sum(unit_sum(x, part, n, squared, units), &mut scratch, units);
    if UNIT_POS == 0 {
        sums[part] = sum;
    }
}

/// Tensors per launch of [`group_kernel`]: with the sums and the numbers, the buffers WebGPU guarantees.
pub(crate) const GROUP: usize = 6;

/// Each part's sum of squares, for six tensors in order. The parts of each are followed by the next one's.
#[cube(launch)]
fn group_kernel(
    x0: &[f32],
    x1: &[f32],
    x2: &[f32],
    x3: &[f32],
    x4: &[f32],
    x5: &[f32],
    sums: &mut [f32],
    place: usize,
    n: Sequence<usize>,
    ends: Sequence<usize>,
    #[comptime] units: usize,
) {
    let part = CUBE_POS;
    if part >= ends[5usize] {
        terminate!();
    }
    let mut sum = 0.0f32;
    if part < ends[0usize] {
        sum = unit_sum(x0, part, n[0usize], true, units);
    } else if part < ends[1usize] {
        sum = unit_sum(x1, part - ends[0usize], n[1usize], true, units);
    } else if part < ends[2usize] {
        sum = unit_sum(x2, part - ends[1usize], n[2usize], true, units);
    } else if part < ends[3usize] {
        sum = unit_sum(x3, part - ends[2usize], n[3usize], true, units);
    } else if part < ends[4usize] {
        sum = unit_sum(x4, part - ends[3usize], n[4usize], true, units);
    } else if part < ends[5usize] {
        sum = unit_sum(x5, part - ends[4usize], n[5usize], true, units);
    }
    let mut scratch = Shared::<[f32]>::new_slice(units);
    let sum = cube_sum(sum, &mut scratch, units);
    if UNIT_POS == 0 {
        sums[place + part] = sum;
    }
}

/// The tensor in its memory order, copied only if there are gaps.
fn gapless(x: CubeTensor) -> CubeTensor {
    if x.is_contiguous_buffer() && x.is_nonoverlapping() && !x.meta.is_tiled() { x } else { dense(x) }
}

/// Parts of a tensor with this many elements.
fn n_parts(n: usize) -> usize {
    n.div_ceil(PART)
}

#[backend_extension(Cube, Fusion)]
pub(crate) trait Squares: Backend {
    /// `Σ x²`, by one launch for up to 16,384 elements and two for up to 268 million.
    #[fusion(meta = |_x| floats([1]))]
    fn squared_sum(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Writes the sums of six tensors' parts to `sums`, from `place` on; only the first `count` are used.
    #[fusion(dtype = sums, shape = sums)]
    fn squared_parts(
        sums: FloatTensor<Self>,
        place: usize,
        count: usize,
        x0: FloatTensor<Self>,
        x1: FloatTensor<Self>,
        x2: FloatTensor<Self>,
        x3: FloatTensor<Self>,
        x4: FloatTensor<Self>,
        x5: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl Squares for CubeBackend {
    fn squared_sum(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let mut x = gapless(x);
        let client = x.client.clone();
        let mut squared = true;
        loop {
            let n = x.meta.num_elements();
            let units = units(&client, n.min(PART));
            let sums = empty(&x, [n_parts(n)], DType::F32);
            let (count, dim) = (cubes(&client, n_parts(n)), dim(units));
            parts_kernel::launch(&client, count, dim, arg(&x), arg(&sums), n, squared, units);
            if n_parts(n) == 1 {
                return sums;
            }
            (x, squared) = (sums, false);
        }
    }

    fn squared_parts(
        sums: FloatTensor<Self>,
        place: usize,
        count: usize,
        x0: FloatTensor<Self>,
        x1: FloatTensor<Self>,
        x2: FloatTensor<Self>,
        x3: FloatTensor<Self>,
        x4: FloatTensor<Self>,
        x5: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let sums = owned(sums);
        let client = sums.client.clone();
        let group = [x0, x1, x2, x3, x4, x5].map(gapless);
        let (mut n, mut ends) = (SequenceArg::new(), SequenceArg::new());
        let mut end = 0;
        for (i, x) in group.iter().enumerate() {
            let elements = if i < count { x.meta.num_elements() } else { 0 };
            end += n_parts(elements);
            n.push(elements);
            ends.push(end);
        }
        let units = units(&client, 256);
        let [x0, x1, x2, x3, x4, x5] = group.each_ref().map(arg);
        group_kernel::launch(
            &client,
            cubes(&client, end),
            dim(units),
            x0,
            x1,
            x2,
            x3,
            x4,
            x5,
            arg(&sums),
            place,
            n,
            ends,
            units,
        );
        sums
    }
}

pub(crate) fn squared_sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    untracked(Cube::squared_sum(Input::new(x).value))
}

/// Tensors on one device waiting for their sum of squares.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    tensors: Vec<Primitive>,
    device: Option<Device>,
}

impl Waiting {
    pub fn push<const D: usize>(&mut self, x: Tensor<D>) {
        self.device.get_or_insert_with(|| x.device());
        self.tensors.push(Input::new(x).value);
    }

    /// Numbers whose sum is that of all squares.
    pub fn sums(self) -> Option<Tensor<1>> {
        let device = self.device?;
        let parts = |x: &Primitive| n_parts(x.shape().num_elements());
        let n: usize = self.tensors.iter().map(parts).sum();
        let mut sums = Input::new(Tensor::<1>::empty([n], &device)).value;
        let mut place = 0;
        for group in self.tensors.chunks(GROUP) {
            let [x0, x1, x2, x3, x4, x5] = std::array::from_fn(|i| group.get(i).unwrap_or(&group[0]).clone());
            sums = Cube::squared_parts(sums, place, group.len(), x0, x1, x2, x3, x4, x5);
            place += group.iter().map(parts).sum::<usize>();
        }
        Some(untracked(sums))
    }
}

#[cfg(all(test, feature = "flex", feature = "wgpu"))]
mod tests {
    use crate::cube::agreement::{assert_agree, wave};
    use crate::{SquaredSums, squared_sum};
    use burn::tensor::{Tensor, TensorData, Tolerance};

    #[test]
    fn sums_of_squares_in_one_and_in_two_launches() {
        for n in [1, 7, 33, 256, 1_030, 16_384, 16_385, 70_000] {
            assert_agree(Tolerance::rel_abs(1e-4, 1e-6), |device| {
                let x = Tensor::<1>::from_data(wave(n, 1.0, 0.0).as_slice(), &device.clone().inner());
                vec![squared_sum(x).into_data()]
            });
        }
    }

    #[test]
    fn many_tensors_of_all_sizes_and_orders() {
        for n_tensors in [1, 5, 6, 14] {
            assert_agree(Tolerance::rel_abs(1e-4, 1e-6), |device| {
                let device = device.clone().inner();
                let mut sums = SquaredSums::default();
                for i in 0..n_tensors {
                    let n = [1, 33, 16_385, 40_000][i % 4] * (i / 4 + 1);
                    let x = Tensor::<1>::from_data(wave(n, i as f32, 0.0).as_slice(), &device);
                    match i % 2 {
                        0 => sums.push(x),
                        _ => sums.push(x.reshape([i / 4 + 1, n / (i / 4 + 1)]).transpose()),
                    }
                }
                vec![TensorData::from([sums.total() as f32])]
            });
        }
    }
}
