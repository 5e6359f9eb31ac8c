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

    /// What a row must score more than. `most` earlier rows score at least as much.
    pub fn floor(&self) -> f32 {
        self.floor
    }

    /// Lets through a row above the floor that comes after all others.
    #[inline]
    pub fn push(&mut self, scored: Scored) {
        // Of the two zeros one, since they are alike for the floor but not in the order of rows.
        self.kept.push(Scored { score: scored.score + 0.0, ..scored });
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

    /// The best `most` rows of several sieves, the best one first.
    pub fn best<'a>(most: usize, sieves: impl Iterator<Item = &'a Self>) -> Vec<Scored> {
        let mut all = Self::new(most);
        sieves.for_each(|sieve| all.kept.extend(&sieve.kept));
        all.select();
        all.kept.sort_unstable_by(|a, b| b.cmp(a));
        all.kept
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
                        // Either zero is a zero.
                        let score = if row.score == 0.0 && row.row % 2 == 0 { -0.0 } else { row.score };
                        sieve.push(Scored { score, ..*row });
                    }
                }
                sieve
            };
            prop_assert_eq!(Sieve::best(most, [sieve(&all)].iter()), sorted.clone());
            let (first, second) = all.split_at(cut.min(all.len()));
            prop_assert_eq!(Sieve::best(most, [sieve(first), sieve(second)].iter()), sorted);
        }
    }
}
