use super::floor;

/// `a(x + b)² + c` for `x = scale · q` (I-BERT, algorithm 1, i-Poly): `(q + b)² + c` with `b` and `c` in the units of `q` and
/// of its square. The result has the scale `a · scale²`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quadratic {
    b: i64,
    c: i64,
}

impl Quadratic {
    /// The polynomial for integers of this scale.
    pub fn new([a, b, c]: [f64; 3], scale: f64) -> Self {
        Self { b: floor(b / scale), c: floor(c / a / (scale * scale)) }
    }

    /// The integer `b`.
    pub fn b(self) -> i64 {
        self.b
    }

    /// The integer `c`.
    pub fn c(self) -> i64 {
        self.c
    }

    /// `(q + b)² + c`
    #[inline]
    pub fn apply(self, q: i64) -> i64 {
        (q + self.b).pow(2) + self.c
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_polynomial_is_within_a_unit_of_its_arguments() {
        let (coefficients, scale) = ([0.3585, 1.353, 0.344], 1e-4);
        let quadratic = Quadratic::new(coefficients, scale);
        for q in (-7_000..0).step_by(37) {
            let x = scale * q as f64;
            let exact = 0.3585 * (x + 1.353) * (x + 1.353) + 0.344;
            let found = 0.3585 * scale * scale * quadratic.apply(q) as f64;
            assert!((exact - found).abs() < 2e-4, "{exact} {found}");
        }
    }
}
