//! Sums over the units of a cube, and over all elements of a tensor.

use super::{arg, cubes, dense, dim, empty, floats, units};
use burn::backend::{Backend, Cube, backend_extension};
use burn::tensor::{DType, Tensor};
use burn_backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// The sum of every unit's value, in all units: halves of the cube are added pairwise, in a fixed order.
///
/// `scratch` has room for a value of each unit, and may be used again at once.
#[cube]
pub(crate) fn cube_sum(value: f32, scratch: &mut Shared<[f32]>, #[comptime] units: usize) -> f32 {
    let unit = UNIT_POS as usize;
    scratch[unit] = value;
    sync_cube();
    let levels = comptime!(units.ilog2() as usize);
    #[unroll]
    for level in 0..levels {
        let half = comptime!(units >> (level + 1));
        if unit < half {
            let other = scratch[unit + half];
            scratch[unit] += other;
        }
        sync_cube();
    }
    let sum = scratch[0];
    sync_cube();
    sum
}

/// Columns to a cube that sums columns, a unit each; its other units share the rows.
pub(crate) const COLUMNS: usize = 32;

/// The sum of the values of the `lanes` units of each column, in those of the first lane, in a fixed order; elsewhere
/// it is zero.
#[cube]
pub(crate) fn lane_sum(value: f32, #[comptime] lanes: usize) -> f32 {
    let mut scratch = Shared::<[f32]>::new_slice(comptime!(lanes * COLUMNS));
    let unit = UNIT_POS as usize;
    scratch[unit] = value;
    sync_cube();
    let mut total = 0.0f32;
    if unit < COLUMNS {
        #[unroll]
        for lane in 0..lanes {
            total += scratch[unit + lane * COLUMNS];
        }
    }
    total
}

/// Elements that a cube sums: a few dozen to a unit. Fixed, so that the order of the sums is.
const PART: usize = 16 << 10;

/// Each cube's sum of its part of the elements, or of their squares.
#[cube(launch)]
fn sum_parts(
    x: &[f32],
    sums: &mut [f32],
    n: usize,
    part: usize,
    #[comptime] squared: bool,
    #[comptime] units: usize,
) {
    let first = CUBE_POS * part;
    if first >= n {
        terminate!();
    }
    let last = min(first + part, n);
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
    let mut scratch = Shared::<[f32]>::new_slice(units);
    let sum = cube_sum(sum, &mut scratch, units);
    if UNIT_POS == 0 {
        sums[CUBE_POS] = sum;
    }
}

/// `Σ x²` by one launch for up to 16,384 elements, two for up to 268 million: each element is read once.
fn launch_squared_sum(x: CubeTensor) -> CubeTensor {
    let mut x = dense(x);
    let client = x.client.clone();
    let mut squared = true;
    loop {
        let n = x.meta.num_elements();
        let n_parts = n.div_ceil(PART);
        let units = units(&client, n.min(PART));
        let sums = empty(&x, [n_parts], DType::F32);
        sum_parts::launch(
            &client,
            cubes(&client, n_parts),
            dim(units),
            arg(&x),
            arg(&sums),
            n,
            PART,
            squared,
            units,
        );
        if n_parts == 1 {
            return sums;
        }
        (x, squared) = (sums, false);
    }
}

#[backend_extension(Cube, Fusion)]
pub(crate) trait Sums: Backend {
    #[fusion(meta = |_x| floats([1]))]
    fn squared_sum(x: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl Sums for CubeBackend {
    fn squared_sum(x: FloatTensor<Self>) -> FloatTensor<Self> {
        launch_squared_sum(x)
    }
}

pub(crate) fn squared_sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let x = x.try_into_primitive::<Cube>().expect(super::TAKEN);
    super::untracked(Cube::squared_sum(x))
}

#[cfg(all(test, feature = "flex", feature = "wgpu"))]
mod tests {
    use crate::cube::agreement::{assert_agree, wave};
    use crate::squared_sum;
    use burn::tensor::{Tensor, Tolerance};

    #[test]
    fn sums_of_squares_in_one_and_in_two_launches() {
        for n in [1, 7, 33, 256, 1_030, 16_384, 16_385, 70_000] {
            assert_agree(Tolerance::rel_abs(1e-4, 1e-6), |device| {
                let x = Tensor::<1>::from_data(wave(n, 1.0, 0.0).as_slice(), &device.clone().inner());
                vec![squared_sum(x).into_data()]
            });
        }
    }
}
