//! A recurrent decoder layer where every step attends with the previous state.
//!
//! For each target, the states, contexts and gates of all steps, the queries and the attention weights are
//! kept; the hyperbolic tangents are recomputed. All weight gradients are products over all steps, computed
//! at the end.

use super::super::gemm::{Matrix, Target};
use super::super::linear::sum_rows;
use super::super::vector::{exp, max, sum, tanh, vectorised};
use super::super::{Input, dense, filled, op, output, tensor, values, values_mut};
use super::{Plan, Rows, Weight, gru, lstm};
use crate::attentive::{AttentiveInput, AttentiveState};
use crate::{Direction, Packing, Precision};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use std::mem::MaybeUninit;

vectorised! {
    fn score(query: &[f32], key: &[f32], v: &[f32]) -> f32 {
        sum([query, key, v], |[query, key, v]| tanh(query + key) * v)
    }

    /// Turns scores into weights.
    fn softmax(x: &mut [f32]) {
        let greatest = max(x);
        for x in x.iter_mut() {
            *x = exp(*x - greatest);
        }
        let total = 1.0 / sum([&*x], |[x]| x);
        for x in x {
            *x *= total;
        }
    }

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        sum([a, b], |[a, b]| a * b)
    }

    /// `total += factor · x`
    fn add_scaled(x: &[f32], factor: f32, total: &mut [f32]) {
        for (total, x) in total.iter_mut().zip(x) {
            *total = x.mul_add(factor, *total);
        }
    }

    /// Adds to the gradients of query, key and `v`.
    fn score_backward(
        query: &[f32], key: &[f32], v: &[f32], gradient: f32, dq: &mut [f32], dk: &mut [f32], dv: &mut [f32]
    ) {
        let d = query.len();
        let (key, v, dq, dk, dv) = (&key[..d], &v[..d], &mut dq[..d], &mut dk[..d], &mut dv[..d]);
        for i in 0..d {
            let t = tanh(query[i] + key[i]);
            let of_sum = gradient * v[i] * (1.0 - t * t);
            dq[i] += of_sum;
            dk[i] += of_sum;
            dv[i] += gradient * t;
        }
    }
}

/// Sizes, and the offsets of each sequence's data.
#[derive(Debug, Clone)]
struct Call {
    plan: Plan,
    precision: Precision,
    is_gru: bool,
    /// Gates times features.
    width: usize,
    d_memory: usize,
    d_key: usize,
    /// For each sequence, its first token in the memory and its length.
    sources: Vec<[usize; 2]>,
    /// For each sequence, the start of its attention weights, ordered by step.
    weights: Vec<usize>,
    n_weights: usize,
}

impl Call {
    fn new(input: &AttentiveInput, sources: &Packing, targets: &Packing) -> Self {
        let [d, width] = input.recurrent.dims();
        let [_, d_memory] = input.memory.dims();
        let [_, d_key] = input.keys.dims();
        let mut weights = Vec::with_capacity(targets.lengths().len());
        let mut n_weights = 0;
        for (target, source) in targets.lengths().iter().zip(sources.lengths()) {
            weights.push(n_weights);
            n_weights += target * source;
        }
        Self {
            plan: Plan::new(targets, Direction::Forward, [d, width]),
            precision: Precision::current(),
            is_gru: input.bias.is_some(),
            width,
            d_memory,
            d_key,
            sources: sources.starts().zip(sources.lengths()).map(|(start, len)| [start, *len]).collect(),
            weights,
            n_weights,
        }
    }

    /// Operations of all steps' products.
    fn flops(&self) -> usize {
        let Self { plan, width, d_memory, d_key, .. } = self;
        2 * plan.n_tokens * (plan.d * (width + d_key) + d_memory * width)
    }

    /// A row's memory or keys, `[len, width]`.
    fn of_source<'a>(&self, x: &'a [f32], sequence: usize, width: usize) -> std::slice::ChunksExact<'a, f32> {
        let [start, len] = self.sources[sequence];
        x[start * width..(start + len) * width].chunks_exact(width.max(1))
    }

    /// Position of a step's weights.
    fn weights_at(&self, sequence: usize, step: usize) -> std::ops::Range<usize> {
        let [_, len] = self.sources[sequence];
        let start = self.weights[sequence] + step * len;
        start..start + len
    }

    /// # Safety
    /// The tensor has this size and outlives the weight.
    unsafe fn weight(&self, x: &FlexTensor, transposed: bool) -> Weight {
        let [k, n] = [0, 1].map(|axis| x.layout().shape()[axis]);
        let matrix = Matrix::strided(x);
        // SAFETY: the caller's promise.
        unsafe {
            match transposed {
                true => Weight::new(matrix.transposed(), [n, k], self.precision, &self.plan),
                false => Weight::new(matrix, [k, n], self.precision, &self.plan),
            }
        }
    }
}

/// The tensors read by both passes.
#[derive(Debug, Clone)]
struct Values {
    memory: FlexTensor,
    keys: FlexTensor,
    query: FlexTensor,
    v: FlexTensor,
    context: FlexTensor,
    recurrent: FlexTensor,
    hidden: FlexTensor,
    /// The initial cells of an LSTM; the bias of a GRU.
    last: FlexTensor,
}

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    call: Call,
    values: Values,
    /// `[n_tokens, width]`
    gates: FlexTensor,
    /// States and contexts, `[n_tokens, d + d_memory]`.
    y: FlexTensor,
    /// `[n_tokens, d]`: an LSTM's cells, or what a GRU's reset gate multiplies.
    kept: Vec<f32>,
    /// `[n_tokens, d_key]`
    queries: Vec<f32>,
    weights: Vec<f32>,
}

fn zeros(n: usize) -> Vec<f32> {
    vec![0.0; n]
}

impl State {
    /// The gradients of the operation's inputs, in order.
    fn gradients(self, gradient: &FlexTensor) -> [FlexTensor; 9] {
        let Self { call, values: inputs, mut gates, y, mut kept, queries, weights } = self;
        let Call { plan, width, d_memory, d_key, is_gru, .. } = &call;
        let (d, width, d_memory, d_key) = (plan.d, *width, *d_memory, *d_key);
        let (n_tokens, n) = (plan.n_tokens, plan.n_sequences);
        let d_y = d + d_memory;
        let (dy, all) = (values(gradient), values(&y));
        let (memory, keys, v) = (values(&inputs.memory), values(&inputs.keys), values(&inputs.v));
        let (first, last) = (values(&inputs.hidden), values(&inputs.last));
        let mut first_gradients = zeros(n * d);
        let mut cell_first = zeros(if *is_gru { 0 } else { n * d });
        let (mut d_memories, mut d_keys) = (zeros(memory.len()), zeros(keys.len()));
        let mut d_queries = zeros(n_tokens * d_key);
        let n_groups = plan.groups.len();
        let mut d_vs = zeros(n_groups * d_key);
        let to_first = Rows::new(&mut first_gradients, d);
        let to_cell_first = Rows::new(&mut cell_first, d);
        let (to_memory, to_keys) = (Rows::new(&mut d_memories, d_memory), Rows::new(&mut d_keys, d_key));
        let (to_queries, to_v) = (Rows::new(&mut d_queries, d_key), Rows::new(&mut d_vs, d_key));
        let (to_gates, to_kept) = (Rows::new(values_mut(&mut gates), width), Rows::new(&mut kept, d));
        // SAFETY: the tensors have their sizes and outlive the steps.
        let (back, back_context, back_query) = unsafe {
            (
                call.weight(&inputs.recurrent, true),
                call.weight(&inputs.context, true),
                call.weight(&inputs.query, true),
            )
        };
        plan.for_each_group(|group| {
            let number = plan.groups.iter().position(|other| std::ptr::eq(other.as_slice(), group));
            let number = number.expect("it is one of them");
            let n_rows = group.len();
            let (mut sums, mut inner) = (zeros(n_rows * width), zeros(n_rows * width));
            let (mut states, mut cells) = (zeros(n_rows * d), zeros(n_rows * d));
            let (mut contexts, mut asked) = (zeros(n_rows * d_memory), zeros(n_rows * d_key));
            let mut of_v = zeros(n_rows * d_key);
            for step in (0..group[0].len).rev() {
                let active = Plan::active(group, step);
                let (to_sums, to_inner) = (Rows::new(&mut sums, width), Rows::new(&mut inner, width));
                let (to_states, to_cells) = (Rows::new(&mut states, d), Rows::new(&mut cells, d));
                plan.for_each_row(active, |i| {
                    let row = &group[i];
                    let token = row.start + step;
                    // SAFETY: this row's, of this token.
                    unsafe {
                        let state = to_states.at(i);
                        lstm::add(&dy[token * d_y..][..d], state);
                        if *is_gru {
                            let before = match step {
                                0 => &first[row.sequence * d..][..d],
                                _ => &all[(token - 1) * d_y..][..d],
                            };
                            let kept = to_kept.at(token);
                            gru::backward_row(to_gates.at(token), kept, before, state, to_sums.at(i));
                        } else {
                            let before = match step {
                                0 => &last[row.sequence * d..][..d],
                                _ => to_kept.read(token - 1),
                            };
                            let (of_cell, cell) = (to_kept.read(token), to_cells.at(i));
                            let gates = to_gates.at(token);
                            lstm::backward_row(gates, of_cell, before, state, cell, to_sums.at(i));
                        }
                        to_inner.at(i).copy_from_slice(to_gates.read(token));
                    }
                });
                back_context.multiply(active, &inner, false, &mut contexts);
                let (to_contexts, to_asked) =
                    (Rows::new(&mut contexts, d_memory), Rows::new(&mut asked, d_key));
                let to_v = Rows::new(&mut of_v, d_key);
                plan.for_each_row(active, |i| {
                    let row = &group[i];
                    let token = row.start + step;
                    let [start, len] = call.sources[row.sequence];
                    let weights = &weights[call.weights_at(row.sequence, step)];
                    // SAFETY: this row's, of this token and of this sequence's memory.
                    unsafe {
                        let context = to_contexts.at(i);
                        lstm::add(&dy[token * d_y + d..][..d_memory], context);
                        let memory = call.of_source(memory, row.sequence, d_memory);
                        let mut of_weights: Vec<f32> = Vec::with_capacity(len);
                        for (k, (state, weight)) in memory.zip(weights).enumerate() {
                            of_weights.push(dot(context, state));
                            add_scaled(context, *weight, to_memory.at(start + k));
                        }
                        let mean = dot(&of_weights, weights);
                        let asked = to_asked.at(i);
                        asked.fill(0.0);
                        let query = &queries[token * d_key..][..d_key];
                        let keys = call.of_source(keys, row.sequence, d_key);
                        for (k, (key, (weight, of_weight))) in
                            keys.zip(weights.iter().zip(&of_weights)).enumerate()
                        {
                            let gradient = weight * (of_weight - mean);
                            let (dk, dv) = (to_keys.at(start + k), to_v.at(i));
                            score_backward(query, key, v, gradient, asked, dk, dv);
                        }
                        to_queries.at(token).copy_from_slice(asked);
                    }
                });
                // What does not go through the product is there already, of a GRU; an LSTM has none.
                back.multiply(active, &sums, *is_gru, &mut states);
                back_query.multiply(active, &asked, true, &mut states);
            }
            for (i, row) in group.iter().enumerate() {
                // SAFETY: each sequence is in one group.
                unsafe {
                    to_first.at(row.sequence).copy_from_slice(&states[i * d..][..d]);
                    if !*is_gru {
                        to_cell_first.at(row.sequence).copy_from_slice(&cells[i * d..][..d]);
                    }
                }
            }
            // SAFETY: each group has a number of its own.
            let total = unsafe { to_v.at(number) };
            of_v.chunks_exact(d_key).for_each(|of_v| lstm::add(of_v, total));
        });
        let states: Vec<f32> = all.chunks_exact(d_y).flat_map(|row| &row[..d]).copied().collect();
        let before = plan.states_before(&states, Some(first));
        let precision = call.precision;
        let product = |a: Matrix, k: usize, b: Matrix, columns: usize, target: Target| {
            let product = super::Product {
                sizes: [k, n_tokens, columns],
                target,
                begin: super::Begin::Zero,
                a: a.transposed(),
                b,
                precision,
                parallel: true,
            };
            // SAFETY: every matrix has a row for each token, and every target is memory of its own.
            unsafe { product.run() }
        };
        let of_gates = Matrix::dense(values(&gates), width);
        // SAFETY: the products write all of each.
        let (d_recurrent, d_query, d_context) = unsafe {
            let d_recurrent = filled(d * width, |to| {
                let target = Target::dense(to.as_mut_ptr().cast(), width);
                let shared = if *is_gru { 2 * d } else { width };
                product(Matrix::dense(&before, d), d, of_gates, shared, target);
                if *is_gru {
                    let target = Target { start: target.at(0, 2 * d), ..target };
                    product(Matrix::dense(&before, d), d, Matrix::dense(&kept, d), d, target);
                }
            });
            let d_query = filled(d * d_key, |to| {
                let target = Target::dense(to.as_mut_ptr().cast(), d_key);
                product(Matrix::dense(&before, d), d, Matrix::dense(&d_queries, d_key), d_key, target);
            });
            let d_context = filled(d_memory * width, |to| {
                let contexts = Matrix::dense(&all[d.min(all.len())..], d_y);
                product(contexts, d_memory, of_gates, width, Target::dense(to.as_mut_ptr().cast(), width));
            });
            (d_recurrent, d_query, d_context)
        };
        let d_last = match is_gru {
            true => tensor(sum_rows(&kept, d), Shape::new([d])),
            false => tensor(cell_first, Shape::new([n, d])),
        };
        let shape = |x: &FlexTensor| x.layout().shape().clone();
        let mut d_v = zeros(d_key);
        d_vs.chunks_exact(d_key).for_each(|part| lstm::add(part, &mut d_v));
        [
            gates,
            tensor(d_memories, shape(&inputs.memory)),
            tensor(d_keys, shape(&inputs.keys)),
            tensor(d_query, Shape::new([d, d_key])),
            tensor(d_v, Shape::new([d_key])),
            tensor(d_context, Shape::new([d_memory, width])),
            tensor(d_recurrent, Shape::new([d, width])),
            tensor(first_gradients, Shape::new([n, d])),
            d_last,
        ]
    }
}

#[derive(Debug)]
struct Attentive;

impl Backward<Flex, 9> for Attentive {
    type State = State;

    fn backward(self, ops: Ops<State, 9>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("attentive_backward", 2 * ops.state.call.flops());
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let gradients = ops.state.gradients(&gradient);
        for (parent, gradient) in ops.parents.iter().zip(gradients) {
            if let Some(parent) = parent {
                grads.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

pub(crate) fn attentive(input: AttentiveInput, sources: &Packing, targets: &Packing) -> Tensor<2> {
    let call = Call::new(&input, sources, targets);
    op!("attentive", call.flops());
    let AttentiveInput { inputs, memory, keys, query, v, context, recurrent, bias, initial } = input;
    let AttentiveState { hidden, cell } = initial;
    let last = match (bias, cell) {
        (Some(bias), None) => Input::dense(bias),
        (None, Some(cell)) => Input::dense(cell),
        _ => panic!("a GRU has a bias and no cell, an LSTM the other way round"),
    };
    let [mut gates, memory, keys] = [inputs, memory, keys].map(Input::dense);
    let [query, context, recurrent] = [query, context, recurrent].map(Input::strided);
    let (v, hidden) = (Input::dense(v), Input::dense(hidden));
    let nodes = [
        gates.node,
        memory.node,
        keys.node,
        query.node,
        v.node,
        context.node,
        recurrent.node,
        hidden.node,
        last.node,
    ];
    let inputs = Values {
        memory: memory.value,
        keys: keys.value,
        query: query.value,
        v: v.value,
        context: context.value,
        recurrent: recurrent.value,
        hidden: hidden.value,
        last: last.value,
    };
    let (mut kept, mut queries, mut weights) = (Vec::new(), Vec::new(), zeros(call.n_weights));
    let y = forward(&call, &mut gates.value, &inputs, &mut kept, &mut queries, &mut weights);
    let y = tensor(y, Shape::new([call.plan.n_tokens, call.plan.d + call.d_memory]));
    let state = {
        let y = y.clone();
        move || State { call, values: inputs, gates: gates.value, y, kept, queries, weights }
    };
    output(Attentive, nodes, y, state)
}

/// States and contexts; the inputs become gates.
fn forward(
    call: &Call,
    gates: &mut FlexTensor,
    inputs: &Values,
    kept: &mut Vec<f32>,
    queries: &mut Vec<f32>,
    weights: &mut [f32],
) -> Vec<f32> {
    let Call { plan, width, d_memory, d_key, is_gru, .. } = call;
    let (d, width, d_memory, d_key) = (plan.d, *width, *d_memory, *d_key);
    let d_y = d + d_memory;
    let (memory, keys, v) = (values(&inputs.memory), values(&inputs.keys), values(&inputs.v));
    let (first, last) = (values(&inputs.hidden), values(&inputs.last));
    let gates = Rows::new(values_mut(gates), width);
    let to_weights = Rows::new(weights, 1);
    // SAFETY: the tensors have their sizes and outlive the steps.
    let (recurrent, context, query) = unsafe {
        (
            call.weight(&inputs.recurrent, false),
            call.weight(&inputs.context, false),
            call.weight(&inputs.query, false),
        )
    };
    *queries = zeros(plan.n_tokens * d_key);
    let to_queries = Rows::new(queries, d_key);
    let steps = |group: &[super::Row], y: Rows<MaybeUninit<f32>>, kept: Rows<MaybeUninit<f32>>| {
        let n_rows = group.len();
        let (mut sums, mut inner) = (zeros(n_rows * width), zeros(n_rows * width));
        let (mut states, mut contexts) = (zeros(n_rows * d), zeros(n_rows * d_memory));
        let mut asked = zeros(n_rows * d_key);
        for (row, state) in group.iter().zip(states.chunks_exact_mut(d)) {
            state.copy_from_slice(&first[row.sequence * d..][..d]);
        }
        for step in 0..group[0].len {
            let active = Plan::active(group, step);
            query.multiply(active, &states, false, &mut asked);
            let (to_contexts, to_inner) = (Rows::new(&mut contexts, d_memory), Rows::new(&mut inner, width));
            plan.for_each_row(active, |i| {
                let row = &group[i];
                let token = row.start + step;
                let place = call.weights_at(row.sequence, step);
                let asked = &asked[i * d_key..][..d_key];
                // SAFETY: this row's, of this token.
                unsafe {
                    let weights = to_weights.elements(place.start, place.len());
                    let keys = call.of_source(keys, row.sequence, d_key);
                    weights.iter_mut().zip(keys).for_each(|(weight, key)| *weight = score(asked, key, v));
                    softmax(weights);
                    let context = to_contexts.at(i);
                    context.fill(0.0);
                    let memory = call.of_source(memory, row.sequence, d_memory);
                    memory.zip(&*weights).for_each(|(state, weight)| add_scaled(state, *weight, context));
                    to_queries.at(token).copy_from_slice(asked);
                    super::copy(context, &mut y.at(token)[d..]);
                    to_inner.at(i).copy_from_slice(gates.read(token));
                }
            });
            context.multiply(active, &contexts, true, &mut inner);
            if *is_gru {
                for (sums, inner) in sums.chunks_exact_mut(width).zip(inner.chunks_exact(width)).take(active)
                {
                    sums[..2 * d].copy_from_slice(&inner[..2 * d]);
                    sums[2 * d..].copy_from_slice(last);
                }
                recurrent.multiply(active, &states, true, &mut sums);
            } else {
                recurrent.multiply(active, &states, true, &mut inner);
            }
            let to_states = Rows::new(&mut states, d);
            plan.for_each_row(active, |i| {
                let row = &group[i];
                let token = row.start + step;
                // SAFETY: this row's, of this token.
                unsafe {
                    let (state, again) = (&mut y.at(token)[..d], to_states.at(i));
                    let inner = &inner[i * width..][..width];
                    let gates = gates.at(token);
                    if *is_gru {
                        gates.copy_from_slice(inner);
                        gru::forward_row(&sums[i * width..][..width], gates, kept.at(token), state, again);
                    } else {
                        let before = match step {
                            0 => &last[row.sequence * d..][..d],
                            _ => kept.read(token - 1),
                        };
                        lstm::forward_row(inner, before, gates, kept.at(token), state, again);
                    }
                }
            });
        }
    };
    // SAFETY: the groups have all sequences, whose steps have all tokens: each row of both is written, a cell before it
    // is read.
    unsafe {
        filled(plan.n_tokens * d_y, |y| {
            let y = Rows::new(y, d_y);
            *kept = filled(plan.n_tokens * d, |kept| {
                let kept = Rows::new(kept, d);
                plan.for_each_group(|group| steps(group, y, kept));
            });
        })
    }
}
