//! Training by frequency: the algorithm of `tokenizers`' `BpeTrainer`, with 64-bit counts.
//!
//! Pair counts are kept up to date as words change, and a heap yields the most frequent pair; ties go
//! to the pair with lower ids. The reference numbers pieces with a prefix or suffix in the order of a
//! random hash; here they are sorted, so training is deterministic. Otherwise the result is the same.

use std::{cmp::Reverse, collections::BinaryHeap};

use hashbrown::HashMap;

use super::{
    TrainProgress,
    symbols::{Beside, Learnt, Pair, Settings, Words},
};

pub(super) fn learn(
    words: &[(Box<str>, u64)],
    settings: &Settings,
    progress: &mut dyn FnMut(TrainProgress),
) -> Learnt {
    let (mut pieces, mut words) = Words::spell(words, settings);
    let mut queue = Queue::default();
    for (pair, (count, places)) in words.pairs() {
        queue.counts.insert(pair, count as i64);
        queue.push(pair, places);
    }
    let max_chars = settings.max_token_chars.unwrap_or(usize::MAX);
    let mut merges = Vec::new();
    let mut beside = Beside::default();
    let mut new: Vec<(Pair, Vec<u32>)> = Vec::new();
    while pieces.tokens.len() < settings.vocab_size {
        let Some((pair, count, places)) = queue.pop() else {
            break;
        };
        if count < settings.min_frequency {
            break;
        }
        let id = pieces.join(pair, settings.prefix);
        merges.push((pair, id));
        words.join(pair, id, &places, &mut beside);
        for (before, count, places) in beside.before.drain() {
            queue.change((before, pair.0), -(count as i64));
            if pieces.chars_of((before, id)) < max_chars {
                queue.change((before, id), count as i64);
                new.push(((before, id), places));
            }
        }
        for (after, count, places) in beside.after.drain() {
            queue.change((pair.1, after), -(count as i64));
            if pieces.chars_of((id, after)) < max_chars {
                queue.change((id, after), count as i64);
                // The piece twice in a row, which the other side may have noted too.
                let twice = new.iter_mut().find(|(pair, _)| after == id && *pair == (id, id));
                match twice {
                    Some((_, there)) => there.extend(places),
                    None => new.push(((id, after), places)),
                }
            }
        }
        for (pair, places) in new.drain(..) {
            queue.push(pair, places);
        }
        progress(TrainProgress::Merging { done: pieces.tokens.len(), total: settings.vocab_size });
    }
    Learnt { tokens: pieces.tokens, merges: last_of_each(merges) }
}

/// A pair can be merged twice if its piece arises in two ways. It then has the later rank.
fn last_of_each(merges: Vec<(Pair, u32)>) -> Vec<Pair> {
    let last: HashMap<Pair, usize> =
        merges.iter().enumerate().map(|(rank, (pair, _))| (*pair, rank)).collect();
    let numbered = merges.into_iter().enumerate();
    numbered.filter(|(rank, (pair, _))| last[pair] == *rank).map(|(_, (pair, _))| pair).collect()
}

/// Counts of pairs; the heap yields the most frequent.
#[derive(Default)]
struct Queue {
    /// Merging a pair leaves its own count unchanged.
    counts: HashMap<Pair, i64>,
    /// Most frequent first, then lowest ids, with the index in `places`. Counts may be outdated, but
    /// never too low.
    heap: BinaryHeap<(u64, Reverse<Pair>, usize)>,
    /// The words in which a pair newly appeared when it was queued.
    places: Vec<Vec<u32>>,
}

impl Queue {
    fn change(&mut self, pair: Pair, by: i64) {
        *self.counts.entry(pair).or_default() += by;
    }

    fn push(&mut self, pair: Pair, places: Vec<u32>) {
        if let Ok(count @ 1..) = u64::try_from(self.counts[&pair]) {
            self.heap.push((count, Reverse(pair), self.places.len()));
            self.places.push(places);
        }
    }

    /// The most frequent pair, its count, and the words where it was when queued.
    fn pop(&mut self) -> Option<(Pair, u64, Vec<u32>)> {
        while let Some((count, Reverse(pair), places)) = self.heap.pop() {
            let now = u64::try_from(self.counts[&pair]).unwrap_or(0);
            if now == count {
                return Some((pair, count, std::mem::take(&mut self.places[places])));
            }
            if now > 0 {
                self.heap.push((now, Reverse(pair), places));
            } else {
                self.places[places] = Vec::new();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{super::symbols::counted, *};

    fn settings(vocab_size: usize) -> Settings<'static> {
        Settings { vocab_size, ..Settings::default() }
    }

    fn run(settings: &Settings) -> Vec<String> {
        let words = counted(&[("hug", 10), ("pug", 5), ("pun", 12), ("bun", 4), ("hugs", 5)]);
        learn(&words, settings, &mut |_| {}).tokens
    }

    #[test]
    fn most_frequent_pairs_first() {
        // u g 20, u n 16, h ug 15, then p un 12, hug s 5 (tie with p ug, of higher ids).
        assert_eq!(
            run(&settings(13)),
            ["b", "g", "h", "n", "p", "s", "u", "ug", "un", "hug", "pun", "pug", "hugs"]
        );
        let rare = Settings { min_frequency: 16, ..settings(13) };
        assert_eq!(run(&rare).len(), 9);
        let short = Settings { max_token_chars: Some(3), ..settings(13) };
        assert_eq!(run(&short).last().unwrap(), "un", "hug would be as long as the limit");
    }

    #[test]
    fn prefix_suffix_and_limits() {
        let special = ["<s>".to_owned()];
        let limited = Settings {
            special_tokens: &special,
            limit_alphabet: Some(3),
            initial_alphabet: &['z'],
            prefix: Some("##"),
            suffix: Some("_"),
            ..settings(9)
        };
        assert_eq!(run(&limited), ["<s>", "g", "u", "z", "##g", "##g_", "##u", "##ug_", "##ug"]);
    }

    #[test]
    fn counts_are_64_bit() {
        let words = counted(&[("ab", 1 << 40), ("cd", (1 << 40) + 1)]);
        let learnt = learn(&words, &settings(6), &mut |_| {});
        assert_eq!(learnt.merges, [(2, 3), (0, 1)]);
    }

    #[test]
    fn a_piece_twice_in_a_row() {
        let words = counted(&[("abababab", 2), ("xabab", 1)]);
        let learnt = learn(&words, &settings(6), &mut |_| {});
        assert_eq!(learnt.tokens, ["a", "b", "x", "ab", "abab", "abababab"]);
    }
}
