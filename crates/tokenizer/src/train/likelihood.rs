//! Training by likelihood: the WordPiece of the literature.
//!
//! Schuster & Nakajima (2012, section 2) merge the pair that most increases the likelihood of the
//! training text. For a unigram model of pieces, an occurrence of the pair `a b` made one piece gains
//! `log(freq(ab) · N / (freq(a) · freq(b)))`, its pointwise mutual information; this ranks pairs by
//! `freq(ab) / (freq(a) · freq(b))`, the score given for BERT's WordPiece, whose trainer was never
//! published.
//!
//! Merging a pair raises the scores of all other pairs with either piece, so those are rescored;
//! outdated scores in the heap are recognised because they differ from the current one.

use std::{cmp::Reverse, collections::BinaryHeap};

use hashbrown::HashMap;

use super::{
    TrainProgress,
    symbols::{Beside, Learnt, Pair, Settings, Words, slot},
};

pub(super) fn learn(
    words: &[(Box<str>, u64)],
    settings: &Settings,
    progress: &mut dyn FnMut(TrainProgress),
) -> Learnt {
    let (mut pieces, mut words) = Words::spell(words, settings);
    let mut scores = Scores { singles: words.singles(), least: settings.min_frequency, ..Scores::default() };
    let max_chars = settings.max_token_chars.unwrap_or(usize::MAX);
    for (pair, (count, places)) in words.pairs() {
        if pieces.chars_of(pair) < max_chars {
            scores.add(pair, count, &places);
            scores.queue(pair);
        }
    }
    let mut merges = Vec::new();
    let mut beside = Beside::default();
    let mut gone = Vec::new();
    while pieces.tokens.len() < settings.vocab_size {
        let Some((pair, places)) = scores.pop() else {
            break;
        };
        let id = pieces.join(pair, settings.prefix);
        merges.push(pair);
        let joined = words.join(pair, id, &places, &mut beside);
        scores.take_single(pair.0, joined);
        scores.take_single(pair.1, joined);
        *slot(&mut scores.singles, id) += joined;
        // All that come before those that go: a neighbour may be the piece just made.
        for (before, count, places) in beside.before.drain() {
            gone.push(((before, pair.0), count));
            if pieces.chars_of((before, id)) < max_chars {
                scores.add((before, id), count, &places);
            }
        }
        for (after, count, places) in beside.after.drain() {
            gone.push(((pair.1, after), count));
            if pieces.chars_of((id, after)) < max_chars {
                scores.add((id, after), count, &places);
            }
        }
        for (pair, count) in gone.drain(..) {
            scores.take(pair, count);
        }
        scores.pairs.remove(&pair);
        for id in [pair.0, pair.1, id] {
            scores.queue_all(id);
        }
        progress(TrainProgress::Merging { done: pieces.tokens.len(), total: settings.vocab_size });
    }
    Learnt { tokens: pieces.tokens, merges }
}

/// Counts of pieces and pairs; the heap yields the highest-scoring pair.
#[derive(Default)]
struct Scores {
    singles: Vec<u64>,
    /// The existing pairs, with all words they were ever in.
    pairs: HashMap<Pair, (u64, Vec<u32>)>,
    /// The pairs that a piece is or was in, by id.
    pairs_of: Vec<Vec<Pair>>,
    /// Highest score first, then lowest ids. Scores may be out of date.
    heap: BinaryHeap<(u64, Reverse<Pair>)>,
    /// Rarer pairs are skipped.
    least: u64,
}

impl Scores {
    fn add(&mut self, pair: Pair, by: u64, places: &[u32]) {
        let (count, there) = self.pairs.entry(pair).or_insert_with(|| {
            slot(&mut self.pairs_of, pair.0).push(pair);
            if pair.0 != pair.1 {
                slot(&mut self.pairs_of, pair.1).push(pair);
            }
            (0, Vec::new())
        });
        *count += by;
        there.extend(places);
    }

    fn take(&mut self, pair: Pair, by: u64) {
        if let Some((count, _)) = self.pairs.get_mut(&pair) {
            *count = count.saturating_sub(by);
            if *count == 0 {
                self.pairs.remove(&pair);
            }
        }
    }

    fn take_single(&mut self, id: u32, by: u64) {
        let count = slot(&mut self.singles, id);
        *count = count.saturating_sub(by);
    }

    /// The score as the bits of a positive double, which have the same order as doubles.
    fn score(&self, pair: Pair) -> Option<u64> {
        let &(count, _) = self.pairs.get(&pair)?;
        let single = |id: u32| self.singles[id as usize] as f64;
        (count >= self.least).then(|| (count as f64 / (single(pair.0) * single(pair.1))).to_bits())
    }

    fn queue(&mut self, pair: Pair) {
        if let Some(score) = self.score(pair) {
            self.heap.push((score, Reverse(pair)));
        }
    }

    /// Rescores all pairs with a piece whose count has changed.
    fn queue_all(&mut self, id: u32) {
        let mut pairs = std::mem::take(slot(&mut self.pairs_of, id));
        pairs.retain(|pair| self.pairs.contains_key(pair));
        pairs.iter().for_each(|&pair| self.queue(pair));
        self.pairs_of[id as usize] = pairs;
        // Mostly outdated: begin anew.
        if self.heap.len() > 4 * self.pairs.len() + 1024 {
            let pairs = self.pairs.keys();
            self.heap = pairs.filter_map(|&pair| Some((self.score(pair)?, Reverse(pair)))).collect();
        }
    }

    /// The highest-scoring pair and the words it may be in.
    fn pop(&mut self) -> Option<(Pair, Vec<u32>)> {
        while let Some((score, Reverse(pair))) = self.heap.pop() {
            if self.score(pair) == Some(score) {
                let (_, places) = self.pairs.get_mut(&pair)?;
                let mut places = std::mem::take(places);
                places.sort_unstable();
                places.dedup();
                return Some((pair, places));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{super::symbols::counted, *};

    fn settings(vocab_size: usize) -> Settings<'static> {
        Settings { vocab_size, prefix: Some("##"), ..Settings::default() }
    }

    /// The example of the Hugging Face course, chapter 6.6, of which the pieces are known.
    #[test]
    fn the_worked_example_of_the_literature() {
        let words = counted(&[("hug", 10), ("pug", 5), ("pun", 12), ("bun", 4), ("hugs", 5)]);
        let learnt = learn(&words, &settings(14), &mut |_| {});
        // ##g ##s scores 5 / (20 · 5); every other pair has ##u in it and scores 1 / 36, of which b ##u
        // has the lowest ids. Then bu ##n has 4 / (4 · 16).
        assert_eq!(&learnt.tokens[11..], ["##gs", "bu", "bun"]);
        let rare = Settings { min_frequency: 6, ..settings(30) };
        assert!(!learn(&words, &rare, &mut |_| {}).tokens.contains(&"##gs".to_owned()));
    }

    /// The same with everything recounted at every step.
    fn slowly(words: &[(Box<str>, u64)], settings: &Settings) -> Vec<String> {
        let (mut pieces, mut spelt) = Words::spell(words, settings);
        let all: Vec<u32> = (0..words.len() as u32).collect();
        while pieces.tokens.len() < settings.vocab_size {
            let singles = spelt.singles();
            let score =
                |(a, b): Pair, n: u64| n as f64 / (singles[a as usize] as f64 * singles[b as usize] as f64);
            let pairs = spelt.pairs();
            let pairs = pairs.iter().filter(|(_, (n, _))| *n >= settings.min_frequency);
            let pairs = pairs.filter(|(p, _)| pieces.chars_of(**p) < settings.max_token_chars.unwrap());
            let scored = pairs.map(|(pair, (n, _))| (score(*pair, *n), Reverse(*pair)));
            let best = scored.max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let Some((_, Reverse(pair))) = best else { break };
            let id = pieces.join(pair, settings.prefix);
            spelt.join(pair, id, &all, &mut Beside::default());
        }
        pieces.tokens
    }

    #[test]
    fn kept_counts_are_those_counted_anew() {
        let mut state = 7u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for round in 0..60 {
            let letters = ["a", "b", "c", "#", "é"];
            let mut words: Vec<(Box<str>, u64)> = (0..20)
                .map(|_| {
                    let word: String = (0..1 + random(9)).map(|_| letters[random(5) as usize]).collect();
                    (word.into(), 1 + random(20))
                })
                .collect();
            words.sort();
            words.dedup_by(|a, b| a.0 == b.0);
            let settings = Settings {
                min_frequency: round % 5,
                max_token_chars: Some(3 + round as usize % 7),
                ..settings(60)
            };
            assert_eq!(learn(&words, &settings, &mut |_| {}).tokens, slowly(&words, &settings), "{words:?}");
        }
    }
}
