//! Seed pieces for Unigram training: the characters and the most frequent substrings.

use std::cmp::Reverse;

use hashbrown::HashMap;
use rayon::prelude::*;

use crate::{Error, Result};

/// The separator between words; never part of a substring.
const BOUNDARY: u32 = 0;

/// A substring, as the position of one occurrence in the joined words.
#[derive(Clone, Copy)]
struct Substring {
    /// Its number of occurrences times its length.
    score: u64,
    start: u32,
    len: u32,
}

/// At most `limit` pieces with their weights, heaviest first: all characters, by frequency in the text;
/// then substrings of 2 to `max_chars` characters, by number of occurrences in the distinct words times
/// length. Of substrings with the same occurrences only the longest counts, and single occurrences do not,
/// as for a suffix tree's inner nodes.
pub(super) fn seeds(words: &[(Box<str>, u64)], max_chars: usize, limit: usize) -> Result<Vec<(String, u64)>> {
    let mut text: Vec<u32> = Vec::new();
    let mut chars: HashMap<char, u64> = HashMap::new();
    for (word, count) in words {
        for c in word.chars() {
            text.push(u32::from(c));
            *chars.entry(c).or_default() += count;
        }
        text.push(BOUNDARY);
    }
    chars.remove(&'\0');
    if u32::try_from(text.len()).is_err() {
        let message = format!("{} characters of distinct words are more than {}", text.len(), u32::MAX);
        return Err(Error::invalid("training text", message));
    }
    let mut chars: Vec<_> = chars.into_iter().collect();
    chars.sort_unstable_by_key(|&(c, count)| Reverse((count, c)));
    let room = limit.saturating_sub(chars.len());
    let mut seeds: Vec<_> = chars.into_iter().map(|(c, count)| (c.to_string(), count)).collect();

    let mut substrings = repeated(&text, max_chars);
    let chars = |s: &Substring| &text[s.start as usize..][..s.len as usize];
    substrings.par_sort_unstable_by(|a, b| b.score.cmp(&a.score).then_with(|| chars(b).cmp(chars(a))));
    seeds.extend(substrings[..room.min(substrings.len())].iter().map(|s| {
        let text = chars(s).iter().filter_map(|&c| char::from_u32(c)).collect();
        (text, s.score)
    }));
    Ok(seeds)
}

/// The substrings that are followed by two different things: the inner nodes of the suffix tree, found as
/// intervals of the sorted suffixes. Suffixes are compared up to `max_chars + 1` characters.
fn repeated(text: &[u32], max_chars: usize) -> Vec<Substring> {
    let suffix = |start: u32| {
        let start = start as usize;
        &text[start..text.len().min(start.saturating_add(max_chars + 1))]
    };
    let mut order: Vec<u32> = (0..text.len() as u32).filter(|&i| text[i as usize] != BOUNDARY).collect();
    order.par_sort_unstable_by(|&a, &b| suffix(a).cmp(suffix(b)));
    let mut found = Vec::new();
    // The lengths of prefixes that the current suffix shares with those from a place on, rising.
    let mut open: Vec<(usize, usize)> = Vec::new();
    for i in 1..=order.len() {
        let shared = order.get(i).map_or(0, |&next| {
            let (a, b) = (suffix(order[i - 1]), suffix(next));
            a.iter().zip(b).take_while(|(a, b)| a == b).count()
        });
        let mut first = i - 1;
        while let Some(&(len, from)) = open.last().filter(|(len, _)| *len > shared) {
            open.pop();
            first = from;
            let start = order[from];
            if (2..=max_chars).contains(&len) && !suffix(start)[..len].contains(&BOUNDARY) {
                let score = (i - from) as u64 * len as u64;
                found.push(Substring { score, start, len: len as u32 });
            }
        }
        if shared > open.last().map_or(0, |(len, _)| *len) {
            open.push((shared, first));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_and_repeated_substrings() {
        let words = [("This is a".into(), 1), ("こんにちは友達".into(), 1)];
        let seeds = seeds(&words, 16, 1000).unwrap();
        let found: Vec<_> = seeds.iter().map(|(text, weight)| (text.as_str(), *weight)).collect();
        let (chars, substrings) = found.split_at(found.len() - 2);
        assert_eq!(chars[..4], [("s", 2), ("i", 2), (" ", 2), ("達", 1)]);
        assert_eq!(substrings, [("is ", 6), ("s ", 4)]);
    }

    #[test]
    fn of_the_same_places_the_longest() {
        let words = ["abcd", "abce", "xbc"].map(|w| (w.into(), 5));
        let found = seeds(&words, 16, 1000).unwrap();
        let substrings: Vec<_> = found.iter().filter(|(s, _)| s.len() > 1).cloned().collect();
        assert_eq!(substrings, [("bc".into(), 6), ("abc".into(), 6)]);
        let short = seeds(&words, 2, 1000).unwrap();
        assert_eq!(short.last().unwrap(), &("bc".into(), 6));
        assert_eq!(seeds(&words, 16, 7).unwrap().len(), 7);
    }
}
