use super::{Ratios, floor, saturated};

/// `⌊√n⌋` by Newton's method (I-BERT, algorithm 4, i-sqrt).
pub fn integer_sqrt(n: u64) -> u64 {
    if n == 0 {
        return 0;
    }
    let bits = u64::BITS - n.leading_zeros();
    let mut root = 1 << bits.div_ceil(2);
    loop {
        let next = (root + n / root) / 2;
        if next >= root {
            return root;
        }
        root = next;
    }
}

/// Layer normalisation (I-BERT, §3.6, equation 16) of integers: with the mean `μ`, rounded half to even, and `σ` the root of
/// the sum of squares, `⌊(q − μ) · ⌊2^31 / σ⌋ / 2⌋ + β`, where `β` is the shift in units of the result.
///
/// The result has a [scale](Self::output_scale) for each feature, which has the learned scale in it. A token whose integers
/// are all equal has `σ = 0`: its result is `β`, where the reference divides by 0. So does the reference for a learned scale
/// of 0; here and where `β` is more than `2^30` it is left to the [caller](Self::is_shifted).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntegerLayerNorm {
    /// `β`, or 0.
    shifts: Vec<i32>,
    is_shifted: Vec<bool>,
    /// The bits that squares are shifted down by.
    shift: u32,
}

impl IntegerLayerNorm {
    /// The normalisation with this learned scale and shift. Squares are of integers without their lowest `shift` bits.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn new(gamma: &[f64], beta: &[f64], shift: u32) -> Self {
        assert_eq!(gamma.len(), beta.len(), "a shift for each feature");
        let unit = unit(gamma.len());
        let fits = |gamma: f64, beta: f64| {
            let quotient = beta / gamma / unit;
            (quotient.abs() < f64::from(1 << 30)).then(|| floor(quotient) as i32)
        };
        let shifts: Vec<Option<i32>> =
            gamma.iter().zip(beta).map(|(gamma, beta)| fits(*gamma, *beta)).collect();
        let is_shifted = shifts.iter().map(Option::is_some).collect();
        Self { shifts: shifts.into_iter().map(Option::unwrap_or_default).collect(), is_shifted, shift }
    }

    /// The scale of a feature's results for its learned scale, among `n` features.
    pub fn output_scale(gamma: f64, n: usize) -> f64 {
        unit(n) * gamma
    }

    /// Whether the shift of each feature is in the results; where it is not, it has to be added in another unit.
    pub fn is_shifted(&self) -> &[bool] {
        &self.is_shifted
    }

    /// Normalises a token. Results are less than [`Dyadic::NARROW`](super::Dyadic::NARROW).
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn apply(&self, token: &[i32], to: &mut [i64]) {
        assert_eq!(token.len(), to.len(), "a number for each feature");
        let [mean, factor] = self.moments(token);
        for ((q, shift), to) in token.iter().zip(&self.shifts).zip(to) {
            *to = (((i64::from(*q) - mean) * factor) >> 1) + i64::from(*shift);
        }
    }

    /// Normalises a token and rounds it to 8 bits: each feature times its factor, and what is added then, less than 2^8.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn apply_to_8_bits(&self, token: &[i32], ratios: &Ratios, later: &[i16], to: &mut [i8]) {
        #[cfg(feature = "flex")]
        if crate::flex::integer::normalised(
            token,
            self.moments(token).map(|x| x as f64),
            (&self.shifts, ratios.doubles(), later),
            to,
        ) {
            return;
        }
        let mut normalised = vec![0; token.len()];
        self.apply(token, &mut normalised);
        for (((q, ratio), later), to) in normalised.iter().zip(ratios.exact()).zip(later).zip(to) {
            *to = saturated(ratio.apply_narrow(*q) + i64::from(*later), 8) as i8;
        }
    }

    /// The mean of a token, and `⌊2^31 / σ⌋`.
    fn moments(&self, token: &[i32]) -> [i64; 2] {
        let n = self.shifts.len();
        assert_eq!(token.len(), n, "a number for each feature");
        let sum: i64 = token.iter().map(|q| i64::from(*q)).sum();
        let mean = rounded_quotient(sum, n as i64);
        let square = |q: &i32| ((i64::from(*q) - mean) >> self.shift).pow(2) as u64;
        let deviation = integer_sqrt(token.iter().map(square).sum()) << self.shift;
        [mean, (1u64 << 31).checked_div(deviation).unwrap_or(0) as i64]
    }
}

/// The scale of results before the learned scale: `√n / 2^30`, with the root in single precision as in the reference.
fn unit(n: usize) -> f64 {
    f64::from((n as f32).sqrt()) / f64::from(1 << 30)
}

/// `round(x / n)`, half to even.
fn rounded_quotient(x: i64, n: i64) -> i64 {
    let (floor, rest) = (x.div_euclid(n), x.rem_euclid(n));
    match (2 * rest).cmp(&n) {
        std::cmp::Ordering::Less => floor,
        std::cmp::Ordering::Greater => floor + 1,
        std::cmp::Ordering::Equal => floor + (floor & 1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Dyadic;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn roots_are_whole(n: u64) {
            for n in [n, n >> 17, n >> 40, (n >> 33).pow(2), (n >> 33).pow(2).saturating_sub(1)] {
                // The paper's root of 32 bits; the greatest of 64 is tested below.
                prop_assert_eq!(integer_sqrt(n >> 2), (n >> 2).isqrt());
            }
        }

        #[test]
        fn quotients_are_rounded_to_even(x in -(1i64 << 40)..1 << 40, n in 1i64..2_000) {
            prop_assert_eq!(rounded_quotient(x, n) as f64, (x as f64 / n as f64).round_ties_even());
            prop_assert_eq!(rounded_quotient(2 * n * x + n, 2 * n), x + (x & 1));
        }
    }

    proptest! {
        /// In double precision, too, they are the integers of the products.
        #[test]
        fn rows_are_rounded_as_single_integers_are(
            row in prop::collection::vec((-(1i32 << 21)..1 << 21, 0.05f64..3.0, -4.0f64..4.0, -200i16..200), 2..40),
            shift in 0..6u32,
            power in 0..24i32,
        ) {
            let column = |of: fn(&(i32, f64, f64, i16)) -> f64| row.iter().map(of).collect::<Vec<f64>>();
            let norm = IntegerLayerNorm::new(&column(|one| one.1), &column(|one| one.2), shift);
            let token: Vec<i32> = row.iter().map(|one| one.0).collect();
            let later: Vec<i16> = row.iter().map(|one| one.3).collect();
            // Powers of two make halves.
            let factor = |one: &(i32, f64, f64, i16)| if power % 3 == 0 { 1.0 } else { one.1 } / 2f64.powi(power);
            let ratios: Vec<Dyadic> = row.iter().map(|one| Dyadic::new(factor(one)).unwrap()).collect();
            let (mut wide, mut found) = (vec![0; row.len()], vec![0; row.len()]);
            norm.apply(&token, &mut wide);
            norm.apply_to_8_bits(&token, &Ratios::new(ratios.clone()), &later, &mut found);
            for i in 0..row.len() {
                let expected = saturated(ratios[i].apply(wide[i]) + i64::from(later[i]), 8);
                prop_assert_eq!(i64::from(found[i]), expected);
            }
        }
    }

    #[test]
    fn it_is_near_the_normalisation_of_floats() {
        let n = 96;
        let gamma: Vec<f64> = (0..n).map(|i| 1.2 + (f64::from(i) * 0.7).sin()).collect();
        let beta: Vec<f64> = (0..n).map(|i| (f64::from(i) * 0.3).cos()).collect();
        let norm = IntegerLayerNorm::new(&gamma, &beta, 0);
        assert!(norm.is_shifted().iter().all(|is| *is));
        let token: Vec<i32> = (0..n).map(|i| i * 7_919 % 1_048_573 - 300_000).collect();
        let mut found = vec![0; n as usize];
        norm.apply(&token, &mut found);
        let mean = token.iter().map(|q| f64::from(*q)).sum::<f64>() / f64::from(n);
        let variance = token.iter().map(|q| (f64::from(*q) - mean).powi(2)).sum::<f64>() / f64::from(n);
        for i in 0..n as usize {
            let exact = (f64::from(token[i]) - mean) / variance.sqrt() * gamma[i] + beta[i];
            let found = found[i] as f64 * IntegerLayerNorm::output_scale(gamma[i], n as usize);
            assert!((exact - found).abs() < 1e-2, "{exact} {found}");
        }
    }

    #[test]
    fn what_has_no_quotient_is_told() {
        let norm = IntegerLayerNorm::new(&[0.0, 1.0, 1e-9], &[0.5, 0.5, 1.0], 0);
        assert_eq!(norm.is_shifted(), [false, true, false]);
        let mut to = [0; 3];
        norm.apply(&[7, 7, 7], &mut to);
        assert_eq!((to[0], to[2]), (0, 0));
        assert!((to[1] as f64 * IntegerLayerNorm::output_scale(1.0, 3) - 0.5).abs() < 1e-8);
    }
}
