//! Long short-term memory.

use super::super::gemm::{Matrix, Target};
use super::super::vector::{sigmoid, tanh, vectorised};
use super::super::{Input, dense, filled, op, output, register, tensor, values, values_mut};
use super::{Plan, Rows, Weight, copy, part};
use crate::{Direction, LstmOutput, LstmState, Packing, Precision};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use std::mem::MaybeUninit;

vectorised! {
    /// Computes a row's gates, cell and state from its sums.
    pub(super) fn forward_row(
        sums: &[f32],
        before: &[f32],
        gates: &mut [f32],
        cell: &mut [MaybeUninit<f32>],
        state: &mut [MaybeUninit<f32>],
        again: &mut [f32],
    ) {
        let d = before.len();
        let (i_sum, f_sum, g_sum, o_sum) = (&sums[..d], &sums[d..][..d], &sums[2 * d..][..d], &sums[3 * d..][..d]);
        let (i_gate, rest) = gates.split_at_mut(d);
        let (f_gate, rest) = rest.split_at_mut(d);
        let (g_gate, o_gate) = rest.split_at_mut(d);
        let o_gate = &mut o_gate[..d];
        let (cell, state, again) = (&mut cell[..d], &mut state[..d], &mut again[..d]);
        for j in 0..d {
            let (i, f, g, o) = (sigmoid(i_sum[j]), sigmoid(f_sum[j]), tanh(g_sum[j]), sigmoid(o_sum[j]));
            let c = f * before[j] + i * g;
            let h = o * tanh(c);
            (i_gate[j], f_gate[j], g_gate[j], o_gate[j]) = (i, f, g, o);
            cell[j].write(c);
            state[j].write(h);
            again[j] = h;
        }
    }

    /// From the gates to the gradients of their sums, which are written a second time, and from the cell's gradient to
    /// that of the cell before.
    pub(super) fn backward_row(
        gates: &mut [f32],
        cell: &[f32],
        before: &[f32],
        state_gradient: &[f32],
        cell_gradient: &mut [f32],
        again: &mut [f32],
    ) {
        let d = before.len();
        let (i_gate, rest) = gates.split_at_mut(d);
        let (f_gate, rest) = rest.split_at_mut(d);
        let (g_gate, o_gate) = rest.split_at_mut(d);
        let o_gate = &mut o_gate[..d];
        let (i_again, rest) = again.split_at_mut(d);
        let (f_again, rest) = rest.split_at_mut(d);
        let (g_again, o_again) = rest.split_at_mut(d);
        let o_again = &mut o_again[..d];
        let (cell, state_gradient, cell_gradient) = (&cell[..d], &state_gradient[..d], &mut cell_gradient[..d]);
        for j in 0..d {
            let (i, f, g, o) = (i_gate[j], f_gate[j], g_gate[j], o_gate[j]);
            let (t, dh) = (tanh(cell[j]), state_gradient[j]);
            let dc = cell_gradient[j] + dh * o * (1.0 - t * t);
            let sums = (
                dc * g * i * (1.0 - i),
                dc * before[j] * f * (1.0 - f),
                dc * i * (1.0 - g * g),
                dh * t * o * (1.0 - o),
            );
            cell_gradient[j] = dc * f;
            (i_gate[j], f_gate[j], g_gate[j], o_gate[j]) = sums;
            (i_again[j], f_again[j], g_again[j], o_again[j]) = sums;
        }
    }

    pub(super) fn add(x: &[f32], total: &mut [f32]) {
        for (total, x) in total.iter_mut().zip(x) {
            *total += x;
        }
    }
}

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    plan: Plan,
    /// `[n_tokens, 4·d]`
    gates: FlexTensor,
    /// `[d, 4·d]`
    weight: FlexTensor,
    /// The operation's output: states, last states, last cells.
    y: FlexTensor,
    /// `[n_tokens, d]`
    cells: Vec<f32>,
    initial: Option<[FlexTensor; 2]>,
    precision: Precision,
}

impl State {
    fn flops(&self) -> usize {
        4 * self.plan.n_tokens * self.plan.d * 4 * self.plan.d
    }

    /// The gradients of inputs, weight, initial hidden state and initial cell.
    fn gradients(self, gradient: &FlexTensor) -> [FlexTensor; 4] {
        let Self { plan, mut gates, weight, y, cells, initial, precision } = self;
        let (d, n_tokens, n) = (plan.d, plan.n_tokens, plan.n_sequences);
        let dy = values(gradient);
        let zeros = vec![0.0; n * d];
        let first_cells = initial.as_ref().map(|[_, cell]| values(cell));
        let mut first = [vec![0.0; n * d], vec![0.0; n * d]];
        let to_first = first.each_mut().map(|first| Rows::new(first, d));
        let to_gates = Rows::new(values_mut(&mut gates), 4 * d);
        // SAFETY: the tensor has its size and outlives the steps.
        let back =
            unsafe { Weight::new(Matrix::strided(&weight).transposed(), [4 * d, d], precision, &plan) };
        plan.for_each_group(|group| {
            let n_rows = group.len();
            let mut sums = vec![0.0; n_rows * 4 * d];
            let mut state_gradients = vec![0.0; n_rows * d];
            let mut cell_gradients = vec![0.0; n_rows * d];
            for step in (0..group[0].len).rev() {
                let active = Plan::active(group, step);
                let (to_sums, to_states, to_cells) = (
                    Rows::new(&mut sums, 4 * d),
                    Rows::new(&mut state_gradients, d),
                    Rows::new(&mut cell_gradients, d),
                );
                plan.for_each_row(active, |i| {
                    let row = &group[i];
                    let token = plan.token(row, step);
                    let before = plan.before(row, step, &cells, first_cells.unwrap_or(&zeros));
                    // SAFETY: this row's, of this token.
                    unsafe {
                        let (state, cell) = (to_states.at(i), to_cells.at(i));
                        if row.len == step + 1 {
                            state.copy_from_slice(&dy[(n_tokens + row.sequence) * d..][..d]);
                            cell.copy_from_slice(&dy[(n_tokens + n + row.sequence) * d..][..d]);
                        }
                        add(&dy[token * d..][..d], state);
                        let of_cell = &cells[token * d..][..d];
                        backward_row(to_gates.at(token), of_cell, before, state, cell, to_sums.at(i));
                    }
                });
                if step > 0 || initial.is_some() {
                    back.multiply(active, &sums, false, &mut state_gradients);
                }
            }
            if initial.is_some() {
                for (i, row) in group.iter().enumerate() {
                    // SAFETY: each sequence is in one group.
                    unsafe {
                        to_first[0].at(row.sequence).copy_from_slice(&state_gradients[i * d..][..d]);
                        to_first[1].at(row.sequence).copy_from_slice(&cell_gradients[i * d..][..d]);
                    }
                }
            }
        });
        let before = plan.states_before(values(&y), initial.as_ref().map(|[hidden, _]| values(hidden)));
        // SAFETY: the product writes all of `[d, 4·d]`; the gates' gradients are `[n_tokens, 4·d]`.
        let weight = unsafe {
            filled(d * 4 * d, |dw| {
                let target = Target::dense(dw.as_mut_ptr().cast(), 4 * d);
                let gradients = Matrix::dense(values(&gates), 4 * d);
                plan.weight_gradient(&before, gradients, 4 * d, target, precision);
            })
        };
        let [hidden, cell] = first.map(|first| tensor(first, Shape::new([n, d])));
        [gates, tensor(weight, Shape::new([d, 4 * d])), hidden, cell]
    }
}

#[derive(Debug)]
struct Lstm;

impl<const N: usize> Backward<Flex, N> for Lstm {
    type State = State;

    fn backward(self, ops: Ops<State, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents, node, state } = ops;
        op!("lstm_backward", state.flops());
        let gradients = state.gradients(&dense(grads.consume::<Flex>(&node)));
        register(grads, &Ops { parents, node, state: () }, gradients);
    }
}

pub(crate) fn lstm(
    inputs: Tensor<2>,
    weight: Tensor<2>,
    initial: Option<LstmState>,
    packing: &Packing,
    direction: Direction,
) -> LstmOutput {
    let [d, width] = weight.dims();
    let plan = Plan::new(packing, direction, [d, width]);
    let (n_tokens, n) = (plan.n_tokens, plan.n_sequences);
    op!("lstm", 2 * n_tokens * d * width);
    let precision = Precision::current();
    // The gates take over the memory of what they are made of.
    let (mut gates, weight) = (Input::dense(inputs), Input::strided(weight));
    let (initial, initial_nodes) = match initial {
        Some(LstmState { hidden, cell }) => {
            let [hidden, cell] = [hidden, cell].map(Input::dense);
            (Some([hidden.value, cell.value]), Some([hidden.node, cell.node]))
        }
        None => (None, None),
    };
    let mut cells = Vec::new();
    let y = forward(&plan, &mut gates.value, &weight.value, initial.as_ref(), precision, &mut cells);
    let y = tensor(y, Shape::new([n_tokens + 2 * n, d]));
    let state = {
        let y = y.clone();
        move || State { plan, gates: gates.value, weight: weight.value, y, cells, initial, precision }
    };
    let all: Tensor<2> = match initial_nodes {
        Some([hidden, cell]) => output(Lstm, [gates.node, weight.node, hidden, cell], y, state),
        None => output(Lstm, [gates.node, weight.node], y, state),
    };
    let last = LstmState { hidden: part(&all, n_tokens, n), cell: part(&all, n_tokens + n, n) };
    LstmOutput { states: part(&all, 0, n_tokens), last }
}

/// States, last states and last cells; the inputs become gates.
fn forward(
    plan: &Plan,
    gates: &mut FlexTensor,
    weight: &FlexTensor,
    initial: Option<&[FlexTensor; 2]>,
    precision: Precision,
    cells: &mut Vec<f32>,
) -> Vec<f32> {
    let (d, n_tokens, n) = (plan.d, plan.n_tokens, plan.n_sequences);
    let zeros = vec![0.0; d];
    let [first_states, first_cells] = [0, 1].map(|i| initial.map(|initial| values(&initial[i])));
    let gates = Rows::new(values_mut(gates), 4 * d);
    // SAFETY: the tensor has its size and outlives the steps.
    let weight = unsafe { Weight::new(Matrix::strided(weight), [d, 4 * d], precision, plan) };
    // SAFETY: the groups have all sequences, whose steps have all tokens: each row of both is written, a cell before it
    // is read.
    unsafe {
        filled((n_tokens + 2 * n) * d, |y| {
            let y = Rows::new(y, d);
            *cells = filled(n_tokens * d, |cells| {
                let cells = Rows::new(cells, d);
                plan.for_each_group(|group| {
                    let mut sums = vec![0.0; group.len() * 4 * d];
                    let mut states = plan.initial_rows(group, first_states);
                    for step in 0..group[0].len {
                        let active = Plan::active(group, step);
                        for (row, sums) in group[..active].iter().zip(sums.chunks_exact_mut(4 * d)) {
                            sums.copy_from_slice(gates.read(plan.token(row, step)));
                        }
                        if step > 0 || initial.is_some() {
                            weight.multiply(active, &states, true, &mut sums);
                        }
                        let states = Rows::new(&mut states, d);
                        plan.for_each_row(active, |i| {
                            let row = &group[i];
                            let token = plan.token(row, step);
                            let before = match step.checked_sub(1) {
                                Some(step) => cells.read(plan.token(row, step)),
                                None => first_cells
                                    .map_or(zeros.as_slice(), |cells| &cells[row.sequence * d..][..d]),
                            };
                            let (cell, state, again) = (cells.at(token), y.at(token), states.at(i));
                            let sums = &sums[i * 4 * d..][..4 * d];
                            forward_row(sums, before, gates.at(token), cell, state, again);
                            if row.len == step + 1 {
                                copy(again, y.at(n_tokens + row.sequence));
                                copy(cells.read(token), y.at(n_tokens + n + row.sequence));
                            }
                        });
                    }
                });
            });
        })
    }
}
