//! Gates between 0 and 1 that are exactly 0 or 1 with some probability.

/// The hard concrete distribution (Louizos, Welling & Kingma 2018, §2.2), with which Voita et al. 2019, §5.1, prune heads:
///
/// ```text
/// s = σ((log u − log(1 − u) + log α) / β)      u uniform between 0 and 1
/// z = min(1, max(0, s·(ζ − γ) + γ))
/// P(z > 0) = σ(log α − β·log(−γ/ζ))
/// ```
///
/// `u` gives a gradient to `log α` where `z` is between 0 and 1, and the sum of `P(z > 0)`, the expected number of open gates,
/// is the penalty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HardConcrete {
    /// The temperature, `β`.
    pub temperature: f64,
    /// What the distribution is stretched to below 0, `γ`.
    pub below: f64,
    /// What the distribution is stretched to above 1, `ζ`.
    pub above: f64,
}

impl Default for HardConcrete {
    /// Voita's constants: 0.33, −0.1, 1.1.
    fn default() -> Self {
        Self { temperature: 0.33, below: -0.1, above: 1.1 }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl HardConcrete {
    fn concrete(&self, log_alpha: f64, uniform: f64) -> f64 {
        sigmoid((uniform.ln() - (1.0 - uniform).ln() + log_alpha) / self.temperature)
    }

    fn stretched(&self, s: f64) -> f64 {
        s * (self.above - self.below) + self.below
    }

    /// The gate `z` for a number between 0 and 1, exclusive.
    pub fn sample(&self, log_alpha: f64, uniform: f64) -> f64 {
        self.stretched(self.concrete(log_alpha, uniform)).clamp(0.0, 1.0)
    }

    /// The gate for evaluation, without noise: `min(1, max(0, σ(log α)·(ζ − γ) + γ))`.
    pub fn settled(&self, log_alpha: f64) -> f64 {
        self.stretched(sigmoid(log_alpha)).clamp(0.0, 1.0)
    }

    /// `P(z > 0)`
    pub fn open(&self, log_alpha: f64) -> f64 {
        sigmoid(log_alpha - self.temperature * (-self.below / self.above).ln())
    }

    /// The gradient of `L + penalty · P(z > 0)` with respect to `log α`, given that of `L` with respect to `z`.
    pub fn gradient(&self, log_alpha: f64, uniform: f64, of_gate: f64, penalty: f64) -> f64 {
        let s = self.concrete(log_alpha, uniform);
        let is_between = (0.0..1.0).contains(&self.stretched(s)) && self.stretched(s) > 0.0;
        let slope =
            if is_between { (self.above - self.below) * s * (1.0 - s) / self.temperature } else { 0.0 };
        let open = self.open(log_alpha);
        of_gate * slope + penalty * open * (1.0 - open)
    }
}
