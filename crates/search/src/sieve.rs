//! The best of very many rows that come in their order.

use crate::best::Scored;

/// Rows beyond the best ones that are let through before the best are selected again, at least.
const ROOM: usize = 32;

/// Keeps the best so many rows of all that pass its floor. The floor rises now and then only: selecting the best of twice as
/// many takes less time than a heap does for each row.
#[derive(Debug, Clone)]
pub(crate) struct Sieve {
    kept: Vec<Scored>,
    most: usize,
    floor: f32,
}

impl Sieve {
    /// Of at most `most` rows, one at least.
    pub fn new(most: usize) -> Self {
        Self { kept: Vec::new(), most: most.max(1), floor: f32::NEG_INFINITY }
    }

    /// The score that a row must exceed. As many rows reached it, all of them earlier.
    pub fn floor(&self) -> f32 {
        self.floor
    }

    /// Lets through a row above the floor that comes after all others.
    #[inline]
    pub fn push(&mut self, scored: Scored) {
        self.kept.push(scored);
        if self.kept.len() >= self.most.saturating_mul(2).max(self.most.saturating_add(ROOM)) {
            self.select();
        }
    }

    fn select(&mut self) {
        if self.kept.len() > self.most {
            self.kept.select_nth_unstable_by(self.most - 1, |a, b| b.cmp(a));
            self.kept.truncate(self.most);
            self.floor = self.kept[self.most - 1].score;
        }
    }

    /// The best rows of this sieve and of another one, whose rows are others.
    pub fn and(mut self, other: Self) -> Self {
        self.kept.extend(other.kept);
        self.select();
        self
    }

    /// The best rows, the best one first.
    pub fn into_sorted(mut self) -> Vec<Scored> {
        self.select();
        self.kept.sort_unstable_by(|a, b| b.cmp(a));
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_best_are_those_of_a_sorted_list(
            scores in prop::collection::vec(-9i8..9, 0..300), most in 1usize..20, cut in 0usize..300
        ) {
            let all: Vec<Scored> =
                scores.iter().zip(0..).map(|(score, row)| Scored { score: f32::from(*score), row }).collect();
            let mut sorted = all.clone();
            sorted.sort_by(|a, b| b.cmp(a));
            sorted.truncate(most);
            let sieve = |rows: &[Scored]| {
                let mut sieve = Sieve::new(most);
                for row in rows {
                    if row.score > sieve.floor() {
                        sieve.push(*row);
                    }
                }
                sieve
            };
            prop_assert_eq!(sieve(&all).into_sorted(), sorted.clone());
            let (first, second) = all.split_at(cut.min(all.len()));
            prop_assert_eq!(sieve(first).and(sieve(second)).into_sorted(), sorted);
        }
    }
}
