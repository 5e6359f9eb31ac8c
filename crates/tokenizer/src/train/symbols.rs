//! Words as sequences of symbol ids, and merging pairs of neighbours in them.

use std::cmp::Reverse;

use hashbrown::HashMap;

/// Two neighbouring pieces.
pub(super) type Pair = (u32, u32);

/// Settings common to the merge-based trainers.
#[derive(Default)]
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

/// Pieces by id, and the merged pairs, in the order learnt.
pub(super) struct Learnt {
    pub tokens: Vec<String>,
    pub merges: Vec<Pair>,
}

/// The vocabulary while it grows.
#[derive(Default)]
pub(super) struct Pieces {
    pub tokens: Vec<String>,
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

    fn has(&self, c: char) -> bool {
        self.ids.contains_key(c.encode_utf8(&mut [0; 4]) as &str)
    }

    /// The id of the merged pair, which may already exist.
    pub fn join(&mut self, (a, b): Pair, prefix: Option<&str>) -> u32 {
        let right = self.tokens[b as usize].as_str();
        let right = prefix.and_then(|p| right.strip_prefix(p)).unwrap_or(right);
        let joined = format!("{}{right}", self.tokens[a as usize]);
        self.add(joined, self.chars_of((a, b)))
    }

    /// The length of the merged pair.
    pub fn chars_of(&self, (a, b): Pair) -> usize {
        self.chars[a as usize] + self.chars[b as usize]
    }
}

/// The distinct words of a text, concatenated.
pub(super) struct Words {
    symbols: Vec<u32>,
    words: Vec<Word>,
}

#[derive(Clone, Copy)]
struct Word {
    start: usize,
    /// Number of remaining symbols.
    len: u32,
    /// The word's count.
    count: u64,
}

impl Words {
    /// The special tokens, the alphabet and its forms, and the words in them. Characters outside the
    /// alphabet are dropped.
    pub fn spell(words: &[(Box<str>, u64)], settings: &Settings) -> (Pieces, Self) {
        let mut pieces = Pieces::default();
        for token in settings.special_tokens {
            pieces.add(token.clone(), token.chars().count());
        }
        for c in alphabet(words, settings) {
            pieces.add(c.to_string(), 1);
        }
        // The forms that occur, numbered in order: (character, first, last).
        let dressed = (settings.prefix.is_some(), settings.suffix.is_some());
        let mut ids: HashMap<(char, bool, bool), Option<u32>> = HashMap::new();
        for (word, _) in words {
            for form in forms(word, dressed) {
                ids.entry(form).or_default();
            }
        }
        let mut found: Vec<_> = ids.keys().copied().filter(|form| pieces.has(form.0)).collect();
        found.sort_unstable();
        for form @ (c, first, last) in found {
            let mut piece = String::new();
            piece.extend(settings.prefix.filter(|_| !first));
            piece.push(c);
            piece.extend(settings.suffix.filter(|_| last));
            let id = pieces.add(piece, 1);
            // Also where a special token is spelt the same.
            pieces.chars[id as usize] = 1;
            ids.insert(form, Some(id));
        }
        let mut spelt = Self { symbols: Vec::new(), words: Vec::with_capacity(words.len()) };
        for (word, count) in words {
            let start = spelt.symbols.len();
            spelt.symbols.extend(forms(word, dressed).filter_map(|form| ids[&form]));
            let len = (spelt.symbols.len() - start) as u32;
            spelt.words.push(Word { start, len, count: *count });
        }
        (pieces, spelt)
    }

    fn iter(&self) -> impl Iterator<Item = (&[u32], u64)> {
        self.words.iter().map(|w| (&self.symbols[w.start..w.start + w.len as usize], w.count))
    }

    /// The count of each pair, and the indices of the words it occurs in.
    pub fn pairs(&self) -> HashMap<Pair, (u64, Vec<u32>)> {
        let mut pairs: HashMap<Pair, (u64, Vec<u32>)> = HashMap::new();
        for (i, (word, n)) in self.iter().enumerate() {
            for pair in word.windows(2) {
                let (count, places) = pairs.entry((pair[0], pair[1])).or_default();
                *count += n;
                push_new(places, i as u32);
            }
        }
        pairs
    }

    /// The count of each piece, by id.
    pub fn singles(&self) -> Vec<u64> {
        let mut counts = Vec::new();
        for (word, n) in self.iter() {
            for &id in word {
                *slot(&mut counts, id) += n;
            }
        }
        counts
    }

    /// Replaces `pair` by `id` in the words `places`, and records its neighbours in `beside`. Returns
    /// the number of merges.
    pub fn join(&mut self, pair: Pair, id: u32, places: &[u32], beside: &mut Beside) -> u64 {
        let mut joined = 0;
        for &place in places {
            let word = &mut self.words[place as usize];
            let symbols = &mut self.symbols[word.start..word.start + word.len as usize];
            let (mut read, mut write) = (0, 0);
            while read < symbols.len() {
                if symbols[read] == pair.0 && symbols.get(read + 1) == Some(&pair.1) {
                    if write > 0 {
                        beside.before.note(symbols[write - 1], word.count, place);
                    }
                    if let Some(&after) = symbols.get(read + 2) {
                        beside.after.note(after, word.count, place);
                    }
                    joined += word.count;
                    symbols[write] = id;
                    read += 2;
                } else {
                    symbols[write] = symbols[read];
                    read += 1;
                }
                write += 1;
            }
            word.len = write as u32;
        }
        joined
    }
}

/// The neighbours of a merged pair, before and after it, with their counts and words.
#[derive(Default)]
pub(super) struct Beside {
    pub before: Side,
    pub after: Side,
}

#[derive(Default)]
pub(super) struct Side {
    /// By id; empty except for the touched ones.
    neighbours: Vec<(u64, Vec<u32>)>,
    touched: Vec<u32>,
}

impl Side {
    fn note(&mut self, id: u32, count: u64, place: u32) {
        let (total, places) = slot(&mut self.neighbours, id);
        if places.is_empty() {
            self.touched.push(id);
        }
        *total += count;
        push_new(places, place);
    }

    /// Removes and returns the neighbours: id, count, words.
    pub fn drain(&mut self) -> impl Iterator<Item = (u32, u64, Vec<u32>)> {
        self.touched.drain(..).map(|id| {
            let (count, places) = std::mem::take(&mut self.neighbours[id as usize]);
            (id, count, places)
        })
    }
}

/// The slot of `id` in a table indexed by id.
pub(super) fn slot<T: Default>(table: &mut Vec<T>, id: u32) -> &mut T {
    let id = id as usize;
    if id >= table.len() {
        table.resize_with(id + 1, T::default);
    }
    &mut table[id]
}

/// Appends a word's index unless it is already the last.
fn push_new(places: &mut Vec<u32>, place: u32) {
    if places.last() != Some(&place) {
        places.push(place);
    }
}

/// The characters of a word, with whether each begins or ends it if that affects its form.
fn forms(word: &str, (prefix, suffix): (bool, bool)) -> impl Iterator<Item = (char, bool, bool)> {
    let end = word.len();
    word.char_indices().map(move |(i, c)| (c, !prefix || i == 0, suffix && i + c.len_utf8() == end))
}

/// The initial characters, sorted: the requested ones and those in the text, limited to the most
/// frequent if there is a limit.
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

/// Words as they are counted.
#[cfg(test)]
pub(super) fn counted(words: &[(&str, u64)]) -> Vec<(Box<str>, u64)> {
    words.iter().map(|(word, count)| ((*word).into(), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_pairs() {
        let settings = Settings { vocab_size: 9, ..Settings::default() };
        let (mut pieces, mut words) = Words::spell(&counted(&[("aaab", 3), ("b", 1)]), &settings);
        assert_eq!(pieces.tokens, ["a", "b"]);
        assert_eq!(words.singles(), [9, 4]);
        assert_eq!(words.pairs()[&(0, 0)], (6, vec![0]));
        let id = pieces.join((0, 0), None);
        let mut beside = Beside::default();
        assert_eq!(words.join((0, 0), id, &[0, 1], &mut beside), 3);
        assert_eq!(words.iter().collect::<Vec<_>>(), [(&[2, 0, 1][..], 3), (&[1], 1)]);
        assert_eq!(beside.before.drain().count(), 0);
        assert_eq!(beside.after.drain().collect::<Vec<_>>(), [(0, 3, vec![0])]);
        assert_eq!(beside.after.drain().count(), 0);
    }
}
