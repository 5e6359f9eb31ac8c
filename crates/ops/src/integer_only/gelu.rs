use super::{Quadratic, Ratios, floor, saturated};

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

/// i-GELU of rows whose features have scales of their own, and its way to 8 bits.
#[derive(Debug, Clone)]
pub struct IntegerGelus {
    features: Vec<IntegerGelu>,
    ratios: Ratios,
    /// `−b`, `c` and 1 of each feature in double precision, if the polynomial is exact there.
    #[cfg_attr(not(feature = "flex"), allow(dead_code))]
    doubles: Option<[Vec<f64>; 3]>,
}

impl IntegerGelus {
    /// The function of each feature, and the factor from its scale to that of the results.
    pub fn new(features: Vec<IntegerGelu>, ratios: Ratios) -> Self {
        const EXACT: i128 = 1 << 53;
        let is_exact = |gelu: &IntegerGelu| {
            let (b, c) = (i128::from(gelu.erf.b()), i128::from(gelu.erf.c()));
            b * b + c.abs() < EXACT && i128::from(gelu.one).abs() < EXACT
        };
        let column = |of: fn(&IntegerGelu) -> i64| features.iter().map(|gelu| of(gelu) as f64).collect();
        let doubles = features
            .iter()
            .all(is_exact)
            .then(|| [column(|gelu| -gelu.erf.b()), column(|gelu| gelu.erf.c()), column(|gelu| gelu.one)]);
        Self { features, ratios, doubles }
    }

    /// The function of a row, cut to 8 bits.
    pub fn apply(&self, q: &[i32], to: &mut [i8]) {
        #[cfg(feature = "flex")]
        if let Some([end, c, one]) = &self.doubles
            && crate::flex::integer::gelu(q, [end, c, one, self.ratios.doubles()], to)
        {
            return;
        }
        for ((to, q), (gelu, ratio)) in
            to.iter_mut().zip(q).zip(self.features.iter().zip(self.ratios.exact()))
        {
            *to = saturated(ratio.apply(gelu.apply(*q)), 8) as i8;
        }
    }
}

/// The scale of `L`.
fn erf_scale(scale: f64) -> f64 {
    let scale = scale / ROOT;
    scale * scale * A * f64::from(1 << SHIFT)
}

#[cfg(test)]
mod tests {
    use super::super::Dyadic;
    use super::*;

    /// In double precision, too, they are the integers of the single function.
    #[test]
    fn rows_are_those_of_single_integers() {
        let scales = [1e-2, 1e-3, 6.1e-5, 7e-6, 1e-6];
        for factors in [[0.03; 5], [1.0, 0.5, 0.25, 2.0, 0.125], [0.01, 0.02, 0.05, 0.1, 0.2]] {
            let gelus: Vec<IntegerGelu> = scales.iter().map(|scale| IntegerGelu::new(*scale)).collect();
            let ratio = |(scale, factor): (&f64, &f64)| {
                Dyadic::new(IntegerGelu::output_scale(*scale) / factor).unwrap()
            };
            let ratios: Vec<Dyadic> = scales.iter().zip(&factors).map(ratio).collect();
            let rows = IntegerGelus::new(gelus.clone(), Ratios::new(ratios.clone()));
            assert!(rows.doubles.is_some());
            let mut to = vec![0; scales.len()];
            for x in (-60_000i32..60_000).step_by(7).chain([i32::MIN, i32::MIN + 1, i32::MAX]) {
                let q: Vec<i32> = scales.iter().map(|scale| (f64::from(x) * 1e-4 / scale) as i32).collect();
                rows.apply(&q, &mut to);
                for i in 0..q.len() {
                    assert_eq!(
                        i64::from(to[i]),
                        saturated(ratios[i].apply(gelus[i].apply(q[i])), 8),
                        "{i}: {}",
                        q[i]
                    );
                }
            }
        }
    }

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
