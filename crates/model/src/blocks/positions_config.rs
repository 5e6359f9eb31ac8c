use super::{RelativeBiasConfig, RotaryConfig, SinusoidOrder};
use serde::{Deserialize, Serialize};

/// How positions are represented, in the encoder and in the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum PositionsConfig {
    /// Fixed [sinusoids](crate::blocks::SinusoidalPositions), added to the embeddings.
    Sinusoidal {
        /// The order of the features.
        #[serde(default)]
        order: SinusoidOrder,
    },
    /// [Learned tables](crate::blocks::LearnedPositions), one for the encoder and one for the decoder, added to the
    /// embeddings.
    Learned {
        /// Unused rows at the start of the table: 2 in BART.
        #[serde(default)]
        offset: usize,
    },
    /// Learned vectors for distances in each layer's self-attention (Shaw et al. 2018), see
    /// [`RelativePositions`](crate::blocks::RelativePositions).
    Relative {
        /// The greatest distance with its own vector; 16 in the paper's base model.
        #[serde(default = "clipped")]
        max_distance: usize,
        /// Whether there are vectors for values as well as for keys, as in the paper.
        #[serde(default = "yes")]
        values: bool,
    },
    /// A learned score bias for each head and distance bucket, shared by all layers of a stack (Raffel et al.
    /// 2020, §2.1), see [`RelativeBias`](crate::blocks::RelativeBias).
    RelativeBias {
        /// The number of buckets.
        #[serde(default = "buckets")]
        n_buckets: usize,
        /// All distances from here up share the last bucket.
        #[serde(default = "farthest")]
        max_distance: usize,
    },
    /// Scores of self-attention that decrease with the distance (Press et al. 2022). In the encoder, both
    /// directions count equally.
    Alibi,
    /// Rotary positions in self-attention (Su et al. 2021).
    Rotary {
        /// Pair `i` of a head's `d / 2` is rotated by `theta^(−2i/d)` radians per position.
        #[serde(default = "theta")]
        theta: f64,
    },
    /// No positions at all.
    None,
}

/// A kind of positions by its name alone, with the settings of its paper: see [`PositionsConfig::from`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PositionKind {
    /// A learned vector for each position, added to the embeddings (Devlin et al. 2019).
    Learned,
    /// Fixed sines and cosines, added to the embeddings (Vaswani et al. 2017).
    Sinusoidal,
    /// Learned vectors for distances up to 16, for keys and values, in each layer (Shaw et al. 2018).
    Relative,
    /// A learned bias of the scores for each head and each of 32 buckets of distances (Raffel et al. 2020).
    RelativeBias,
    /// Queries and keys that are rotated by their positions, with a base of 10,000 (Su et al. 2021).
    Rotary,
    /// Scores that decrease with the distance (Press et al. 2022).
    Alibi,
    /// No positions at all.
    None,
}

impl PositionKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Learned,
        Self::Sinusoidal,
        Self::Relative,
        Self::RelativeBias,
        Self::Rotary,
        Self::Alibi,
        Self::None,
    ];

    /// Its name in configs, such as `relative-bias`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Learned => "learned",
            Self::Sinusoidal => "sinusoidal",
            Self::Relative => "relative",
            Self::RelativeBias => "relative-bias",
            Self::Rotary => "rotary",
            Self::Alibi => "alibi",
            Self::None => "none",
        }
    }
}

/// The kind with the settings of its paper.
impl From<PositionKind> for PositionsConfig {
    fn from(kind: PositionKind) -> Self {
        match kind {
            PositionKind::Learned => Self::Learned { offset: 0 },
            PositionKind::Sinusoidal => Self::Sinusoidal { order: SinusoidOrder::default() },
            PositionKind::Relative => Self::Relative { max_distance: clipped(), values: true },
            PositionKind::RelativeBias => {
                Self::RelativeBias { n_buckets: buckets(), max_distance: farthest() }
            }
            PositionKind::Rotary => Self::Rotary { theta: theta() },
            PositionKind::Alibi => Self::Alibi,
            PositionKind::None => Self::None,
        }
    }
}

fn yes() -> bool {
    true
}

fn clipped() -> usize {
    16
}

fn buckets() -> usize {
    32
}

fn farthest() -> usize {
    128
}

fn theta() -> f64 {
    RotaryConfig::default().theta
}

impl PositionsConfig {
    /// The rotary positions, if they are of this kind.
    pub(crate) fn rotary(self) -> Option<RotaryConfig> {
        match self {
            Self::Rotary { theta } => Some(RotaryConfig { theta, ..RotaryConfig::default() }),
            _ => None,
        }
    }

    /// The buckets of distances, if there are any.
    pub(crate) fn relative_bias(self) -> Option<RelativeBiasConfig> {
        match self {
            Self::RelativeBias { n_buckets, max_distance } => {
                Some(RelativeBiasConfig { n_buckets, max_distance })
            }
            _ => None,
        }
    }
}
