use super::{Dyadic, floor, greatest};
#[cfg(feature = "flex")]
use crate::flex::integer;

/// i-exp (I-BERT, algorithm 3): `exp(x)` of `x ≤ 0` by `x = p − z·ln 2` with `p` in `(−ln 2, 0]`, as `L(p)·2^−z`, where
/// `L(p) = 0.35815147p² + 0.96963238p + 1`. Below `−30·ln 2` it is what it is there.
///
/// The reference's polynomial is not the one of the paper's equation 13, `0.3585(p + 1.353)² + 0.344`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegerExponential {
    ln2: i64,
    b: i64,
    c: i64,
}

/// ln 2, as the reference rounds it.
#[allow(clippy::approx_constant)]
const LN2: f64 = 0.6931;
const A: f64 = 0.358_151_47;
const B: f64 = 0.969_632_38;

/// The greatest `z`, and the bits before the binary point of a result.
const MOST: u32 = 30;

impl IntegerExponential {
    /// The function for inputs of this scale.
    ///
    /// # Errors
    /// One line for a scale that is not within 3e-5 to `ln 2`: the polynomial's integers fill at most 32 bits.
    pub fn new(scale: f64) -> Result<Self, String> {
        let ln2 = -floor(-LN2 / scale);
        let (b, c) = (floor(B / A / scale), floor(1.0 / A / (scale * scale)));
        if !(scale > 0.0 && scale < LN2 && c < Dyadic::NARROW) {
            return Err(format!("the scale of the attention's scores is {scale}, expected 3e-5 to 0.69"));
        }
        Ok(Self { ln2, b, c })
    }

    /// The least scale that [`new`](Self::new) takes.
    pub const LEAST_SCALE: f64 = 3e-5;

    /// The scale of results for inputs of this scale: it belongs to [`apply`](Self::apply)'s integers times `2^(30 − z)`.
    pub fn output_scale(scale: f64) -> f64 {
        A * scale * scale / f64::from(1 << MOST)
    }

    /// The integer of 1 = `exp(0)`, before it is multiplied with `2^30`.
    pub fn one(self) -> i64 {
        self.c
    }

    /// The polynomial and `z` for an integer of at most 0: the result is their `L(p) · 2^(30 − z)`.
    #[inline]
    pub fn apply(self, q: i64) -> (i64, u32) {
        let q = q.max(-i64::from(MOST) * self.ln2);
        let z = -q / self.ln2;
        let p = q + self.ln2 * z;
        (((p + self.b) * p + self.c).max(0), z as u32)
    }
}

/// Softmax by [i-exp](IntegerExponential) (I-BERT, algorithm 3): exponentials of 16 bits, and probabilities of 8 bits with
/// the scale `2^-8`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntegerSoftmax {
    exponential: IntegerExponential,
    /// From integers of 30 bits and more to those of 16.
    to_16: Dyadic,
    /// The constants of both in double precision, which are exact: `ln 2`, `b`, `c` and the factor.
    #[cfg_attr(not(feature = "flex"), allow(dead_code))]
    doubles: [f64; 4],
}

impl IntegerSoftmax {
    /// The scale of probabilities.
    pub const OUTPUT_SCALE: f64 = 1.0 / 256.0;

    /// For scores of this scale. `range` is the integer of an exponential that becomes the greatest of 16 bits, in units of
    /// the exponential's integers; none: that of 1, which no other exceeds.
    ///
    /// # Errors
    /// Those of [`IntegerExponential::new`]; if the range is no positive number.
    pub fn new(scale: f64, range: Option<f64>) -> Result<Self, String> {
        let exponential = IntegerExponential::new(scale)?;
        let unit = f64::from(1 << MOST);
        let range = range.unwrap_or(exponential.one() as f64 * unit);
        if !(range > 0.0 && range.is_finite()) {
            return Err(format!("the range of exponentials is {range}, expected a positive number"));
        }
        // The reference divides by the scale in single precision.
        let step = f64::from((range / greatest(16)) as f32);
        let to_16 = Dyadic::new(unit / step)?;
        let IntegerExponential { ln2, b, c } = exponential;
        let doubles = [ln2 as f64, b as f64, c as f64, to_16.to_f64()];
        Ok(Self { exponential, to_16, doubles })
    }

    /// The probabilities of a row of scores, `exponentials` being memory for as many.
    ///
    /// With one token, or equal scores, a probability may be 256, which needs 9 bits.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn apply(&self, scores: &[i32], probabilities: &mut [i16], exponentials: &mut [i32]) {
        assert_eq!(scores.len(), probabilities.len(), "a probability for each score");
        let exponentials = &mut exponentials[..scores.len()];
        let Some(most) = scores.iter().max().copied() else { return };
        let sum = self.exponentials(scores, most, exponentials);
        // Nothing is left only if a range is far too large.
        let factor = if sum > 0 { (1i64 << 32) / sum } else { 0 };
        #[cfg(feature = "flex")]
        integer::probabilities(exponentials, factor as f64, probabilities);
        #[cfg(not(feature = "flex"))]
        for (exponential, place) in exponentials.iter().zip(probabilities) {
            *place = ((i64::from(*exponential) * factor) >> 24) as i16;
        }
    }

    /// The exponentials of scores less the greatest, and their sum.
    fn exponentials(&self, scores: &[i32], most: i32, to: &mut [i32]) -> i64 {
        #[cfg(feature = "flex")]
        if let (sum, true) = integer::exponentials(scores, f64::from(most), self.doubles, to) {
            return sum;
        }
        let values = scores.iter().zip(to).map(|(score, to)| {
            let (polynomial, z) = self.exponential.apply(i64::from(*score) - i64::from(most));
            let value = self.to_16.apply_shifted(polynomial, z).clamp(0, i64::from(i16::MAX));
            *to = value as i32;
            value
        });
        values.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_near_the_exponential() {
        for scale in [1e-2, 7e-4, 4e-5] {
            let exponential = IntegerExponential::new(scale).unwrap();
            for i in 0..1_500 {
                let q = (-f64::from(i) / 100.0 / scale) as i64;
                let (polynomial, z) = exponential.apply(q);
                let found =
                    polynomial as f64 * 2f64.powi(30 - z as i32) * IntegerExponential::output_scale(scale);
                let exact = (q as f64 * scale).exp();
                // The paper: a maximum error of 1.9e-3; and the rounding of constants.
                assert!((found - exact).abs() < 3e-3 + 2.0 * scale * exact, "{scale}: {found} {exact}");
            }
        }
    }

    #[test]
    fn probabilities_are_near_those_of_floats_and_never_more_than_1() {
        let scale = 1e-3;
        let softmax = IntegerSoftmax::new(scale, None).unwrap();
        for n in [1, 2, 3, 7, 40] {
            let scores: Vec<i32> = (0..n).map(|i| (i * 7_919 % 5_003) - 900).collect();
            let (mut found, mut memory) = (vec![0; n as usize], vec![0; n as usize]);
            softmax.apply(&scores, &mut found, &mut memory);
            let exact: Vec<f64> = scores.iter().map(|q| (f64::from(*q) * scale).exp()).collect();
            let sum: f64 = exact.iter().sum();
            for (found, exact) in found.iter().zip(exact) {
                assert!((f64::from(*found) / 256.0 - exact / sum).abs() < 0.01);
            }
            assert!(found.iter().map(|p| i32::from(*p)).sum::<i32>() <= 256);
        }
    }

    proptest! {
        /// Rows are rounded as single integers are, in whatever precision.
        #[test]
        fn rows_are_those_of_single_integers(
            row in prop::collection::vec(-2_000_000..2_000_000i32, 1..60),
            scale in 3.1e-5f64..0.3,
            share in 0.01f64..3.0,
        ) {
            let exponential = IntegerExponential::new(scale).unwrap();
            // Scores that are near one another too.
            for divisor in [1, 997, 40_009] {
                let scores: Vec<i32> = row.iter().map(|q| q / divisor).collect();
                let range = exponential.one() as f64 * f64::from(1 << MOST) * share;
                let softmax = IntegerSoftmax::new(scale, Some(range)).unwrap();
                let (mut found, mut memory) = (vec![0; scores.len()], vec![0; scores.len()]);
                softmax.apply(&scores, &mut found, &mut memory);
                let most = i64::from(*scores.iter().max().unwrap());
                let value = |score: &i32| {
                    let (polynomial, z) = exponential.apply(i64::from(*score) - most);
                    softmax.to_16.apply_shifted(polynomial, z).clamp(0, i64::from(i16::MAX))
                };
                let expected: Vec<i64> = scores.iter().map(value).collect();
                prop_assert_eq!(memory.iter().map(|x| i64::from(*x)).collect::<Vec<_>>(), expected.clone());
                let factor = (1i64 << 32) / expected.iter().sum::<i64>().max(1);
                for (found, value) in found.iter().zip(expected) {
                    prop_assert_eq!(i64::from(*found), (value * factor) >> 24);
                }
            }
        }
    }

    #[test]
    fn a_scale_that_does_not_fit_is_refused() {
        for wrong in [0.0, 1e-5, 0.7, f64::NAN, -1.0] {
            assert!(IntegerSoftmax::new(wrong, None).unwrap_err().contains("the attention's scores"));
        }
        IntegerSoftmax::new(IntegerExponential::LEAST_SCALE, None).unwrap();
        assert!(IntegerSoftmax::new(0.01, Some(0.0)).unwrap_err().contains("range of exponentials is 0"));
    }
}
