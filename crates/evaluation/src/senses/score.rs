//! Scores of word sense disambiguation systems.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeStruct, Serializer};

use super::PartOfSpeech;
use crate::figures::shown;
use crate::table;

/// A system's answer counts on some words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenseScore {
    /// The words.
    pub words: u64,
    /// Words answered.
    pub answered: u64,
    /// Words answered correctly.
    pub right: u64,
}

impl SenseScore {
    /// Adds a word: whether the answer is correct; `None` if there was no answer.
    pub fn add(&mut self, is_right: Option<bool>) {
        self.words += 1;
        self.answered += u64::from(is_right.is_some());
        self.right += u64::from(is_right == Some(true));
    }

    /// The share of answers that are correct; NaN without an answer.
    pub fn precision(&self) -> f64 {
        self.right as f64 / self.answered as f64
    }

    /// The share of words answered correctly; NaN without a word.
    pub fn recall(&self) -> f64 {
        self.right as f64 / self.words as f64
    }

    /// The harmonic mean of precision and recall, `2·right / (answered + words)`; NaN without a word.
    pub fn f1(&self) -> f64 {
        2.0 * self.right as f64 / (self.answered + self.words) as f64
    }
}

impl Serialize for SenseScore {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("SenseScore", 5)?;
        object.serialize_field("f1", &self.f1())?;
        object.serialize_field("precision", &self.precision())?;
        object.serialize_field("recall", &self.recall())?;
        object.serialize_field("answered", &self.answered)?;
        object.serialize_field("right", &self.right)?;
        object.end()
    }
}

/// A sense-labelled word in a text, and what the training data knew about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its part of speech.
    pub pos: PartOfSpeech,
    /// Number of senses of its lemma in the training data.
    pub n_senses: usize,
    /// Whether its sense is one of these.
    pub has_sense: bool,
    /// Whether its sense is the most frequent one of these.
    pub is_most_frequent: bool,
}

/// A group of words scored together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// All words.
    All,
    /// Words of a part of speech.
    Of(PartOfSpeech),
    /// Words whose lemma had several senses in the training data.
    Ambiguous,
    /// Words with their lemma's most frequent sense in the training data.
    MostFrequent,
    /// Words with another sense of their lemma in the training data.
    LessFrequent,
    /// Words whose lemma is in the training data, but without this sense.
    UnseenSense,
    /// Words whose lemma is not in the training data.
    UnseenLemma,
}

impl Group {
    /// All groups, in the order of tables.
    pub const ALL: [Self; 10] = [
        Self::All,
        Self::Of(PartOfSpeech::Noun),
        Self::Of(PartOfSpeech::Verb),
        Self::Of(PartOfSpeech::Adjective),
        Self::Of(PartOfSpeech::Adverb),
        Self::Ambiguous,
        Self::MostFrequent,
        Self::LessFrequent,
        Self::UnseenSense,
        Self::UnseenLemma,
    ];

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Of(pos) => pos.plural(),
            Self::Ambiguous => "several senses seen",
            Self::MostFrequent => "most frequent sense",
            Self::LessFrequent => "less frequent sense",
            Self::UnseenSense => "unseen sense",
            Self::UnseenLemma => "unseen lemma",
        }
    }

    fn has(self, word: &Instance) -> bool {
        match self {
            Self::All => true,
            Self::Of(pos) => word.pos == pos,
            Self::Ambiguous => word.n_senses > 1,
            Self::MostFrequent => word.is_most_frequent,
            Self::LessFrequent => word.has_sense && !word.is_most_frequent,
            Self::UnseenSense => word.n_senses > 0 && !word.has_sense,
            Self::UnseenLemma => word.n_senses == 0,
        }
    }
}

/// The scores of several systems on the same words, by group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenseScores {
    /// The systems' names, each with a score for each of [`Group::ALL`].
    systems: Vec<(String, [SenseScore; Group::ALL.len()])>,
}

impl SenseScores {
    /// No words yet. The last system is the main one.
    pub fn new<N: Into<String>>(systems: impl IntoIterator<Item = N>) -> Self {
        let nothing = [SenseScore::default(); Group::ALL.len()];
        Self { systems: systems.into_iter().map(|name| (name.into(), nothing)).collect() }
    }

    /// Adds a word: for each system whether its answer is correct, `None` for no answer.
    ///
    /// # Panics
    /// Unless there is one per system.
    pub fn add(&mut self, word: &Instance, is_right: &[Option<bool>]) {
        assert_eq!(is_right.len(), self.systems.len(), "each system has an answer or none");
        for ((_, scores), is_right) in self.systems.iter_mut().zip(is_right) {
            for (group, score) in Group::ALL.into_iter().zip(scores) {
                if group.has(word) {
                    score.add(*is_right);
                }
            }
        }
    }

    /// A system's score on a group.
    pub fn get(&self, system: &str, group: Group) -> Option<SenseScore> {
        let place = Group::ALL.iter().position(|known| *known == group)?;
        let (_, scores) = self.systems.iter().find(|(name, _)| name == system)?;
        Some(scores[place])
    }

    /// Number of words.
    pub fn words(&self) -> u64 {
        self.of_group(0)
    }

    /// The words of a group.
    fn of_group(&self, place: usize) -> u64 {
        self.systems.first().map_or(0, |(_, scores)| scores[place].words)
    }
}

/// A table of F1 by group and system; groups without a word are left out.
impl fmt::Display for SenseScores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["F1", "words"].into_iter().chain(self.systems.iter().map(|(name, _)| name.as_str()));
        let row = |(place, group): (usize, Group)| {
            let n_words = self.of_group(place);
            let scores = self.systems.iter().map(|(_, scores)| shown(scores[place].f1()));
            let row = [group.name().to_owned(), table::grouped(n_words)].into_iter().chain(scores);
            (n_words > 0 || group == Group::All).then(|| row.collect::<Vec<String>>())
        };
        f.write_str(&table::numbers(header, Group::ALL.into_iter().enumerate().filter_map(row)))
    }
}

/// `{"words": …, "main": system, "groups": {group: {"words": …, "systems": {system: {"f1": …, …}}}}}`.
impl Serialize for SenseScores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("SenseScores", 3)?;
        object.serialize_field("words", &self.words())?;
        object.serialize_field("main", &self.systems.last().map(|(name, _)| name))?;
        object.serialize_field("groups", &Groups(self))?;
        object.end()
    }
}

struct Groups<'a>(&'a SenseScores);

impl Serialize for Groups<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(Group::ALL.len()))?;
        for (place, group) in Group::ALL.into_iter().enumerate() {
            object.serialize_entry(group.name(), &OfGroup { scores: self.0, place })?;
        }
        object.end()
    }
}

struct OfGroup<'a> {
    scores: &'a SenseScores,
    place: usize,
}

impl Serialize for OfGroup<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Group", 2)?;
        object.serialize_field("words", &self.scores.of_group(self.place))?;
        let systems: serde_json::Map<String, serde_json::Value> = self
            .scores
            .systems
            .iter()
            .map(|(name, scores)| (name.clone(), serde_json::json!(scores[self.place])))
            .collect();
        object.serialize_field("systems", &systems)?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PartOfSpeech::{Noun, Verb};

    fn word(pos: PartOfSpeech, n_senses: usize, has_sense: bool, is_most_frequent: bool) -> Instance {
        Instance { pos, n_senses, has_sense, is_most_frequent }
    }

    /// Five words: two of the most frequent sense, one of another, one of an unseen sense, one of an unseen lemma.
    fn scores() -> SenseScores {
        let mut scores = SenseScores::new(["baseline", "nearest"]);
        let (right, wrong) = (Some(true), Some(false));
        scores.add(&word(Noun, 3, true, true), &[right, right]);
        scores.add(&word(Noun, 1, true, true), &[right, right]);
        scores.add(&word(Noun, 2, true, false), &[wrong, right]);
        scores.add(&word(Verb, 2, false, false), &[wrong, wrong]);
        scores.add(&word(Verb, 0, false, false), &[None, right]);
        scores
    }

    #[test]
    fn f1_is_the_harmonic_mean_of_precision_and_recall() {
        let all = scores().get("baseline", Group::All).unwrap();
        assert_eq!(all, SenseScore { words: 5, answered: 4, right: 2 });
        assert_eq!((all.precision(), all.recall()), (0.5, 0.4));
        assert!((all.f1() - 2.0 * 0.5 * 0.4 / 0.9).abs() < 1e-15);
        let nearest = scores().get("nearest", Group::All).unwrap();
        assert_eq!((nearest.precision(), nearest.recall(), nearest.f1()), (0.8, 0.8, 0.8));
        let none = SenseScore::default();
        assert!(none.f1().is_nan() && none.precision().is_nan() && none.recall().is_nan());
        assert!(scores().get("other", Group::All).is_none());
    }

    #[test]
    fn words_are_in_their_groups() {
        let scores = scores();
        let found = |group| {
            let score = scores.get("nearest", group).unwrap();
            (score.words, score.right)
        };
        assert_eq!(found(Group::Of(Noun)), (3, 3));
        assert_eq!(found(Group::Of(Verb)), (2, 1));
        assert_eq!(found(Group::Of(PartOfSpeech::Adverb)), (0, 0));
        assert_eq!(found(Group::Ambiguous), (3, 2));
        assert_eq!(found(Group::MostFrequent), (2, 2));
        assert_eq!(found(Group::LessFrequent), (1, 1));
        assert_eq!(found(Group::UnseenSense), (1, 0));
        assert_eq!(found(Group::UnseenLemma), (1, 1));
    }

    #[test]
    fn a_table_has_the_groups_that_have_words() {
        let expected = "
┌─────────────────────┬───────┬──────────┬─────────┐
│ F1                  ┆ words ┆ baseline ┆ nearest │
╞═════════════════════╪═══════╪══════════╪═════════╡
│ all                 ┆     5 ┆   0.4444 ┆  0.8000 │
│ nouns               ┆     3 ┆   0.6667 ┆  1.0000 │
│ verbs               ┆     2 ┆   0.0000 ┆  0.5000 │
│ several senses seen ┆     3 ┆   0.3333 ┆  0.6667 │
│ most frequent sense ┆     2 ┆   1.0000 ┆  1.0000 │
│ less frequent sense ┆     1 ┆   0.0000 ┆  1.0000 │
│ unseen sense        ┆     1 ┆   0.0000 ┆  0.0000 │
│ unseen lemma        ┆     1 ┆   0.0000 ┆  1.0000 │
└─────────────────────┴───────┴──────────┴─────────┘";
        assert_eq!(scores().to_string(), expected.trim_start());
        let empty = SenseScores::new(["baseline"]).to_string();
        assert!(empty.contains("all") && empty.contains('–') && !empty.contains("nouns"), "{empty}");
    }

    #[test]
    fn json_has_every_figure() {
        let json = serde_json::to_value(scores()).unwrap();
        assert_eq!((&json["words"], &json["main"]), (&5.into(), &"nearest".into()));
        let all = &json["groups"]["all"];
        assert_eq!(all["words"], 5);
        let nearest =
            serde_json::json!({"f1": 0.8, "precision": 0.8, "recall": 0.8, "answered": 5, "right": 4});
        assert_eq!(all["systems"]["nearest"], nearest);
        assert_eq!(json["groups"]["adverbs"]["systems"]["baseline"]["f1"], serde_json::Value::Null);
        assert_eq!(json["groups"].as_object().unwrap().len(), Group::ALL.len());
    }
}
