//! Occurrences of words in a corpus.

use crate::senses::with_spaces;
use cloze_data::Random;
use cloze_tokenizer::split_words;
use std::collections::HashMap;
use std::ops::Range;

/// Finds the words of a list in texts.
///
/// A text is split into words as data for tagging is ([`split_words`]). A word of the list is found where the text has it
/// as it is written, or else in lower case: `old` is found at the beginning of a sentence, `Old` is found only if
/// written so. Underscores and spaces between the parts of a word are the same: the parts are words in a row.
#[derive(Debug, Clone)]
pub struct WordFinder {
    /// The words of the list by their first part.
    by_first: HashMap<String, Vec<Listed>>,
}

/// A word of the list.
#[derive(Debug, Clone)]
struct Listed {
    number: usize,
    /// Its further parts.
    rest: Vec<String>,
}

impl WordFinder {
    /// A finder of these words, which are numbered from 0. A word without a letter or mark is never found.
    pub fn new<T: AsRef<str>>(words: &[T]) -> Self {
        let mut by_first: HashMap<String, Vec<Listed>> = HashMap::new();
        for (number, word) in words.iter().enumerate() {
            let word = with_spaces(word.as_ref());
            let mut parts = split_words(&word).into_iter().map(|part| word[part].to_owned());
            if let Some(first) = parts.next() {
                by_first.entry(first).or_default().push(Listed { number, rest: parts.collect() });
            }
        }
        Self { by_first }
    }

    /// The words found in a text: their numbers, and their places in bytes; by place.
    pub fn find(&self, text: &str) -> Vec<(usize, Range<usize>)> {
        let words = split_words(text);
        let mut found = Vec::new();
        for at in 0..words.len() {
            let first = &text[words[at].clone()];
            let (listed, lower) = match self.by_first.get(first) {
                Some(listed) => (listed, false),
                None if !first.chars().any(char::is_uppercase) => continue,
                None => match self.by_first.get(&first.to_lowercase()) {
                    Some(listed) => (listed, true),
                    None => continue,
                },
            };
            for Listed { number, rest } in listed {
                let Some(last) = words.get(at + rest.len()) else { continue };
                let is_same = |(word, part): (&Range<usize>, &String)| {
                    let word = &text[word.clone()];
                    word == part || lower && word.to_lowercase() == *part
                };
                if words[at + 1..].iter().zip(rest).all(is_same) {
                    found.push((*number, words[at].start..last.end));
                }
            }
        }
        found
    }
}

/// Draws some of the occurrences of each word, all equally probable, in one pass over occurrences that were counted
/// before (Knuth's algorithm S). The same seed draws the same ones, whatever the other words.
#[derive(Debug, Clone)]
pub struct ContextSample {
    words: Vec<Draw>,
}

#[derive(Debug, Clone)]
struct Draw {
    random: Random,
    /// Occurrences to come, and those to be drawn among them.
    rest: u64,
    wanted: u64,
}

impl ContextSample {
    /// A sample of up to `per_word` occurrences of each word, whose names and numbers of occurrences are these.
    pub fn new<T: AsRef<str>>(words: &[T], counts: &[u64], per_word: u64, seed: u64) -> Self {
        let draw = |(word, count): (&T, &u64)| Draw {
            random: Random::derive(seed, &word.as_ref().bytes().map(u64::from).collect::<Vec<_>>()),
            rest: *count,
            wanted: per_word.min(*count),
        };
        Self { words: words.iter().zip(counts).map(draw).collect() }
    }

    /// Whether the next occurrence of a word is drawn. One beyond those counted is not.
    pub fn draws(&mut self, word: usize) -> bool {
        let Draw { random, rest, wanted } = &mut self.words[word];
        let is_drawn = *rest > 0 && random.below(*rest) < *wanted;
        *rest = rest.saturating_sub(1);
        *wanted -= u64::from(is_drawn);
        is_drawn
    }

    /// Occurrences that are still to be drawn.
    pub fn wanted(&self) -> u64 {
        self.words.iter().map(|draw| draw.wanted).sum()
    }
}

/// The mean vector of each word's occurrences, summed in 64 bits.
#[derive(Debug, Clone)]
pub struct WordMeans {
    sums: Vec<f64>,
    counts: Vec<u64>,
    width: usize,
}

impl WordMeans {
    /// Means of `words` words with vectors of `width` numbers.
    pub fn new(words: usize, width: usize) -> Self {
        Self { sums: vec![0.0; words * width], counts: vec![0; words], width }
    }

    /// Adds an occurrence of a word.
    pub fn add(&mut self, word: usize, vector: &[f32]) {
        let sum = &mut self.sums[word * self.width..][..self.width];
        sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += f64::from(*value));
        self.counts[word] += 1;
    }

    /// The mean of a word; none without an occurrence.
    pub fn mean(&self, word: usize) -> Option<Vec<f32>> {
        let sum = &self.sums[word * self.width..][..self.width];
        let count = self.counts[word];
        (count > 0).then(|| sum.iter().map(|sum| (sum / count as f64) as f32).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_as_written_or_in_lower_case() {
        let words = ["old", "New_York", "US", "new york times", "don't", "Bank", "bank", "_"];
        let finder = WordFinder::new(&words);
        let found = |text: &str| -> Vec<(usize, String)> {
            finder.find(text).into_iter().map(|(word, place)| (word, text[place].to_owned())).collect()
        };
        let of = |word: usize, text: &str| (word, text.to_owned());
        assert_eq!(found("Old men, OLD us."), [of(0, "Old"), of(0, "OLD")]);
        assert_eq!(found("New York, new York"), [of(1, "New York")]);
        assert_eq!(found("the new york times"), [of(3, "new york times")]);
        assert_eq!(
            found("Bank bank BANK. Don't!"),
            [of(5, "Bank"), of(6, "bank"), of(6, "BANK"), of(4, "Don't")]
        );
        assert_eq!(found("the US"), [of(2, "US")]);
        assert_eq!(found(""), []);
    }

    #[test]
    fn a_sample_is_uniform_and_of_the_size_asked_for() {
        let mut drawn = [0_u32; 10];
        for seed in 0..2_000 {
            let mut sample = ContextSample::new(&["few", "many"], &[2, 10], 3, seed);
            assert_eq!(sample.wanted(), 5);
            assert!((0..2).all(|_| sample.draws(0)) && !sample.draws(0));
            let of_many: Vec<bool> = (0..10).map(|_| sample.draws(1)).collect();
            assert_eq!(of_many.iter().filter(|drawn| **drawn).count(), 3);
            drawn.iter_mut().zip(of_many).for_each(|(count, drawn)| *count += u32::from(drawn));
        }
        // Five standard deviations of a binomial around 600.
        assert!(drawn.iter().all(|count| count.abs_diff(600) < 103), "{drawn:?}");
    }

    #[test]
    fn means_are_those_of_occurrences() {
        let mut means = WordMeans::new(2, 2);
        means.add(1, &[1.0, 2.0]);
        means.add(1, &[2.0, 6.0]);
        assert_eq!((means.mean(0), means.mean(1)), (None, Some(vec![1.5, 4.0])));
    }
}
