//! The senses of words in labelled text.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// WordNet's parts of speech.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PartOfSpeech {
    /// A noun, `n`.
    #[serde(rename = "n")]
    Noun,
    /// A verb, `v`.
    #[serde(rename = "v")]
    Verb,
    /// An adjective, `a`; WordNet's satellites, `s`, are adjectives too.
    #[serde(rename = "a")]
    Adjective,
    /// An adverb, `r`.
    #[serde(rename = "r")]
    Adverb,
}

impl PartOfSpeech {
    /// All parts of speech.
    pub const ALL: [Self; 4] = [Self::Noun, Self::Verb, Self::Adjective, Self::Adverb];

    /// Its letter.
    pub fn letter(self) -> char {
        match self {
            Self::Noun => 'n',
            Self::Verb => 'v',
            Self::Adjective => 'a',
            Self::Adverb => 'r',
        }
    }

    /// The plural name: `nouns`.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Noun => "nouns",
            Self::Verb => "verbs",
            Self::Adjective => "adjectives",
            Self::Adverb => "adverbs",
        }
    }
}

impl fmt::Display for PartOfSpeech {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.letter())
    }
}

/// From WordNet's letters, or from the names of universal tags: `n` or `NOUN`, `v` or `VERB`, `a`, `s` or `ADJ`, `r` or
/// `ADV`.
impl FromStr for PartOfSpeech {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "n" | "NOUN" => Ok(Self::Noun),
            "v" | "VERB" => Ok(Self::Verb),
            "a" | "s" | "ADJ" => Ok(Self::Adjective),
            "r" | "ADV" => Ok(Self::Adverb),
            _ => Err("expected n, v, a or r".into()),
        }
    }
}

/// A sense of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedSense {
    /// Its name, such as `wn30-09213565-n`.
    pub sense: String,
    /// Its number of occurrences.
    pub count: u64,
    /// Its number among all senses of all words, from 0.
    pub number: usize,
}

/// Words with their senses, the most frequent sense first. A word is a lemma with a part of speech.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Words by part of speech and lemma.
    words: [BTreeMap<String, Vec<CountedSense>>; 4],
    n_senses: usize,
}

/// Counts senses incrementally.
///
/// ```
/// use cloze_evaluation::senses::{PartOfSpeech, SenseCounter};
///
/// let mut counter = SenseCounter::default();
/// for sense in ["river", "money", "money"] {
///     counter.add("bank", PartOfSpeech::Noun, sense);
/// }
/// let inventory = counter.finish();
/// assert_eq!(inventory.most_frequent("bank", PartOfSpeech::Noun), Some("money"));
/// assert_eq!(inventory.most_frequent("bank", PartOfSpeech::Verb), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct SenseCounter {
    words: [BTreeMap<String, Vec<(String, u64)>>; 4],
}

impl SenseCounter {
    /// Counts one more occurrence.
    pub fn add(&mut self, lemma: &str, pos: PartOfSpeech, sense: &str) {
        self.add_many(lemma, pos, sense, 1);
    }

    /// Counts `count` occurrences.
    pub fn add_many(&mut self, lemma: &str, pos: PartOfSpeech, sense: &str, count: u64) {
        let words = &mut self.words[pos as usize];
        if !words.contains_key(lemma) {
            words.insert(lemma.to_owned(), Vec::new());
        }
        let Some(senses) = words.get_mut(lemma) else { return };
        match senses.iter_mut().find(|(known, _)| known == sense) {
            Some((_, n)) => *n = n.saturating_add(count),
            None => senses.push((sense.to_owned(), count)),
        }
    }

    /// The inventory: a word's senses by descending count, ties in order of first occurrence; numbered
    /// consecutively by part of speech, lemma and rank.
    pub fn finish(self) -> Inventory {
        let mut n_senses = 0;
        let words = self.words.map(|words| {
            let word = |(lemma, mut senses): (String, Vec<(String, u64)>)| {
                // A stable sort.
                senses.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
                let numbered = senses.into_iter().map(|(sense, count)| {
                    n_senses += 1;
                    CountedSense { sense, count, number: n_senses - 1 }
                });
                (lemma, numbered.collect())
            };
            words.into_iter().map(word).collect()
        });
        Inventory { words, n_senses }
    }
}

impl Inventory {
    /// The senses of a word; empty if the word is unknown.
    pub fn senses(&self, lemma: &str, pos: PartOfSpeech) -> &[CountedSense] {
        self.words[pos as usize].get(lemma).map_or(&[], Vec::as_slice)
    }

    /// The most frequent sense of a word; ties go to the one seen first.
    pub fn most_frequent(&self, lemma: &str, pos: PartOfSpeech) -> Option<&str> {
        self.senses(lemma, pos).first().map(|first| first.sense.as_str())
    }

    /// All words by part of speech and lemma, each with its senses.
    pub fn iter(&self) -> impl Iterator<Item = (&str, PartOfSpeech, &[CountedSense])> {
        PartOfSpeech::ALL.into_iter().zip(&self.words).flat_map(|(pos, words)| {
            words.iter().map(move |(lemma, senses)| (lemma.as_str(), pos, senses.as_slice()))
        })
    }

    /// Number of words.
    pub fn n_words(&self) -> usize {
        self.words.iter().map(BTreeMap::len).sum()
    }

    /// Total number of senses over all words: a sense shared by two words counts twice.
    pub fn n_senses(&self) -> usize {
        self.n_senses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senses_stand_by_count_and_then_as_they_came() {
        use PartOfSpeech::{Adverb, Noun, Verb};
        let mut counter = SenseCounter::default();
        for (lemma, pos, sense) in [
            ("bank", Noun, "river"),
            ("run", Verb, "run"),
            ("bank", Noun, "money"),
            ("bank", Noun, "tilt"),
            ("bank", Noun, "tilt"),
            ("bank", Verb, "river"),
        ] {
            counter.add(lemma, pos, sense);
        }
        let inventory = counter.finish();
        let sense = |sense: &str, count, number| CountedSense { sense: sense.into(), count, number };
        let bank = [sense("tilt", 2, 0), sense("river", 1, 1), sense("money", 1, 2)];
        assert_eq!(inventory.senses("bank", Noun), bank);
        assert_eq!(inventory.senses("bank", Verb), [sense("river", 1, 3)]);
        assert_eq!(inventory.senses("run", Verb), [sense("run", 1, 4)]);
        assert!(inventory.senses("bank", Adverb).is_empty());
        assert_eq!((inventory.n_words(), inventory.n_senses()), (3, 5));
        let words: Vec<(&str, PartOfSpeech)> = inventory.iter().map(|(lemma, pos, _)| (lemma, pos)).collect();
        assert_eq!(words, [("bank", Noun), ("bank", Verb), ("run", Verb)]);

        // What was saved, in its order, gives the same inventory.
        let mut again = SenseCounter::default();
        for (lemma, pos, senses) in inventory.iter() {
            senses.iter().for_each(|sense| again.add_many(lemma, pos, &sense.sense, sense.count));
        }
        assert_eq!(again.finish(), inventory);
    }

    #[test]
    fn parts_of_speech_have_letters_and_names() {
        for pos in PartOfSpeech::ALL {
            assert_eq!(pos.to_string().parse(), Ok(pos));
            let json = serde_json::to_string(&pos).unwrap();
            assert_eq!(json, format!("\"{pos}\""));
            assert_eq!(serde_json::from_str::<PartOfSpeech>(&json).unwrap(), pos);
        }
        assert_eq!("s".parse(), Ok(PartOfSpeech::Adjective));
        assert_eq!("ADV".parse(), Ok(PartOfSpeech::Adverb));
        for unknown in ["", "N", "x", "noun"] {
            assert_eq!(unknown.parse::<PartOfSpeech>(), Err("expected n, v, a or r".into()));
        }
    }
}
