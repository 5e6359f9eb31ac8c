//! Exact nearest neighbours of all vectors.

use std::cmp::Ordering;

use rayon::prelude::*;

/// Block size: rows processed together, and rows they are compared with at a time; both stay in a core's
/// cache.
const TOGETHER: usize = 32;
const BLOCK: usize = 256;

/// A vector near another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Near {
    pub place: u32,
    /// The square of their distance.
    pub square: f32,
}

impl Near {
    /// Nearer ones first; ties go to the earlier one.
    fn order(&self, other: &Self) -> Ordering {
        self.square.total_cmp(&other.square).then(self.place.cmp(&other.place))
    }
}

/// For each of `vectors`, `[n · width]`, the `k` nearest others by Euclidean distance, nearest first. All
/// pairs are compared, on all cores.
///
/// # Panics
/// If there are at most `k` vectors.
pub(super) fn nearest(vectors: &[f32], width: usize, k: usize) -> Vec<Vec<Near>> {
    let n = vectors.len() / width;
    assert!(k < n, "{k} neighbours among {n} vectors");
    let found: Vec<Vec<Vec<Near>>> = vectors
        .par_chunks(TOGETHER * width)
        .enumerate()
        .map(|(chunk, rows)| {
            let mut all: Vec<Nearest> = rows.chunks_exact(width).map(|_| Nearest::new(k)).collect();
            for (block, others) in vectors.chunks(BLOCK * width).enumerate() {
                for (row, (vector, nearest)) in rows.chunks_exact(width).zip(&mut all).enumerate() {
                    for (place, other) in (block * BLOCK..).zip(others.chunks_exact(width)) {
                        if place != chunk * TOGETHER + row {
                            nearest
                                .add(Near { place: place as u32, square: squared_distance(vector, other) });
                        }
                    }
                }
            }
            all.into_iter().map(Nearest::sorted).collect()
        })
        .collect();
    found.into_iter().flatten().collect()
}

/// The nearest so far, and possibly some farther ones.
struct Nearest {
    k: usize,
    found: Vec<Near>,
    /// The largest distance that may still be among them.
    limit: f32,
}

impl Nearest {
    fn new(k: usize) -> Self {
        Self { k, found: Vec::with_capacity(2 * k), limit: f32::INFINITY }
    }

    fn add(&mut self, near: Near) {
        // Places grow, so of equally near ones a later one never replaces an earlier one.
        if near.square > self.limit {
            return;
        }
        self.found.push(near);
        if self.found.len() == 2 * self.k {
            self.found.select_nth_unstable_by(self.k - 1, Near::order);
            self.found.truncate(self.k);
            self.limit = self.found[self.k - 1].square;
        }
    }

    fn sorted(mut self) -> Vec<Near> {
        self.found.sort_unstable_by(Near::order);
        self.found.truncate(self.k);
        self.found
    }
}

/// Uses partial sums that the processor can vectorise.
fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    let (chunks_a, chunks_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let term = |a: &f32, b: &f32| (a - b) * (a - b);
    let rest: f32 = chunks_a.remainder().iter().zip(chunks_b.remainder()).map(|(a, b)| term(a, b)).sum();
    let mut lanes = [0.0; LANES];
    for (a, b) in chunks_a.zip(chunks_b) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (a, b))| *lane += term(a, b));
    }
    lanes.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_are_those_of_a_sort() {
        let (n, width, k) = (700, 11, 7);
        // Two decimals, so that some are equally near.
        let vectors: Vec<f32> =
            (0..n * width).map(|i| ((i * i) as f32 * 0.37).sin()).map(|x| (x * 9.0).round()).collect();
        let found = nearest(&vectors, width, k);
        let row = |i: usize| &vectors[i * width..][..width];
        for (i, found) in found.iter().enumerate() {
            let mut all: Vec<Near> = (0..n)
                .filter(|j| *j != i)
                .map(|j| Near { place: j as u32, square: squared_distance(row(i), row(j)) })
                .collect();
            all.sort_by(Near::order);
            assert_eq!(found[..], all[..k], "{i}");
        }
    }

    #[test]
    fn one_neighbour_of_equal_vectors_is_the_first() {
        let found = nearest(&[1.0; 3], 1, 1);
        assert_eq!(found.concat().iter().map(|near| near.place).collect::<Vec<_>>(), [1, 0, 0]);
    }
}
