//! What the kernels share: tiles of 32 tokens in the shared memory of a cube of 8 × 8 units, and the two products that
//! attention is made of.
//!
//! A product of two tiles, `S = A·Bᵀ`, goes through the features in chunks of 32, so that shared memory is enough for
//! heads of any width; each unit has 4 × 4 of the 32 × 32 sums. The product of such a matrix with a tile, `S·B`, goes
//! through the tokens; each unit has 4 rows of 4 features a chunk. A unit's rows are `y`, `y + 8`, `y + 16` and `y + 24`,
//! and its columns `4x` to `4x + 3`.
//!
//! Three tiles take 13.5 KiB, a row in each of them four numbers more than 32, so that units side by side read other
//! banks.

use super::plan::{ITEM, TILE};
use cubecl::prelude::*;

/// Four features of a token, the least that is read or written.
pub(super) type Four = Vector<f32, Const<4>>;

/// Units along each side of a cube.
pub(super) const SIDE: u32 = 8;

/// From a tile to the next.
pub(super) const STEP: i32 = TILE as i32;

/// Fours of features in shared memory at a time.
const CHUNK: u32 = 8;

/// Fours from a row of a tile to the next.
const PITCH: u32 = 9;

/// Fours of a tile in shared memory.
pub(super) const MEMORY: usize = TILE * PITCH as usize;

/// The score of a key that a query does not see. It is finite, so that a query that sees nothing has the same score for
/// all keys.
pub(super) const HIDDEN: f32 = -1e30;

/// The score of a key that is not there: nothing is left of it beside one that is hidden.
pub(super) const ABSENT: f32 = -2e30;

/// How many numbers, in fours, lie between neighbours on the axes of a tensor `[batch, n_heads, len, d]`.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Strides {
    pub row: u32,
    pub head: u32,
    pub token: u32,
}

/// The sizes of a call.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Sizes {
    pub n_heads: u32,
    /// How many heads of queries share one of keys.
    pub group: u32,
    pub q_len: u32,
    pub k_len: u32,
    /// What scores are multiplied by.
    pub scale: f32,
    /// A draw below it drops.
    pub threshold: u32,
    /// What dropout multiplies the rest by.
    pub kept: f32,
}

/// A block, see [`Plan`](super::plan::Plan).
#[derive(CubeType)]
pub(super) struct Item {
    pub row: u32,
    pub first: u32,
    pub count: u32,
    pub other: u32,
    pub from: i32,
    pub to: i32,
    pub start: i32,
    pub offset: i32,
    pub before: i32,
    pub after: i32,
    pub prefix: i32,
}

#[cube]
pub(super) fn read_item(items: &[i32], number: usize) -> Item {
    let at = number * ITEM;
    Item {
        row: u32::cast_from(items[at]),
        first: u32::cast_from(items[at + 1]),
        count: u32::cast_from(items[at + 2]),
        other: u32::cast_from(items[at + 3]),
        from: items[at + 4],
        to: items[at + 5],
        start: items[at + 6],
        offset: items[at + 7],
        before: items[at + 8],
        after: items[at + 9],
        prefix: items[at + 10],
    }
}

/// The first and the last key that a query sees, counted from its sequence's first. They may lie beyond its keys.
#[derive(CubeType)]
pub(super) struct Seen {
    pub first: i32,
    pub last: i32,
}

#[cube]
pub(super) fn seen(item: &Item, position: i32) -> Seen {
    Seen { first: position - item.before, last: min(position + item.after, max(position, item.prefix - 1)) }
}

/// What a score counts as, of a key that is seen or not.
#[cube]
pub(super) fn masked(score: f32, seen: &Seen, key: i32, is_padding: bool) -> f32 {
    let score = select(key < seen.first, HIDDEN, score);
    let score = select(key > seen.last, HIDDEN, score);
    select(is_padding, HIDDEN, score)
}

/// Whether padding hides a key.
#[cube]
pub(super) fn is_padding<B: Int>(hidden: ComptimeOption<Box<[B]>>, key: u32) -> bool {
    #[comptime]
    match hidden {
        ComptimeOption::Some(hidden) => hidden[key as usize] != B::from_int(0),
        ComptimeOption::None => false,
    }
}

/// What dropout multiplies a probability by.
#[cube]
pub(super) fn factor(seed: ComptimeOption<Box<[f32]>>, sizes: &Sizes, query: u32, key: u32) -> f32 {
    #[comptime]
    match seed {
        ComptimeOption::Some(seed) => {
            let element = query * sizes.k_len + key;
            crate::cube::random::factor(&seed, element as usize, sizes.threshold, sizes.kept)
        }
        ComptimeOption::None => 1.0f32,
    }
}

/// Up to 32 tokens of a head: where their first four features are, how far the next token is, and how many there are.
#[derive(CubeType)]
pub(super) struct Tokens {
    pub first: u32,
    pub stride: u32,
    pub count: u32,
}

#[cube]
pub(super) fn tokens(strides: &Strides, row: u32, head: u32, first: u32, count: u32) -> Tokens {
    Tokens {
        first: row * strides.row + head * strides.head + first * strides.token,
        stride: strides.token,
        count,
    }
}

/// Brings a chunk of the tokens' features into shared memory, with zeros beyond the tokens and the features.
///
/// With `spread` a unit's four columns lie eight rows apart, so that units side by side read rows side by side.
#[cube]
pub(super) fn load(
    from: &[Four],
    tokens: &Tokens,
    width: u32,
    chunk: u32,
    tile: &mut Shared<[Four]>,
    #[comptime] spread: bool,
) {
    let feature = chunk * CHUNK + UNIT_POS_X;
    #[unroll]
    for pass in 0..4u32 {
        let token = pass * SIDE + UNIT_POS_Y;
        let mut value = Four::new(0.0f32);
        if token < tokens.count && feature < width {
            value = from[(tokens.first + token * tokens.stride + feature) as usize];
        }
        if comptime!(spread) {
            tile[(((token % 4u32) * SIDE + token / 4u32) * PITCH + UNIT_POS_X) as usize] = value;
        } else {
            tile[(token * PITCH + UNIT_POS_X) as usize] = value;
        }
    }
}

/// The products of up to 32 tokens with 32 others, 4 × 4 a unit.
#[cube]
pub(super) fn products(
    a: &[Four],
    rows: &Tokens,
    b: &[Four],
    columns: &Tokens,
    tile_a: &mut Shared<[Four]>,
    tile_b: &mut Shared<[Four]>,
    sums: &mut Array<f32>,
    #[comptime] width: u32,
) {
    #[unroll]
    for i in 0..16usize {
        sums[i] = 0.0f32;
    }
    for chunk in 0..comptime!(chunks(width) as u32) {
        sync_cube();
        load(a, rows, width, chunk, tile_a, false);
        load(b, columns, width, chunk, tile_b, true);
        sync_cube();
        for four in 0..min(CHUNK, width - chunk * CHUNK) {
            let row = (UNIT_POS_Y * PITCH + four) as usize;
            let column = (UNIT_POS_X * PITCH + four) as usize;
            let step = comptime!((SIDE * PITCH) as usize);
            let c0 = tile_b[column];
            let c1 = tile_b[column + step];
            let c2 = tile_b[column + step * 2];
            let c3 = tile_b[column + step * 3];
            #[unroll]
            for r in 0..4usize {
                let value = tile_a[row + r * step];
                sums[comptime!(r * 4)] += value.dot(c0);
                sums[comptime!(r * 4 + 1)] += value.dot(c1);
                sums[comptime!(r * 4 + 2)] += value.dot(c2);
                sums[comptime!(r * 4 + 3)] += value.dot(c3);
            }
        }
    }
}

/// Adds up the tokens' features, weighted: `weights` has a row for each of 32 sums, and a column for each token. A unit
/// has four rows of each chunk of `width` features.
#[cube]
pub(super) fn add_weighted(
    weights: &Shared<[Four]>,
    from: &[Four],
    tokens: &Tokens,
    tile: &mut Shared<[Four]>,
    sums: &mut Array<Four>,
    #[comptime] width: u32,
) {
    #[unroll]
    for chunk in 0..comptime!(chunks(width)) {
        sync_cube();
        load(from, tokens, width, comptime!(chunk as u32), tile, false);
        sync_cube();
        for group in 0..8u32 {
            let token = (group * comptime!(4 * PITCH) + UNIT_POS_X) as usize;
            let step = comptime!(PITCH as usize);
            let t0 = tile[token];
            let t1 = tile[token + step];
            let t2 = tile[token + step * 2];
            let t3 = tile[token + step * 3];
            #[unroll]
            for r in 0..4usize {
                let row = UNIT_POS_Y + comptime!(r as u32 * SIDE);
                let weight = weights[(row * PITCH + group) as usize];
                sums[comptime!(chunk * 4 + r)] += Four::new(weight.extract(0usize)) * t0
                    + Four::new(weight.extract(1usize)) * t1
                    + Four::new(weight.extract(2usize)) * t2
                    + Four::new(weight.extract(3usize)) * t3;
            }
        }
    }
}

/// Sums of no tokens.
#[cube]
pub(super) fn clear(sums: &mut Array<Four>, #[comptime] width: u32) {
    #[unroll]
    for i in 0..comptime!(chunks(width) * 4) {
        sums[i] = Four::new(0.0f32);
    }
}

/// Writes the sums that a unit has, multiplied by a number each row, to tokens of memory `[batch, len, n_heads, d]`.
#[cube]
pub(super) fn write(
    sums: &Array<Four>,
    inverses: &Array<f32>,
    to: &mut [Four],
    first: u32,
    n_heads: u32,
    count: u32,
    #[comptime] width: u32,
) {
    #[unroll]
    for chunk in 0..comptime!(chunks(width)) {
        #[unroll]
        for r in 0..4usize {
            let token = UNIT_POS_Y + comptime!(r as u32 * SIDE);
            let feature = UNIT_POS_X + comptime!(chunk as u32 * CHUNK);
            if token < count && feature < width {
                let place = first + token * n_heads * width + feature;
                to[place as usize] = sums[comptime!(chunk * 4 + r)] * Four::new(inverses[r]);
            }
        }
    }
}

/// Puts the four columns of one of a unit's rows into the tile of weights.
#[cube]
pub(super) fn put(tile: &mut Shared<[Four]>, values: &Array<f32>, #[comptime] r: usize) {
    let mut four = Four::empty();
    #[unroll]
    for s in 0..4usize {
        four.insert(s, values[comptime!(r * 4 + s)]);
    }
    let row = UNIT_POS_Y + comptime!(r as u32 * SIDE);
    tile[(row * PITCH + UNIT_POS_X) as usize] = four;
}

/// How many chunks so many fours of features are.
pub(super) const fn chunks(width: u32) -> usize {
    width.div_ceil(CHUNK) as usize
}
