//! Batches of pairs of similar length, in another order each epoch.

use super::prepared::PreparedPairs;
use crate::denoising::DenoisingStats;
use crate::labelled::{BatchSize, Buckets};
use crate::loader::{Assemble, Placed};
use crate::{DataError, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Token sequences of different lengths, one after another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenLists {
    /// All ids.
    pub ids: Vec<i32>,
    /// How many tokens each sequence has.
    pub lengths: Vec<usize>,
}

impl TokenLists {
    /// Adds a sequence.
    pub fn push(&mut self, ids: impl IntoIterator<Item = u32>) {
        let before = self.ids.len();
        self.ids.extend(ids.into_iter().map(|id| id as i32));
        self.lengths.push(self.ids.len() - before);
    }

    /// How many sequences there are.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The sequences, one after another.
    pub fn iter(&self) -> impl Iterator<Item = &[i32]> {
        self.lengths.iter().scan(0, |start, length| {
            let ids = &self.ids[*start..*start + length];
            *start += length;
            Some(ids)
        })
    }
}

/// Some pairs: as many sources as targets. A target is a translation, or what is to be restored of a noisy source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PairBatch {
    /// The sources, with what the tokenizer puts around them.
    pub source: TokenLists,
    /// The targets, likewise.
    pub target: TokenLists,
    /// What was done to the sources, if they are noisy texts; else zeros.
    pub noise: DenoisingStats,
}

impl PairBatch {
    /// Tokens of both sides.
    pub fn n_tokens(&self) -> usize {
        self.source.ids.len() + self.target.ids.len()
    }
}

/// What a [`Loader`](crate::Loader) makes batches of pairs of. Its *examples* are whole batches, so that it is to be made
/// with a batch size of 1: a position counts the batches of an epoch.
///
/// A pair's length is that of its source and target together. The pairs of an epoch are [`Buckets`]: shuffled, then
/// sorted by length within pools, and the batches shuffled again. All of it is a function of seed and epoch.
#[derive(Debug)]
pub struct ParallelData {
    pairs: Arc<PreparedPairs>,
    buckets: Buckets,
}

impl ParallelData {
    /// Batches of this size; tokens are those of both sides, counted with padding to the longest pair.
    pub fn new(pairs: Arc<PreparedPairs>, size: BatchSize, seed: u64) -> Self {
        let lengths = (0..pairs.len()).map(|pair| pairs.lengths(pair).iter().sum()).collect();
        let buckets = Buckets::new(lengths, size, seed);
        Self { pairs, buckets }
    }

    /// The pairs.
    pub fn pairs(&self) -> &Arc<PreparedPairs> {
        &self.pairs
    }

    /// How many batches the first epoch has; later ones have about as many.
    pub fn batches_an_epoch(&self) -> usize {
        self.buckets.epoch(0).len()
    }
}

impl Assemble for ParallelData {
    type Plan = Vec<Vec<usize>>;
    type Batch = PairBatch;

    fn plan(&self, epoch: u64, stop: &AtomicBool) -> Result<Vec<Vec<usize>>> {
        match stop.load(Ordering::Relaxed) {
            true => Err(DataError::Stopped),
            false => Ok(self.buckets.epoch(epoch)),
        }
    }

    fn n_examples(&self, plan: &Vec<Vec<usize>>) -> u64 {
        plan.len() as u64
    }

    fn assemble(&self, examples: &[Placed<'_, Vec<Vec<usize>>>]) -> Result<PairBatch> {
        let mut batch = PairBatch::default();
        for pair in examples.iter().flat_map(|at| &at.plan[at.place as usize]) {
            batch.source.push(self.pairs.source(*pair));
            batch.target.push(self.pairs.target(*pair));
        }
        Ok(batch)
    }
}

/// Pairs in memory, as batches by ascending length, of at most this many tokens of both sides, counted with padding:
/// what a model is measured on. Returned with the places of their pairs, as [`restore`](crate::labelled::restore) needs
/// them.
pub fn batches_of(pairs: &[[Vec<u32>; 2]], batch_tokens: usize) -> (Vec<PairBatch>, Vec<Vec<usize>>) {
    let lengths = pairs.iter().map(|[source, target]| source.len() + target.len()).collect();
    let places = Buckets::new(lengths, BatchSize::Tokens(batch_tokens), 0).sorted();
    let of = |places: &Vec<usize>| {
        let mut batch = PairBatch::default();
        for [source, target] in places.iter().map(|place| &pairs[*place]) {
            batch.source.push(source.iter().copied());
            batch.target.push(target.iter().copied());
        }
        batch
    };
    (places.iter().map(of).collect(), places)
}
