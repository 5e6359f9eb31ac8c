//! Batches of examples of similar length, to minimise padding.

use crate::permutation::Permutation;
use crate::seed::derive_seed;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

const ORDER: u64 = 0xB0C4;
const BATCHES: u64 = 0xB47C;

/// How large a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchSize {
    /// This many examples.
    Examples(usize),
    /// As many examples as fit in this many tokens, including padding to the longest; at least one.
    Tokens(usize),
    /// Limited by both examples and tokens, including padding to the longest; at least one example.
    Within {
        /// Maximum examples.
        examples: usize,
        /// Maximum tokens, including padding.
        tokens: usize,
    },
}

impl BatchSize {
    /// Whether a batch has room for another example, after which its longest has `longest` tokens.
    fn takes(self, examples: usize, longest: usize) -> bool {
        match self {
            Self::Examples(max) => examples < max,
            Self::Tokens(max) => (examples + 1).saturating_mul(longest) <= max,
            Self::Within { examples: max, tokens } => {
                Self::Examples(max).takes(examples, longest) && Self::Tokens(tokens).takes(examples, longest)
            }
        }
    }
}

/// Groups examples of similar length into batches.
///
/// Every epoch has its own order. The shuffled examples are divided into pools of [`Self::POOL`] batches;
/// those of a pool are sorted by length and cut into batches; all batches are shuffled. Every example is in
/// one batch per epoch; a pool's last batch may be small. [Mixed](Self::mixed) batches ignore length.
///
/// The only state is the step: a resumed run continues with [`steps`](Self::steps) from there.
///
/// ```
/// # use cloze_data::labelled::{BatchSize, Buckets};
/// let buckets = Buckets::new(vec![3, 9, 4, 8, 2], BatchSize::Tokens(18), 42);
/// let all: Vec<_> = buckets.steps(0).take(4).collect();
/// assert!(buckets.steps(2).take(2).eq(all[2..].iter().cloned()));
/// // By length, to evaluate.
/// assert_eq!(buckets.sorted(), [vec![4, 0, 2], vec![3, 1]]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    lengths: Vec<usize>,
    /// Keys that no two examples of a batch may share; empty, or one list per example.
    keys: Vec<Vec<u64>>,
    size: BatchSize,
    /// Without keys, whether batches are cut from the shuffled examples in order, without sorting
    /// by length.
    is_mixed: bool,
    seed: u64,
}

/// One training step's batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Whether it is the epoch's last.
    pub ends_epoch: bool,
    /// The examples' indices.
    pub examples: Vec<usize>,
}

impl Buckets {
    /// Approximate number of batches per pool, as in transformers' `group_by_length`.
    pub const POOL: usize = 50;

    /// Batches of examples with these lengths in tokens. A size of 0 counts as 1.
    pub fn new(lengths: Vec<usize>, size: BatchSize, seed: u64) -> Self {
        let size = match size {
            BatchSize::Examples(n) => BatchSize::Examples(n.max(1)),
            BatchSize::Tokens(n) => BatchSize::Tokens(n.max(1)),
            BatchSize::Within { examples, tokens } => {
                BatchSize::Within { examples: examples.max(1), tokens: tokens.max(1) }
            }
        };
        Self { lengths, keys: Vec::new(), size, is_mixed: false, seed }
    }

    /// The same with batches in which no two examples have a key in common, such as a text whose copy would
    /// be a false negative. An example goes to the first batch of its pool that has room and none of its
    /// keys, so there are slightly more batches, and their number varies by epoch.
    ///
    /// # Panics
    /// Unless there is one list of keys per example.
    pub fn with_keys(mut self, keys: Vec<Vec<u64>>) -> Self {
        assert_eq!(keys.len(), self.lengths.len(), "one list of keys for each example");
        self.keys = keys;
        self
    }

    /// The same with batches of mixed lengths, for losses that compare the examples of a batch and learn less
    /// from examples of similar length. Batches with [keys](Self::with_keys) are still sorted.
    pub fn mixed(self) -> Self {
        Self { is_mixed: true, ..self }
    }

    /// Whether every epoch has the same number of batches.
    pub fn is_even(&self) -> bool {
        matches!(self.size, BatchSize::Examples(_)) && self.keys.is_empty()
    }

    /// Examples.
    pub fn n_examples(&self) -> usize {
        self.lengths.len()
    }

    /// The batches of an epoch, in order, as example indices.
    pub fn epoch(&self, epoch: u64) -> Vec<Vec<usize>> {
        let n = self.lengths.len();
        let order = Permutation::new(n as u64, derive_seed(self.seed, &[ORDER, epoch]));
        let shuffled: Vec<usize> = (0..n as u64).map(|place| order.get(place) as usize).collect();
        if self.is_mixed && self.keys.is_empty() {
            return self.cut(&shuffled);
        }
        let mut batches = Vec::new();
        for pool in shuffled.chunks(self.pool()) {
            batches.extend(self.cut_by_length(pool.to_vec()));
        }
        let order = Permutation::new(batches.len() as u64, derive_seed(self.seed, &[BATCHES, epoch]));
        (0..batches.len() as u64)
            .map(|place| std::mem::take(&mut batches[order.get(place) as usize]))
            .collect()
    }

    /// The steps from `from` on, over endless epochs; empty if there are no examples.
    pub fn steps(&self, from: u64) -> impl Iterator<Item = Step> {
        // Epochs have different numbers of batches where tokens count, so those before are made again.
        let mut left = usize::try_from(from).unwrap_or(usize::MAX);
        (0..).take_while(|_| !self.lengths.is_empty()).flat_map(move |epoch| {
            let batches = self.epoch(epoch);
            let n = batches.len();
            let skipped = left.min(n);
            left -= skipped;
            batches.into_iter().enumerate().skip(skipped).map(move |(place, examples)| Step {
                epoch,
                ends_epoch: place + 1 == n,
                examples,
            })
        })
    }

    /// All examples in batches by ascending length, without shuffling: for evaluation. [`restore`] returns
    /// the outputs to the examples' order.
    pub fn sorted(&self) -> Vec<Vec<usize>> {
        self.cut_by_length((0..self.lengths.len()).collect())
    }

    /// Examples of a pool.
    fn pool(&self) -> usize {
        let within = |tokens: usize| {
            let total: usize = self.lengths.iter().sum();
            let mean = total.div_ceil(self.lengths.len().max(1)).max(1);
            (tokens / mean).max(1)
        };
        let batch = match self.size {
            BatchSize::Examples(n) => n,
            BatchSize::Tokens(tokens) => within(tokens),
            BatchSize::Within { examples, tokens } => examples.min(within(tokens)),
        };
        batch.saturating_mul(Self::POOL)
    }

    /// Sorts examples by length and cuts them into batches.
    fn cut_by_length(&self, mut examples: Vec<usize>) -> Vec<Vec<usize>> {
        examples.sort_by_key(|example| self.lengths[*example]);
        if self.keys.is_empty() { self.cut(&examples) } else { self.cut_apart(examples) }
    }

    /// Cuts examples into batches, in their order.
    fn cut(&self, examples: &[usize]) -> Vec<Vec<usize>> {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut longest = 0;
        for &example in examples {
            longest = longest.max(self.lengths[example]);
            match batches.last_mut() {
                Some(batch) if self.size.takes(batch.len(), longest) => batch.push(example),
                _ => {
                    longest = self.lengths[example];
                    batches.push(vec![example]);
                }
            }
        }
        batches
    }

    /// Cuts examples, which are sorted by length, into batches without common keys.
    fn cut_apart(&self, examples: Vec<usize>) -> Vec<Vec<usize>> {
        let mut batches: Vec<(Vec<usize>, HashSet<u64>)> = Vec::new();
        // Before this one all are full.
        let mut open = 0;
        for example in examples {
            let (len, keys) = (self.lengths[example], &self.keys[example]);
            let takes = |(batch, known): &(Vec<usize>, HashSet<u64>)| {
                self.size.takes(batch.len(), len) && keys.iter().all(|key| !known.contains(key))
            };
            match batches[open..].iter().position(takes) {
                Some(place) => {
                    let (batch, known) = &mut batches[open + place];
                    batch.push(example);
                    known.extend(keys);
                }
                None => batches.push((vec![example], keys.iter().copied().collect())),
            }
            // Examples only get longer, so what has no room for this one has none for later ones.
            while batches.get(open).is_some_and(|(batch, _)| !self.size.takes(batch.len(), len)) {
                open += 1;
            }
        }
        batches.into_iter().map(|(batch, _)| batch).collect()
    }
}

/// The outputs of batches in the order of the examples.
///
/// # Panics
/// Unless the batches contain exactly the examples `0..n`, with one output each.
pub fn restore<T>(batches: &[Vec<usize>], outputs: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut places = batches.iter().flatten();
    let mut ordered: Vec<(usize, T)> = outputs
        .into_iter()
        .map(|output| (*places.next().expect("no more outputs than examples"), output))
        .collect();
    assert!(places.next().is_none(), "as many outputs as examples");
    ordered.sort_by_key(|(place, _)| *place);
    assert!(ordered.iter().enumerate().all(|(i, (place, _))| i == *place), "every example once");
    ordered.into_iter().map(|(_, output)| output).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size() -> impl Strategy<Value = BatchSize> {
        prop_oneof![
            (0usize..9).prop_map(BatchSize::Examples),
            (0usize..200).prop_map(BatchSize::Tokens),
            (0usize..9, 0usize..200).prop_map(|(examples, tokens)| BatchSize::Within { examples, tokens }),
        ]
    }

    proptest! {
        #[test]
        fn every_example_is_in_one_batch_of_an_epoch(
            lengths in prop::collection::vec(0usize..60, 0..300),
            size in size(),
            seed: u64,
        ) {
            let buckets = Buckets::new(lengths.clone(), size, seed);
            let mixed = buckets.clone().mixed();
            for batches in [buckets.epoch(0), buckets.epoch(1), buckets.sorted(), mixed.epoch(0)] {
                let mut all: Vec<usize> = batches.iter().flatten().copied().collect();
                all.sort_unstable();
                prop_assert!(all.into_iter().eq(0..lengths.len()));
                for batch in &batches {
                    let longest = batch.iter().map(|example| lengths[*example]).max().unwrap();
                    let (examples, tokens) = match size {
                        BatchSize::Examples(n) => (n.max(1), usize::MAX),
                        BatchSize::Tokens(n) => (usize::MAX, n),
                        BatchSize::Within { examples, tokens } => (examples.max(1), tokens),
                    };
                    prop_assert!(batch.len() <= examples);
                    prop_assert!(batch.len() == 1 || batch.len() * longest <= tokens);
                }
                let outputs = batches.iter().flatten().map(|example| lengths[*example]);
                prop_assert_eq!(&restore(&batches, outputs), &lengths);
            }
        }

        #[test]
        fn a_run_goes_on_at_any_step(
            lengths in prop::collection::vec(1usize..60, 1..100),
            size in size(),
            from in 0usize..60,
        ) {
            let buckets = Buckets::new(lengths, size, 7);
            let all: Vec<Step> = buckets.steps(0).take(from + 20).collect();
            prop_assert!(buckets.steps(from as u64).take(20).eq(all[from..].iter().cloned()));
            let (epoch, first) = (all[0].epoch, buckets.epoch(0));
            prop_assert_eq!(epoch, 0);
            let ends = all.iter().position(|step| step.ends_epoch);
            prop_assert_eq!(ends.unwrap_or(first.len() - 1), first.len() - 1);
        }
    }

    #[test]
    fn epochs_and_seeds_differ_and_padding_is_little() {
        let lengths: Vec<usize> = (0..4_000u64).map(|i| 5 + (derive_seed(i, &[]) % 60) as usize).collect();
        let buckets = |seed| Buckets::new(lengths.clone(), BatchSize::Examples(16), seed);
        assert_eq!(buckets(1).epoch(0), buckets(1).epoch(0));
        assert_ne!(buckets(1).epoch(0), buckets(1).epoch(1));
        assert_ne!(buckets(1).epoch(0), buckets(2).epoch(0));
        let batches = buckets(1).epoch(0);
        assert_eq!(batches.len(), 250, "only the last batch of all may be small");
        let longest = |batch: &Vec<usize>| batch.iter().map(|i| lengths[*i]).max().unwrap();
        let padded: usize = batches.iter().map(|batch| batch.len() * longest(batch)).sum();
        let tokens: usize = lengths.iter().sum();
        assert!(padded * 100 < tokens * 105, "{padded} for {tokens}");
        // The order of batches has nothing to do with length.
        let longer = batches.windows(2).filter(|pair| longest(&pair[0]) < longest(&pair[1])).count();
        assert!((90..160).contains(&longer), "{longer} of 249 batches are longer than the one before");
    }

    #[test]
    fn examples_with_a_common_key_are_in_different_batches() {
        let lengths: Vec<usize> = (0..300).map(|i| 3 + i % 7).collect();
        let keys: Vec<Vec<u64>> = (0..300).map(|i| vec![i % 40, 1_000 + i]).collect();
        let buckets = Buckets::new(lengths, BatchSize::Examples(8), 1).with_keys(keys.clone());
        assert!(!buckets.is_even());
        assert_eq!(buckets.epoch(3), buckets.epoch(3));
        for epoch in 0..3 {
            let batches = buckets.epoch(epoch);
            let mut all: Vec<usize> = batches.iter().flatten().copied().collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..300));
            for batch in batches {
                assert!(batch.len() <= 8);
                let mut seen = HashSet::new();
                assert!(batch.iter().flat_map(|i| &keys[*i]).all(|key| seen.insert(*key)));
            }
        }
    }

    #[test]
    fn without_examples_there_is_no_step() {
        let buckets = Buckets::new(vec![], BatchSize::Examples(4), 1);
        assert_eq!(buckets.steps(0).count(), 0);
        assert!(buckets.sorted().is_empty());
    }

    #[test]
    #[should_panic = "every example once"]
    fn outputs_of_one_example_twice_are_a_mistake() {
        restore(&[vec![0, 0]], [1, 2]);
    }

    #[test]
    fn mixed_batches_are_of_any_lengths_and_all_but_the_last_are_full() {
        let sorted = Buckets::new((0..1005).collect(), BatchSize::Examples(10), 3);
        let mixed = sorted.clone().mixed();
        let spread = |batches: &[Vec<usize>]| -> usize {
            batches.iter().map(|batch| batch.iter().max().unwrap() - batch.iter().min().unwrap()).sum()
        };
        let (epoch, next) = (mixed.epoch(0), mixed.epoch(1));
        assert!(spread(&epoch) > 10 * spread(&sorted.epoch(0)), "{epoch:?}");
        assert_ne!(epoch, next);
        let mut sizes: Vec<usize> = epoch.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        assert_eq!((sizes[0], sizes[1], sizes.len()), (5, 10, 101));
        // Evaluation is by length all the same.
        assert_eq!(mixed.sorted(), sorted.sorted());
    }
}
