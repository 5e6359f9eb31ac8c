//! Entity recognition: precision, recall and F1, overall and by type, as in seqeval.
//!
//! An entity is correct if its boundaries and its type are (Tjong Kim Sang & De Meulder 2003, section
//! 3.3).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::scores::{self, Average, Counts, Scores, ZeroDivision};

/// An entity in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// Its type.
    pub label: String,
    /// Its first word.
    pub start: usize,
    /// The word after its last one.
    pub end: usize,
}

/// Counts of gold, predicted and correct entities by type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityCounts {
    types: BTreeMap<String, Counts>,
}

impl EntityCounts {
    /// Counts a sentence's entities. Duplicates count once.
    pub fn add(&mut self, gold: &[Span], predicted: &[Span]) {
        let gold: BTreeSet<&Span> = gold.iter().collect();
        let predicted: BTreeSet<&Span> = predicted.iter().collect();
        for span in &gold {
            let counts = self.of(&span.label);
            counts.gold += 1;
            counts.correct += u64::from(predicted.contains(span));
        }
        for span in predicted {
            self.of(&span.label).predicted += 1;
        }
    }

    fn of(&mut self, label: &str) -> &mut Counts {
        if !self.types.contains_key(label) {
            self.types.insert(label.into(), Counts::default());
        }
        self.types.get_mut(label).expect("it was there or was just put there")
    }

    /// The types that occurred, gold or predicted, by name.
    pub fn types(&self) -> impl Iterator<Item = (&str, Counts)> {
        self.types.iter().map(|(label, counts)| (label.as_str(), *counts))
    }

    /// All entities together.
    pub fn total(&self) -> Counts {
        self.types.values().copied().sum()
    }

    /// The scores over all types. Without any entity the macro average is NaN.
    pub fn average(&self, average: Average, zero: ZeroDivision) -> Scores {
        if self.types.is_empty() && average == Average::Weighted {
            return self.total().scores(zero);
        }
        let types: Vec<Counts> = self.types.values().copied().collect();
        scores::average(&types, average, zero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_type_count() {
        let span = |label: &str, start, end| Span { label: label.into(), start, end };
        let mut counts = EntityCounts::default();
        let gold = [span("PER", 0, 2), span("LOC", 3, 4), span("PER", 5, 6)];
        counts.add(&gold, &[span("PER", 0, 2), span("PER", 3, 4), span("PER", 5, 7), span("PER", 0, 2)]);
        let expected = [
            ("LOC", Counts { correct: 0, predicted: 0, gold: 1 }),
            ("PER", Counts { correct: 1, predicted: 3, gold: 2 }),
        ];
        assert_eq!(counts.types().collect::<Vec<_>>(), expected);
        assert_eq!(counts.average(Average::Micro, ZeroDivision::Zero).f1, 1.0 / 3.0);
        assert!(EntityCounts::default().average(Average::Macro, ZeroDivision::Zero).f1.is_nan());
    }
}
