//! Batches of pairs of similar length, reshuffled every epoch.

use super::prepared::PreparedPairs;
use crate::denoising::DenoisingStats;
use crate::labelled::{BatchSize, Buckets};
use crate::loader::{Assemble, Placed};
use crate::{DataError, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Token sequences of different lengths, concatenated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenLists {
    /// All ids.
    pub ids: Vec<i32>,
    /// The length of each sequence in tokens.
    pub lengths: Vec<usize>,
}

impl TokenLists {
    /// Adds a sequence.
    pub fn push(&mut self, ids: impl IntoIterator<Item = u32>) {
        let before = self.ids.len();
        self.ids.extend(ids.into_iter().map(|id| id as i32));
        self.lengths.push(self.ids.len() - before);
    }

    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are no sequences.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Iterator over the sequences.
    pub fn iter(&self) -> impl Iterator<Item = &[i32]> {
        self.lengths.iter().scan(0, |start, length| {
            let ids = &self.ids[*start..*start + length];
            *start += length;
            Some(ids)
        })
    }
}

/// A batch of source–target pairs. A target is a translation, or the restored text of a noisy source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PairBatch {
    /// The sources, with the tokenizer's special tokens.
    pub source: TokenLists,
    /// The targets, likewise.
    pub target: TokenLists,
    /// Statistics of the noise in the sources; zeros if they are not noisy.
    pub noise: DenoisingStats,
}

impl PairBatch {
    /// Tokens of both sides.
    pub fn n_tokens(&self) -> usize {
        self.source.ids.len() + self.target.ids.len()
    }
}

/// Parallel data for a [`Loader`](crate::Loader). Its *examples* are whole batches, so the loader's batch
/// size must be 1, and a position counts the batches of an epoch.
///
/// A pair's length is that of source and target together. Batches are made by [`Buckets`]: pairs are
/// shuffled, sorted by length within pools, and the batches shuffled again. Everything is a function of seed
/// and epoch.
#[derive(Debug)]
pub struct ParallelData {
    pairs: Arc<PreparedPairs>,
    buckets: Buckets,
}

impl ParallelData {
    /// Batches of this size; tokens count both sides, including padding to the longest pair.
    pub fn new(pairs: Arc<PreparedPairs>, size: BatchSize, seed: u64) -> Self {
        let lengths = (0..pairs.len()).map(|pair| pairs.lengths(pair).iter().sum()).collect();
        let buckets = Buckets::new(lengths, size, seed);
        Self { pairs, buckets }
    }

    /// The pairs.
    pub fn pairs(&self) -> &Arc<PreparedPairs> {
        &self.pairs
    }

    /// Number of batches in the first epoch; later epochs have about as many.
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

/// Pairs in memory as batches by ascending length, with at most `batch_tokens` tokens on both sides including
/// padding: for evaluation. Returned with the pairs' indices, for [`restore`](crate::labelled::restore).
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
