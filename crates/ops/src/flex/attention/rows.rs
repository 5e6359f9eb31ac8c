//! Operations on a row of scores: softmax and dropout, forward and backward.

use super::view::Seen;
use crate::flex::random::RowKeep;
use crate::flex::vector::{exp, max, sum, vectorised};

vectorised! {
    /// Turns scores into probabilities over all keys; unseen keys get zero.
    pub fn softmax(row: &mut [f32], ignored: &[bool], seen: Seen, scale: f32) {
        let share = 1.0 / row.len() as f32;
        let (before, rest) = row.split_at_mut(seen.first);
        let (row, after) = rest.split_at_mut(seen.end - seen.first);
        if !ignored.is_empty() {
            hide(row, &ignored[seen.first..]);
        }
        let greatest = max(row);
        if greatest == f32::NEG_INFINITY && row.iter().all(|score| !score.is_nan()) {
            // Nothing to see: as if every score were the same.
            [before, row, after].into_iter().for_each(|part| part.fill(share));
            return;
        }
        for score in row.iter_mut() {
            // The exponential of minus infinity is tiny, but not nothing.
            let hidden = *score == f32::NEG_INFINITY;
            let e = exp((*score - greatest) * scale);
            *score = if hidden { 0.0 } else { e };
        }
        let inverse = 1.0 / total(row);
        for score in row.iter_mut() {
            *score *= inverse;
        }
        before.fill(0.0);
        after.fill(0.0);
    }

    /// Writes a row after dropout, and negates the dropped probabilities.
    pub fn drop(probs: &mut [f32], keep: RowKeep, left: &mut [f32]) {
        for (i, (p, left)) in probs.iter_mut().zip(left).enumerate() {
            let factor = keep.factor(i);
            *left = *p * factor;
            *p = if factor == 0.0 { -*p } else { *p };
        }
    }

    /// The row after dropout, from the one marked by [`drop`].
    pub fn dropped(probs: &[f32], scale: f32, left: &mut [f32]) {
        for (p, left) in probs.iter().zip(left) {
            *left = p.abs() * factor(*p, scale);
        }
    }

    /// Turns the gradient after dropout into that of the probabilities.
    pub fn drop_backward(probs: &[f32], scale: f32, gradient: &mut [f32]) {
        for (p, gradient) in probs.iter().zip(gradient) {
            *gradient *= factor(*p, scale);
        }
    }

    /// Turns the gradient of the probabilities into that of the scores.
    pub fn softmax_backward(probs: &[f32], gradient: &mut [f32], scale: f32) {
        let gradient = &mut gradient[..probs.len()];
        let dot = sum([probs, gradient], |[p, gradient]| p.abs() * gradient);
        for (gradient, p) in gradient.iter_mut().zip(probs) {
            *gradient = p.abs() * (*gradient - dot) * scale;
        }
    }

    /// Turns the scores of some keys into exponentials relative to the maximum so far, after dropout; returns
    /// the rescaling factor for the previous keys.
    pub fn exponentials(scores: &mut [f32], part: Part<'_>, running: &mut Running) -> f32 {
        let (scores, column) = part.seen(scores);
        part.hide(scores, column);
        let greatest = max(scores).max(running.greatest);
        let shift = greatest * part.scale;
        for score in scores.iter_mut() {
            *score = exponential(*score, part.scale, shift);
        }
        let total = total(scores);
        if let Some(keep) = part.keep {
            for (i, score) in scores.iter_mut().enumerate() {
                *score *= keep.factor(column + i);
            }
        }
        let correction = exp((running.greatest - greatest) * part.scale);
        *running = Running { greatest, total: running.total * correction + total };
        correction
    }

    /// Turns the scores of some keys into probabilities after dropout, and the gradient of those into that of
    /// the scores.
    ///
    /// `dot` is the sum of all probabilities times their gradients, which is that of the output times its gradient,
    /// and `scale` what the scores were multiplied by.
    pub fn gradient(scores: &mut [f32], gradient: &mut [f32], part: Part<'_>, log_sum: f32, dot: f32, scale: f32) {
        let (gradient, _) = part.seen(gradient);
        let (scores, column) = part.seen(scores);
        part.hide(scores, column);
        let gradient = &mut gradient[..scores.len()];
        match part.keep {
            None => {
                for (score, gradient) in scores.iter_mut().zip(gradient) {
                    *score = exponential(*score, part.scale, log_sum);
                    *gradient = *score * (*gradient - dot) * scale;
                }
            }
            Some(keep) => {
                for (i, (score, gradient)) in scores.iter_mut().zip(gradient).enumerate() {
                    let prob = exponential(*score, part.scale, log_sum);
                    let factor = keep.factor(column + i);
                    *score = prob * factor;
                    *gradient = prob * (factor * *gradient - dot) * scale;
                }
            }
        }
    }

    /// The product of two rows.
    pub fn dot(a: &[f32], b: &[f32]) -> f32 {
        sum([a, b], |[a, b]| a * b)
    }

    /// Multiplies a row by a number.
    pub fn multiply(row: &mut [f32], by: f32) {
        for x in row {
            *x *= by;
        }
    }
}

#[inline(always)]
fn total(x: &[f32]) -> f32 {
    sum([x], |[x]| x)
}

/// The dropout factor of a probability marked by [`drop`]; `scale` is `1 / (1 − p)`.
#[inline(always)]
fn factor(prob: f32, scale: f32) -> f32 {
    if prob.is_sign_negative() { 0.0 } else { scale }
}

/// Sets the scores of ignored keys to minus infinity.
#[inline(always)]
fn hide(scores: &mut [f32], ignored: &[bool]) {
    for (score, ignored) in scores.iter_mut().zip(ignored) {
        *score = if *ignored { f32::NEG_INFINITY } else { *score };
    }
}

/// `exp(score · scale − shift)`; nothing for minus infinity, of which [`exp`] is tiny.
#[inline(always)]
fn exponential(score: f32, scale: f32, shift: f32) -> f32 {
    let hidden = score == f32::NEG_INFINITY;
    let e = exp(score * scale - shift);
    if hidden { 0.0 } else { e }
}

/// A query's softmax over the keys so far.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    /// The maximum score before scaling.
    greatest: f32,
    /// The sum of the exponentials of the scaled scores minus their maximum.
    total: f32,
}

impl Running {
    /// Before the first key. The score is finite, so that differences are.
    pub const START: Self = Self { greatest: f32::MIN, total: 0.0 };

    /// The final factor of the weighted sum of values.
    pub fn inverse(self) -> f32 {
        1.0 / self.total
    }

    /// The logarithm of the sum of the scaled scores' exponentials.
    pub fn log_sum(self, scale: f32) -> f32 {
        self.greatest * scale + self.total.ln()
    }
}

/// Some of a sequence's keys, as one query sees them.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The first of the keys, among all.
    pub column: usize,
    pub seen: Seen,
    /// For all keys; empty if none is ignored.
    pub ignored: &'a [bool],
    /// What scores are multiplied by.
    pub scale: f32,
    pub keep: Option<RowKeep>,
}

impl Part<'_> {
    /// The part of the row the query sees, and its first key's position. The rest is set to zero.
    #[inline(always)]
    fn seen<'r>(&self, row: &'r mut [f32]) -> (&'r mut [f32], usize) {
        let place = |key: usize| key.saturating_sub(self.column).min(row.len());
        let (first, end) = (place(self.seen.first), place(self.seen.end));
        row[..first].fill(0.0);
        row[end..].fill(0.0);
        (&mut row[first..end], self.column + first)
    }

    /// Sets the scores of ignored keys to minus infinity, from key `column` on.
    #[inline(always)]
    fn hide(&self, scores: &mut [f32], column: usize) {
        if !self.ignored.is_empty() {
            hide(scores, &self.ignored[column..]);
        }
    }
}
