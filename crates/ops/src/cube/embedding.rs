//! The gradient of embedding look-up, by sorted tokens.
//!
//! Tokens are stably sorted by id: each token's rank is the number of tokens before it, found by comparing
//! all pairs. That is cheap up to some hundred thousand tokens (16,384 tokens: 2.7e8 comparisons) and needs
//! one launch and no atomics. Then a cube handles 32 columns of an occurring id: its rows are adjacent in the
//! order, are read once, and added in a fixed order to the table's gradient; other rows are not touched.
//! burn's own gradient iterates over all tokens in each column, with all columns in parallel.
//!
//! An out-of-range id is ignored.

use super::reduce::{COLUMNS, lane_sum};
use super::{Input, arg, cubes, dense, dim, empty, integers, output, owned, rows, tracked, units};
use burn::backend::{Backend, Cube, backend_extension};
use burn::tensor::{DType, FloatDType, Int, Tensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_backend::ops::{FloatTensorOps, ModuleOps};
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeBackend;
use cubecl::prelude::*;

/// The token at each position of the sorted order.
#[cube(launch)]
fn order_kernel<I: Numeric>(ids: &[I], order: &mut [u32], n: usize, #[define(I)] _id_type: ElemType) {
    let i = ABSOLUTE_POS;
    if i >= n {
        terminate!();
    }
    let id = i32::cast_from(ids[i]);
    let mut before = 0u32;
    let mut j = 0usize;
    while j < n {
        let other = i32::cast_from(ids[j]);
        if other < id || (other == id && j < i) {
            before += 1u32;
        }
        j += 1;
    }
    order[usize::cast_from(before)] = u32::cast_from(i);
}

/// Adds the rows of each occurring id to its row of the table. Among the cubes, one per position of the
/// order, those at an id's first position work.
#[cube(launch)]
fn add_kernel<I: Numeric>(
    table: &mut [f32],
    gradient: &[f32],
    ids: &[I],
    order: &[u32],
    n: usize,
    n_rows: usize,
    width: usize,
    tiles: usize,
    #[comptime] lanes: usize,
    #[define(I)] _id_type: ElemType,
) {
    let place = CUBE_POS / tiles;
    let tile = CUBE_POS % tiles;
    if place >= n {
        terminate!();
    }
    let id = i32::cast_from(ids[usize::cast_from(order[place])]);
    if id < 0i32 || id >= i32::cast_from(n_rows) {
        terminate!();
    }
    if place > 0 {
        if i32::cast_from(ids[usize::cast_from(order[place - 1])]) == id {
            terminate!();
        }
    }
    let lane = UNIT_POS as usize / COLUMNS;
    let column = tile * COLUMNS + UNIT_POS as usize % COLUMNS;
    let mut sum = 0.0f32;
    let mut at = place + lane;
    let mut goes_on = column < width && at < n;
    while goes_on {
        let token = usize::cast_from(order[at]);
        if i32::cast_from(ids[token]) == id {
            sum += gradient[token * width + column];
            at += lanes;
            goes_on = at < n;
        } else {
            goes_on = false;
        }
    }
    let sum = lane_sum(sum, lanes);
    if lane == 0 && column < width {
        table[usize::cast_from(id) * width + column] += sum;
    }
}

#[backend_extension(Cube, Fusion)]
pub(crate) trait Tables: Backend {
    /// The table with each token's row of the gradient added to the row of its id.
    #[fusion(dtype = table, shape = table)]
    fn add_rows(
        table: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        ids: IntTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl Tables for CubeBackend {
    fn add_rows(
        table: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        ids: IntTensor<Self>,
    ) -> FloatTensor<Self> {
        let table = owned(table);
        let [gradient, ids] = [gradient, ids].map(dense);
        let client = table.client.clone();
        let (n_rows, width) = rows(&table);
        let n = ids.meta.num_elements();
        let dtype = dtype_to_storage_type(ids.dtype);
        let order = empty(&table, [n], DType::U32);
        let (count, per_cube) = super::elements(&client, n);
        order_kernel::launch(&client, count, per_cube, arg(&ids), arg(&order), n, dtype);
        let tiles = width.div_ceil(COLUMNS);
        let units = units(&client, 256);
        add_kernel::launch(
            &client,
            cubes(&client, n * tiles),
            dim(units),
            arg(&table),
            arg(&gradient),
            arg(&ids),
            arg(&order),
            n,
            n_rows,
            width,
            tiles,
            units / COLUMNS,
            dtype,
        );
        table
    }
}

#[derive(Debug)]
struct Embedding;

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    table: FloatTensor<Autodiff<Cube>>,
    ids: IntTensor<Cube>,
}

impl Backward<Cube, 1> for Embedding {
    type State = State;

    fn backward(self, ops: Ops<State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Cube>(&ops.node);
        let State { table, ids } = ops.state;
        let [Some(parent)] = ops.parents else {
            return;
        };
        // A table that is the output layer's matrix too, the largest of a model, has a gradient by now: the rows are
        // added to it, and not all of it to theirs.
        let total = grads.remove::<Cube>(&table).unwrap_or_else(|| {
            let table = table.primitive();
            Cube::float_zeros(table.shape(), &table.device(), FloatDType::F32)
        });
        grads.register::<Cube>(parent.id, Cube::add_rows(total, gradient, ids));
    }
}

pub(crate) fn embedding(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    let ids = integers(ids);
    let tracked = tracked(&weight);
    let Input { value: weight, node } = Input::new(weight);
    let y = Cube::embedding(weight, ids.clone());
    output(Embedding, [node], y, || State { table: tracked.expect("a node has a tensor"), ids })
}

#[cfg(all(test, feature = "flex", feature = "wgpu"))]
mod tests {
    use crate::cube::agreement::{assert_agree, leaf};
    use crate::embedding;
    use burn::tensor::{Int, Tensor, TensorData, Tolerance};

    #[test]
    fn gradients_of_rare_and_frequent_tokens() {
        // Of the last, one number occurs 280 times in 300.
        for (n, d, batch, len) in [(1, 1, 1, 1), (11, 5, 3, 40), (300, 33, 2, 70), (9, 70, 3, 100)] {
            let ids: Vec<i32> = (0..batch * len)
                .map(|i| if n == 9 && i % 15 != 0 { 4 } else { (i * i % n) as i32 })
                .collect();
            assert_agree(Tolerance::rel_abs(1e-4, 1e-4), |device| {
                let table = leaf(n * d, 0.2, 0.0, device);
                let ids = TensorData::new(ids.clone(), [batch, len]);
                let y = embedding(table.clone().reshape([n, d]), Tensor::<2, Int>::from_data(ids, device));
                let grads = (y.clone() * y.clone().sin()).sum().backward();
                vec![y.into_data(), table.grad(&grads).unwrap().into_data()]
            });
        }
    }

    #[test]
    fn a_table_that_is_the_output_layer_too_has_the_sum_of_both_gradients() {
        assert_agree(Tolerance::rel_abs(1e-4, 1e-4), |device| {
            let table = leaf(11 * 5, 0.2, 0.0, device).reshape([11, 5]).detach().require_grad();
            let ids = Tensor::<2, Int>::from_data([[3, 0, 3, 10], [1, 3, 7, 7]], device);
            let states = embedding(table.clone(), ids);
            let logits = states.matmul(table.clone().transpose().unsqueeze());
            let grads = logits.clone().sin().sum().backward();
            vec![logits.into_data(), table.grad(&grads).unwrap().into_data()]
        });
    }
}
