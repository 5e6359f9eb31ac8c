//! Exhaustive scan: one panel of rows at a time, which stays in the cache for all queries.
//!
//! Interleaving rows takes as long as comparing them with a few queries, so few queries go row by row. Float
//! products are then summed in another order. The answer is still the same, unless rounding reorders more
//! rows than the extra ones rescored in 64 bits.

use crate::best::Scored;
use crate::bits::Bits;
use crate::kernels::RAISED;
use crate::kernels::panels::{self, FOUR, PANEL, Word};
use crate::sieve::Sieve;
use crate::space::{Query, Rows, Scratch, Space, of, widen};
use rayon::prelude::*;

/// Fours of queries scored against a panel before the scores are examined.
const TOGETHER: usize = 6;

/// Fewer queries go row by row.
const MANY: usize = FOUR;

/// The best `most` allowed rows of each query.
pub(crate) fn scan(
    space: &Space<'_>,
    queries: &[Query],
    rows: usize,
    allowed: Option<&Bits>,
    most: usize,
) -> Vec<Vec<Scored>> {
    let fours = (queries.len() >= MANY).then(|| Fours::of(space, queries));
    // Parts that are as long as can be, so that the best rows of each soon leave few to look at.
    let part = rows.div_ceil(2 * rayon::current_num_threads()).next_multiple_of(PANEL).max(PANEL);
    let starts: Vec<usize> = (0..rows).step_by(part).collect();
    let parts: Vec<Vec<Sieve>> = starts
        .par_iter()
        .map(|start| {
            let mut sieves = vec![Sieve::new(most); queries.len()];
            let (mut panel, mut scratch) = (Panel::new(space), Scratch::default());
            let mut scores = vec![[0.0; PANEL]; TOGETHER * FOUR];
            let (mut floors, mut above) = ([f32::INFINITY; TOGETHER * FOUR], [0u32; TOGETHER * FOUR]);
            let mut rows = (*start..(start + part).min(rows))
                .filter(|row| allowed.is_none_or(|allowed| allowed.has(*row)))
                .map(|row| row as u32);
            loop {
                panel.rows.clear();
                panel.rows.extend(rows.by_ref().take(PANEL));
                if panel.rows.is_empty() {
                    break;
                }
                if fours.is_some() {
                    panel.lay(space);
                }
                // Places beyond the rows are not above anything.
                let places = u32::MAX >> (PANEL - panel.rows.len());
                let all = queries.chunks(TOGETHER * FOUR).zip(sieves.chunks_mut(TOGETHER * FOUR));
                for (number, (queries, sieves)) in all.enumerate() {
                    match &fours {
                        Some(fours) => panel.scores(fours, number * TOGETHER, queries, &mut scores),
                        None => {
                            for (query, scores) in queries.iter().zip(&mut scores) {
                                let scores = &mut scores[..panel.rows.len()];
                                space.scores(query, &panel.rows, &mut scratch, scores);
                            }
                        }
                    }
                    floors.iter_mut().zip(&*sieves).for_each(|(floor, sieve)| *floor = sieve.floor());
                    panels::above(&scores, &floors, &mut above);
                    for ((sieve, scores), above) in sieves.iter_mut().zip(&scores).zip(above) {
                        let mut above = above & places;
                        while above != 0 {
                            let place = above.trailing_zeros() as usize;
                            above &= above - 1;
                            sieve.push(Scored { score: scores[place], row: panel.rows[place] });
                        }
                    }
                }
            }
            sieves
        })
        .collect();
    let of_query = |query: usize| Sieve::best(most, parts.iter().map(|part| &part[query]));
    (0..queries.len()).into_par_iter().map(of_query).collect()
}

/// Queries in the form of [`panels`]: interleaved in fours.
enum Fours {
    Floats(Vec<Vec<[f32; FOUR]>>),
    /// With each query's scale.
    Int8(Vec<Vec<[Word; FOUR]>>, Vec<f32>),
    Binary(Vec<Vec<[u64; FOUR]>>),
}

impl Fours {
    fn of(space: &Space<'_>, queries: &[Query]) -> Self {
        match space.rows {
            Rows::F32(_) | Rows::Bf16(_) => Self::Floats(in_fours(queries, |query| query.floats().to_vec())),
            Rows::Int8 { .. } => {
                let word = |four: &[u8]| std::array::from_fn(|i| four.get(i).copied().unwrap_or(RAISED));
                let words = |query: &Query| query.codes().0.chunks(4).map(word).collect();
                Self::Int8(in_fours(queries, words), queries.iter().map(|query| query.codes().1).collect())
            }
            Rows::Binary(_) => Self::Binary(in_fours(queries, |query| query.signs().to_vec())),
        }
    }
}

/// Queries interleaved in fours; the last four is padded with zeros.
fn in_fours<T: Copy + Default>(queries: &[Query], numbers: impl Fn(&Query) -> Vec<T>) -> Vec<Vec<[T; FOUR]>> {
    let four = |four: &[Query]| {
        let four: Vec<Vec<T>> = four.iter().map(&numbers).collect();
        let line = |i| std::array::from_fn(|q| four.get(q).map_or(T::default(), |query| query[i]));
        (0..four[0].len()).map(line).collect()
    };
    queries.chunks(FOUR).map(four).collect()
}

/// Interleaved rows with their data. Slots beyond the rows hold anything.
struct Panel {
    rows: Vec<u32>,
    numbers: Numbers,
    /// The scale of each row's products; for 8-bit numbers only.
    scales: [f32; PANEL],
    /// Half of each row's squared norm; for Euclidean distances only.
    halves: Option<[f32; PANEL]>,
}

enum Numbers {
    Floats { panel: Vec<[f32; PANEL]>, wide: Vec<f32> },
    Int8 { panel: Vec<[Word; PANEL]>, sums: Vec<[i32; PANEL]> },
    Binary(Vec<[u64; PANEL]>),
}

impl Panel {
    fn new(space: &Space<'_>) -> Self {
        let numbers = match space.rows {
            Rows::F32(_) => Numbers::Floats { panel: vec![[0.0; PANEL]; space.width], wide: Vec::new() },
            Rows::Bf16(_) => Numbers::Floats {
                panel: vec![[0.0; PANEL]; space.width],
                wide: vec![0.0; PANEL * space.width],
            },
            Rows::Int8 { .. } => Numbers::Int8 {
                panel: vec![[[0; 4]; PANEL]; space.width.div_ceil(4)],
                sums: vec![[0; PANEL]; TOGETHER * FOUR],
            },
            Rows::Binary(_) => Numbers::Binary(vec![[0; PANEL]; space.width.div_ceil(64)]),
        };
        let halves = space.halves.map(|_| [0.0; PANEL]);
        Self { rows: Vec::with_capacity(PANEL), numbers, scales: [0.0; PANEL], halves }
    }

    /// Interleaves `self.rows` of `space`.
    fn lay(&mut self, space: &Space<'_>) {
        if let (Some(to), Some(halves)) = (&mut self.halves, space.halves) {
            to.iter_mut().zip(&self.rows).for_each(|(to, row)| *to = halves[*row as usize]);
        }
        match (&mut self.numbers, space.rows) {
            (Numbers::Floats { panel, .. }, Rows::F32(values)) => {
                lay_floats(self.rows.iter().map(|row| of(values, space.width, *row)), panel);
            }
            (Numbers::Floats { panel, wide }, Rows::Bf16(values)) => {
                for (row, wide) in self.rows.iter().zip(wide.chunks_exact_mut(space.width)) {
                    widen(of(values, space.width, *row), wide);
                }
                lay_floats(wide.chunks_exact(space.width).take(self.rows.len()), panel);
            }
            (Numbers::Int8 { panel, .. }, Rows::Int8 { scales, codes }) => {
                let mut words: [&[Word]; PANEL] = [&[]; PANEL];
                let (whole, last) = panel.split_at_mut(space.width / 4);
                for (place, row) in self.rows.iter().enumerate() {
                    self.scales[place] = scales[*row as usize];
                    let bytes: &[u8] = bytemuck::cast_slice(of(codes, space.width, *row));
                    let rest;
                    (words[place], rest) = bytes.as_chunks();
                    if let [last] = last {
                        last[place] = std::array::from_fn(|i| rest.get(i).copied().unwrap_or(0));
                    }
                }
                panels::lay(&words[..self.rows.len()], whole);
            }
            (Numbers::Binary(panel), Rows::Binary(codes)) => {
                for (place, row) in self.rows.iter().enumerate() {
                    let row = of(codes, space.width.div_ceil(64), *row);
                    panel.iter_mut().zip(row).for_each(|(line, word)| line[place] = *word);
                }
            }
            _ => unreachable!("a panel of this space"),
        }
    }

    /// `out[q][r]`, the scores of the queries of `fours` from `first` on with each row.
    fn scores(&mut self, fours: &Fours, first: usize, queries: &[Query], out: &mut [[f32; PANEL]]) {
        let here = first..first + queries.len().div_ceil(FOUR);
        match (&mut self.numbers, fours) {
            (Numbers::Floats { panel, .. }, Fours::Floats(fours)) => {
                panels::products(&fours[here], panel, out);
            }
            (Numbers::Int8 { panel, sums }, Fours::Int8(fours, scales)) => {
                panels::products_int8(&fours[here], panel, sums);
                panels::scale(sums, &scales[FOUR * first..], &self.scales, out);
            }
            (Numbers::Binary(panel), Fours::Binary(fours)) => panels::distances(&fours[here], panel, out),
            _ => unreachable!("a panel and queries of this space"),
        }
        if let Some(halves) = &self.halves {
            for (query, out) in queries.iter().zip(out) {
                let half = query.half();
                halves.iter().zip(out).for_each(|(of_row, out)| *out -= half + of_row);
            }
        }
    }
}

/// Interleaves rows of floats.
fn lay_floats<'a>(rows: impl Iterator<Item = &'a [f32]>, panel: &mut [[f32; PANEL]]) {
    let mut words: [&[Word]; PANEL] = [&[]; PANEL];
    let mut n = 0;
    for (to, row) in words.iter_mut().zip(rows) {
        *to = bytemuck::cast_slice(row);
        n += 1;
    }
    panels::lay(&words[..n], bytemuck::cast_slice_mut(panel));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Integers, whose products are exact in any order.
    fn numbers(n: usize, step: usize) -> Vec<f32> {
        (0..n).map(|i| (i * step % 15) as f32 - 7.0).collect()
    }

    #[test]
    fn scores_side_by_side_are_those_row_by_row() {
        let (width, rows) = (70, 83);
        let values = numbers(width * rows, 31);
        let halves: Vec<f32> = values.chunks(width).map(crate::space::half_square).collect();
        let bf16: Vec<u16> = values.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
        let mut codes = vec![0; values.len()];
        let scales: Vec<f32> = values
            .chunks(width)
            .zip(codes.chunks_mut(width))
            .map(|(values, codes)| crate::codes::encode_int8(values, codes))
            .collect();
        let signs: Vec<u64> = values.chunks(width).flat_map(crate::codes::encode_binary).collect();
        let mut odd = Bits::none(rows);
        (1..rows).step_by(2).for_each(|row| odd.insert(row));
        for all in [
            Rows::F32(&values),
            Rows::Bf16(&bf16),
            Rows::Int8 { scales: &scales, codes: &codes },
            Rows::Binary(&signs),
        ] {
            let is_binary = matches!(all, Rows::Binary(_));
            let space = Space { rows: all, width, halves: (!is_binary).then_some(&halves) };
            let queries: Vec<Query> =
                numbers(27 * width, 23).chunks(width).map(|query| space.query(query)).collect();
            for allowed in [None, Some(&odd)] {
                let together = scan(&space, &queries, rows, allowed, rows);
                for (query, found) in queries.iter().zip(together) {
                    let rows: Vec<u32> = (0..rows as u32)
                        .filter(|row| allowed.is_none_or(|odd| odd.has(*row as usize)))
                        .collect();
                    let mut scores = vec![0.0; rows.len()];
                    space.scores(query, &rows, &mut Scratch::default(), &mut scores);
                    let scored = scores.iter().zip(&rows);
                    let mut expected: Vec<Scored> =
                        scored.map(|(score, row)| Scored { score: score + 0.0, row: *row }).collect();
                    expected.sort_by(|a, b| b.cmp(a));
                    assert_eq!(found, expected, "{all:?}");
                }
            }
        }
    }
}
