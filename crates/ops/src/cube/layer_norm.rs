//! Layer normalisation, optionally with the preceding dropout and residual connection.
//!
//! Forward, a cube handles a row: mean, variance, result (Ba et al. 2016, eq. 4). A row is read once from
//! device memory and twice more from cache. Backward, a cube handles a block of rows sequentially,
//! accumulating the gradients of scale and shift per column; a second kernel adds up the blocks' sums. So
//! each pass reads its inputs once and writes its results once; the normalised tensor and two numbers per row
//! are kept.

use super::dropout::Mask;
use super::random::{draw_seed, factor, scale, threshold};
use super::reduce::{COLUMNS, cube_sum, lane_sum};
use super::{
    Input, Primitive, arg, cubes, dense, dim, empty, empty_like, floats, output, register, rows, units,
};
use burn::backend::fusion::custom::TensorSpec;
use burn::backend::{Backend, Cube, backend_extension};
use burn::tensor::{DType, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// A row's result, mean and inverse standard deviation.
#[cube]
fn norm_row(
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    y: &mut [f32],
    statistics: &mut [f32],
    row: usize,
    width: usize,
    epsilon: f32,
    #[comptime] units: usize,
) {
    let mut scratch = Shared::<[f32]>::new_slice(units);
    let start = row * width;
    let unit = UNIT_POS as usize;
    let n = f32::cast_from(width);

    let mut sum = 0.0f32;
    let mut column = unit;
    while column < width {
        sum += x[start + column];
        column += units;
    }
    let mean = cube_sum(sum, &mut scratch, units) / n;

    let mut squares = 0.0f32;
    let mut column = unit;
    while column < width {
        let deviation = x[start + column] - mean;
        squares += deviation * deviation;
        column += units;
    }
    let variance = cube_sum(squares, &mut scratch, units) / n;
    let inverse = 1.0f32 / (variance + epsilon).sqrt();

    let mut column = unit;
    while column < width {
        y[start + column] = (x[start + column] - mean) * inverse * gamma[column] + beta[column];
        column += units;
    }
    if unit == 0 {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = inverse;
    }
}

#[cube(launch)]
fn norm_kernel(
    x: &[f32],
    gamma: &[f32],
    beta: &[f32],
    y: &mut [f32],
    statistics: &mut [f32],
    rows: usize,
    width: usize,
    epsilon: f32,
    #[comptime] units: usize,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    norm_row(x, gamma, beta, y, statistics, row, width, epsilon, units);
}

/// Tensors of [`add_norm_kernel`] and of [`add_backward_kernel`].
pub(crate) const BUFFERS: u32 = 8;

/// The same for `total = residual + dropout(x)`. A unit rereads only what it wrote itself.
#[cube(launch)]
fn add_norm_kernel(
    x: &[f32],
    residual: &[f32],
    seed: &[f32],
    total: &mut [f32],
    rows: usize,
    width: usize,
    threshold: u32,
    scale: f32,
    #[comptime] drops: bool,
    #[comptime] units: usize,
    gamma: &[f32],
    beta: &[f32],
    y: &mut [f32],
    statistics: &mut [f32],
    epsilon: f32,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut column = UNIT_POS as usize;
    while column < width {
        let i = row * width + column;
        if comptime!(drops) {
            total[i] = residual[i] + x[i] * factor(seed, i, threshold, scale);
        } else {
            total[i] = residual[i] + x[i];
        }
        column += units;
    }
    norm_row(&*total, gamma, beta, y, statistics, row, width, epsilon, units);
}

/// Blocks of rows: enough for every processor of a large device, few enough for cheap summation.
const BLOCKS: usize = 512;

/// Backward pass of a block of rows. From the gradient `g` of the result, with `x̂` the normalised row: the
/// row's gradient `(g·γ − mean(g·γ) − x̂·mean(g·γ·x̂)) / σ`, and the block's sums of `g·x̂` and `g`.
#[cube]
fn backward_block(
    gradient: &[f32],
    input: &[f32],
    gamma: &[f32],
    statistics: &[f32],
    input_gradient: &mut [f32],
    parts: &mut [f32],
    first: usize,
    last: usize,
    width: usize,
    #[comptime] units: usize,
    #[comptime] columns: usize,
) {
    let mut scratch = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    let n = f32::cast_from(width);
    let mut gamma_sums = Array::<f32>::new(columns);
    let mut beta_sums = Array::<f32>::new(columns);
    #[unroll]
    for j in 0..columns {
        gamma_sums[j] = 0.0f32;
        beta_sums[j] = 0.0f32;
    }
    let mut row = first;
    while row < last {
        let start = row * width;
        let mean = statistics[2 * row];
        let inverse = statistics[2 * row + 1];
        let mut a = 0.0f32;
        let mut b = 0.0f32;
        #[unroll]
        for j in 0..columns {
            let column = unit + j * units;
            if column < width {
                let scaled = gradient[start + column] * gamma[column];
                a += scaled;
                b += scaled * ((input[start + column] - mean) * inverse);
            }
        }
        let a = cube_sum(a, &mut scratch, units) / n;
        let b = cube_sum(b, &mut scratch, units) / n;
        #[unroll]
        for j in 0..columns {
            let column = unit + j * units;
            if column < width {
                let i = start + column;
                let own = gradient[i];
                let normed = (input[i] - mean) * inverse;
                gamma_sums[j] += own * normed;
                beta_sums[j] += own;
                input_gradient[i] = inverse * (own * gamma[column] - a - normed * b);
            }
        }
        row += 1;
    }
    let start = CUBE_POS * 2 * width;
    #[unroll]
    for j in 0..columns {
        let column = unit + j * units;
        if column < width {
            parts[start + column] = gamma_sums[j];
            parts[start + width + column] = beta_sums[j];
        }
    }
}

#[cube(launch)]
fn backward_kernel(
    gradient: &[f32],
    input: &[f32],
    gamma: &[f32],
    statistics: &[f32],
    input_gradient: &mut [f32],
    parts: &mut [f32],
    rows: usize,
    width: usize,
    rows_per_cube: usize,
    #[comptime] units: usize,
    #[comptime] columns: usize,
) {
    let first = CUBE_POS * rows_per_cube;
    if first >= rows {
        terminate!();
    }
    let last = min(first + rows_per_cube, rows);
    backward_block(
        gradient,
        input,
        gamma,
        statistics,
        input_gradient,
        parts,
        first,
        last,
        width,
        units,
        columns,
    );
}

/// The same with dropout on `x` before the addition: the gradients of the residual and of `x`. A unit rereads
/// only what it wrote itself.
#[cube(launch)]
fn add_backward_kernel(
    gradient: &[f32],
    input: &[f32],
    gamma: &[f32],
    statistics: &[f32],
    seed: &[f32],
    input_gradient: &mut [f32],
    parts: &mut [f32],
    dropped: &mut [f32],
    rows: usize,
    width: usize,
    rows_per_cube: usize,
    threshold: u32,
    scale: f32,
    #[comptime] units: usize,
    #[comptime] columns: usize,
) {
    let first = CUBE_POS * rows_per_cube;
    if first >= rows {
        terminate!();
    }
    let last = min(first + rows_per_cube, rows);
    backward_block(
        gradient,
        input,
        gamma,
        statistics,
        input_gradient,
        parts,
        first,
        last,
        width,
        units,
        columns,
    );
    let mut row = first;
    while row < last {
        let mut column = UNIT_POS as usize;
        while column < width {
            let i = row * width + column;
            dropped[i] = input_gradient[i] * factor(seed, i, threshold, scale);
            column += units;
        }
        row += 1;
    }
}

/// The blocks' sums added up, of scale and shift.
#[cube(launch)]
fn parts_kernel(
    parts: &[f32],
    gamma_gradient: &mut [f32],
    beta_gradient: &mut [f32],
    blocks: usize,
    width: usize,
    #[comptime] lanes: usize,
) {
    let lane = UNIT_POS as usize / COLUMNS;
    let column = CUBE_POS * COLUMNS + UNIT_POS as usize % COLUMNS;
    let mut sum = 0.0f32;
    if column < 2 * width {
        let mut block = lane;
        while block < blocks {
            sum += parts[block * 2 * width + column];
            block += lanes;
        }
    }
    let sum = lane_sum(sum, lanes);
    if lane == 0 && column < 2 * width {
        if column < width {
            gamma_gradient[column] = sum;
        } else {
            beta_gradient[column - width] = sum;
        }
    }
}

/// Two numbers per row of `x`.
fn statistics_of(x: &TensorSpec) -> TensorSpec {
    let width = x.shape[x.shape.num_dims() - 1];
    floats([x.shape.num_elements() / width.max(1), 2])
}

#[backend_extension(Cube, Fusion)]
pub(crate) trait Norms: Backend {
    /// The result, and its rows' means and inverse standard deviations.
    #[fusion(meta = |x, _gamma, _beta, _epsilon| (x.clone(), statistics_of(x)))]
    fn norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The same for the sum with a residual, and the sum. At probability 0 nothing is dropped and the seed is
    /// ignored.
    #[fusion(meta = |x, _residual, _seed, _gamma, _beta, _prob, _epsilon| {
        (x.clone(), statistics_of(x), x.clone())
    })]
    fn add_norm(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        seed: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        prob: f64,
        epsilon: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// The gradients of the input, the scale and the shift.
    #[fusion(meta = |_gradient, input, gamma, _statistics| (input.clone(), gamma.clone(), gamma.clone()))]
    fn norm_backward(
        gradient: FloatTensor<Self>,
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// The same after dropout and residual addition: the gradients of `x`, the residual, the scale and the
    /// shift.
    #[fusion(meta = |_gradient, input, gamma, _statistics, _seed, _prob| {
        (input.clone(), input.clone(), gamma.clone(), gamma.clone())
    })]
    fn add_norm_backward(
        gradient: FloatTensor<Self>,
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
        seed: FloatTensor<Self>,
        prob: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

impl Norms for CubeBackend {
    fn norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let [x, gamma, beta] = [x, gamma, beta].map(dense);
        let (n_rows, width) = rows(&x);
        let units = units(&x.client, width);
        let y = empty_like(&x);
        let statistics = empty(&x, [n_rows, 2], DType::F32);
        norm_kernel::launch(
            &x.client,
            cubes(&x.client, n_rows),
            dim(units),
            arg(&x),
            arg(&gamma),
            arg(&beta),
            arg(&y),
            arg(&statistics),
            n_rows,
            width,
            epsilon,
            units,
        );
        (y, statistics)
    }

    fn add_norm(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        seed: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        prob: f64,
        epsilon: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [x, residual, gamma, beta] = [x, residual, gamma, beta].map(dense);
        // A kernel's tensors are different ones where one is not read.
        let seed = if prob > 0.0 { dense(seed) } else { empty(&x, [2], DType::F32) };
        let (n_rows, width) = rows(&x);
        let units = units(&x.client, width);
        let [total, y] = [(); 2].map(|()| empty_like(&x));
        let statistics = empty(&x, [n_rows, 2], DType::F32);
        add_norm_kernel::launch(
            &x.client,
            cubes(&x.client, n_rows),
            dim(units),
            arg(&x),
            arg(&residual),
            arg(&seed),
            arg(&total),
            n_rows,
            width,
            threshold(prob),
            scale(prob),
            prob > 0.0,
            units,
            arg(&gamma),
            arg(&beta),
            arg(&y),
            arg(&statistics),
            epsilon,
        );
        (y, statistics, total)
    }

    fn norm_backward(
        gradient: FloatTensor<Self>,
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [gradient, input, gamma, statistics] = [gradient, input, gamma, statistics].map(dense);
        let Blocks { rows, width, rows_per_cube, blocks, units } = Blocks::of(&input);
        let input_gradient = empty_like(&input);
        let parts = empty(&input, [blocks, 2, width], DType::F32);
        backward_kernel::launch(
            &input.client,
            cubes(&input.client, blocks),
            dim(units),
            arg(&gradient),
            arg(&input),
            arg(&gamma),
            arg(&statistics),
            arg(&input_gradient),
            arg(&parts),
            rows,
            width,
            rows_per_cube,
            units,
            width.div_ceil(units),
        );
        let [gamma, beta] = sums_of(&parts, &gamma, blocks, width);
        (input_gradient, gamma, beta)
    }

    fn add_norm_backward(
        gradient: FloatTensor<Self>,
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
        seed: FloatTensor<Self>,
        prob: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [gradient, input, gamma, statistics] = [gradient, input, gamma, statistics].map(dense);
        let seed = dense(seed);
        let Blocks { rows, width, rows_per_cube, blocks, units } = Blocks::of(&input);
        let [input_gradient, dropped] = [(); 2].map(|()| empty_like(&input));
        let parts = empty(&input, [blocks, 2, width], DType::F32);
        add_backward_kernel::launch(
            &input.client,
            cubes(&input.client, blocks),
            dim(units),
            arg(&gradient),
            arg(&input),
            arg(&gamma),
            arg(&statistics),
            arg(&seed),
            arg(&input_gradient),
            arg(&parts),
            arg(&dropped),
            rows,
            width,
            rows_per_cube,
            threshold(prob),
            scale(prob),
            units,
            width.div_ceil(units),
        );
        let [gamma, beta] = sums_of(&parts, &gamma, blocks, width);
        (dropped, input_gradient, gamma, beta)
    }
}

/// How a backward pass is split up.
struct Blocks {
    rows: usize,
    width: usize,
    rows_per_cube: usize,
    blocks: usize,
    units: usize,
}

impl Blocks {
    fn of(input: &CubeTensor) -> Self {
        let (rows, width) = rows(input);
        let rows_per_cube = rows.div_ceil(BLOCKS);
        let blocks = rows.div_ceil(rows_per_cube);
        Self { rows, width, rows_per_cube, blocks, units: units(&input.client, width) }
    }
}

/// The gradients of scale and shift, from the blocks' sums.
fn sums_of(parts: &CubeTensor, gamma: &CubeTensor, blocks: usize, width: usize) -> [CubeTensor; 2] {
    let [gamma, beta] = [(); 2].map(|()| empty_like(gamma));
    let client = &parts.client;
    let units = units(client, 256);
    parts_kernel::launch(
        client,
        cubes(client, (2 * width).div_ceil(COLUMNS)),
        dim(units),
        arg(parts),
        arg(&gamma),
        arg(&beta),
        blocks,
        width,
        units / COLUMNS,
    );
    [gamma, beta]
}

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    /// The normalised tensor: `x`, or its sum with the residual.
    input: Primitive,
    gamma: Primitive,
    statistics: Primitive,
    /// The preceding dropout's mask, if any.
    mask: Option<Mask>,
}

#[derive(Debug)]
struct LayerNorm;

impl Backward<Cube, 3> for LayerNorm {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Cube>(&ops.node);
        let State { input, gamma, statistics, .. } = ops.state.clone();
        let (x, gamma, beta) = Cube::norm_backward(gradient, input, gamma, statistics);
        register(grads, &ops, [x, gamma, beta]);
    }
}

#[derive(Debug)]
struct AddLayerNorm;

impl Backward<Cube, 4> for AddLayerNorm {
    type State = State;

    fn backward(self, ops: Ops<State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Cube>(&ops.node);
        let State { input, gamma, statistics, mask } = ops.state.clone();
        let (x, residual, gamma, beta) = match mask {
            Some((seed, prob)) => Cube::add_norm_backward(gradient, input, gamma, statistics, seed, prob),
            None => {
                let (residual, gamma, beta) = Cube::norm_backward(gradient, input, gamma, statistics);
                (residual.clone(), residual, gamma, beta)
            }
        };
        register(grads, &ops, [x, residual, gamma, beta]);
    }
}

fn assert_widths<const D: usize>(x: &Tensor<D>, gamma: &Tensor<1>, beta: &Tensor<1>) {
    let width = x.dims()[D - 1];
    assert_eq!(gamma.dims(), [width], "gamma has another width than x");
    assert_eq!(beta.dims(), [width], "beta has another width than x");
}

pub(crate) fn layer_norm<const D: usize>(
    x: Tensor<D>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> Tensor<D> {
    assert_widths(&x, &gamma, &beta);
    let (x, [gamma, beta]) = (Input::new(x), [gamma, beta].map(Input::new));
    let (y, statistics) = Cube::norm(x.value.clone(), gamma.value.clone(), beta.value, epsilon as f32);
    let state = || State { input: x.value, gamma: gamma.value, statistics, mask: None };
    output(LayerNorm, [x.node, gamma.node, beta.node], y, state)
}

/// `LN(residual + dropout(x))`
pub(crate) fn add_layer_norm<const D: usize>(
    x: Tensor<D>,
    (residual, prob): (Tensor<D>, f64),
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> Tensor<D> {
    assert_widths(&x, &gamma, &beta);
    assert_eq!(x.dims(), residual.dims(), "the residual has another shape than x");
    let mask = (prob > 0.0).then(|| (draw_seed(&x.device()), prob));
    let [x, residual] = [x, residual].map(Input::new);
    let [gamma, beta] = [gamma, beta].map(Input::new);
    let seed = mask.as_ref().map_or_else(|| beta.value.clone(), |(seed, _)| seed.clone());
    let (y, statistics, input) =
        Cube::add_norm(x.value, residual.value, seed, gamma.value.clone(), beta.value, prob, epsilon as f32);
    let state = || State { input, gamma: gamma.value, statistics, mask };
    output(AddLayerNorm, [x.node, residual.node, gamma.node, beta.node], y, state)
}

#[cfg(all(test, feature = "flex", feature = "wgpu"))]
mod tests {
    use crate::cube::agreement::{alone, assert_agree, device, leaf};
    use crate::{Residual, add_layer_norm, layer_norm};
    use burn::tensor::{Distribution, Tensor, Tolerance};

    #[test]
    fn rows_of_all_widths_forward_and_backward() {
        // The last has more rows than blocks.
        for (n, d) in [(1, 1), (3, 7), (5, 33), (40, 256), (9, 1_030), (1_030, 5)] {
            for with_residual in [false, true] {
                assert_agree(Tolerance::rel_abs(5e-4, 5e-4), |device| {
                    let x = leaf(n * d, 0.3, 0.1, device);
                    let input = leaf(n * d, 1.9, -0.2, device);
                    let (gamma, beta) = (leaf(d, 5.0, 1.0, device), leaf(d, 7.0, 0.0, device));
                    let [rows, inputs] = [&x, &input].map(|x| x.clone().reshape([1, n, d]));
                    let y = match with_residual {
                        true => {
                            let residual = Residual { input: inputs, dropout: 0.0 };
                            add_layer_norm(rows, residual, gamma.clone(), beta.clone(), 1e-5)
                        }
                        false => layer_norm(rows, gamma.clone(), beta.clone(), 1e-5),
                    };
                    let weights = leaf(n * d, 11.0, 0.0, device).reshape([1, n, d]);
                    let grads = (y.clone() * weights).sum().backward();
                    let mut all = vec![y.into_data()];
                    let leaves = [&x, &gamma, &beta].into_iter().chain(with_residual.then_some(&input));
                    all.extend(leaves.map(|x| x.grad(&grads).unwrap().into_data()));
                    all
                });
            }
        }
    }

    #[test]
    fn inputs_in_another_order_are_read_right() {
        assert_agree(Tolerance::rel_abs(1e-4, 1e-4), |device| {
            let x = leaf(7 * 33, 0.3, 0.1, device);
            let (gamma, beta) = (leaf(7, 5.0, 1.0, device), leaf(7, 7.0, 0.0, device));
            let y = layer_norm(x.clone().reshape([7, 33]).transpose(), gamma, beta, 1e-5);
            let weights = leaf(7 * 33, 11.0, 0.0, device).reshape([7, 33]).transpose();
            let grads = (y.clone() * weights).sum().backward();
            vec![y.into_data(), x.grad(&grads).unwrap().into_data()]
        });
    }

    #[test]
    fn dropout_in_front_is_the_same_forward_and_backward() {
        let _alone = alone();
        let device = device();
        device.seed(5);
        let x = Tensor::<2>::ones([64, 32], &device).require_grad();
        let input = Tensor::<2>::random([64, 32], Distribution::Default, &device).require_grad();
        let (gamma, beta) = (Tensor::ones([32], &device), Tensor::zeros([32], &device));
        let residual = Residual { input: input.clone(), dropout: 0.25 };
        let y = add_layer_norm(x.clone(), residual, gamma.clone(), beta.clone(), 1e-5);
        let grads = (y.clone() * Tensor::random([64, 32], Distribution::Default, &device)).sum().backward();
        let (dx, dinput) = (x.grad(&grads).unwrap(), input.grad(&grads).unwrap());
        let [x, input, gamma, beta] = [x, input, gamma.unsqueeze(), beta.unsqueeze()].map(Tensor::inner);
        let [gamma, beta] = [gamma, beta].map(|x: Tensor<2>| x.reshape([32]));
        // A gradient of the input passes the mask: none, or scaled by 4/3. The result is that of the mask.
        let factors = (dx / dinput).greater_elem(0.5).float() * (4.0 / 3.0);
        let expected = layer_norm(input + x * factors.clone(), gamma, beta, 1e-5);
        y.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-4));
        let dropped = factors.into_data().iter::<f32>().filter(|factor| *factor == 0.0).count();
        assert!((420..600).contains(&dropped), "{dropped} of 2048 dropped");
    }
}
