//! Learning merges from word counts: the algorithm of `tokenizers`' `BpeTrainer`, with 64-bit counts.
//!
//! Pair counts are kept up to date as words change, and a heap gives the most frequent pair: ties go to
//! the pair of lower ids. The reference numbers pieces with a prefix or suffix in the order of a random
//! hash; here they come sorted, so that training is deterministic. Otherwise the result is the same.

use std::{cmp::Reverse, collections::BinaryHeap};

use hashbrown::HashMap;

use super::TrainProgress;

/// What both trainers have in common.
pub(super) struct Settings<'a> {
    pub vocab_size: usize,
    pub min_frequency: u64,
    pub special_tokens: &'a [String],
    pub limit_alphabet: Option<usize>,
    pub initial_alphabet: &'a [char],
    pub prefix: Option<&'a str>,
    pub suffix: Option<&'a str>,
    pub max_token_chars: Option<usize>,
}

/// Pieces by id, and the joined pairs, first learnt first.
pub(super) struct Learnt {
    pub tokens: Vec<String>,
    pub merges: Vec<(u32, u32)>,
}

type Pair = (u32, u32);

/// The vocabulary while it grows.
#[derive(Default)]
struct Pieces {
    tokens: Vec<String>,
    ids: HashMap<String, u32>,
    /// Length in characters, without prefix and suffix.
    chars: Vec<usize>,
}

impl Pieces {
    fn add(&mut self, token: String, chars: usize) -> u32 {
        *self.ids.entry(token).or_insert_with_key(|token| {
            self.tokens.push(token.clone());
            self.chars.push(chars);
            (self.tokens.len() - 1) as u32
        })
    }
}

pub(super) fn learn(
    words: &[(Box<str>, u64)],
    settings: &Settings,
    progress: &mut dyn FnMut(TrainProgress),
) -> Learnt {
    let mut pieces = Pieces::default();
    for token in settings.special_tokens {
        pieces.add(token.clone(), token.chars().count());
    }
    for c in alphabet(words, settings) {
        pieces.add(c.to_string(), 1);
    }
    let counts: Vec<u64> = words.iter().map(|(_, count)| *count).collect();
    let mut words = spell(words, settings, &mut pieces);
    let mut pairs = Pairs::default();
    for (i, word) in words.iter().enumerate() {
        for pair in word.windows(2) {
            pairs.change((pair[0], pair[1]), counts[i] as i64, i as u32);
        }
    }
    pairs.queue_new();
    let mut merges = Vec::new();
    let max_chars = settings.max_token_chars.unwrap_or(usize::MAX);
    while pieces.tokens.len() < settings.vocab_size {
        let Some((pair, count, places)) = pairs.pop() else {
            break;
        };
        if count < settings.min_frequency {
            break;
        }
        let (a, b) = (pair.0 as usize, pair.1 as usize);
        let right = pieces.tokens[b].as_str();
        let right = settings.prefix.and_then(|p| right.strip_prefix(p)).unwrap_or(right);
        let joined = format!("{}{right}", pieces.tokens[a]);
        let chars = pieces.chars[a] + pieces.chars[b];
        let id = pieces.add(joined, chars);
        merges.push((pair, id));
        for place in places {
            let count = counts[place as usize] as i64;
            merge(&mut words[place as usize], pair, id, |pair, sign| {
                let length = pieces.chars[pair.0 as usize] + pieces.chars[pair.1 as usize];
                if sign < 0 || length < max_chars {
                    pairs.change(pair, sign * count, place);
                }
            });
        }
        pairs.queue_new();
        progress(TrainProgress::Merging { done: pieces.tokens.len(), total: settings.vocab_size });
    }
    Learnt { tokens: pieces.tokens, merges: last_of_each(merges) }
}

/// A pair can be joined twice, when its piece comes about in two ways. Its rank is then the later one.
fn last_of_each(merges: Vec<(Pair, u32)>) -> Vec<Pair> {
    let last: HashMap<Pair, usize> =
        merges.iter().enumerate().map(|(rank, (pair, _))| (*pair, rank)).collect();
    let numbered = merges.into_iter().enumerate();
    numbered.filter(|(rank, (pair, _))| last[pair] == *rank).map(|(_, (pair, _))| pair).collect()
}

/// The characters to begin with, sorted: the wanted ones, and of those in the text the most frequent
/// where there is a limit.
fn alphabet(words: &[(Box<str>, u64)], settings: &Settings) -> Vec<char> {
    let mut counts: HashMap<char, u64> = HashMap::new();
    for (word, count) in words {
        for c in word.chars() {
            *counts.entry(c).or_default() += count;
        }
    }
    for c in settings.initial_alphabet {
        counts.insert(*c, u64::MAX);
    }
    let mut chars: Vec<(char, u64)> = counts.into_iter().collect();
    if let Some(limit) = settings.limit_alphabet {
        chars.sort_unstable_by_key(|&(c, count)| (Reverse(count), c));
        chars.truncate(limit);
    }
    let mut chars: Vec<char> = chars.into_iter().map(|(c, _)| c).collect();
    chars.sort_unstable();
    chars
}

/// The words as ids of their characters, with prefix and suffix. Characters outside the alphabet drop
/// out.
fn spell(words: &[(Box<str>, u64)], settings: &Settings, pieces: &mut Pieces) -> Vec<Vec<u32>> {
    let dress = |c: char, first: bool, last: bool| {
        let mut piece = String::new();
        piece.extend(settings.prefix.filter(|_| !first));
        piece.push(c);
        piece.extend(settings.suffix.filter(|_| last));
        piece
    };
    // The forms that occur, numbered in order: (character, first, last).
    let known = |pieces: &Pieces, c: char| pieces.ids.contains_key(c.encode_utf8(&mut [0; 4]) as &str);
    let forms = |word: &str| {
        let count = word.chars().count();
        let numbered: Vec<_> = word.chars().enumerate().collect();
        numbered.into_iter().map(move |(i, c)| (c, i == 0, i + 1 == count))
    };
    let mut ids: HashMap<(char, bool, bool), u32> = HashMap::new();
    let mut found: Vec<_> = Vec::new();
    for (word, _) in words {
        for form in forms(word) {
            if known(pieces, form.0) && ids.insert(form, 0).is_none() {
                found.push(form);
            }
        }
    }
    found.sort_unstable();
    for form in found {
        ids.insert(form, pieces.add(dress(form.0, form.1, form.2), 1));
    }
    let spell = |word: &str| forms(word).filter_map(|form| ids.get(&form).copied()).collect();
    words.iter().map(|(word, _)| spell(word)).collect()
}

/// Joins `pair` everywhere in `word`, and reports the neighbouring pairs that go (-1) and come (+1).
fn merge(word: &mut Vec<u32>, pair: Pair, id: u32, mut change: impl FnMut(Pair, i64)) {
    let (mut read, mut write) = (0, 0);
    while read < word.len() {
        if read + 1 < word.len() && (word[read], word[read + 1]) == pair {
            if write > 0 {
                change((word[write - 1], pair.0), -1);
                change((word[write - 1], id), 1);
            }
            if let Some(&after) = word.get(read + 2) {
                change((pair.1, after), -1);
                change((id, after), 1);
            }
            word[write] = id;
            read += 2;
        } else {
            word[write] = word[read];
            read += 1;
        }
        write += 1;
    }
    word.truncate(write);
}

/// How often each pair occurs, and where; the heap gives the most frequent.
#[derive(Default)]
struct Pairs {
    counts: HashMap<Pair, i64>,
    /// Words in which a pair has newly appeared since `queue_new`.
    new: HashMap<Pair, Vec<u32>>,
    /// Most frequent first, then lowest ids. Counts may be out of date, never too low.
    heap: BinaryHeap<(u64, Reverse<Pair>, Vec<u32>)>,
}

impl Pairs {
    fn change(&mut self, pair: Pair, by: i64, word: u32) {
        *self.counts.entry(pair).or_default() += by;
        if by > 0 {
            let places = self.new.entry(pair).or_default();
            if places.last() != Some(&word) {
                places.push(word);
            }
        }
    }

    fn queue_new(&mut self) {
        for (pair, places) in self.new.drain() {
            if let Ok(count @ 1..) = u64::try_from(self.counts[&pair]) {
                self.heap.push((count, Reverse(pair), places));
            }
        }
    }

    /// The most frequent pair, its count, and the words where it was when queued.
    fn pop(&mut self) -> Option<(Pair, u64, Vec<u32>)> {
        while let Some((count, Reverse(pair), places)) = self.heap.pop() {
            let now = u64::try_from(self.counts[&pair]).unwrap_or(0);
            if now == count {
                return Some((pair, count, places));
            }
            if now > 0 {
                self.heap.push((now, Reverse(pair), places));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(vocab_size: usize) -> Settings<'static> {
        Settings {
            vocab_size,
            min_frequency: 0,
            special_tokens: &[],
            limit_alphabet: None,
            initial_alphabet: &[],
            prefix: None,
            suffix: None,
            max_token_chars: None,
        }
    }

    fn words(words: &[(&str, u64)]) -> Vec<(Box<str>, u64)> {
        words.iter().map(|(w, n)| ((*w).into(), *n)).collect()
    }

    fn run(settings: &Settings) -> Vec<String> {
        let words = words(&[("hug", 10), ("pug", 5), ("pun", 12), ("bun", 4), ("hugs", 5)]);
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
        let words = words(&[("ab", 1 << 40), ("cd", (1 << 40) + 1)]);
        let learnt = learn(&words, &settings(6), &mut |_| {});
        assert_eq!(learnt.merges, [(2, 3), (0, 1)]);
    }

    #[test]
    fn overlapping_pairs() {
        let mut word = vec![1, 1, 1, 2];
        let mut changes = Vec::new();
        merge(&mut word, (1, 1), 9, |pair, by| changes.push((pair, by)));
        assert_eq!(word, [9, 1, 2]);
        assert_eq!(changes, [((1, 1), -1), ((9, 1), 1)]);
    }
}
