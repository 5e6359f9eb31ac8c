//! Accuracy on minimal pairs.

use super::KnowledgeTable;
use super::published::{MODELS, OVERALL, counted_as, of};
use crate::table::grouped;
use serde::Serialize;
use std::collections::BTreeMap;

/// How many pairs of each paradigm a model gets right: those whose good sentence has the higher score.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PairTally {
    /// The phenomenon, the pairs and the right ones of each paradigm.
    paradigms: BTreeMap<String, (String, u64, u64)>,
}

/// The accuracy of a group of pairs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupAccuracy {
    /// The paradigm or phenomenon.
    pub name: String,
    /// Its pairs.
    pub pairs: u64,
    /// The share of a paradigm's pairs that are right; of a phenomenon, the mean over its paradigms.
    pub accuracy: f64,
}

impl PairTally {
    /// Adds a pair, given the scores of its sentences. Equal scores are wrong.
    pub fn add(&mut self, paradigm: &str, phenomenon: &str, good: f64, bad: f64) {
        let new = || (counted_as(phenomenon).to_owned(), 0, 0);
        let (_, pairs, right) = self.paradigms.entry(paradigm.to_owned()).or_insert_with(new);
        *pairs += 1;
        *right += u64::from(good > bad);
    }

    /// The accuracy of each paradigm, by name.
    pub fn paradigms(&self) -> Vec<GroupAccuracy> {
        let accuracy = |(name, (_, pairs, right)): (&String, &(String, u64, u64))| GroupAccuracy {
            name: name.clone(),
            pairs: *pairs,
            accuracy: *right as f64 / *pairs as f64,
        };
        self.paradigms.iter().map(accuracy).collect()
    }

    /// The accuracy of each phenomenon, by name: the mean over its paradigms, as in Warstadt et al. 2020.
    pub fn phenomena(&self) -> Vec<GroupAccuracy> {
        let mut groups: BTreeMap<&str, Vec<(u64, f64)>> = BTreeMap::new();
        for (phenomenon, pairs, right) in self.paradigms.values() {
            groups.entry(phenomenon).or_default().push((*pairs, *right as f64 / *pairs as f64));
        }
        groups.into_iter().map(|(name, paradigms)| mean(name, &paradigms)).collect()
    }

    /// The mean over all paradigms; none without a pair.
    pub fn overall(&self) -> Option<GroupAccuracy> {
        let paradigms: Vec<(u64, f64)> =
            self.paradigms().into_iter().map(|group| (group.pairs, group.accuracy)).collect();
        (!paradigms.is_empty()).then(|| mean("overall", &paradigms))
    }

    /// Tables by phenomenon, with published figures where they are of the same name, and by paradigm.
    pub fn tables(&self) -> Vec<KnowledgeTable> {
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        let published = |accuracies: Option<[f64; 5]>| {
            let cell = move |at: usize| accuracies.map_or("–".into(), |found| format!("{:.1}", found[at]));
            (0..MODELS.len()).map(cell)
        };
        let phenomena = self.phenomena();
        let is_blimp = phenomena.iter().any(|group| of(&group.name).is_some());
        let names = MODELS.iter().filter(|_| is_blimp).map(|name| (*name).to_owned());
        let header = ["phenomenon", "pairs", "accuracy (%)"].map(str::to_owned).into_iter().chain(names);
        let mut by_phenomenon = KnowledgeTable::new("Minimal pairs by phenomenon", header);
        for (group, beside) in phenomena
            .iter()
            .map(|group| (group, of(&group.name)))
            .chain(self.overall().as_ref().map(|group| (group, Some(OVERALL))))
        {
            let own = [group.name.clone(), grouped(group.pairs), percent(group.accuracy)];
            by_phenomenon.row(own.into_iter().chain(published(beside).filter(|_| is_blimp)));
        }
        if is_blimp {
            let note = "The models on the right and humans are those of Warstadt et al. 2020; their overall figures are of all 67 \
                        paradigms.";
            by_phenomenon = by_phenomenon.with_note(note);
        }
        let mut by_paradigm = KnowledgeTable::new(
            "Minimal pairs by paradigm",
            ["paradigm", "phenomenon", "pairs", "accuracy (%)"],
        );
        for group in self.paradigms() {
            let phenomenon = self.paradigms[&group.name].0.clone();
            by_paradigm.row([group.name, phenomenon, grouped(group.pairs), percent(group.accuracy)]);
        }
        vec![by_phenomenon, by_paradigm]
    }
}

fn mean(name: &str, paradigms: &[(u64, f64)]) -> GroupAccuracy {
    GroupAccuracy {
        name: name.to_owned(),
        pairs: paradigms.iter().map(|(pairs, _)| pairs).sum(),
        accuracy: paradigms.iter().map(|(_, accuracy)| accuracy).sum::<f64>() / paradigms.len() as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::published::PUBLISHED;

    #[test]
    fn a_phenomenon_has_the_mean_of_its_paradigms() {
        let mut tally = PairTally::default();
        assert_eq!(tally.overall(), None);
        for (paradigm, phenomenon, good, bad) in [
            ("a_1", "ellipsis", -1.0, -2.0),
            ("a_1", "ellipsis", -2.0, -2.0),
            ("a_1", "ellipsis", -3.0, -2.0),
            ("a_1", "ellipsis", -3.0, -2.0),
            ("a_2", "ellipsis", -1.0, -2.0),
            ("b", "s-selection", -1.0, -2.0),
        ] {
            tally.add(paradigm, phenomenon, good, bad);
        }
        let found: Vec<(String, u64, f64)> =
            tally.phenomena().into_iter().map(|group| (group.name, group.pairs, group.accuracy)).collect();
        assert_eq!(found, [("argument_structure".into(), 1, 1.0), ("ellipsis".into(), 5, 0.625)]);
        assert_eq!(tally.overall().unwrap().accuracy, (0.25 + 1.0 + 1.0) / 3.0);
        let tables = tally.tables();
        let ellipsis = &tables[0].rows[1];
        assert_eq!(ellipsis.join(" "), "ellipsis 5 62.5 36.9 67.6 77.2 89.4 85.0");
        assert_eq!(tables[1].rows[0].join(" "), "a_1 ellipsis 4 25.0");
    }

    #[test]
    fn the_published_phenomena_have_the_published_mean() {
        // Their numbers of paradigms in BLiMP.
        let paradigms = [2, 9, 7, 5, 8, 2, 7, 2, 8, 7, 4, 6];
        for model in 0..MODELS.len() {
            let sum: f64 =
                PUBLISHED.iter().zip(paradigms).map(|((_, found), n)| found[model] * f64::from(n)).sum();
            assert!((sum / 67.0 - OVERALL[model]).abs() < 0.1, "{}: {}", MODELS[model], sum / 67.0);
        }
    }
}
