//! Embeddings of integers.

use super::norm::{RoundedNorm, ratio};
use super::parts::{IntegerParts, IntegerTable};
use crate::ops::IntegerMatrix;
use crate::ops::integer_only::{Dyadic, saturated};

/// The sum of the embeddings of pieces, token types and positions in 16 bits, normalised.
#[derive(Debug, Clone)]
pub(super) struct Embeddings {
    pieces: Table,
    token_types: Table,
    positions: Table,
    position_offset: usize,
    norm: RoundedNorm,
}

#[derive(Debug, Clone)]
struct Table {
    matrix: IntegerMatrix,
    /// From the scale of each row to that of the sum.
    ratios: Vec<Dyadic>,
}

impl Table {
    fn new(table: &IntegerTable, sum_scale: f64) -> Result<Self, String> {
        let ratios = table.scales.iter().map(|scale| ratio(*scale, sum_scale)).collect::<Result<_, _>>()?;
        Ok(Self { matrix: table.matrix.clone(), ratios })
    }

    fn len(&self) -> usize {
        self.ratios.len()
    }

    /// Adds a row to a sum of 16 bits.
    fn add(&self, row: usize, sum: &mut [i32]) {
        let (ratio, d) = (self.ratios[row], sum.len());
        let row = &self.matrix.values()[row * d..][..d];
        for (sum, q) in sum.iter_mut().zip(row) {
            let q = ratio.apply_narrow(i64::from(q.cast_signed()));
            *sum = saturated(i64::from(*sum) + q, 16) as i32;
        }
    }
}

/// A token: its piece, its type and its position, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegerToken {
    /// The piece.
    pub id: usize,
    /// The token type; not used by a model with one.
    pub token_type: usize,
    /// The position.
    pub position: usize,
}

impl Embeddings {
    pub fn new(parts: &IntegerParts) -> Result<Self, String> {
        let [pieces, token_types, positions] = &parts.tables;
        let table = |table| Table::new(table, parts.sum_scale);
        Ok(Self {
            pieces: table(pieces)?,
            token_types: table(token_types)?,
            positions: table(positions)?,
            position_offset: parts.position_offset,
            norm: RoundedNorm::new(&parts.norm, parts.output_scale)?,
        })
    }

    /// # Panics
    /// If a number is out of range.
    pub fn forward(&self, tokens: &[IntegerToken]) -> Vec<i8> {
        let d = self.pieces.matrix.dims()[1];
        let mut states = vec![0; tokens.len() * d];
        let mut sum = vec![0; d];
        for (token, to) in tokens.iter().zip(states.chunks_exact_mut(d)) {
            sum.fill(0);
            self.pieces.add(token.id, &mut sum);
            self.token_types.add(if self.token_types.len() == 1 { 0 } else { token.token_type }, &mut sum);
            let n = self.positions.len() - self.position_offset;
            let position = token.position;
            assert!(position < n, "{} tokens, but the model has {n} positions", position + 1);
            self.positions.add(position + self.position_offset, &mut sum);
            self.norm.apply(&sum, to);
        }
        states
    }
}
