/// How hypotheses of different lengths compare: their log-probability is divided by this function of their length.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum LengthPenalty {
    /// `length^α`, as in Marian and transformers: 0 has no effect, 1 gives the mean log-probability of the tokens.
    Power(f64),
    /// `((5 + length) / 6)^α` (Wu et al. 2016, eq. 14).
    Gnmt(f64),
}

impl Default for LengthPenalty {
    fn default() -> Self {
        Self::Power(1.0)
    }
}

impl LengthPenalty {
    /// The largest `|α|` that a search accepts; scores of any length are finite up to it.
    pub const MAX_ALPHA: f64 = 10.0;

    /// The divisor for a hypothesis of this many tokens, including the one that ends it.
    ///
    /// ```
    /// use cloze_model::generate::LengthPenalty;
    ///
    /// assert_eq!(LengthPenalty::Power(1.0).at(8), 8.0);
    /// assert_eq!(LengthPenalty::Gnmt(1.0).at(7), 2.0);
    /// ```
    pub fn at(self, length: usize) -> f64 {
        match self {
            Self::Power(alpha) => (length as f64).powf(alpha),
            Self::Gnmt(alpha) => ((5.0 + length as f64) / 6.0).powf(alpha),
        }
    }

    /// Whether `α` is a number of at most [`MAX_ALPHA`](Self::MAX_ALPHA) either way.
    pub fn is_valid(self) -> bool {
        self.alpha().abs() <= Self::MAX_ALPHA
    }

    /// `α`, positive to favour longer hypotheses.
    pub fn alpha(self) -> f64 {
        match self {
            Self::Power(alpha) | Self::Gnmt(alpha) => alpha,
        }
    }
}

/// `β · Σᵢ log(min(Σⱼ aᵢⱼ, 1))`, added to a hypothesis's score (Wu et al. 2016, eq. 15). `received` is the
/// total attention that each source token has received from the written tokens.
///
/// A source token without attention counts as 1e-6, so that scores stay finite.
pub(super) fn coverage(beta: f64, received: &[f32]) -> f64 {
    beta * received.iter().map(|sum| f64::from(sum.clamp(1e-6, 1.0)).ln()).sum::<f64>()
}
