//! Which tokens of an example see which: UniLM's mixture of attention masks (Dong et al. 2019,
//! §2.3).

use crate::random::Random;
use serde::{Deserialize, Serialize};

/// Which tokens of its own sequence a token sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sight {
    /// All tokens.
    #[default]
    All,
    /// The first N tokens of the sequence, itself, and those before it; with 0, left to right.
    Prefix(usize),
    /// Itself and those after it.
    RightToLeft,
}

/// Shares of the attention masks, relative to the sum of the four.
///
/// The tokens to predict are drawn in the same way under each mask. UniLM uses one third bidirectional, one
/// third sequence-to-sequence, and one sixth in each direction.
///
/// Pair classification needs a first token that sees both segments, so pairs are classified under the
/// bidirectional mask only, as in the paper, and pairs with a random or swapped second segment always have
/// that mask. The shares apply to the other examples. With pairs, `bidirectional` may not be 0, and without
/// pairs, `sequence_to_sequence` must be.
///
/// If one of the shares is set, the default of the others is 0. The table of examples at the end of a run
/// counts the masks.
///
/// Deviations from UniLM: segment embeddings do not depend on the mask, and end pieces are never predicted.
///
/// ```
/// # use cloze_data::{AttentionConfig, ExampleConfig, PairConfig};
/// // A sixth of the pairs is random. With a fifth of the others a third is bidirectional, and half of that random.
/// let (pairs, mut attention) = (PairConfig::default(), AttentionConfig::default());
/// attention.left_to_right = 1.0;
/// attention.right_to_left = 1.0;
/// attention.sequence_to_sequence = 2.0;
/// let config = ExampleConfig::new(128).with_pairs(pairs).with_attention(attention);
/// assert_eq!(config.attention.shares(), [0.2, 0.2, 0.2, 0.4]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AttentionConfig {
    /// Every token sees all. Default 0.
    #[serde(default)]
    pub bidirectional: f64,
    /// A token sees itself and those before it. Default 0.
    #[serde(default)]
    pub left_to_right: f64,
    /// A token sees itself and those after it. Default 0.
    #[serde(default)]
    pub right_to_left: f64,
    /// A token of the first segment sees all of that segment; one of the second sees the first segment,
    /// itself, and those before it. Without a second segment this is bidirectional. Default 0.
    #[serde(default)]
    pub sequence_to_sequence: f64,
}

impl Default for AttentionConfig {
    /// Bidirectional alone.
    fn default() -> Self {
        Self { bidirectional: 1.0, left_to_right: 0.0, right_to_left: 0.0, sequence_to_sequence: 0.0 }
    }
}

/// An attention mask for examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mask {
    Bidirectional,
    LeftToRight,
    RightToLeft,
    SequenceToSequence,
}

impl Mask {
    /// What tokens see in a sequence whose first segment has `first_segment` tokens.
    pub fn sight(self, first_segment: usize) -> Sight {
        match self {
            Self::Bidirectional => Sight::All,
            Self::LeftToRight => Sight::Prefix(0),
            Self::RightToLeft => Sight::RightToLeft,
            Self::SequenceToSequence => Sight::Prefix(first_segment),
        }
    }
}

impl AttentionConfig {
    /// The shares, which sum to 1: bidirectional, left-to-right, right-to-left, and sequence-to-sequence.
    ///
    /// # Panics
    /// If one is negative or not finite, or all are 0.
    pub fn shares(&self) -> [f64; 4] {
        let Self { bidirectional, left_to_right, right_to_left, sequence_to_sequence } = *self;
        let shares = [bidirectional, left_to_right, right_to_left, sequence_to_sequence];
        let sum: f64 = shares.iter().sum();
        let fits = sum > 0.0 && shares.iter().all(|share| *share >= 0.0 && share.is_finite());
        assert!(fits, "shares of 0 or more, one of them above 0: {shares:?}");
        shares.map(|share| share / sum)
    }

    /// Lets runs from before this setting existed resume.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether every example is bidirectional.
    pub fn is_bidirectional(&self) -> bool {
        self.left_to_right == 0.0 && self.right_to_left == 0.0 && self.sequence_to_sequence == 0.0
    }

    /// A mask, drawn by the shares.
    pub(crate) fn draw(&self, random: &mut Random) -> Mask {
        let mut left = random.unit();
        let [bidirectional, left_to_right, right_to_left, _] = self.shares();
        for (mask, share) in [
            (Mask::Bidirectional, bidirectional),
            (Mask::LeftToRight, left_to_right),
            (Mask::RightToLeft, right_to_left),
        ] {
            if left < share {
                return mask;
            }
            left -= share;
        }
        match self.sequence_to_sequence > 0.0 {
            true => Mask::SequenceToSequence,
            // What rounding leaves beyond the last share.
            false if right_to_left > 0.0 => Mask::RightToLeft,
            false if left_to_right > 0.0 => Mask::LeftToRight,
            false => Mask::Bidirectional,
        }
    }
}

/// Number of examples per attention mask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttentionStats {
    /// Every token saw all.
    pub bidirectional: u64,
    /// A token saw itself and those before it.
    pub left_to_right: u64,
    /// A token saw itself and those after it.
    pub right_to_left: u64,
    /// Sequence-to-sequence.
    pub sequence_to_sequence: u64,
}

impl AttentionStats {
    /// Counts an example.
    pub(crate) fn add(&mut self, mask: Mask) {
        *match mask {
            Mask::Bidirectional => &mut self.bidirectional,
            Mask::LeftToRight => &mut self.left_to_right,
            Mask::RightToLeft => &mut self.right_to_left,
            Mask::SequenceToSequence => &mut self.sequence_to_sequence,
        } += 1;
    }
}

impl std::ops::AddAssign<&AttentionStats> for AttentionStats {
    fn add_assign(&mut self, other: &AttentionStats) {
        self.bidirectional += other.bidirectional;
        self.left_to_right += other.left_to_right;
        self.right_to_left += other.right_to_left;
        self.sequence_to_sequence += other.sequence_to_sequence;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_nothing_is_never_drawn() {
        let mut random = Random::new(3);
        for (at, mask) in
            [Mask::Bidirectional, Mask::LeftToRight, Mask::RightToLeft, Mask::SequenceToSequence]
                .into_iter()
                .enumerate()
        {
            let share = |of: usize| if of == at { 0.3 } else { 0.0 };
            let config = AttentionConfig {
                bidirectional: share(0),
                left_to_right: share(1),
                right_to_left: share(2),
                sequence_to_sequence: share(3),
            };
            assert_eq!(config.is_bidirectional(), at == 0);
            assert!((0..1_000).all(|_| config.draw(&mut random) == mask));
        }
    }

    #[test]
    #[should_panic = "shares of 0 or more, one of them above 0"]
    fn no_share_at_all_is_a_mistake() {
        AttentionConfig { bidirectional: 0.0, ..AttentionConfig::default() }.shares();
    }
}
