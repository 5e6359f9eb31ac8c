//! Relations between words.

use hashbrown::HashMap;

use super::WordVectors;
use crate::Result;
use crate::embeddings::{LogisticConfig, Vectors, linear_probe};
use crate::vectors::Correction;

/// Steps of the probe at most, and the largest component of the gradient at which it is done. Accuracy does not change
/// any more long before the weights do.
const MAX_ITERATIONS: usize = 300;
const TOLERANCE: f64 = 1e-5;

/// A pair of words, by number, and its relation, numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelationPair {
    /// The first word.
    pub first: usize,
    /// The second word.
    pub second: usize,
    /// The relation.
    pub relation: usize,
}

/// Pairs to train on and to test on, which have no word in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WordSplit {
    /// Pairs of words for training.
    pub train: Vec<RelationPair>,
    /// Pairs of words for testing.
    pub test: Vec<RelationPair>,
    /// Pairs of a word of each kind, which are left out.
    pub mixed: usize,
    /// Test pairs whose relation has no training pair; they are left out too.
    pub unseen: usize,
}

/// Splits words, not pairs, into those to train on and `test_share` of them to test on: a probe that has seen a word in
/// training can tell its relations without looking at the other word (Levy et al. 2015, "Do Supervised Distributional
/// Methods Really Learn Lexical Inference Relations?", §4). `uniform` yields numbers in `0..1`.
pub fn split_words(pairs: &[RelationPair], test_share: f64, uniform: &mut dyn FnMut() -> f64) -> WordSplit {
    let mut is_test: HashMap<usize, bool> = HashMap::new();
    let mut words = Vec::new();
    for word in pairs.iter().flat_map(|pair| [pair.first, pair.second]) {
        if is_test.insert(word, false).is_none() {
            words.push(word);
        }
    }
    // The first of a random order (Fisher & Yates).
    let n_test = (test_share * words.len() as f64).round() as usize;
    for at in 0..n_test.min(words.len()) {
        let other = at + (uniform() * (words.len() - at) as f64) as usize;
        let last = words.len() - 1;
        words.swap(at, other.min(last));
        is_test.insert(words[at], true);
    }
    let mut split = WordSplit::default();
    for pair in pairs {
        match [pair.first, pair.second].map(|word| is_test[&word]) {
            [false, false] => split.train.push(*pair),
            [true, true] => split.test.push(*pair),
            _ => split.mixed += 1,
        }
    }
    let n_test = split.test.len();
    let WordSplit { train, test, .. } = &mut split;
    test.retain(|pair| train.iter().any(|other| other.relation == pair.relation));
    split.unseen = n_test - split.test.len();
    split
}

/// How well relations are told from vectors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelationProbe {
    /// The share of test pairs whose relation is found from both words.
    pub accuracy: f64,
    /// The mean of the relations' F1.
    pub f1_macro: f64,
    /// The accuracy from the second word alone: what a probe knows of words without their pair.
    pub second_alone: f64,
    /// The share of the relation that is most frequent in training.
    pub majority: f64,
}

/// Trains a logistic regression on the vectors `(u, v)` of training pairs, side by side, and tests it on other words.
///
/// Vectors are scaled to length 1, and then each feature to z-scores by the training pairs. The regression is
/// [`linear_probe`]'s with `C` = 1. `step_done` is called after each of its steps.
///
/// # Errors
/// [`EvaluationError::OneClass`](crate::EvaluationError::OneClass) if training pairs have fewer than two relations, or
/// there are no test pairs.
pub fn relation_probe(
    vectors: &WordVectors,
    split: &WordSplit,
    step_done: &mut dyn FnMut(usize),
) -> Result<RelationProbe> {
    let mut relations: Vec<usize> = split.train.iter().map(|pair| pair.relation).collect();
    relations.sort_unstable();
    relations.dedup();
    if split.test.is_empty() || relations.is_empty() {
        return Err(crate::EvaluationError::OneClass);
    }
    // Test pairs have no other relations.
    let class = |pair: &RelationPair| relations.binary_search(&pair.relation).unwrap_or_default();
    let classes = |pairs: &[RelationPair]| pairs.iter().map(class).collect::<Vec<_>>();
    let (train, test) = (classes(&split.train), classes(&split.test));
    let directions = vectors.directions();
    let mut probe = |words: fn(&RelationPair) -> Vec<usize>| {
        let width = vectors.width() * words(&split.train[0]).len();
        let row = |pair: &RelationPair| {
            let numbers = words(pair).into_iter();
            numbers
                .flat_map(|word| directions[word * vectors.width()..][..vectors.width()].iter().copied())
                .collect::<Vec<f32>>()
        };
        let rows = |pairs: &[RelationPair]| pairs.iter().flat_map(row).collect::<Vec<f32>>();
        let (train_rows, test_rows) = (rows(&split.train), rows(&split.test));
        let scores = Correction::z_scores(&train_rows, width);
        let (train_rows, test_rows) = (scores.apply(&train_rows), scores.apply(&test_rows));
        linear_probe(
            (Vectors::new(&train_rows, width)?, &train),
            (Vectors::new(&test_rows, width)?, &test),
            relations.len(),
            LogisticConfig {
                max_iterations: MAX_ITERATIONS,
                tolerance: TOLERANCE,
                ..LogisticConfig::default()
            },
            step_done,
        )
    };
    let both = probe(|pair| vec![pair.first, pair.second])?.figures;
    let second = probe(|pair| vec![pair.second])?.figures;
    let mut counts = vec![0_usize; relations.len()];
    train.iter().for_each(|class| counts[*class] += 1);
    // The first of equally frequent ones.
    let most = counts.iter().enumerate().fold(
        (0, 0),
        |best, (class, count)| {
            if *count > best.1 { (class, *count) } else { best }
        },
    );
    let majority = test.iter().filter(|class| **class == most.0).count() as f64 / test.len() as f64;
    let figure = |figures: &crate::figures::Figures, name: &str| figures.get(name).unwrap_or(f64::NAN);
    Ok(RelationProbe {
        accuracy: figure(&both, "accuracy"),
        f1_macro: figure(&both, "f1_macro"),
        second_alone: figure(&second, "accuracy"),
        majority,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uniform;

    /// Pairs of 60 words; the relation is whether the second word's number is greater.
    fn pairs() -> Vec<RelationPair> {
        let pair = |i: usize| {
            let (first, second) = (i % 60, (i * 17 + i / 60 * 13) % 60);
            RelationPair { first, second, relation: usize::from(second > first) }
        };
        (0..900).map(pair).collect()
    }

    #[test]
    fn no_word_is_on_both_sides() {
        for seed in 1..20 {
            let split = split_words(&pairs(), 0.3, &mut uniform(seed));
            let words = |pairs: &[RelationPair]| -> Vec<usize> {
                pairs.iter().flat_map(|pair| [pair.first, pair.second]).collect()
            };
            let (train, test) = (words(&split.train), words(&split.test));
            assert!(!train.is_empty() && !test.is_empty());
            assert!(test.iter().all(|word| !train.contains(word)));
            assert_eq!(split.train.len() + split.test.len() + split.mixed + split.unseen, 900);
        }
        assert_eq!(split_words(&[], 0.3, &mut uniform(1)), WordSplit::default());
    }

    #[test]
    fn relations_of_numbers_are_told_from_both_words() {
        // A word's vector is a place on an arc.
        let values: Vec<f32> =
            (0..60).flat_map(|i| [(i as f32 / 40.0).cos(), (i as f32 / 40.0).sin()]).collect();
        let vectors = WordVectors::new((0..60).map(|i| i.to_string()).collect(), values, 2, false).unwrap();
        let split = split_words(&pairs(), 0.4, &mut uniform(3));
        let found = relation_probe(&vectors, &split, &mut |_| ()).unwrap();
        assert!(found.accuracy > 0.9 && found.accuracy > found.second_alone + 0.1, "{found:?}");
        assert!(found.majority < 0.8 && found.f1_macro > 0.85, "{found:?}");
        let none = WordSplit { test: vec![], ..split };
        assert!(relation_probe(&vectors, &none, &mut |_| ()).is_err());
    }
}
