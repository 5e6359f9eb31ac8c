//! Minimum description length by online coding.

/// Ends of the portions of the data, as shares of the total (Voita & Titov 2020, §3.2).
const SHARES: [f64; 11] = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0];

/// Ends of the portions of `n` examples, ascending: after 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.25, 12.5, 25, 50
/// and 100 %. Empty portions are left out.
pub fn portions(n: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = SHARES.iter().map(|share| (share * n as f64).round() as usize).collect();
    ends.retain(|end| *end > 0);
    ends.dedup();
    ends
}

/// The code length of all labels, sent portion by portion with a probe trained on the previous portions
/// (Voita & Titov 2020, eq. 2):
///
/// `L = t_1 · log2 K − Σ_(i=1)^(S−1) log2 p_θi(y_(t_i+1 … t_(i+1)) | x_(t_i+1 … t_(i+1)))`
///
/// with `K` classes, `S` portions that end at `t_1 … t_S`, and the parameters `θ_i` learned from the first `t_i` examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnlineCode {
    classes: usize,
    examples: usize,
    bits: f64,
}

impl OnlineCode {
    /// A code for labels of `classes` classes that begins with `first` uniformly coded labels.
    pub fn new(classes: usize, first: usize) -> Self {
        Self { classes, examples: first, bits: uniform(classes, first) }
    }

    /// Adds a portion of `examples` labels, with the summed cross-entropy in nats of the probe trained on all
    /// previous portions.
    pub fn push(&mut self, examples: usize, nats: f64) {
        self.examples += examples;
        self.bits += nats / std::f64::consts::LN_2;
    }

    /// The length of the whole message, in bits.
    pub fn bits(&self) -> f64 {
        self.bits
    }

    /// The length of a uniform code divided by this one's: 1 if nothing is learned. NaN without labels.
    pub fn compression(&self) -> f64 {
        uniform(self.classes, self.examples) / self.bits
    }
}

/// Bits of uniformly coded labels.
fn uniform(classes: usize, examples: usize) -> f64 {
    examples as f64 * (classes as f64).log2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_double() {
        assert_eq!(portions(1_000), [1, 2, 4, 8, 16, 32, 63, 125, 250, 500, 1_000]);
        assert_eq!(portions(10), [1, 3, 5, 10]);
        assert_eq!(portions(1), [1]);
        assert!(portions(0).is_empty());
    }

    #[test]
    fn a_code_is_the_sum_of_its_portions() {
        // 10 · log2 4 + 20 · 1 + 30 · 0.5 = 55 bits, where a uniform code has 60 · 2.
        let mut code = OnlineCode::new(4, 10);
        code.push(20, 20.0 * std::f64::consts::LN_2);
        code.push(30, 15.0 * std::f64::consts::LN_2);
        assert!((code.bits() - 55.0).abs() < 1e-9);
        assert!((code.compression() - 120.0 / 55.0).abs() < 1e-12);
    }
}
