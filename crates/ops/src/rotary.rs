use burn::tensor::{Bool, Int, Tensor, TensorData};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
#[cfg(feature = "flex")]
use std::sync::{Mutex, PoisonError};

#[cfg(feature = "flex")]
use crate::flex;

/// How rotary positions rotate queries and keys (Su et al. 2021, "RoFormer", §3.2): the pairing of features,
/// and the angle per position for each pair.
///
/// Clones share the table of sines and cosines that fused operations look up, so clone one for all layers.
#[derive(Clone)]
pub struct Rotary {
    /// The angle, in radians, that a position adds to each pair.
    frequencies: Arc<[f32]>,
    /// The angles in sequences longer than this.
    long: Option<(usize, LongFrequencies)>,
    /// The factor for rotated features.
    magnitude: f32,
    pairs: RotaryPairs,
    #[cfg(feature = "flex")]
    table: Arc<Mutex<Arc<[f32]>>>,
}

/// The pairing of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RotaryPairs {
    /// Features `i` and `i + n/2` of the `n` rotated ones: GPT-NeoX's and Llama's in Hugging Face's format.
    #[default]
    Halves,
    /// Features `2i` and `2i + 1`: the paper's, and GPT-J's.
    Neighbours,
}

/// The angles of long sequences, if they differ from those of short ones.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LongFrequencies {
    /// The angle, in radians, that a position adds to each pair, in all long sequences.
    Fixed(Arc<[f32]>),
    /// Dynamic NTK: a base that grows with the sequence. Pair `i` of `n / 2` is rotated by `b^(−2i/n)`
    /// radians per position, where `b = theta · (factor · len / short − factor + 1)^(n / (n − 2))` in a
    /// sequence of `len` tokens, and sequences of up to `short` tokens are short. `n` is at least 4.
    Ntk {
        /// The base in short sequences.
        theta: f64,
        /// How fast it grows.
        factor: f64,
    },
}

/// Positions of tokens in their sequences.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one of it at a time, and no list")]
pub enum TokenPositions {
    /// Each row's tokens are consecutive from this position, and the last of their sequences.
    From(usize),
    /// Positions of packed tokens.
    Packed {
        /// Each token's position, `[n_tokens]`.
        positions: Arc<[usize]>,
        /// The number of tokens in each token's sequence, `[n_tokens]`.
        lengths: Arc<[usize]>,
    },
    /// Positions of padded rows.
    Rows {
        /// The positions of each row's tokens, `[batch, len]`.
        positions: Tensor<2, Int>,
        /// All tokens of the same rows, `[batch, row_len]`, `true` = ignored.
        pad_mask: Tensor<2, Bool>,
    },
}

impl Rotary {
    /// Rotates the first `2 · frequencies.len()` features of each head; the others are unchanged. Pair `i` of
    /// a token at position `p` is rotated by `p · frequencies[i]` radians, computed in FP32 as in
    /// transformers.
    pub fn new(frequencies: impl Into<Arc<[f32]>>, pairs: RotaryPairs) -> Self {
        Self {
            frequencies: frequencies.into(),
            long: None,
            magnitude: 1.0,
            pairs,
            #[cfg(feature = "flex")]
            table: Arc::default(),
        }
    }

    /// Multiplies rotated features by a number.
    pub fn with_magnitude(mut self, magnitude: f32) -> Self {
        self.magnitude = magnitude;
        #[cfg(feature = "flex")]
        (self.table = Arc::default());
        self
    }

    /// Gives sequences of more than `short` tokens other angles. A token's angles are fixed by its sequence's
    /// length when it is rotated: cached keys are not updated as the sequence grows.
    ///
    /// # Panics
    /// If the number of pairs differs, or a growing base is used with fewer than two pairs.
    pub fn with_long(mut self, short: usize, frequencies: LongFrequencies) -> Self {
        match &frequencies {
            LongFrequencies::Fixed(long) => assert_eq!(long.len(), self.frequencies.len(), "pairs"),
            LongFrequencies::Ntk { .. } => assert!(self.frequencies.len() > 1, "a base of one pair"),
        }
        self.long = Some((short, frequencies));
        self
    }

    /// The angle in radians that a position adds to each pair, in sequences that are not [long](Self::long).
    pub fn frequencies(&self) -> &[f32] {
        &self.frequencies
    }

    /// The most tokens of a sequence with these angles, and the angles of longer ones; `None`: all have the same.
    pub fn long(&self) -> Option<&(usize, LongFrequencies)> {
        self.long.as_ref()
    }

    /// The factor for rotated features.
    pub fn magnitude(&self) -> f32 {
        self.magnitude
    }

    /// Whether a token's angles depend on the length of its sequence.
    pub fn depends_on_length(&self) -> bool {
        self.long.is_some()
    }

    /// The angle that a position adds to each pair in a sequence of `len` tokens.
    fn frequencies_at(&self, len: usize) -> Cow<'_, [f32]> {
        match &self.long {
            Some((short, long)) if len > *short => match long {
                LongFrequencies::Fixed(frequencies) => Cow::Borrowed(frequencies),
                LongFrequencies::Ntk { theta, factor } => {
                    let n = self.width() as f64;
                    let growth = factor * len as f64 / *short as f64 - (factor - 1.0);
                    let base = theta * growth.powf(n / (n - 2.0));
                    (0..self.frequencies.len()).map(|i| base.powf(-2.0 * i as f64 / n) as f32).collect()
                }
            },
            _ => Cow::Borrowed(&self.frequencies),
        }
    }

    /// Whether tokens of a sequence of `len` tokens use the long-sequence angles.
    fn is_long(&self, len: usize) -> bool {
        self.long.as_ref().is_some_and(|(short, _)| len > *short)
    }

    /// Number of rotated features per head.
    pub fn width(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// The pairing of features.
    pub fn pairs(&self) -> RotaryPairs {
        self.pairs
    }

    /// For each position below `n`, and maybe for some above: the cosines of the pairs' angles, then the sines.
    #[cfg(feature = "flex")]
    pub(crate) fn table(&self, n: usize) -> Arc<[f32]> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() < n * self.width() {
            let row = |position| self.row(position, &self.frequencies);
            *table = (0..n.next_power_of_two()).flat_map(row).collect();
        }
        table.clone()
    }

    /// A table row for each of these tokens, given by position and sequence length; `None` if no sequence is
    /// long.
    #[cfg(feature = "flex")]
    pub(crate) fn table_of(
        &self,
        tokens: impl Iterator<Item = (usize, usize)> + Clone,
    ) -> Option<Arc<[f32]>> {
        if !tokens.clone().any(|(_, len)| self.is_long(len)) {
            return None;
        }
        let mut known = (0, self.frequencies_at(0));
        let mut table = Vec::new();
        for (position, len) in tokens {
            if known.0 != len {
                known = (len, self.frequencies_at(len));
            }
            table.extend(self.row(position, &known.1));
        }
        Some(table.into())
    }

    /// The cosines of the pairs' angles at a position, then the sines.
    #[cfg(feature = "flex")]
    fn row<'a>(&self, position: usize, frequencies: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
        let magnitude = self.magnitude;
        let angles = || frequencies.iter().map(move |frequency| f64::from(position as f32 * frequency));
        let cosines = angles().map(move |angle| angle.cos() as f32 * magnitude);
        cosines.chain(angles().map(move |angle| angle.sin() as f32 * magnitude))
    }

    /// The angle that a position adds to each pair of each token on a device, `[batch or 1, len or 1, 1, pairs]`.
    fn frequencies_of(&self, positions: &TokenPositions, len: usize, x: &Tensor<4>) -> Tensor<4> {
        let (device, n) = (x.device(), self.frequencies.len());
        let tensor = |values: Vec<f32>, [rows, len]: [usize; 2]| {
            Tensor::<4>::from_data(TensorData::new(values, [rows, len, 1, n]), &device)
        };
        let short = || tensor(self.frequencies.to_vec(), [1, 1]);
        let Some((most, long)) = &self.long else { return short() };
        match positions {
            TokenPositions::From(start) => tensor(self.frequencies_at(start + len).to_vec(), [1, 1]),
            TokenPositions::Packed { lengths, .. } if lengths.iter().any(|len| self.is_long(*len)) => {
                let values = lengths.iter().flat_map(|len| self.frequencies_at(*len).into_owned());
                tensor(values.collect(), [1, lengths.len()])
            }
            TokenPositions::Packed { .. } => short(),
            // On the device, so that nothing waits for it.
            TokenPositions::Rows { pad_mask, .. } => {
                let [rows, _] = pad_mask.dims();
                let lengths = pad_mask.clone().bool_not().int().sum_dim(1).reshape([rows, 1, 1, 1]);
                let all = [rows, 1, 1, n];
                let is_long = lengths.clone().greater_elem(*most as i64).expand(all);
                let frequencies = match long {
                    LongFrequencies::Fixed(frequencies) => tensor(frequencies.to_vec(), [1, 1]).expand(all),
                    LongFrequencies::Ntk { theta, factor } => {
                        let n = self.width() as f64;
                        let growth = lengths.float() * (factor / *most as f64) - (factor - 1.0);
                        // Of the rows that are not long it does not matter.
                        let base = growth.clamp_min(1.0).log() * (n / (n - 2.0)) + theta.ln();
                        let exponents = (0..self.frequencies.len()).map(|i| (-2.0 * i as f64 / n) as f32);
                        (base * tensor(exponents.collect(), [1, 1])).exp()
                    }
                };
                short().expand(all).mask_where(is_long, frequencies)
            }
        }
    }
}

impl fmt::Debug for Rotary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frequencies, long, magnitude, pairs, .. } = self;
        f.debug_struct("Rotary")
            .field("frequencies", frequencies)
            .field("long", long)
            .field("magnitude", magnitude)
            .field("pairs", pairs)
            .finish_non_exhaustive()
    }
}

/// Rotates pairs of features by angles proportional to the token's position, so that the product of a query
/// and a key depends only on their distance (Su et al. 2021, eq. 34).
///
/// # Shapes
/// - `x`: `[batch, len, n_heads, d]`, queries or keys before heads and positions are transposed; returns the
///   same shape
///
/// # Panics
/// If a head has fewer features than are rotated, or the positions do not match the tokens.
pub fn rotate(x: Tensor<4>, positions: &TokenPositions, rotary: &Rotary) -> Tensor<4> {
    let [batch, len, _, d] = x.dims();
    assert!(rotary.width() <= d, "heads of {d} features, of which {} are rotated", rotary.width());
    match positions {
        TokenPositions::From(_) => (),
        TokenPositions::Packed { positions, lengths } => {
            assert_eq!([1, positions.len()], [batch, len], "the packed positions, and the tokens");
            assert_eq!(positions.len(), lengths.len(), "the packed positions, and their sequences' lengths");
        }
        TokenPositions::Rows { positions, .. } => {
            assert_eq!(positions.dims(), [batch, len], "the rows' positions, and the tokens");
        }
    }
    if rotary.width() == 0 {
        return x;
    }
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::rotary::rotate(x, positions, rotary);
    }
    composed(x, positions, rotary)
}

fn composed(x: Tensor<4>, positions: &TokenPositions, rotary: &Rotary) -> Tensor<4> {
    let ([batch, len, n_heads, d], device) = (x.dims(), x.device());
    let n = rotary.frequencies.len();
    let frequencies = rotary.frequencies_of(positions, len, &x);
    let positions: Tensor<2, Int> = match positions {
        TokenPositions::From(start) => {
            Tensor::<1, Int>::arange(*start as i64..(start + len) as i64, &device).unsqueeze_dim::<2>(0)
        }
        TokenPositions::Packed { positions, .. } => {
            let positions: Vec<i32> = positions.iter().map(|position| *position as i32).collect();
            Tensor::<1, Int>::from_data(positions.as_slice(), &device).unsqueeze_dim::<2>(0)
        }
        TokenPositions::Rows { positions, .. } => positions.clone(),
    };
    let [rows, _] = positions.dims();
    let angles = positions.float().reshape([rows, len, 1, 1]) * frequencies;
    let scaled = |part: Tensor<4>| match rotary.magnitude {
        1.0 => part,
        magnitude => part * magnitude,
    };
    let [cos, sin] = [angles.clone().cos(), angles.sin()].map(|part| scaled(part).cast(x.dtype()));
    let turned = |a: Tensor<4>, b: Tensor<4>| {
        let first = a.clone() * cos.clone() - b.clone() * sin.clone();
        [first, b * cos.clone() + a * sin.clone()]
    };
    let rest = (d > 2 * n).then(|| x.clone().narrow(3, 2 * n, d - 2 * n));
    let mut parts = match rotary.pairs {
        RotaryPairs::Halves => turned(x.clone().narrow(3, 0, n), x.narrow(3, n, n)).to_vec(),
        RotaryPairs::Neighbours => {
            let pairs = x.narrow(3, 0, 2 * n).reshape([batch, len, n_heads, n, 2]);
            let of = |i: usize| pairs.clone().narrow(4, i, 1).reshape([batch, len, n_heads, n]);
            let turned = turned(of(0), of(1)).map(|part| part.unsqueeze_dim::<5>(4)).to_vec();
            vec![Tensor::cat(turned, 4).reshape([batch, len, n_heads, 2 * n])]
        }
    };
    parts.extend(rest);
    Tensor::cat(parts, 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    const PAIRS: [RotaryPairs; 2] = [RotaryPairs::Halves, RotaryPairs::Neighbours];

    fn frequencies(n: usize) -> Vec<f32> {
        (0..n).map(|i| 100f32.powf(-(i as f32) / n as f32)).collect()
    }

    fn devices() -> [Device; 2] {
        // Where activations are checkpointed, operations are composed.
        [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()]
    }

    fn leaf(shape: [usize; 4], phase: f32, device: &Device) -> Tensor<4> {
        let n = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.53 + phase).sin() * 1.5).collect();
        Tensor::from_data(TensorData::new(values, shape), device).require_grad()
    }

    #[test]
    fn by_hand() {
        // A quarter turn a position in the first pair, and none in the second.
        let quarter = std::f32::consts::FRAC_PI_2;
        for device in devices() {
            for (pairs, expected) in [
                (RotaryPairs::Halves, [-3.0f32, 2.0, 1.0, 4.0, 5.0]),
                (RotaryPairs::Neighbours, [-2.0, 1.0, 3.0, 4.0, 5.0]),
            ] {
                let x = Tensor::<4>::from_data([[[[1.0, 2.0, 3.0, 4.0, 5.0]]]], &device);
                let rotary = Rotary::new([quarter, 0.0], pairs);
                let y = rotate(x, &TokenPositions::From(1), &rotary).reshape([5]);
                let expected = TensorData::from(expected);
                y.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
            }
        }
    }

    #[test]
    fn products_depend_on_the_distance_alone() {
        for device in devices() {
            for pairs in PAIRS {
                let rotary = Rotary::new(frequencies(3), pairs);
                let at = |x: f32, position| {
                    rotate(leaf([1, 1, 1, 6], x, &device), &TokenPositions::From(position), &rotary)
                };
                let product = |q: usize, k: usize| (at(0.3, q) * at(1.7, k)).sum().into_scalar::<f32>();
                for shift in [1, 17, 900] {
                    assert!((product(5, 2) - product(5 + shift, 2 + shift)).abs() < 1e-3);
                }
                assert!((product(5, 2) - product(5, 3)).abs() > 1e-2);
            }
        }
    }

    #[test]
    fn long_sequences_have_angles_of_their_own() {
        for device in devices() {
            let plain = |frequencies: &[f32]| Rotary::new(frequencies, RotaryPairs::Halves);
            let x = || leaf([1, 5, 1, 4], 0.2, &device);
            let all = |rotary: &Rotary| rotate(x(), &TokenPositions::From(0), rotary).into_data();
            let close = |found: TensorData, expected: TensorData| {
                found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
            };
            let short = plain(&[1.0, 0.1]);
            let fixed = short.clone().with_long(4, LongFrequencies::Fixed([0.5, 0.02].into()));
            close(all(&fixed), all(&plain(&[0.5, 0.02])));
            let five = short.clone().with_long(5, LongFrequencies::Fixed([0.5, 0.02].into()));
            close(all(&five), all(&short));
            // 100 · (2 · 5/4 − 1)^(4/2), to the power of 2/4.
            let ntk = short.clone().with_long(4, LongFrequencies::Ntk { theta: 100.0, factor: 2.0 });
            close(all(&ntk), all(&plain(&[1.0, 225f32.powf(-0.5)])));
            // In one batch each sequence has its own.
            let (positions, lengths) = ([0, 1, 2, 3, 4].into(), [5, 5, 4, 4, 5].into());
            let mixed = rotate(x(), &TokenPositions::Packed { positions, lengths }, &fixed);
            let of = |data, from, n| Tensor::<4>::from_data(data, &device).narrow(1, from, n);
            let expected = [of(all(&fixed), 0, 2), of(all(&short), 2, 2), of(all(&fixed), 4, 1)];
            close(mixed.into_data(), Tensor::cat(expected.to_vec(), 1).into_data());
            let doubled = Tensor::<4>::from_data(all(&short), &device) * 2.0;
            close(all(&short.clone().with_magnitude(2.0)), doubled.into_data());
        }
    }

    #[test]
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        // Batch, length, heads, features, pairs that are turned.
        for [batch, len, n_heads, d, n] in
            [[1, 1, 1, 2, 1], [2, 5, 3, 8, 4], [3, 7, 2, 10, 3], [1, 130, 4, 34, 17], [2, 90, 2, 64, 32]]
        {
            let tokens: Vec<usize> = (0..batch * len).map(|i| i * 7 % 131).collect();
            let rows: Vec<i32> = tokens.iter().map(|position| *position as i32).collect();
            let positions = Tensor::<2, Int>::from_data(TensorData::new(rows, [batch, len]), &device);
            // Rows of other lengths, around the bound of long ones.
            let ignored = (0..batch).flat_map(|row| (0..60).map(move |at| at + 25 * row > 64));
            let ignored: Vec<bool> = ignored.collect();
            let pad_mask = Tensor::<2, Bool>::from_data(TensorData::new(ignored, [batch, 60]), &device);
            let rows = TokenPositions::Rows { positions, pad_mask };
            let mut all = vec![TokenPositions::From(0), TokenPositions::From(900), rows];
            if batch == 1 {
                let lengths = (0..len).map(|i| if i < 70 { 50 } else { 51 + i / 80 }).collect();
                all.push(TokenPositions::Packed { positions: tokens.into(), lengths });
            }
            let kinds = |pairs| {
                let plain = Rotary::new(frequencies(n), pairs);
                let longer = frequencies(n).iter().map(|frequency| frequency * 0.3).collect();
                let longer = plain.clone().with_long(50, LongFrequencies::Fixed(longer)).with_magnitude(1.3);
                let ntk = LongFrequencies::Ntk { theta: 100.0, factor: 3.0 };
                let ntk = (n > 1).then(|| plain.clone().with_long(50, ntk));
                [plain, longer].into_iter().chain(ntk)
            };
            for (positions, rotary) in all
                .iter()
                .flat_map(|positions| PAIRS.into_iter().flat_map(kinds).map(move |kind| (positions, kind)))
            {
                let run = |form: fn(Tensor<4>, &TokenPositions, &Rotary) -> Tensor<4>| {
                    let x = leaf([batch, len, n_heads, d], 0.1, &device);
                    let y = form(x.clone(), positions, &rotary);
                    let grads = (y.clone() * leaf([batch, len, n_heads, d], 3.4, &device)).sum().backward();
                    [y.into_data(), x.clone().into_data(), x.grad(&grads).unwrap().into_data()]
                };
                for (fused, composed) in run(rotate).iter().zip(run(composed)) {
                    fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(1e-4, 2e-4));
                }
            }
        }
    }
}
