use super::{IntegerExponential, greatest};

/// `tanh(x) = sgn(x)·(1 − e) / (1 + e)` with `e = exp(−2|x|)` by [i-exp](IntegerExponential): for the poolers of classifiers,
/// which the reference computes in floats. Results have 8 bits and the scale 1/127.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegerTanh {
    exponential: IntegerExponential,
}

impl IntegerTanh {
    /// The scale of results.
    pub const OUTPUT_SCALE: f64 = 1.0 / 127.0;

    /// The function for inputs of this scale.
    ///
    /// # Errors
    /// Those of [`IntegerExponential::new`], for twice the scale.
    pub fn new(scale: f64) -> Result<Self, String> {
        Ok(Self { exponential: IntegerExponential::new(2.0 * scale)? })
    }

    /// The function of an integer, rounded half away from zero.
    #[inline]
    pub fn apply(self, q: i64) -> i8 {
        let (polynomial, z) = self.exponential.apply(-q.abs());
        // Less than 2^32 each, and 127 times as much.
        let (one, e) = (self.exponential.one(), polynomial >> z);
        let (numerator, denominator) = (greatest(8) as i64 * (one - e).max(0), one + e);
        (q.signum() * ((2 * numerator + denominator) / (2 * denominator))) as i8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_near_the_tangent() {
        for scale in [1e-2, 3e-4, 2e-5] {
            let tanh = IntegerTanh::new(scale).unwrap();
            for i in -800..800 {
                let q = (f64::from(i) / 100.0 / scale) as i64;
                let (found, exact) = (f64::from(tanh.apply(q)) / 127.0, (q as f64 * scale).tanh());
                assert!((found - exact).abs() < 0.008 + 2.0 * scale, "{q} of {scale}: {found} {exact}");
            }
        }
        assert_eq!(IntegerTanh::new(0.01).unwrap().apply(-1 << 20), -127);
    }
}
