//! The best of all rows: a panel of rows at a time, which stays in the cache for all queries.
//!
//! Laying rows side by side takes as long as comparing them with a few queries; so few queries go row by row. Products of
//! floats are then rounded in another order, which the margin of rows that are compared again in 64 bits allows for.

use crate::best::Scored;
use crate::bits::Bits;
use crate::kernels::RAISED;
use crate::kernels::panels::{self, FOUR, PANEL, Word};
use crate::sieve::Sieve;
use crate::space::{Query, Rows, Scratch, Space, of, widen};
use rayon::prelude::*;

/// Fours of queries whose scores with a panel are computed before they are looked at.
const TOGETHER: usize = 6;

/// Fewer queries go row by row.
const FEW: usize = FOUR;

/// The best `most` rows of each query, of all that are allowed.
pub(crate) fn scan(
    space: &Space<'_>,
    queries: &[Query],
    rows: usize,
    allowed: Option<&Bits>,
    most: usize,
) -> Vec<Vec<Scored>> {
    let fours = (queries.len() >= FEW).then(|| Fours::of(space, queries));
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
    let mut all = vec![Sieve::new(most); queries.len()];
    for part in parts {
        all = all.into_iter().zip(part).map(|(all, part)| all.and(part)).collect();
    }
    all.into_iter().map(Sieve::into_sorted).collect()
}

/// Queries as [`panels`] takes them: in fours, number after number.
enum Fours {
    Floats(Vec<Vec<[f32; FOUR]>>),
    Int8(Vec<Vec<[Word; FOUR]>>),
    Binary(Vec<Vec<[u64; FOUR]>>),
}

impl Fours {
    fn of(space: &Space<'_>, queries: &[Query]) -> Self {
        match space.rows {
            Rows::F32(_) | Rows::Bf16(_) => Self::Floats(in_fours(queries, |query| match query {
                Query::Floats { values, .. } => values.clone(),
                _ => unreachable!("a query of this space"),
            })),
            Rows::Int8 { .. } => Self::Int8(in_fours(queries, |query| match query {
                Query::Int8 { values, .. } => {
                    let word = |four: &[u8]| std::array::from_fn(|i| four.get(i).copied().unwrap_or(RAISED));
                    values.chunks(4).map(word).collect()
                }
                _ => unreachable!("a query of this space"),
            })),
            Rows::Binary(_) => Self::Binary(in_fours(queries, |query| match query {
                Query::Binary(words) => words.clone(),
                _ => unreachable!("a query of this space"),
            })),
        }
    }
}

/// Four queries side by side each; where the last ones are fewer, with zeros.
fn in_fours<T: Copy + Default>(queries: &[Query], numbers: impl Fn(&Query) -> Vec<T>) -> Vec<Vec<[T; FOUR]>> {
    let four = |four: &[Query]| {
        let four: Vec<Vec<T>> = four.iter().map(&numbers).collect();
        let line = |i| std::array::from_fn(|q| four.get(q).map_or(T::default(), |query| query[i]));
        (0..four[0].len()).map(line).collect()
    };
    queries.chunks(FOUR).map(four).collect()
}

/// Rows side by side, and what belongs to each. Places beyond the rows hold anything.
struct Panel {
    rows: Vec<u32>,
    numbers: Numbers,
    /// What to multiply a row's products by; of 8-bit numbers only.
    scales: [f32; PANEL],
    /// Half the square of a row's length; of Euclidean distances only.
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

    /// Lays `self.rows` of `space` side by side.
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

    /// `out[q][r]`, the score of each of the `queries`, which are those of `fours` from `first` on, with each row.
    fn scores(&mut self, fours: &Fours, first: usize, queries: &[Query], out: &mut [[f32; PANEL]]) {
        let fours_here = first..first + queries.len().div_ceil(FOUR);
        match (&mut self.numbers, fours) {
            (Numbers::Floats { panel, .. }, Fours::Floats(fours)) => {
                panels::products(&listed(&fours[fours_here]), panel, out);
            }
            (Numbers::Int8 { panel, sums }, Fours::Int8(fours)) => {
                panels::products_int8(&listed(&fours[fours_here]), panel, sums);
                let mut of_queries = [0.0; TOGETHER * FOUR];
                for (to, query) in of_queries.iter_mut().zip(queries) {
                    let Query::Int8 { scale, .. } = query else { unreachable!("a query of this space") };
                    *to = *scale;
                }
                panels::scale(sums, &of_queries, &self.scales, out);
            }
            (Numbers::Binary(panel), Fours::Binary(fours)) => {
                panels::distances(&listed(&fours[fours_here]), panel, out);
            }
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

/// Lays rows of floats side by side.
fn lay_floats<'a>(rows: impl Iterator<Item = &'a [f32]>, panel: &mut [[f32; PANEL]]) {
    let mut words: [&[Word]; PANEL] = [&[]; PANEL];
    let mut n = 0;
    for (to, row) in words.iter_mut().zip(rows) {
        *to = bytemuck::cast_slice(row);
        n += 1;
    }
    panels::lay(&words[..n], bytemuck::cast_slice_mut(panel));
}

/// Fours as slices.
fn listed<T>(fours: &[Vec<T>]) -> Vec<&[T]> {
    fours.iter().map(Vec::as_slice).collect()
}
