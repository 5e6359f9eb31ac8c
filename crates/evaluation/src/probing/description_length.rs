//! Minimum description length by online coding.

/// Where the portions of the data end, in shares of all (Voita & Titov 2020, §3.2).
const SHARES: [f64; 11] = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0];

/// Where the portions of `n` examples end, ascending: after 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.25, 12.5, 25, 50 and 100 %.
/// Portions that would be empty are left out.
pub fn portions(n: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = SHARES.iter().map(|share| (share * n as f64).round() as usize).collect();
    ends.retain(|end| *end > 0);
    ends.dedup();
    ends
}

/// The length of a message with all labels, which is sent portion after portion by a probe that has learned from the
/// portions before (Voita & Titov 2020, eq. 2):
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
    /// A code of labels of `classes` classes that begins with `first` uniformly coded ones.
    pub fn new(classes: usize, first: usize) -> Self {
        Self { classes, examples: first, bits: uniform(classes, first) }
    }

    /// Adds a portion of `examples` labels, to which the probe that learned from all before gives this sum of
    /// cross-entropies, in nats.
    pub fn push(&mut self, examples: usize, nats: f64) {
        self.examples += examples;
        self.bits += nats / std::f64::consts::LN_2;
    }

    /// The length of the whole message, in bits.
    pub fn bits(&self) -> f64 {
        self.bits
    }

    /// The length of a uniform code over the length of this one: 1 if nothing is learned. NaN without a label.
    pub fn compression(&self) -> f64 {
        uniform(self.classes, self.examples) / self.bits
    }
}

/// Bits of labels that are all equally likely.
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
