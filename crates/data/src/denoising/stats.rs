//! Statistics of the noise in batches.

use crate::corruption::noise::NoiseCounts;

/// Counts over denoising examples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DenoisingStats {
    /// Examples.
    pub examples: u64,
    /// Tokens of the texts before noise, without special ones.
    pub tokens: u64,
    /// Their sentences or parts of sentences.
    pub sentences: u64,
    /// Their documents or parts of documents, as far as special tokens separate them.
    pub documents: u64,
    /// Tokens of the sources, including special ones.
    pub source_tokens: u64,
    /// Tokens of the targets, including special ones.
    pub target_tokens: u64,
    /// Tokens cut from sources that noise made too long.
    pub cut: u64,
    /// What the noise did.
    pub noise: NoiseCounts,
}

impl DenoisingStats {
    /// Mean number of tokens per mask or sentinel that stands for a whole span, counting empty spans. `None`
    /// if there is no such mask.
    pub fn mean_span(&self) -> Option<f64> {
        let tokens = &self.noise.tokens;
        (tokens.span_masks > 0).then(|| tokens.in_spans as f64 / tokens.span_masks as f64)
    }
}

impl std::ops::AddAssign<&DenoisingStats> for DenoisingStats {
    fn add_assign(&mut self, other: &DenoisingStats) {
        self.examples += other.examples;
        self.tokens += other.tokens;
        self.sentences += other.sentences;
        self.documents += other.documents;
        self.source_tokens += other.source_tokens;
        self.target_tokens += other.target_tokens;
        self.cut += other.cut;
        self.noise += other.noise;
    }
}
