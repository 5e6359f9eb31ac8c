//! The output, and what the backward pass needs of every query's softmax (Dao 2023, "FlashAttention-2", algorithm 1).
//!
//! A cube has a block of 32 queries of a head and goes through the keys that any of them sees, 32 at a time. Of a
//! query's scores `s` only the greatest so far, `m`, and the sum `l = Σ exp(s − m)` are kept, and the values weighted by
//! `exp(s − m)` are added up. When `m` grows by `g`, the sums so far shrink by `exp(−g)`. In the end the sum of values is
//! divided by `l`. Dropout acts on the weights of the values, and not on `l`.
//!
//! Memory traffic: queries are read once for each block of keys, keys and values once for each block of queries, both
//! from the second-level cache for the most part; the output is written once, and two numbers a query. No score is
//! written.

use super::call::{Call, Inputs, dims, fours, heads_inside, hidden_type, in_fours, optional, strides};
use super::tile::{
    ABSENT, Four, HIDDEN, MEMORY, SIDE, STEP, Sizes, Strides, add_weighted, chunks, clear, factor,
    is_padding, masked, products, put, read_item, seen, tokens, write,
};
use crate::cube::{arg, cubes, empty};
use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

#[cube(launch_unchecked)]
fn forward_kernel<B: Int>(
    query: &[Four],
    key: &[Four],
    value: &[Four],
    items: &[i32],
    hidden: ComptimeOption<Box<[B]>>,
    seed: ComptimeOption<Box<[f32]>>,
    output: &mut [Four],
    softmax: &mut [f32],
    of_queries: Strides,
    of_keys: Strides,
    of_values: Strides,
    sizes: Sizes,
    n_items: usize,
    #[comptime] d_k: u32,
    #[comptime] d_v: u32,
    #[define(B)] _hidden_type: ElemType,
) {
    let number = CUBE_POS / sizes.n_heads as usize;
    if number >= n_items {
        terminate!();
    }
    let head = u32::cast_from(CUBE_POS) % sizes.n_heads;
    let shared = head / sizes.group;
    let item = read_item(items, number);
    let rows = tokens(&of_queries, item.row, head, item.first, item.count);
    // The block's first query, among those of all heads.
    let first_row = (item.row * sizes.n_heads + head) * sizes.q_len + item.first;

    let mut tile_a = Shared::<[Four]>::new_slice(MEMORY);
    let mut tile_b = Shared::<[Four]>::new_slice(MEMORY);
    let mut weights = Shared::<[Four]>::new_slice(MEMORY);
    let mut parts = Shared::<[f32]>::new_slice(256usize);

    let mut scores = Array::<f32>::new(16usize);
    let mut sums = Array::<Four>::new(comptime!(chunks(d_v) * 4));
    let mut greatest = Array::<f32>::new(4usize);
    let mut totals = Array::<f32>::new(4usize);
    clear(&mut sums, d_v);
    #[unroll]
    for r in 0..4usize {
        greatest[r] = HIDDEN;
        totals[r] = 0.0f32;
    }

    for start in range_stepped(item.from, item.to, STEP) {
        let n_keys = u32::cast_from(min(STEP, item.to - start));
        let first_key = item.other + u32::cast_from(start);
        let columns = tokens(&of_keys, item.row, shared, first_key, n_keys);
        products(query, &rows, key, &columns, &mut tile_a, &mut tile_b, &mut scores, d_k);
        #[unroll]
        for r in 0..4usize {
            let row = UNIT_POS_Y + comptime!(r as u32 * SIDE);
            let span = seen(&item, item.start + item.offset + i32::cast_from(row));
            let mut most = greatest[r];
            #[unroll]
            for s in 0..4usize {
                let at = comptime!(r * 4 + s);
                let column = start + i32::cast_from(UNIT_POS_X * 4u32 + comptime!(s as u32));
                let place = item.row * sizes.k_len + item.other + u32::cast_from(min(column, item.to - 1));
                let is_padding = is_padding::<B>(hidden.clone(), place);
                let score = masked(scores[at] * sizes.scale, &span, column, is_padding);
                let score = select(column < item.to, score, ABSENT);
                scores[at] = score;
                most = max(most, score);
            }
            parts[(row * SIDE + UNIT_POS_X) as usize] = most;
        }
        sync_cube();
        #[unroll]
        for r in 0..4usize {
            let row = UNIT_POS_Y + comptime!(r as u32 * SIDE);
            let mut most = greatest[r];
            for unit in 0..SIDE {
                most = max(most, parts[(row * SIDE + unit) as usize]);
            }
            let correction = (greatest[r] - most).exp();
            greatest[r] = most;
            let mut total = totals[r] * correction;
            #[unroll]
            for s in 0..4usize {
                let at = comptime!(r * 4 + s);
                let weight = (scores[at] - most).exp();
                total += weight;
                let column = first_key + UNIT_POS_X * 4u32 + comptime!(s as u32);
                scores[at] = weight * factor(seed.clone(), &sizes, first_row + row, column);
            }
            totals[r] = total;
            #[unroll]
            for chunk in 0..comptime!(chunks(d_v)) {
                let at = comptime!(chunk * 4 + r);
                sums[at] *= Four::new(correction);
            }
            put(&mut weights, &scores, r);
        }
        let columns = tokens(&of_values, item.row, shared, first_key, n_keys);
        add_weighted(&weights, value, &columns, &mut tile_b, &mut sums, d_v);
    }

    // Each unit has the sums of its own keys.
    #[unroll]
    for r in 0..4usize {
        let row = UNIT_POS_Y + comptime!(r as u32 * SIDE);
        parts[(row * SIDE + UNIT_POS_X) as usize] = totals[r];
    }
    sync_cube();
    #[unroll]
    for r in 0..4usize {
        let row = UNIT_POS_Y + comptime!(r as u32 * SIDE);
        let mut total = 0.0f32;
        for unit in 0..SIDE {
            total += parts[(row * SIDE + unit) as usize];
        }
        let inverse = 1.0f32 / total;
        totals[r] = inverse;
        if UNIT_POS_X == 0u32 && row < item.count {
            let place = ((first_row + row) * 2u32) as usize;
            softmax[place] = greatest[r];
            softmax[place + 1] = inverse;
        }
    }
    let first = ((item.row * sizes.q_len + item.first) * sizes.n_heads + head) * d_v;
    write(&sums, &totals, output, first, sizes.n_heads, item.count, d_v);
}

/// The output `[batch, n_heads, q_len, d_v]`, and of each query's softmax the greatest score and one over the sum
/// beside it, `[batch, n_heads, q_len, 2]`.
pub(super) fn forward(inputs: &Inputs, call: &Call) -> (CubeTensor, CubeTensor) {
    let Inputs { query, key, value, hidden, seed } = inputs;
    let [batch, n_heads, q_len, d_k] = dims(query);
    let d_v = dims(value)[3];
    let output = heads_inside(query, [batch, n_heads, q_len, d_v]);
    let softmax = empty(query, [batch, n_heads, q_len, 2], DType::F32);
    let (items, n_items) = call.items(&query.client, &call.plan.queries);
    // SAFETY: the kernel reads and writes the tokens that the plan names, and the plan was made of the sizes.
    unsafe {
        forward_kernel::launch_unchecked(
            &query.client,
            cubes(&query.client, n_items * n_heads),
            CubeDim::new_2d(SIDE, SIDE),
            fours(query),
            fours(key),
            fours(value),
            items,
            optional(hidden),
            optional(seed),
            fours(&output),
            arg(&softmax),
            strides(query),
            strides(key),
            strides(value),
            call.sizes(query, key),
            n_items,
            in_fours(d_k),
            in_fours(d_v),
            hidden_type(hidden),
        );
    }
    (output, softmax)
}
