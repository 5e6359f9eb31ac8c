use burn::tensor::{Int, Tensor};
use std::fmt;
use std::sync::Arc;
#[cfg(feature = "flex")]
use std::sync::{Mutex, PoisonError};

#[cfg(feature = "flex")]
use crate::flex;

/// How rotary positions turn queries and keys (Su et al. 2021, "RoFormer", §3.2): which features make a pair, and by which
/// angle a position turns each pair.
///
/// Clones share the table of sines and cosines that fused operations look up, so clone one for all layers.
#[derive(Clone)]
pub struct Rotary {
    /// The angle, in radians, that a position adds to each pair.
    frequencies: Arc<[f32]>,
    pairs: RotaryPairs,
    #[cfg(feature = "flex")]
    table: Arc<Mutex<Arc<[f32]>>>,
}

/// Which features make a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RotaryPairs {
    /// Features `i` and `i + n/2` of the `n` that are turned: GPT-NeoX's and Llama's in Hugging Face's format.
    #[default]
    Halves,
    /// Features `2i` and `2i + 1`: the paper's, and GPT-J's.
    Neighbours,
}

/// Where tokens stand in their sequences.
#[derive(Debug, Clone)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one of it at a time, and no list")]
pub enum TokenPositions {
    /// A row's tokens stand one after another, the first of each row here.
    From(usize),
    /// The positions of packed tokens, `[n_tokens]`.
    Packed(Arc<[usize]>),
    /// The positions of each row's tokens, `[batch, len]`.
    Rows(Tensor<2, Int>),
}

impl Rotary {
    /// Turns the first `2 · frequencies.len()` features of each head; the others stay as they are. A token at position
    /// `p` has pair `i` turned by `p · frequencies[i]` radians. The product is made in FP32, as transformers makes it.
    pub fn new(frequencies: impl Into<Arc<[f32]>>, pairs: RotaryPairs) -> Self {
        Self {
            frequencies: frequencies.into(),
            pairs,
            #[cfg(feature = "flex")]
            table: Arc::default(),
        }
    }

    /// How many features of a head are turned.
    pub fn width(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// Which features make a pair.
    pub fn pairs(&self) -> RotaryPairs {
        self.pairs
    }

    /// For each position below `n`, and maybe for some above: the cosines of the pairs' angles, then the sines.
    #[cfg(feature = "flex")]
    pub(crate) fn table(&self, n: usize) -> Arc<[f32]> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() < n * self.width() {
            let angles = |position: usize| {
                self.frequencies.iter().map(move |frequency| f64::from(position as f32 * frequency))
            };
            let row = |position| {
                let cosines = angles(position).map(|angle| angle.cos() as f32);
                cosines.chain(angles(position).map(|angle| angle.sin() as f32))
            };
            *table = (0..n.next_power_of_two()).flat_map(row).collect();
        }
        table.clone()
    }
}

impl fmt::Debug for Rotary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frequencies, pairs, .. } = self;
        f.debug_struct("Rotary")
            .field("frequencies", frequencies)
            .field("pairs", pairs)
            .finish_non_exhaustive()
    }
}

/// Turns pairs of features by angles that grow with the token's position, so that the product of a query and a key
/// depends on their distance alone (Su et al. 2021, eq. 34).
///
/// # Shapes
/// - `x`: `[batch, len, n_heads, d]`, queries or keys before heads and positions change places; returns the same
///
/// # Panics
/// If a head has fewer features than are turned, or the positions are those of other tokens.
pub fn rotate(x: Tensor<4>, positions: &TokenPositions, rotary: &Rotary) -> Tensor<4> {
    let [batch, len, _, d] = x.dims();
    assert!(rotary.width() <= d, "heads of {d} features, of which {} are rotated", rotary.width());
    match positions {
        TokenPositions::From(_) => (),
        TokenPositions::Packed(positions) => {
            assert_eq!([1, positions.len()], [batch, len], "the packed positions, and the tokens");
        }
        TokenPositions::Rows(positions) => {
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
    let positions: Tensor<2, Int> = match positions {
        TokenPositions::From(start) => {
            Tensor::<1, Int>::arange(*start as i64..(start + len) as i64, &device).unsqueeze_dim::<2>(0)
        }
        TokenPositions::Packed(positions) => {
            let positions: Vec<i32> = positions.iter().map(|position| *position as i32).collect();
            Tensor::<1, Int>::from_data(positions.as_slice(), &device).unsqueeze_dim::<2>(0)
        }
        TokenPositions::Rows(positions) => positions.clone(),
    };
    let [rows, _] = positions.dims();
    let frequencies = Tensor::<1>::from_data(&*rotary.frequencies, &device).reshape([1, 1, 1, n]);
    let angles = positions.float().reshape([rows, len, 1, 1]) * frequencies;
    let [cos, sin] = [angles.clone().cos(), angles.sin()].map(|part| part.cast(x.dtype()));
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
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        // Batch, length, heads, features, pairs that are turned.
        for [batch, len, n_heads, d, n] in
            [[1, 1, 1, 2, 1], [2, 5, 3, 8, 4], [3, 7, 2, 10, 3], [1, 130, 4, 34, 17], [2, 90, 2, 64, 32]]
        {
            let tokens: Vec<usize> = (0..batch * len).map(|i| i * 7 % 131).collect();
            let rows: Vec<i32> = tokens.iter().map(|position| *position as i32).collect();
            let rows = Tensor::<2, Int>::from_data(TensorData::new(rows, [batch, len]), &device);
            let mut all =
                vec![TokenPositions::From(0), TokenPositions::From(900), TokenPositions::Rows(rows)];
            if batch == 1 {
                all.push(TokenPositions::Packed(tokens.into()));
            }
            for (positions, pairs) in all.iter().flat_map(|positions| PAIRS.map(|pairs| (positions, pairs))) {
                let rotary = Rotary::new(frequencies(n), pairs);
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
