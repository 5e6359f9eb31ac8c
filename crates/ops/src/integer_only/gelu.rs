use super::{Quadratic, floor};

/// i-GELU (I-BERT, algorithm 2, equation 8): `x · ½(1 + L(x / √2))`, where
/// `L(x) = sgn(x)·(a(min(|x|, −b) + b)² + 1)`, `a = −0.2888`, `b = −1.769`, approximates the error function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegerGelu {
    erf: Quadratic,
    /// The integer of 1 in the scale of `L`.
    one: i64,
}

/// √2, as the reference rounds it.
#[allow(clippy::approx_constant)]
const ROOT: f64 = 1.4142;

const A: f64 = -0.2888;
const B: f64 = -1.769;

/// The bits by which `L` is shifted down, so that the product with `x` does not overflow.
const SHIFT: u32 = 14;

impl IntegerGelu {
    /// The function for inputs of this scale.
    pub fn new(scale: f64) -> Self {
        let erf = Quadratic::new([A, B, 1.0], scale / ROOT);
        Self { erf, one: floor(1.0 / erf_scale(scale)) }
    }

    /// The scale of results for inputs of this scale: it is negative.
    pub fn output_scale(scale: f64) -> f64 {
        scale * erf_scale(scale) / 2.0
    }

    /// The function of an integer of 32 bits.
    #[inline]
    pub fn apply(self, q: i32) -> i64 {
        let q = i64::from(q);
        let magnitude = q.abs().min(-self.erf.b());
        let erf = (q.signum() * self.erf.apply(magnitude)) >> SHIFT;
        q * (erf + self.one)
    }
}

/// The scale of `L`.
fn erf_scale(scale: f64) -> f64 {
    let scale = scale / ROOT;
    scale * scale * A * f64::from(1 << SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_near_gelu() {
        // The paper's table 1: a maximum error of 0.018 (that of the polynomial is 0.0182).
        for scale in [1e-3, 6.1e-5, 7e-6] {
            let gelu = IntegerGelu::new(scale);
            let mut greatest = 0f64;
            for i in -400..=400 {
                let q = (f64::from(i) / 100.0 / scale) as i32;
                let x = f64::from(q) * scale;
                // erf by its series.
                let (mut term, mut erf, z) = (x / 2f64.sqrt(), 0.0, x / 2f64.sqrt());
                for n in 0..120 {
                    erf += term / f64::from(2 * n + 1);
                    term *= -z * z / f64::from(n + 1);
                }
                let exact = x * 0.5 * (1.0 + erf * 2.0 / std::f64::consts::PI.sqrt());
                let found = gelu.apply(q) as f64 * IntegerGelu::output_scale(scale);
                greatest = greatest.max((exact - found).abs());
            }
            // And the step that L is rounded to.
            assert!(greatest > 0.015 && greatest < 0.0205 - erf_scale(scale), "{scale}: {greatest}");
        }
    }
}
