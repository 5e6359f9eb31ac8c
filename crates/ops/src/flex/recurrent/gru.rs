//! Gated recurrent units.

use super::super::gemm::{Matrix, Target};
use super::super::linear::sum_rows;
use super::super::vector::{sigmoid, tanh, vectorised};
use super::super::{Input, dense, filled, op, output, register, tensor, values, values_mut};
use super::lstm::add;
use super::{Plan, Rows, Weight, copy, part};
use crate::{Direction, GruOutput, Packing, Precision};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use std::mem::MaybeUninit;

vectorised! {
    /// Computes a row's gates and state from its sums. `sums` holds all of `r` and `z`, and the part of `n`
    /// multiplied by the reset gate, which is kept; `gates` holds the rest of `n`.
    pub(super) fn forward_row(
        sums: &[f32],
        gates: &mut [f32],
        kept: &mut [MaybeUninit<f32>],
        state: &mut [MaybeUninit<f32>],
        again: &mut [f32],
    ) {
        let d = again.len();
        let (r_sum, z_sum, n_sum) = (&sums[..d], &sums[d..][..d], &sums[2 * d..][..d]);
        let (r_gate, rest) = gates.split_at_mut(d);
        let (z_gate, n_gate) = rest.split_at_mut(d);
        let n_gate = &mut n_gate[..d];
        let (kept, state) = (&mut kept[..d], &mut state[..d]);
        for j in 0..d {
            let (r, z) = (sigmoid(r_sum[j]), sigmoid(z_sum[j]));
            let n = tanh(n_gate[j] + r * n_sum[j]);
            let h = n + z * (again[j] - n);
            (r_gate[j], z_gate[j], n_gate[j]) = (r, z, n);
            kept[j].write(n_sum[j]);
            state[j].write(h);
            again[j] = h;
        }
    }

    /// From the gates to the gradients of the inputs, from what was kept to its gradient, and from the state's gradient
    /// to the part of the state's before that does not go through the product. `sums` are the product's gradients.
    pub(super) fn backward_row(
        gates: &mut [f32],
        kept: &mut [f32],
        before: &[f32],
        gradient: &mut [f32],
        sums: &mut [f32],
    ) {
        let d = before.len();
        let (r_gate, rest) = gates.split_at_mut(d);
        let (z_gate, n_gate) = rest.split_at_mut(d);
        let n_gate = &mut n_gate[..d];
        let (r_sum, rest) = sums.split_at_mut(d);
        let (z_sum, n_sum) = rest.split_at_mut(d);
        let n_sum = &mut n_sum[..d];
        let (kept, gradient) = (&mut kept[..d], &mut gradient[..d]);
        for j in 0..d {
            let (r, z, n, u, dh) = (r_gate[j], z_gate[j], n_gate[j], kept[j], gradient[j]);
            let dn = dh * (1.0 - z) * (1.0 - n * n);
            let dr = dn * u * r * (1.0 - r);
            let dz = dh * (before[j] - n) * z * (1.0 - z);
            let du = dn * r;
            gradient[j] = dh * z;
            kept[j] = du;
            (r_gate[j], z_gate[j], n_gate[j]) = (dr, dz, dn);
            (r_sum[j], z_sum[j], n_sum[j]) = (dr, dz, du);
        }
    }
}

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    plan: Plan,
    /// `[n_tokens, 3·d]`
    gates: FlexTensor,
    /// `[d, 3·d]`
    weight: FlexTensor,
    /// The operation's output: states, last states.
    y: FlexTensor,
    /// `U h + b'` of the new states, `[n_tokens, d]`.
    kept: Vec<f32>,
    initial: Option<FlexTensor>,
    precision: Precision,
}

impl State {
    fn flops(&self) -> usize {
        4 * self.plan.n_tokens * self.plan.d * 3 * self.plan.d
    }

    /// The gradients of inputs, weight, bias and initial state.
    fn gradients(self, gradient: &FlexTensor) -> [FlexTensor; 4] {
        let Self { plan, mut gates, weight, y, mut kept, initial, precision } = self;
        let (d, n_tokens, n) = (plan.d, plan.n_tokens, plan.n_sequences);
        let dy = values(gradient);
        let states = values(&y);
        let zeros = vec![0.0; n * d];
        let first_states = initial.as_ref().map(values);
        let mut first = vec![0.0; n * d];
        let to_first = Rows::new(&mut first, d);
        let (to_gates, to_kept) = (Rows::new(values_mut(&mut gates), 3 * d), Rows::new(&mut kept, d));
        // SAFETY: the tensor has its size and outlives the steps.
        let back =
            unsafe { Weight::new(Matrix::strided(&weight).transposed(), [3 * d, d], precision, &plan) };
        plan.for_each_group(|group| {
            let mut sums = vec![0.0; group.len() * 3 * d];
            let mut gradients = vec![0.0; group.len() * d];
            for step in (0..group[0].len).rev() {
                let active = Plan::active(group, step);
                let (to_sums, to_states) = (Rows::new(&mut sums, 3 * d), Rows::new(&mut gradients, d));
                plan.for_each_row(active, |i| {
                    let row = &group[i];
                    let token = plan.token(row, step);
                    let before = plan.before(row, step, states, first_states.unwrap_or(&zeros));
                    // SAFETY: this row's, of this token.
                    unsafe {
                        let state = to_states.at(i);
                        if row.len == step + 1 {
                            state.copy_from_slice(&dy[(n_tokens + row.sequence) * d..][..d]);
                        }
                        add(&dy[token * d..][..d], state);
                        backward_row(to_gates.at(token), to_kept.at(token), before, state, to_sums.at(i));
                    }
                });
                if step > 0 || initial.is_some() {
                    back.multiply(active, &sums, true, &mut gradients);
                }
            }
            if initial.is_some() {
                for (row, gradient) in group.iter().zip(gradients.chunks_exact(d)) {
                    // SAFETY: each sequence is in one group.
                    unsafe { to_first.at(row.sequence).copy_from_slice(gradient) };
                }
            }
        });
        let before = plan.states_before(states, first_states);
        // SAFETY: the products write all of `[d, 3·d]`; the gates' gradients are `[n_tokens, 3·d]`, those of what was
        // kept `[n_tokens, d]`.
        let weight = unsafe {
            filled(d * 3 * d, |dw| {
                let target = Target::dense(dw.as_mut_ptr().cast(), 3 * d);
                let gradients = Matrix::dense(values(&gates), 3 * d);
                plan.weight_gradient(&before, gradients, 2 * d, target, precision);
                let target = Target { start: target.at(0, 2 * d), ..target };
                plan.weight_gradient(&before, Matrix::dense(&kept, d), d, target, precision);
            })
        };
        let bias = tensor(sum_rows(&kept, d), Shape::new([d]));
        [gates, tensor(weight, Shape::new([d, 3 * d])), bias, tensor(first, Shape::new([n, d]))]
    }
}

#[derive(Debug)]
struct Gru;

impl<const N: usize> Backward<Flex, N> for Gru {
    type State = State;

    fn backward(self, ops: Ops<State, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents, node, state } = ops;
        op!("gru_backward", state.flops());
        let gradients = state.gradients(&dense(grads.consume::<Flex>(&node)));
        register(grads, &Ops { parents, node, state: () }, gradients);
    }
}

pub(crate) fn gru(
    inputs: Tensor<2>,
    weight: Tensor<2>,
    bias: Tensor<1>,
    initial: Option<Tensor<2>>,
    packing: &Packing,
    direction: Direction,
) -> GruOutput {
    let [d, width] = weight.dims();
    let plan = Plan::new(packing, direction, [d, width]);
    let (n_tokens, n) = (plan.n_tokens, plan.n_sequences);
    op!("gru", 2 * n_tokens * d * width);
    let precision = Precision::current();
    // The gates take over the memory of what they are made of.
    let (mut gates, weight, bias) = (Input::dense(inputs), Input::strided(weight), Input::dense(bias));
    let (initial, initial_node) = match initial.map(Input::dense) {
        Some(initial) => (Some(initial.value), Some(initial.node)),
        None => (None, None),
    };
    let mut kept = Vec::new();
    let parameters = (&weight.value, values(&bias.value));
    let y = forward(&plan, &mut gates.value, parameters, initial.as_ref(), precision, &mut kept);
    let y = tensor(y, Shape::new([n_tokens + n, d]));
    let state = {
        let y = y.clone();
        move || State { plan, gates: gates.value, weight: weight.value, y, kept, initial, precision }
    };
    let all: Tensor<2> = match initial_node {
        Some(initial) => output(Gru, [gates.node, weight.node, bias.node, initial], y, state),
        None => output(Gru, [gates.node, weight.node, bias.node], y, state),
    };
    GruOutput { states: part(&all, 0, n_tokens), last: part(&all, n_tokens, n) }
}

/// States and last states; the inputs become gates.
fn forward(
    plan: &Plan,
    gates: &mut FlexTensor,
    (weight, bias): (&FlexTensor, &[f32]),
    initial: Option<&FlexTensor>,
    precision: Precision,
    kept: &mut Vec<f32>,
) -> Vec<f32> {
    let (d, n_tokens, n) = (plan.d, plan.n_tokens, plan.n_sequences);
    let first_states = initial.map(values);
    let gates = Rows::new(values_mut(gates), 3 * d);
    // SAFETY: the tensor has its size and outlives the steps.
    let weight = unsafe { Weight::new(Matrix::strided(weight), [d, 3 * d], precision, plan) };
    // SAFETY: the groups have all sequences, whose steps have all tokens: each row of both is written.
    unsafe {
        filled((n_tokens + n) * d, |y| {
            let y = Rows::new(y, d);
            *kept = filled(n_tokens * d, |kept| {
                let kept = Rows::new(kept, d);
                plan.for_each_group(|group| {
                    let mut sums = vec![0.0; group.len() * 3 * d];
                    let mut states = plan.initial_rows(group, first_states);
                    for step in 0..group[0].len {
                        let active = Plan::active(group, step);
                        for (row, sums) in group[..active].iter().zip(sums.chunks_exact_mut(3 * d)) {
                            let (of_gates, of_new) = sums.split_at_mut(2 * d);
                            of_gates.copy_from_slice(&gates.read(plan.token(row, step))[..2 * d]);
                            of_new.copy_from_slice(bias);
                        }
                        if step > 0 || initial.is_some() {
                            weight.multiply(active, &states, true, &mut sums);
                        }
                        let states = Rows::new(&mut states, d);
                        plan.for_each_row(active, |i| {
                            let row = &group[i];
                            let token = plan.token(row, step);
                            let (state, again) = (y.at(token), states.at(i));
                            let sums = &sums[i * 3 * d..][..3 * d];
                            forward_row(sums, gates.at(token), kept.at(token), state, again);
                            if row.len == step + 1 {
                                copy(again, y.at(n_tokens + row.sequence));
                            }
                        });
                    }
                });
            });
        })
    }
}
