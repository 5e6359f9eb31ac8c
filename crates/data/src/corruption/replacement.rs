//! What replaces predicted tokens, and how many are predicted.

use super::{Corrupted, Edits, MaskingConfig, Original, RandomPieces, ReplacementCounts};
use crate::random::Random;
use std::ops::Range;

/// The number of tokens to predict.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    probability: f64,
    /// At most this many.
    most: usize,
}

impl Budget {
    pub fn new(config: &MaskingConfig) -> Self {
        let most = if config.max_predictions > 0 { config.max_predictions } else { usize::MAX };
        Self { probability: config.probability, most }
    }

    /// Number of tokens of a sequence to predict. As in BERT's reference: a share of all tokens, including
    /// special ones; at least one.
    pub fn wanted(&self, original: &Original<'_>) -> usize {
        ((original.len() as f64 * self.probability).round() as usize).max(1).min(self.most)
    }

    /// The part of a unit that fits the budget, from its start.
    pub fn cut(&self, unit: &Range<usize>) -> Range<usize> {
        unit.start..unit.end.min(unit.start.saturating_add(self.most))
    }
}

/// What happens to a predicted token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Masked,
    Random,
    Kept,
}

/// Draws fates and replacement pieces.
#[derive(Debug, Clone)]
pub(super) struct Replacement {
    mask: u32,
    mask_share: f64,
    random_share: f64,
    pieces: RandomPieces,
}

impl Replacement {
    pub fn new(config: &MaskingConfig, mask: u32, pieces: RandomPieces) -> Self {
        Self { mask, mask_share: config.mask_share, random_share: config.random_share, pieces }
    }

    pub fn fate(&self, random: &mut Random) -> Fate {
        let draw = random.unit();
        if draw < self.mask_share {
            Fate::Masked
        } else if draw < self.mask_share + self.random_share {
            Fate::Random
        } else {
            Fate::Kept
        }
    }

    /// The replacement for `id`.
    pub fn piece(&self, id: u32, fate: Fate, random: &mut Random, counts: &mut ReplacementCounts) -> u32 {
        match fate {
            Fate::Masked => {
                counts.masked += 1;
                self.mask
            }
            Fate::Random => {
                counts.random += 1;
                self.pieces.draw(random)
            }
            Fate::Kept => {
                counts.kept += 1;
                id
            }
        }
    }

    /// Replaces spans, given in any order and without overlaps, with one fate per span or per
    /// token.
    pub fn replace(
        &self,
        original: &Original<'_>,
        mut spans: Vec<Range<usize>>,
        fate_of: FateOf,
        random: &mut Random,
    ) -> Corrupted {
        spans.sort_unstable_by_key(|span| span.start);
        let (mut edits, mut counts) = (Edits::new(original.ids), ReplacementCounts::default());
        let mut drawn = Vec::new();
        for span in spans {
            drawn.clear();
            let mut fate = self.fate(random);
            for (place, id) in original.ids[span.clone()].iter().enumerate() {
                if place > 0 && fate_of == FateOf::Token {
                    fate = self.fate(random);
                }
                drawn.push(self.piece(*id, fate, random, &mut counts));
            }
            edits.replace(span, &drawn);
        }
        edits.finish().with_counts(counts)
    }
}

/// The unit that shares a fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FateOf {
    /// All tokens of a span together.
    Span,
    /// Each token by itself.
    Token,
}
