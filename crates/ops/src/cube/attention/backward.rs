//! The gradients of queries, keys and values (Dao 2023, "FlashAttention-2", algorithm 2).
//!
//! The probabilities are made once more, `P = exp(S − m) / l`, from the scores and the two numbers that the forward pass
//! kept of each query, and dropout is drawn once more. With `Z` what dropout multiplies by, `dO` the output's gradient
//! and `D = rowsum(dO ∘ O)`,
//! - `dV = (P ∘ Z)ᵀ·dO`
//! - `dS = P ∘ (Z ∘ (dO·Vᵀ) − D)`, times what scores were multiplied by
//! - `dQ = dS·K`, `dK = dSᵀ·Q`
//!
//! The first kernel has `D`. The second has a block of queries to a cube and adds up `dQ` over the keys; the third a
//! block of keys, and adds up `dK` and `dV` over the queries, of all heads that share the keys. So each sum has one
//! owner and one order, and nothing is added atomically. The price is the products `Q·Kᵀ` and `dO·Vᵀ` twice: seven instead
//! of five.
//!
//! Memory traffic: as in the forward pass, with the gradient beside the queries; nothing of a score's size is read or
//! written.

use super::call::{Call, Inputs, dims, fours, heads_inside, hidden_type, in_fours, optional, strides};
use super::tile::{
    ABSENT, Four, MEMORY, SIDE, STEP, Sizes, Strides, add_weighted, chunks, clear, factor, is_padding,
    masked, products, put, read_item, seen, tokens, write,
};
use crate::cube::{arg, cubes, elements, empty};
use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Of each query the two numbers of its softmax and the third of the gradient.
#[cube(launch_unchecked)]
fn rows_kernel(
    output: &[Four],
    gradient: &[Four],
    softmax: &[f32],
    rows: &mut [Four],
    of_outputs: Strides,
    of_gradients: Strides,
    sizes: Sizes,
    n_rows: usize,
    #[comptime] d_v: u32,
) {
    if ABSOLUTE_POS >= n_rows {
        terminate!();
    }
    let number = u32::cast_from(ABSOLUTE_POS);
    let query = number % sizes.q_len;
    let head = number / sizes.q_len % sizes.n_heads;
    let row = number / sizes.q_len / sizes.n_heads;
    let a = tokens(&of_outputs, row, head, query, 1u32);
    let b = tokens(&of_gradients, row, head, query, 1u32);
    let mut sum = 0.0f32;
    for four in 0..d_v {
        sum += output[(a.first + four) as usize].dot(gradient[(b.first + four) as usize]);
    }
    let mut four = Four::new(0.0f32);
    four.insert(0usize, softmax[ABSOLUTE_POS * 2]);
    four.insert(1usize, softmax[ABSOLUTE_POS * 2 + 1]);
    four.insert(2usize, sum);
    rows[ABSOLUTE_POS] = four;
}

#[cube(launch_unchecked)]
fn queries_kernel<B: Int>(
    query: &[Four],
    key: &[Four],
    value: &[Four],
    gradient: &[Four],
    rows: &[Four],
    items: &[i32],
    hidden: ComptimeOption<Box<[B]>>,
    seed: ComptimeOption<Box<[f32]>>,
    of_query: &mut [Four],
    of_queries: Strides,
    of_keys: Strides,
    of_values: Strides,
    of_gradients: Strides,
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
    let queries = tokens(&of_queries, item.row, head, item.first, item.count);
    let gradients = tokens(&of_gradients, item.row, head, item.first, item.count);
    let first_row = (item.row * sizes.n_heads + head) * sizes.q_len + item.first;

    let mut tile_a = Shared::<[Four]>::new_slice(MEMORY);
    let mut tile_b = Shared::<[Four]>::new_slice(MEMORY);
    let mut weights = Shared::<[Four]>::new_slice(MEMORY);

    let mut scores = Array::<f32>::new(16usize);
    let mut slopes = Array::<f32>::new(16usize);
    let mut sums = Array::<Four>::new(comptime!(chunks(d_k) * 4));
    let mut scales = Array::<f32>::new(4usize);
    clear(&mut sums, d_k);

    for start in range_stepped(item.from, item.to, STEP) {
        let n_keys = u32::cast_from(min(STEP, item.to - start));
        let first_key = item.other + u32::cast_from(start);
        let keys = tokens(&of_keys, item.row, shared, first_key, n_keys);
        let values = tokens(&of_values, item.row, shared, first_key, n_keys);
        products(query, &queries, key, &keys, &mut tile_a, &mut tile_b, &mut scores, d_k);
        products(gradient, &gradients, value, &values, &mut tile_a, &mut tile_b, &mut slopes, d_v);
        #[unroll]
        for r in 0..4usize {
            let row = UNIT_POS_Y + comptime!(r as u32 * SIDE);
            let span = seen(&item, item.start + item.offset + i32::cast_from(row));
            let number = first_row + min(row, item.count - 1u32);
            let kept = rows[number as usize];
            #[unroll]
            for s in 0..4usize {
                let at = comptime!(r * 4 + s);
                let column = start + i32::cast_from(UNIT_POS_X * 4u32 + comptime!(s as u32));
                let place = item.other + u32::cast_from(min(column, item.to - 1));
                let is_padding = is_padding::<B>(hidden.clone(), item.row * sizes.k_len + place);
                let score = masked(scores[at] * sizes.scale, &span, column, is_padding);
                let score = select(column < item.to, score, ABSENT);
                let prob = (score - kept.extract(0usize)).exp() * kept.extract(1usize);
                let left = factor(seed.clone(), &sizes, number, place) * slopes[at];
                scores[at] = prob * (left - kept.extract(2usize));
            }
            put(&mut weights, &scores, r);
        }
        add_weighted(&weights, key, &keys, &mut tile_b, &mut sums, d_k);
    }

    #[unroll]
    for r in 0..4usize {
        scales[r] = sizes.scale;
    }
    let first = ((item.row * sizes.q_len + item.first) * sizes.n_heads + head) * d_k;
    write(&sums, &scales, of_query, first, sizes.n_heads, item.count, d_k);
}

#[cube(launch_unchecked)]
fn keys_kernel<B: Int>(
    query: &[Four],
    key: &[Four],
    value: &[Four],
    gradient: &[Four],
    rows: &[Four],
    items: &[i32],
    hidden: ComptimeOption<Box<[B]>>,
    seed: ComptimeOption<Box<[f32]>>,
    of_key: &mut [Four],
    of_value: &mut [Four],
    of_queries: Strides,
    of_keys: Strides,
    of_values: Strides,
    of_gradients: Strides,
    sizes: Sizes,
    n_items: usize,
    #[comptime] d_k: u32,
    #[comptime] d_v: u32,
    #[define(B)] _hidden_type: ElemType,
) {
    let n_shared = sizes.n_heads / sizes.group;
    let number = CUBE_POS / n_shared as usize;
    if number >= n_items {
        terminate!();
    }
    let shared = u32::cast_from(CUBE_POS) % n_shared;
    let item = read_item(items, number);
    let keys = tokens(&of_keys, item.row, shared, item.first, item.count);
    let values = tokens(&of_values, item.row, shared, item.first, item.count);

    let mut tile_a = Shared::<[Four]>::new_slice(MEMORY);
    let mut tile_b = Shared::<[Four]>::new_slice(MEMORY);
    let mut weights = Shared::<[Four]>::new_slice(MEMORY);

    // A unit's rows are keys here, and its columns queries.
    let mut scores = Array::<f32>::new(16usize);
    let mut slopes = Array::<f32>::new(16usize);
    let mut key_sums = Array::<Four>::new(comptime!(chunks(d_k) * 4));
    let mut value_sums = Array::<Four>::new(comptime!(chunks(d_v) * 4));
    let mut scales = Array::<f32>::new(4usize);
    clear(&mut key_sums, d_k);
    clear(&mut value_sums, d_v);
    // Whether padding hides a row.
    let mut hides = Array::<u32>::new(4usize);
    #[unroll]
    for r in 0..4usize {
        let row = min(UNIT_POS_Y + comptime!(r as u32 * SIDE), item.count - 1u32);
        let place = item.row * sizes.k_len + item.first + row;
        hides[r] = u32::cast_from(is_padding::<B>(hidden.clone(), place));
    }

    for n in 0..sizes.group {
        let head = shared * sizes.group + n;
        let first_row = (item.row * sizes.n_heads + head) * sizes.q_len;
        for start in range_stepped(item.from, item.to, STEP) {
            let n_queries = u32::cast_from(min(STEP, item.to - start));
            let first_query = item.other + u32::cast_from(start);
            let queries = tokens(&of_queries, item.row, head, first_query, n_queries);
            let gradients = tokens(&of_gradients, item.row, head, first_query, n_queries);
            products(key, &keys, query, &queries, &mut tile_a, &mut tile_b, &mut scores, d_k);
            products(value, &values, gradient, &gradients, &mut tile_a, &mut tile_b, &mut slopes, d_v);
            #[unroll]
            for s in 0..4usize {
                let column = start + i32::cast_from(UNIT_POS_X * 4u32 + comptime!(s as u32));
                let span = seen(&item, column + item.offset);
                let number = first_row + item.other + u32::cast_from(min(column, item.to - 1));
                let kept = rows[number as usize];
                #[unroll]
                for r in 0..4usize {
                    let at = comptime!(r * 4 + s);
                    let row = UNIT_POS_Y + comptime!(r as u32 * SIDE);
                    let place = item.first + min(row, item.count - 1u32);
                    let row = item.start + i32::cast_from(row);
                    let score = masked(scores[at] * sizes.scale, &span, row, hides[r] != 0u32);
                    let score = select(column < item.to, score, ABSENT);
                    let prob = (score - kept.extract(0usize)).exp() * kept.extract(1usize);
                    let z = factor(seed.clone(), &sizes, number, place);
                    scores[at] = prob * z;
                    slopes[at] = prob * (z * slopes[at] - kept.extract(2usize));
                }
            }
            #[unroll]
            for r in 0..4usize {
                put(&mut weights, &scores, r);
            }
            add_weighted(&weights, gradient, &gradients, &mut tile_b, &mut value_sums, d_v);
            sync_cube();
            #[unroll]
            for r in 0..4usize {
                put(&mut weights, &slopes, r);
            }
            add_weighted(&weights, query, &queries, &mut tile_b, &mut key_sums, d_k);
        }
    }

    let first = (item.row * sizes.k_len + item.first) * n_shared + shared;
    #[unroll]
    for r in 0..4usize {
        scales[r] = 1.0f32;
    }
    write(&value_sums, &scales, of_value, first * d_v, n_shared, item.count, d_v);
    #[unroll]
    for r in 0..4usize {
        scales[r] = sizes.scale;
    }
    write(&key_sums, &scales, of_key, first * d_k, n_shared, item.count, d_k);
}

/// The gradients of query, key and value, from what the forward pass was given and gave and the output's gradient.
pub(super) fn backward(
    inputs: &Inputs,
    output: &CubeTensor,
    softmax: &CubeTensor,
    gradient: &CubeTensor,
    call: &Call,
) -> [CubeTensor; 3] {
    let Inputs { query, key, value, hidden, seed } = inputs;
    let [batch, n_heads, q_len, d_k] = dims(query);
    let [_, n_shared, _, d_v] = dims(value);
    let client = &query.client;
    let sizes = || call.sizes(query, key);
    let rows = empty(query, [batch, n_heads, q_len, 4], DType::F32);
    let n_rows = batch * n_heads * q_len;
    let (count, dim) = elements(client, n_rows);
    // SAFETY: the kernel reads a query's output and gradient, and writes its row.
    unsafe {
        rows_kernel::launch_unchecked(
            client,
            count,
            dim,
            fours(output),
            fours(gradient),
            arg(softmax),
            fours(&rows),
            strides(output),
            strides(gradient),
            sizes(),
            n_rows,
            in_fours(d_v),
        );
    }
    let [of_query, of_key, of_value] = [query, key, value].map(|x| heads_inside(x, dims(x)));
    let (items, n_items) = call.items(client, &call.plan.queries);
    // SAFETY: the kernel reads and writes the tokens that the plan names, and the plan was made of the sizes.
    unsafe {
        queries_kernel::launch_unchecked(
            client,
            cubes(client, n_items * n_heads),
            CubeDim::new_2d(SIDE, SIDE),
            fours(query),
            fours(key),
            fours(value),
            fours(gradient),
            fours(&rows),
            items,
            optional(hidden),
            optional(seed),
            fours(&of_query),
            strides(query),
            strides(key),
            strides(value),
            strides(gradient),
            sizes(),
            n_items,
            in_fours(d_k),
            in_fours(d_v),
            hidden_type(hidden),
        );
    }
    let (items, n_items) = call.items(client, &call.plan.keys);
    // SAFETY: as above.
    unsafe {
        keys_kernel::launch_unchecked(
            client,
            cubes(client, n_items * n_shared),
            CubeDim::new_2d(SIDE, SIDE),
            fours(query),
            fours(key),
            fours(value),
            fours(gradient),
            fours(&rows),
            items,
            optional(hidden),
            optional(seed),
            fours(&of_key),
            fours(&of_value),
            strides(query),
            strides(key),
            strides(value),
            strides(gradient),
            sizes(),
            n_items,
            in_fours(d_k),
            in_fours(d_v),
            hidden_type(hidden),
        );
    }
    [of_query, of_key, of_value]
}
