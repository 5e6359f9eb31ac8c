/// A factor between two scales as a dyadic number, `m / 2^e` with `2^30 ≤ |m| ≤ 2^31` (I-BERT, §3.2, after Yao et al. 2021,
/// "HAWQ-V3"): integers of one scale become integers of another by a product and a shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dyadic {
    multiplier: i64,
    /// From 1 to 62; what is shifted further is 0.
    shift: u32,
}

impl Dyadic {
    /// Products of smaller integers fit in 64 bits, with what rounding adds.
    pub const NARROW: i64 = 3 << 30;

    /// All integers become 0.
    pub const ZERO: Self = Self { multiplier: 0, shift: 1 };

    /// All integers stay as they are.
    pub const ONE: Self = Self { multiplier: 1 << 30, shift: 30 };

    /// The dyadic number nearest to `ratio`, half away from zero. Less than `2^-32` becomes 0.
    ///
    /// # Errors
    /// One line, if `ratio` is not finite or its magnitude is `2^30` or more.
    pub fn new(ratio: f64) -> Result<Self, String> {
        const LEAST: f64 = 1.0 / (1u64 << 32) as f64;
        if !ratio.is_finite() || ratio.abs() >= (1u64 << 30) as f64 {
            return Err(format!("the ratio of two scales is {ratio}, expected less than 2^30"));
        }
        if ratio.abs() < LEAST {
            return Ok(Self::ZERO);
        }
        // ratio = f · 2^n with 1 ≤ |f| < 2; halving and doubling are exact.
        let (mut f, mut n) = (ratio, 0i32);
        while f.abs() >= 2.0 {
            (f, n) = (f / 2.0, n + 1);
        }
        while f.abs() < 1.0 {
            (f, n) = (f * 2.0, n - 1);
        }
        let multiplier = (f * (1u64 << 30) as f64).round() as i64;
        Ok(Self { multiplier, shift: (30 - n) as u32 })
    }

    /// The number in double precision, which is exact.
    pub fn to_f64(self) -> f64 {
        self.multiplier as f64 / (1u64 << self.shift) as f64
    }

    /// `round(q · m / 2^e)`, half to even.
    /// Results have to fit in 64 bits.
    #[inline]
    pub fn apply(self, q: i64) -> i64 {
        let product = i128::from(q) * i128::from(self.multiplier);
        if self.shift >= 34 {
            // In 64 bits: whether anything is below them is all that rounding asks for.
            let high = (product >> 32) as i64 | i64::from(product as u32 != 0);
            return rounded(high, self.shift - 32);
        }
        let half = (1i128 << (self.shift - 1)) - 1;
        ((product + half + ((product >> self.shift) & 1)) >> self.shift) as i64
    }

    /// [`apply`](Self::apply) in 64 bits, for an integer whose magnitude is less than [`NARROW`](Self::NARROW).
    #[inline]
    pub fn apply_narrow(self, q: i64) -> i64 {
        debug_assert!(q.abs() < Self::NARROW);
        rounded(q * self.multiplier, self.shift)
    }

    /// `round(q · m / 2^(e + further))`, half to even, for `q` as in [`apply_narrow`](Self::apply_narrow).
    #[inline]
    pub fn apply_shifted(self, q: i64, further: u32) -> i64 {
        let shift = self.shift + further;
        if shift > 62 {
            let product = i128::from(q) * i128::from(self.multiplier);
            return i64::from(shift == 63 && product > 1 << 62)
                - i64::from(shift == 63 && product < -1 << 62);
        }
        Self { shift, ..self }.apply_narrow(q)
    }
}

/// `round(x / 2^shift)`, half to even.
#[inline]
fn rounded(x: i64, shift: u32) -> i64 {
    let half = (1i64 << (shift - 1)) - 1;
    (x + half + ((x >> shift) & 1)) >> shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ratios_are_rounded_as_by_frexp() {
        // transformers' batch_frexp: 0.75 is 1610612736 / 2^31; 1 is 2^30 / 2^30.
        assert_eq!(Dyadic::new(0.75).unwrap(), Dyadic { multiplier: 1_610_612_736, shift: 31 });
        assert_eq!(Dyadic::new(1.0).unwrap(), Dyadic::ONE);
        assert_eq!(Dyadic::new(-3.0).unwrap(), Dyadic { multiplier: -3 << 29, shift: 29 });
        assert_eq!(Dyadic::new(0.0).unwrap(), Dyadic::ZERO);
        assert_eq!(Dyadic::new(2f64.powi(-33)).unwrap(), Dyadic::ZERO);
        assert_eq!(Dyadic::new(2f64.powi(-32)).unwrap().apply(1 << 31), 0);
        for wrong in [f64::NAN, f64::INFINITY, -(2f64.powi(30))] {
            assert!(Dyadic::new(wrong).unwrap_err().contains("expected less than 2^30"));
        }
    }

    #[test]
    fn halves_become_even() {
        let half = Dyadic::new(0.5).unwrap();
        let small = Dyadic::new(0.5f64.powi(9)).unwrap();
        let by_small: Vec<i64> = (-5..=5).map(|q| small.apply(q << 8)).collect();
        let halves: Vec<i64> = (-5..=5).map(|q| half.apply(q)).collect();
        assert_eq!(halves, by_small);
        assert_eq!(halves, [-2, -2, -2, -1, 0, 0, 0, 1, 2, 2, 2]);
    }

    proptest! {
        #[test]
        fn products_are_those_of_doubles(q in 1 - Dyadic::NARROW..Dyadic::NARROW, ratio in -9.0f64..9.0, further in 0..40u32) {
            let dyadic = Dyadic::new(ratio).unwrap();
            prop_assert_eq!(dyadic.apply(q), dyadic.apply_narrow(q));
            let exact = i128::from(q) * i128::from(dyadic.multiplier);
            let shift = dyadic.shift + further;
            let (floor, rest) = (exact >> shift, exact & ((1 << shift) - 1));
            let up = rest > 1 << (shift - 1) || (rest == 1 << (shift - 1) && floor & 1 == 1);
            prop_assert_eq!(i128::from(dyadic.apply_shifted(q, further)), floor + i128::from(up));
            let tiny = Dyadic::new(ratio / 2f64.powi(20)).unwrap();
            let (wide, shift) = (i64::from(further) * (q << 20) + q, tiny.shift);
            let exact = i128::from(wide) * i128::from(tiny.multiplier);
            let (floor, rest) = (exact >> shift, exact & ((1 << shift) - 1));
            let up = rest > 1 << (shift - 1) || (rest == 1 << (shift - 1) && floor & 1 == 1);
            prop_assert_eq!(i128::from(tiny.apply(wide)), floor + i128::from(up));
            // A narrow product is exact in double precision.
            let q = q >> 11;
            let by_double = (q as f64 * dyadic.multiplier as f64 / 2f64.powi(dyadic.shift as i32)).round_ties_even();
            prop_assert_eq!(dyadic.apply(q) as f64, by_double);
        }
    }
}
