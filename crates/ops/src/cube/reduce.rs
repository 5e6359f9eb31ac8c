//! Sums over the units of a cube.

use cubecl::prelude::*;

/// The sum of every unit's value, in all units: halves of the cube are added pairwise, in a fixed order.
///
/// `scratch` has room for one value per unit, and may be reused at once.
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

/// Columns per cube in column sums, one unit each; the other units share the rows.
pub(crate) const COLUMNS: usize = 32;

/// The sum of the values of the `lanes` units of each column, in the units of the first lane, in a fixed
/// order; zero elsewhere.
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
