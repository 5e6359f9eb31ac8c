//! An encoder layer of integers.

use super::norm::{RoundedNorm, ratio, ratios};
use super::parts::{IntegerLayerParts, IntegerMap};
use crate::ops::IntegerMatrix;
use crate::ops::integer_only::{
    Dyadic, IntegerGelu, IntegerGelus, IntegerLinear, IntegerSoftmax, Ratios, integer_context,
    integer_scores, saturated,
};
use rayon::prelude::*;
use std::ops::Range;

/// Tokens per task.
const ROWS: usize = 16;

#[derive(Debug, Clone)]
pub(super) struct Layer {
    n_heads: usize,
    /// Queries, keys and values in one map.
    attended: Rounded,
    softmax: IntegerSoftmax,
    to_context: Dyadic,
    output: Added,
    /// From the normalised states to the feed-forward network's input.
    to_feed_forward: Dyadic,
    up: IntegerLinear,
    /// Of each inner feature: GELU, and its way to 8 bits.
    gelu: IntegerGelus,
    /// From the outputs of GELU to the input of the last map.
    to_inner: Dyadic,
    down: Added,
}

/// A map whose sums are rounded to 8 bits.
#[derive(Debug, Clone)]
struct Rounded {
    linear: IntegerLinear,
    ratios: Ratios,
}

/// A map whose sums are added to its sub-layer's input, and normalised.
#[derive(Debug, Clone)]
struct Added {
    linear: IntegerLinear,
    ratios: Ratios,
    of_residual: Dyadic,
    norm: RoundedNorm,
}

fn linear(map: &IntegerMap) -> Result<IntegerLinear, String> {
    IntegerLinear::new(&map.matrix, &map.bias)
}

impl Layer {
    /// The layer for inputs of this scale.
    pub fn new(parts: &IntegerLayerParts, n_heads: usize, input_scale: f64) -> Result<Self, String> {
        let scales = &parts.scales;
        let d_head = parts.query.scales.len() / n_heads;
        let maps = [(&parts.query, scales.query), (&parts.key, scales.key), (&parts.value, scales.value)];
        let matrices: Vec<IntegerMatrix> = maps.iter().map(|(map, _)| map.matrix.clone()).collect();
        let matrix =
            IntegerMatrix::concatenated(&matrices).ok_or("queries, keys and values differ in width")?;
        let biases: Vec<i64> = maps.iter().flat_map(|(map, _)| map.bias.iter().copied()).collect();
        let mut all = Vec::new();
        for (map, scale) in maps {
            all.extend(ratios(&map.scales, input_scale, scale)?);
        }
        let score_scale = scales.query * scales.key / (d_head as f64).sqrt();
        let features = parts.up.scales.iter().map(|scale| {
            let scale = scale * scales.feed_forward_input;
            // Weights of zeros: the outputs are 0, whatever the function.
            match scale {
                0.0 => Ok((IntegerGelu::new(1.0), Dyadic::ZERO)),
                _ => Ok((IntegerGelu::new(scale), ratio(IntegerGelu::output_scale(scale), scales.gelu)?)),
            }
        });
        let (gelu, to_8_bits) = features.collect::<Result<Vec<_>, String>>()?.into_iter().unzip();
        Ok(Self {
            n_heads,
            attended: Rounded { linear: IntegerLinear::new(&matrix, &biases)?, ratios: Ratios::new(all) },
            softmax: IntegerSoftmax::new(score_scale, scales.exponentials)?,
            to_context: ratio(IntegerSoftmax::OUTPUT_SCALE * scales.value, scales.context)?,
            output: Added {
                linear: linear(&parts.output)?,
                ratios: Ratios::new(ratios(&parts.output.scales, scales.context, scales.attention_sum)?),
                of_residual: ratio(input_scale, scales.attention_sum)?,
                norm: RoundedNorm::new(&parts.attention_norm, scales.attention)?,
            },
            to_feed_forward: ratio(scales.attention, scales.feed_forward_input)?,
            up: linear(&parts.up)?,
            gelu: IntegerGelus::new(gelu, Ratios::new(to_8_bits)),
            to_inner: ratio(scales.gelu, scales.inner)?,
            down: Added {
                linear: linear(&parts.down)?,
                ratios: Ratios::new(ratios(&parts.down.scales, scales.inner, scales.feed_forward_sum)?),
                of_residual: ratio(scales.feed_forward_input, scales.feed_forward_sum)?,
                norm: RoundedNorm::new(&parts.feed_forward_norm, scales.output)?,
            },
        })
    }

    /// # Shapes
    /// - `x`: `[n_tokens, d_model]`, of sequences at these places; returns the same
    pub fn forward(&self, x: &[i8], sequences: &[Range<usize>]) -> Vec<i8> {
        let context = self.attend(x, sequences);
        let mut states = self.output.forward(&context, x);
        again(self.to_feed_forward, &mut states);
        let inner = self.inner(&states);
        self.down.forward(&inner, &states)
    }

    /// The contexts of all heads.
    fn attend(&self, x: &[i8], sequences: &[Range<usize>]) -> Vec<i8> {
        let [d, d_all] = self.attended.linear.dims();
        let d_head = d / self.n_heads;
        let sums = self.attended.linear.forward(x);
        let mut attended = vec![0i8; sums.len()];
        let rows = attended.par_chunks_mut(ROWS * d_all).zip(sums.par_chunks(ROWS * d_all));
        rows.for_each(|(attended, sums)| {
            for (attended, sums) in attended.chunks_exact_mut(d_all).zip(sums.chunks_exact(d_all)) {
                self.attended.ratios.to_8_bits(sums, attended);
            }
        });
        let mut context = vec![0; x.len()];
        let mut rest = context.as_mut_slice();
        let mut parts = Vec::with_capacity(sequences.len());
        for sequence in sequences {
            let (part, after) = rest.split_at_mut(sequence.len() * d);
            parts.push((part, &attended[sequence.start * d_all..sequence.end * d_all]));
            rest = after;
        }
        parts.into_par_iter().for_each(|(context, attended)| {
            let len = context.len() / d;
            let (mut keys, mut values) = (vec![0i16; len * d_head], vec![0i16; len * d_head]);
            let (mut query, mut sums) = (vec![0i16; d_head], vec![0i32; d_head]);
            let (mut scores, mut exponentials) = (vec![0i32; len], vec![0i32; len]);
            let mut probabilities = vec![0i16; len];
            for head in 0..self.n_heads {
                let at = head * d_head;
                for (token, row) in attended.chunks_exact(d_all).enumerate() {
                    for i in 0..d_head {
                        keys[token * d_head + i] = i16::from(row[d + at + i]);
                        values[i * len + token] = i16::from(row[2 * d + at + i]);
                    }
                }
                for (row, context) in attended.chunks_exact(d_all).zip(context.chunks_exact_mut(d)) {
                    query.iter_mut().zip(&row[at..]).for_each(|(to, q)| *to = i16::from(*q));
                    integer_scores(&query, &keys, &mut scores);
                    self.softmax.apply(&scores, &mut probabilities, &mut exponentials);
                    integer_context(&probabilities, &values, &mut sums);
                    for (to, sum) in context[at..].iter_mut().zip(&sums) {
                        *to = saturated(self.to_context.apply_narrow(i64::from(*sum)), 8) as i8;
                    }
                }
            }
        });
        context
    }

    /// The inner features of the feed-forward network.
    fn inner(&self, x: &[i8]) -> Vec<i8> {
        let [_, d_ff] = self.up.dims();
        let sums = self.up.forward(x);
        let mut inner = vec![0; sums.len()];
        let rows = inner.par_chunks_mut(ROWS * d_ff).zip(sums.par_chunks(ROWS * d_ff));
        rows.for_each(|(inner, sums)| {
            for (inner, sums) in inner.chunks_exact_mut(d_ff).zip(sums.chunks_exact(d_ff)) {
                self.gelu.apply(sums, inner);
            }
            again(self.to_inner, inner);
        });
        inner
    }
}

impl Added {
    fn forward(&self, x: &[i8], residual: &[i8]) -> Vec<i8> {
        let [_, d] = self.linear.dims();
        let sums = self.linear.forward(x);
        let mut states = vec![0; sums.len()];
        let rows = states.par_chunks_mut(ROWS * d).zip(sums.par_chunks(ROWS * d));
        rows.zip(residual.par_chunks(ROWS * d)).for_each_init(
            || vec![0; d],
            |added, ((states, sums), residual)| {
                let rows = states.chunks_exact_mut(d).zip(sums.chunks_exact(d));
                for ((states, sums), residual) in rows.zip(residual.chunks_exact(d)) {
                    self.ratios.added(sums, residual, self.of_residual, added);
                    self.norm.apply(added, states);
                }
            },
        );
        states
    }
}

/// Rounds integers of 8 bits to another scale, which is often the same.
fn again(ratio: Dyadic, x: &mut [i8]) {
    if ratio != Dyadic::ONE {
        x.iter_mut().for_each(|q| *q = saturated(ratio.apply_narrow(i64::from(*q)), 8) as i8);
    }
}
