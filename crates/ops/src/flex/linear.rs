//! Linear maps: one matrix product each way and for the weight's gradient.

pub(crate) use super::gemm::Packed;
use super::gemm::{Begin, Matrix, Product, Target};
use super::pages::give_back;
use super::vector::vectorised;
use super::{Input, dense, filled, op, output, rows, tensor, values};
use crate::Precision;
use burn::tensor::{DType, Device, Shape, Tensor, TensorData};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor, Layout};
use burn_std::Bytes;
use rayon::prelude::*;

impl Matrix {
    /// A tensor of two axes with any strides.
    pub(super) fn strided(x: &FlexTensor) -> Self {
        let (layout, storage) = (x.layout(), x.storage::<f32>());
        let start = storage[layout.start_offset()..].as_ptr();
        Self { start, row: layout.strides()[0], column: layout.strides()[1] }
    }
}

/// Rows summed per task: fixed, so that sums do not depend on the number of threads.
const SUMMED: usize = 64;

vectorised! {
    /// Adds the rows to their sum.
    fn add_rows(x: &[f32], total: &mut [f32]) {
        for row in x.chunks_exact(total.len().max(1)) {
            for (total, x) in total.iter_mut().zip(row) {
                *total += x;
            }
        }
    }
}

/// The sum of the rows.
pub(super) fn sum_rows(x: &[f32], width: usize) -> Vec<f32> {
    let sum = |x: &[f32]| {
        let mut total = vec![0.0; width];
        add_rows(x, &mut total);
        total
    };
    sum(&x.par_chunks((SUMMED * width).max(1)).flat_map_iter(sum).collect::<Vec<f32>>())
}

#[derive(Debug, Clone)]
struct State {
    x: FlexTensor,
    /// `[d_in, d_out]`
    weight: FlexTensor,
    /// Whether the parent is `[d_out, d_in]`.
    transposed: bool,
    precision: Precision,
}

impl State {
    /// Operations of the wanted backward products.
    fn flops(&self, gradient: &FlexTensor, wanted: [bool; 2]) -> usize {
        let (n_tokens, d_out) = rows(gradient);
        let (_, d_in) = rows(&self.x);
        wanted.into_iter().filter(|wanted| *wanted).count() * 2 * n_tokens * d_in * d_out
    }

    /// A product in the precision of the forward pass.
    fn product<'a>(&self, sizes: [usize; 3], target: Target, a: Matrix, b: Matrix) -> Product<'a> {
        Product { sizes, target, begin: Begin::Zero, a, b, precision: self.precision, parallel: true }
    }

    fn input_gradient(&self, gradient: &FlexTensor) -> FlexTensor {
        let (n_tokens, d_out) = rows(gradient);
        let (_, d_in) = rows(&self.x);
        // SAFETY: the product writes all of `[n_tokens, d_in]`; sizes are those of the forward pass.
        let dx = unsafe {
            filled(n_tokens * d_in, |dx| {
                let gradient = Matrix::dense(values(gradient), d_out);
                let weight = Matrix::strided(&self.weight).transposed();
                let target = Target::dense(dx.as_mut_ptr().cast(), d_in);
                self.product([n_tokens, d_out, d_in], target, gradient, weight).run();
            })
        };
        tensor(dx, self.x.layout().shape().clone())
    }

    /// The weight's gradient in the weight's own memory order, so that a transposed view's gradient is
    /// not strided.
    fn weight_gradient(&self, gradient: &FlexTensor) -> FlexTensor {
        let (n_tokens, d_out) = rows(gradient);
        let (_, d_in) = rows(&self.x);
        let by_column = self.weight.layout().strides()[0] < self.weight.layout().strides()[1];
        let strides = if by_column { (1, d_in as isize) } else { (d_out as isize, 1) };
        // SAFETY: the product writes all of `[d_in, d_out]`.
        let dw = unsafe {
            filled(d_in * d_out, |dw| {
                let x = Matrix::dense(values(&self.x), d_in).transposed();
                let gradient = Matrix::dense(values(gradient), d_out);
                let target = Target { start: dw.as_mut_ptr().cast(), row: strides.0, column: strides.1 };
                self.product([d_in, n_tokens, d_out], target, x, gradient).run();
            })
        };
        let layout = Layout::new(Shape::new([d_in, d_out]), vec![strides.0, strides.1], 0);
        let dw = FlexTensor::new(Bytes::from_elems(dw), layout, DType::F32);
        if self.transposed { dw.transpose(0, 1) } else { dw }
    }
}

/// Registers the gradients of `x`, the weight and the optional bias, if tracked.
fn backward<const N: usize>(ops: Ops<State, N>, grads: &mut Gradients) {
    let gradient = dense(grads.consume::<Flex>(&ops.node));
    let [x, weight, bias] = [0, 1, 2].map(|parent| ops.parents.get(parent)?.as_ref());
    op!("linear_backward", ops.state.flops(&gradient, [x.is_some(), weight.is_some()]));
    if let Some(bias) = bias {
        let (_, d_out) = rows(&gradient);
        grads.register::<Flex>(bias.id, tensor(sum_rows(values(&gradient), d_out), Shape::new([d_out])));
    }
    if let Some(weight) = weight {
        grads.register::<Flex>(weight.id, ops.state.weight_gradient(&gradient));
    }
    if let Some(x) = x {
        grads.register::<Flex>(x.id, ops.state.input_gradient(&gradient));
    }
}

#[derive(Debug)]
struct Linear;

impl Backward<Flex, 2> for Linear {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        backward(ops, grads);
    }
}

#[derive(Debug)]
struct LinearWithBias;

impl Backward<Flex, 3> for LinearWithBias {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        backward(ops, grads);
    }
}

/// The weight is `[d_in, d_out]`, or `[d_out, d_in]` if `transposed`.
pub(crate) fn linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    transposed: bool,
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let mut shape = x.dims();
    let (x, mut weight) = (Input::dense(x), Input::strided(weight));
    if transposed {
        weight.value = weight.value.transpose(0, 1);
    }
    let [d_in, d_out] = [0, 1].map(|axis| weight.value.layout().shape()[axis]);
    assert_eq!(shape[D - 1], d_in, "the weight takes another width than x has");
    let bias = bias.map(Input::dense);
    let precision = Precision::current();
    let n_tokens = shape.iter().product::<usize>() / d_in.max(1);
    op!("linear", 2 * n_tokens * d_in * d_out);
    // SAFETY: the product writes all of `[n_tokens, d_out]`.
    let y = unsafe {
        filled(n_tokens * d_out, |y| {
            Product {
                sizes: [n_tokens, d_in, d_out],
                target: Target::dense(y.as_mut_ptr().cast(), d_out),
                begin: bias.as_ref().map_or(Begin::Zero, |bias| Begin::Row(values(&bias.value))),
                a: Matrix::dense(values(&x.value), d_in),
                b: Matrix::strided(&weight.value),
                precision,
                parallel: true,
            }
            .run();
        })
    };
    shape[D - 1] = d_out;
    let y = tensor(y, Shape::from(shape.to_vec()));
    let state = || State { x: x.value, weight: weight.value, transposed, precision };
    match bias {
        Some(bias) => output(LinearWithBias, [x.node, weight.node, bias.node], y, state),
        None => output(Linear, [x.node, weight.node], y, state),
    }
}

/// A weight `[d_in, d_out]` in the panels of this machine's kernel for the precision, if it is one of ours.
pub(crate) fn packed(weight: &Tensor<2>, precision: Precision) -> Option<Packed> {
    let weight = Input::strided(weight.clone()).value;
    let sizes = [0, 1].map(|axis| weight.layout().shape()[axis]);
    // SAFETY: the tensor has its size.
    unsafe { Packed::new(Matrix::strided(&weight), sizes, precision) }
}

/// Drops a weight. If nobody else holds it, the system has its memory at once.
pub(crate) fn let_go(weight: Tensor<2>) {
    let mut weight = Input::strided(weight).value;
    if let Some(values) = weight.try_storage_mut::<f32>() {
        give_back(values);
    }
}

/// The weight `[d_in, d_out]` that was packed; `None` if it was rounded.
pub(crate) fn unpacked(packed: &Packed, sizes: [usize; 2], device: &Device) -> Option<Tensor<2>> {
    Some(Tensor::from_data(TensorData::new(packed.unpacked(sizes)?, sizes), device))
}

/// [`linear`] with a packed weight `[d_in, d_out]`; without gradients.
pub(crate) fn linear_packed<const D: usize>(
    x: Tensor<D>,
    packed: &Packed,
    [d_in, d_out]: [usize; 2],
    bias: Option<Tensor<1>>,
) -> Tensor<D> {
    let mut shape = x.dims();
    let x = Input::dense(x).value;
    let bias = bias.map(|bias| Input::dense(bias).value);
    let n_tokens = shape.iter().product::<usize>() / d_in.max(1);
    op!("linear", 2 * n_tokens * d_in * d_out);
    // SAFETY: the product writes all of `[n_tokens, d_out]`.
    let y = unsafe {
        filled(n_tokens * d_out, |y| {
            packed.run(Product {
                sizes: [n_tokens, d_in, d_out],
                target: Target::dense(y.as_mut_ptr().cast(), d_out),
                begin: bias.as_ref().map_or(Begin::Zero, |bias| Begin::Row(values(bias))),
                a: Matrix::dense(values(&x), d_in),
                b: Matrix::unread(),
                precision: Precision::current(),
                parallel: true,
            });
        })
    };
    shape[D - 1] = d_out;
    Tensor::from_primitive::<Flex>(tensor(y, Shape::from(shape.to_vec())))
}
