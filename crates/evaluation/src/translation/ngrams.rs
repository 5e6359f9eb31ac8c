//! N-gram matches of a line with its references.

use std::hash::Hash;

use hashbrown::HashMap;

/// The number of symbols missing from the hypothesis, which match nothing.
const UNKNOWN: u32 = u32::MAX;

/// Numbers the symbols of a hypothesis and its references: equal for equal symbols, and [`UNKNOWN`] for
/// symbols missing from the hypothesis.
pub(crate) fn numbered<T: Hash + Eq>(
    hypothesis: impl IntoIterator<Item = T>,
    references: impl IntoIterator<Item = impl IntoIterator<Item = T>>,
) -> (Vec<u32>, Vec<Vec<u32>>) {
    let mut numbers = HashMap::new();
    let mut number = |symbol| {
        let next = numbers.len() as u32;
        *numbers.entry(symbol).or_insert(next)
    };
    let hypothesis = hypothesis.into_iter().map(&mut number).collect();
    let number = |symbol| numbers.get(&symbol).copied().unwrap_or(UNKNOWN);
    let references = references.into_iter().map(|reference| reference.into_iter().map(number).collect());
    (hypothesis, references.collect())
}

/// Number of n-grams of an order, from 1, in a sequence.
pub(crate) fn count(len: usize, order: usize) -> usize {
    (len + 1).saturating_sub(order)
}

/// Number of hypothesis n-grams found in the references, for each order from 1 to `n_orders`, clipped to the
/// maximum count in any reference (Papineni et al. 2002, section 2.1).
pub(crate) fn matches(hypothesis: &[u32], references: &[Vec<u32>], n_orders: usize) -> Vec<u64> {
    let mut matches = vec![0; n_orders];
    // An n-gram's number is made of that of its beginning and of its last symbol. Before the first order all
    // beginnings are the empty one.
    let mut starts = vec![0; hypothesis.len()];
    let mut starts_of: Vec<Vec<u32>> = references.iter().map(|reference| vec![0; reference.len()]).collect();
    let mut numbers: HashMap<(u32, u32), u32> = HashMap::with_capacity(hypothesis.len());
    let (mut in_hypothesis, mut in_reference, mut in_any): (Vec<u64>, Vec<u64>, Vec<u64>) =
        Default::default();
    for (order, matched) in (1..).zip(&mut matches) {
        numbers.clear();
        in_hypothesis.clear();
        starts.truncate(count(hypothesis.len(), order));
        for (start, last) in starts.iter_mut().zip(&hypothesis[(order - 1).min(hypothesis.len())..]) {
            let next = numbers.len() as u32;
            *start = *numbers.entry((*start, *last)).or_insert(next);
            if *start == next {
                in_hypothesis.push(0);
            }
            in_hypothesis[*start as usize] += 1;
        }
        in_any.clear();
        in_any.resize(in_hypothesis.len(), 0);
        for (reference, starts) in references.iter().zip(&mut starts_of) {
            in_reference.clear();
            in_reference.resize(in_hypothesis.len(), 0);
            starts.truncate(count(reference.len(), order));
            for (start, last) in starts.iter_mut().zip(&reference[(order - 1).min(reference.len())..]) {
                *start = numbers.get(&(*start, *last)).copied().unwrap_or(UNKNOWN);
                if *start != UNKNOWN {
                    in_reference[*start as usize] += 1;
                }
            }
            in_any.iter_mut().zip(&in_reference).for_each(|(most, found)| *most = (*most).max(*found));
        }
        *matched = in_hypothesis.iter().zip(&in_any).map(|(ours, theirs)| ours.min(theirs)).sum();
        if *matched == 0 {
            // A longer n-gram has this order's in it.
            break;
        }
    }
    matches
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The counts of all windows, clipped by the most of any reference.
    fn slow(hypothesis: &[u8], references: &[Vec<u8>], order: usize) -> u64 {
        let counts = |line: &[u8]| {
            let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            line.windows(order).for_each(|ngram| *counts.entry(ngram.to_vec()).or_default() += 1);
            counts
        };
        let of_references: Vec<_> = references.iter().map(|reference| counts(reference)).collect();
        let most = |ngram| of_references.iter().filter_map(|of| of.get(ngram)).max().copied().unwrap_or(0);
        counts(hypothesis).iter().map(|(ngram, count)| most(ngram).min(*count)).sum()
    }

    proptest! {
        #[test]
        fn matches_are_those_of_all_windows(
            hypothesis in proptest::collection::vec(0..4u8, 0..12),
            references in proptest::collection::vec(proptest::collection::vec(0..4u8, 0..12), 0..4),
        ) {
            let (numbers, others) = numbered(hypothesis.iter(), references.iter());
            let expected: Vec<u64> = (1..=6).map(|order| slow(&hypothesis, &references, order)).collect();
            prop_assert_eq!(matches(&numbers, &others, 6), expected);
        }
    }
}
