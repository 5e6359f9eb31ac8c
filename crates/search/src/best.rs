//! Top-k selection of rows.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A row and its score; higher is better. Ties go to the first row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scored {
    pub score: f32,
    pub row: u32,
}

impl Ord for Scored {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.row.cmp(&self.row))
    }
}

impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scored {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scored {}

/// Keeps the best rows pushed to it.
#[derive(Debug, Clone)]
pub(crate) struct Best {
    /// The worst of them on top.
    heap: BinaryHeap<Reverse<Scored>>,
    most: usize,
}

impl Best {
    /// Keeps at most `most` rows, at least one.
    pub fn new(most: usize) -> Self {
        let most = most.max(1);
        // A user may ask for any number.
        Self { heap: BinaryHeap::with_capacity(most.min(1 << 10) + 1), most }
    }

    /// The score that a row must exceed, or equal with a lower index.
    #[inline]
    pub fn floor(&self) -> f32 {
        if self.heap.len() < self.most {
            return f32::NEG_INFINITY;
        }
        self.heap.peek().map_or(f32::NEG_INFINITY, |worst| worst.0.score)
    }

    /// Whether it holds the maximum number of rows.
    pub fn is_full(&self) -> bool {
        self.heap.len() >= self.most
    }

    #[inline]
    pub fn push(&mut self, scored: Scored) {
        if self.heap.len() < self.most {
            self.heap.push(Reverse(scored));
        } else if let Some(mut worst) = self.heap.peek_mut()
            && scored > worst.0
        {
            *worst = Reverse(scored);
        }
    }

    /// The rows, best first.
    pub fn into_sorted(self) -> Vec<Scored> {
        self.heap.into_sorted_vec().into_iter().map(|Reverse(scored)| scored).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_best_are_those_of_a_sorted_list(scores in prop::collection::vec(-4i8..4, 0..60), most in 1usize..20) {
            let all: Vec<Scored> = scores.iter().zip(0..).map(|(score, row)| Scored { score: f32::from(*score), row }).collect();
            let mut sorted = all.clone();
            sorted.sort_by(|a, b| b.cmp(a));
            sorted.truncate(most);
            // In whichever order they come.
            for all in [all.clone(), all.into_iter().rev().collect()] {
                let mut best = Best::new(most);
                all.into_iter().for_each(|scored| best.push(scored));
                prop_assert_eq!(best.is_full(), sorted.len() == most);
                prop_assert_eq!(best.into_sorted(), sorted.clone());
            }
        }
    }
}
