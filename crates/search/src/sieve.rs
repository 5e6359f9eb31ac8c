//! Top-k selection from very many rows in order.

use crate::best::Scored;

/// Minimum number of rows accepted before the best are selected again.
const ROOM: usize = 32;

/// Keeps the best of all rows above its floor. The floor rises only occasionally: selecting the best of twice
/// as many is cheaper than a heap operation per row.
#[derive(Debug, Clone)]
pub(crate) struct Sieve {
    kept: Vec<Scored>,
    most: usize,
    floor: f32,
}

impl Sieve {
    /// Keeps at most `most` rows, at least one.
    pub fn new(most: usize) -> Self {
        Self { kept: Vec::new(), most: most.max(1), floor: f32::NEG_INFINITY }
    }

    /// The score a row must exceed. At least `most` earlier rows reach it.
    pub fn floor(&self) -> f32 {
        self.floor
    }

    /// Accepts a row above the floor, which must come after all others.
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

    /// The best `most` rows of several sieves, best first.
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
