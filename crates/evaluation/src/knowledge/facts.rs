//! Ranks of facts' objects, and consistency over paraphrases.

use super::KnowledgeTable;
use crate::table::grouped;
use serde::Serialize;
use std::collections::BTreeMap;

/// The ranks of facts' objects, by relation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FactTally {
    relations: BTreeMap<String, Tally>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Tally {
    /// For each fact, its object, and the rank of it and what was predicted by each pattern.
    facts: BTreeMap<usize, (String, Vec<Predicted>)>,
    /// How many facts have each object, of all facts of the relation; empty if all of them are ranked.
    objects: BTreeMap<String, usize>,
}

#[derive(Debug, Clone, PartialEq)]
struct Predicted {
    pattern: usize,
    rank: usize,
    text: String,
}

/// The figures of a relation, or the means over relations.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RelationFigures {
    /// The relation.
    pub relation: String,
    /// Its facts.
    pub facts: u64,
    /// Its patterns.
    pub patterns: u64,
    /// The share of facts and patterns whose right object is ranked first.
    pub p_at_1: f64,
    /// The share among the first ten.
    pub p_at_10: f64,
    /// The mean of one over the rank.
    pub mrr: f64,
    /// The share of the relation's facts whose object is its most frequent one: P@1 of always predicting it.
    pub most_frequent: f64,
    /// The share of pairs of patterns that predict the same object of a fact (Elazar et al. 2021, "Measuring and Improving
    /// Consistency in Pretrained Language Models", eq. 1); none with one pattern.
    pub consistency: Option<f64>,
    /// The share of facts whose object all patterns rank first (their consistent-accuracy); none with one pattern.
    pub consistent_and_right: Option<f64>,
}

impl FactTally {
    /// Adds a fact in a pattern, both by their numbers in the relation: its object's rank, from 1, and the predicted text.
    pub fn add(&mut self, relation: &str, pattern: usize, fact: (usize, &str), rank: usize, predicted: &str) {
        let tally = self.relations.entry(relation.to_owned()).or_default();
        let (_, all) = tally.facts.entry(fact.0).or_insert_with(|| (fact.1.to_owned(), Vec::new()));
        all.push(Predicted { pattern, rank, text: predicted.to_owned() });
    }

    /// Tells the objects of all facts of a relation, where only some of them are ranked: the most frequent object is that of
    /// all.
    pub fn set_objects<'a>(&mut self, relation: &str, objects: impl IntoIterator<Item = &'a str>) {
        let tally = self.relations.entry(relation.to_owned()).or_default();
        tally.objects.clear();
        for object in objects {
            *tally.objects.entry(object.to_owned()).or_default() += 1;
        }
    }

    /// The figures of each relation that has a ranked fact, by name.
    pub fn relations(&self) -> Vec<RelationFigures> {
        let ranked = self.relations.iter().filter(|(_, tally)| !tally.facts.is_empty());
        ranked.map(|(name, tally)| tally.figures(name)).collect()
    }

    /// The means over relations, as LAMA's figures are (Petroni et al. 2019); none without a fact.
    pub fn overall(&self) -> Option<RelationFigures> {
        let all = self.relations();
        let mean =
            |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        let of = |value: fn(&RelationFigures) -> f64| mean(all.iter().map(value).collect());
        Some(RelationFigures {
            relation: "mean of relations".into(),
            facts: all.iter().map(|figures| figures.facts).sum(),
            patterns: all.iter().map(|figures| figures.patterns).sum(),
            p_at_1: of(|figures| figures.p_at_1)?,
            p_at_10: of(|figures| figures.p_at_10)?,
            mrr: of(|figures| figures.mrr)?,
            most_frequent: of(|figures| figures.most_frequent)?,
            consistency: mean(all.iter().filter_map(|figures| figures.consistency).collect()),
            consistent_and_right: mean(
                all.iter().filter_map(|figures| figures.consistent_and_right).collect(),
            ),
        })
    }

    /// A table of all relations and their means.
    pub fn table(&self) -> KnowledgeTable {
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        let header = [
            "relation",
            "facts",
            "patterns",
            "P@1 (%)",
            "P@10 (%)",
            "MRR",
            "most frequent (%)",
            "consistent (%)",
            "and right (%)",
        ];
        let mut table = KnowledgeTable::new("Facts", header).with_note(
            "Most frequent: P@1 of the relation's most frequent object for all facts. Consistent: pairs of patterns with the same \
             prediction.",
        );
        for figures in self.relations().into_iter().chain(self.overall()) {
            let share = |share: Option<f64>| share.map_or("–".to_owned(), percent);
            table.row([
                figures.relation,
                grouped(figures.facts),
                grouped(figures.patterns),
                percent(figures.p_at_1),
                percent(figures.p_at_10),
                format!("{:.3}", figures.mrr),
                percent(figures.most_frequent),
                share(figures.consistency),
                share(figures.consistent_and_right),
            ]);
        }
        table
    }
}

impl Tally {
    fn figures(&self, name: &str) -> RelationFigures {
        let all: Vec<&Predicted> = self.facts.values().flat_map(|(_, all)| all).collect();
        let share = |n: usize, of: usize| n as f64 / of as f64;
        let within =
            |rank: usize| share(all.iter().filter(|predicted| predicted.rank <= rank).count(), all.len());
        let mut objects: BTreeMap<&str, usize> =
            self.objects.iter().map(|(object, n)| (&**object, *n)).collect();
        if objects.is_empty() {
            self.facts.values().for_each(|(object, _)| *objects.entry(object).or_default() += 1);
        }
        let mut patterns: Vec<usize> = all.iter().map(|predicted| predicted.pattern).collect();
        patterns.sort_unstable();
        patterns.dedup();
        let (mut same, mut pairs, mut right) = (0, 0, 0);
        for (_, of_fact) in self.facts.values() {
            for (at, one) in of_fact.iter().enumerate() {
                pairs += of_fact.len() - at - 1;
                same += of_fact[at + 1..].iter().filter(|other| other.text == one.text).count();
            }
            right += usize::from(of_fact.iter().all(|predicted| predicted.rank == 1));
        }
        RelationFigures {
            relation: name.to_owned(),
            facts: self.facts.len() as u64,
            patterns: patterns.len() as u64,
            p_at_1: within(1),
            p_at_10: within(10),
            mrr: all.iter().map(|predicted| 1.0 / predicted.rank as f64).sum::<f64>() / all.len() as f64,
            most_frequent: share(objects.values().copied().max().unwrap_or_default(), objects.values().sum()),
            consistency: (pairs > 0).then(|| share(same, pairs)),
            consistent_and_right: (pairs > 0).then(|| share(right, self.facts.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_consistency() {
        let mut tally = FactTally::default();
        assert_eq!(tally.overall(), None);
        for (pattern, fact, rank, predicted) in [
            (0, (0, "Paris"), 1, "Paris"),
            (1, (0, "Paris"), 1, "Paris"),
            (2, (0, "Paris"), 4, "Rome"),
            (0, (1, "Rome"), 1, "Rome"),
            (1, (1, "Rome"), 1, "Rome"),
            (2, (1, "Rome"), 1, "Rome"),
            (0, (2, "Rome"), 20, "Paris"),
            (1, (2, "Rome"), 2, "Oslo"),
            (2, (2, "Rome"), 2, "Bern"),
        ] {
            tally.add("P36", pattern, fact, rank, predicted);
        }
        tally.add("P1", 0, (0, "x"), 2, "y");
        let found = &tally.relations()[1];
        assert_eq!((found.facts, found.patterns), (3, 3));
        assert!((found.p_at_1 - 5.0 / 9.0).abs() < 1e-12 && (found.p_at_10 - 8.0 / 9.0).abs() < 1e-12);
        assert!((found.mrr - (5.0 + 0.25 + 0.05 + 0.5 + 0.5) / 9.0).abs() < 1e-12);
        assert!((found.most_frequent - 2.0 / 3.0).abs() < 1e-12);
        assert!((found.consistency.unwrap() - 4.0 / 9.0).abs() < 1e-12);
        assert!((found.consistent_and_right.unwrap() - 1.0 / 3.0).abs() < 1e-12);
        let overall = tally.overall().unwrap();
        assert!((overall.p_at_1 - 2.5 / 9.0).abs() < 1e-12 && overall.facts == 4);
        assert_eq!((overall.consistency, tally.relations()[0].consistency), (found.consistency, None));
        assert_eq!(tally.table().rows.len(), 3);
        // The ranked ones are some of five. A relation without a ranked fact has no row.
        tally.set_objects("P36", ["Paris", "Rome", "Rome", "Oslo", "Bern"]);
        tally.set_objects("P2", ["Rome"]);
        assert_eq!(tally.relations().len(), 2);
        assert!((tally.relations()[1].most_frequent - 2.0 / 5.0).abs() < 1e-12);
    }
}
