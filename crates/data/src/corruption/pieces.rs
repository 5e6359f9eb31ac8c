//! Random replacement pieces.

use super::RandomFrom;
use crate::random::Random;
use crate::unigram::UnigramCounts;
use std::sync::Arc;

/// Draws random replacements from the non-special pieces of a vocabulary.
#[derive(Debug, Clone)]
pub(super) struct RandomPieces {
    vocab_size: usize,
    /// Piece frequencies; `None`: uniform.
    unigram: Option<Arc<UnigramCounts>>,
    special: Vec<u32>,
    /// Whether there is any non-special piece.
    has_ordinary: bool,
}

impl RandomPieces {
    /// The pieces of `unigram`'s vocabulary, except the `special` ones.
    pub fn new(from: RandomFrom, unigram: Arc<UnigramCounts>, special: Vec<u32>) -> Self {
        let vocab_size = unigram.vocab_size();
        let has_ordinary = (0..vocab_size as u32).any(|id| !special.contains(&id));
        let unigram = (from == RandomFrom::Unigram).then_some(unigram);
        Self { vocab_size, unigram, special, has_ordinary }
    }

    /// A non-special piece, if there is one.
    ///
    /// # Panics
    /// If the vocabulary is empty.
    pub fn draw(&self, random: &mut Random) -> u32 {
        loop {
            let id = match &self.unigram {
                None => random.below(self.vocab_size as u64) as u32,
                Some(unigram) => unigram.sample(random),
            };
            if !self.has_ordinary || !self.special.contains(&id) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corruption::tests::assert_share;

    #[test]
    fn random_pieces_are_never_special_and_follow_their_distribution() {
        const VOCAB: u64 = 60;
        let counts: Vec<u64> = (0..VOCAB).map(|id| 1 + id * id).collect();
        let ordinary = |id: u64| id >= 5;
        for (from, weight) in
            [(RandomFrom::Uniform, vec![1; VOCAB as usize]), (RandomFrom::Unigram, counts.clone())]
        {
            let unigram = Arc::new(UnigramCounts::from_counts(&counts));
            let pieces = RandomPieces::new(from, unigram, (0..5).collect());
            let mut random = Random::derive(8, &[]);
            let mut drawn = vec![0u64; VOCAB as usize];
            for _ in 0..100_000 {
                drawn[pieces.draw(&mut random) as usize] += 1;
            }
            let total: u64 = (0..VOCAB).filter(|id| ordinary(*id)).map(|id| weight[id as usize]).sum();
            for id in 0..VOCAB {
                let share = if ordinary(id) { weight[id as usize] as f64 / total as f64 } else { 0.0 };
                assert_share(drawn[id as usize], 100_000, share);
            }
        }
    }
}
