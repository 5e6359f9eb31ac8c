//! Accuracy and consistency on choices between sentences.

use super::KnowledgeTable;
use crate::table::grouped;
use serde::Serialize;
use std::collections::BTreeMap;

/// How many choices of each test a model gets right.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChoiceTally {
    single: BTreeMap<String, (u64, u64, f64)>,
    dual: BTreeMap<String, [u64; 3]>,
}

/// A test of single choices.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SingleTest {
    /// Its name.
    pub test: String,
    /// Its items.
    pub items: u64,
    /// The share of right ones.
    pub accuracy: f64,
    /// The expected share of right ones by chance.
    pub chance: f64,
}

/// A test of dual items: two choices, the second of which varies the first so that another sentence is right.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DualTest {
    /// Its name.
    pub test: String,
    /// Its items.
    pub items: u64,
    /// The share of items whose choices are both right.
    pub both_right: f64,
    /// The share of items whose choices are both wrong.
    pub both_wrong: f64,
    /// The share of right choices.
    pub accuracy: f64,
    /// [`both_right`](Self::both_right) plus [`both_wrong`](Self::both_wrong), what Zhou et al. 2020 (§4) call consistent. A model
    /// that is always wrong is consistent too.
    pub consistency: f64,
}

impl ChoiceTally {
    /// Adds an item: whether each of its choices, one or two, is right, and how many sentences the first has.
    ///
    /// # Panics
    /// Unless there are one or two choices.
    pub fn add(&mut self, test: &str, right: &[bool], n_sentences: usize) {
        match right {
            [right] => {
                let (items, n_right, chance) = self.single.entry(test.to_owned()).or_default();
                *items += 1;
                *n_right += u64::from(*right);
                *chance += 1.0 / n_sentences as f64;
            }
            [first, second] => {
                let counts = self.dual.entry(test.to_owned()).or_default();
                counts[usize::from(*first) + usize::from(*second)] += 1;
            }
            _ => panic!("{} choices; expected one or two", right.len()),
        }
    }

    /// The tests of single choices, by name.
    pub fn single(&self) -> Vec<SingleTest> {
        let test = |(test, (items, right, chance)): (&String, &(u64, u64, f64))| SingleTest {
            test: test.clone(),
            items: *items,
            accuracy: *right as f64 / *items as f64,
            chance: chance / *items as f64,
        };
        self.single.iter().map(test).collect()
    }

    /// The tests of dual items, by name.
    pub fn dual(&self) -> Vec<DualTest> {
        let test = |(test, [wrong, one, right]): (&String, &[u64; 3])| {
            let items = wrong + one + right;
            let share = |n: u64| n as f64 / items as f64;
            DualTest {
                test: test.clone(),
                items,
                both_right: share(*right),
                both_wrong: share(*wrong),
                accuracy: (2 * right + one) as f64 / (2 * items) as f64,
                consistency: share(wrong + right),
            }
        };
        self.dual.iter().map(test).collect()
    }

    /// Tables of both kinds of tests.
    pub fn tables(&self) -> Vec<KnowledgeTable> {
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        let mut tables = Vec::new();
        let single = self.single();
        if !single.is_empty() {
            let mut table = KnowledgeTable::new("Choices", ["test", "items", "accuracy (%)", "chance (%)"]);
            for test in &single {
                table.row([
                    test.test.clone(),
                    grouped(test.items),
                    percent(test.accuracy),
                    percent(test.chance),
                ]);
            }
            let mean = |of: fn(&SingleTest) -> f64| {
                percent(single.iter().map(of).sum::<f64>() / single.len() as f64)
            };
            let items = single.iter().map(|test| test.items).sum();
            table.row([
                "mean of tests".into(),
                grouped(items),
                mean(|test| test.accuracy),
                mean(|test| test.chance),
            ]);
            tables.push(table);
        }
        let dual = self.dual();
        if !dual.is_empty() {
            let header =
                ["test", "items", "both right (%)", "both wrong (%)", "accuracy (%)", "consistent (%)"];
            let mut table = KnowledgeTable::new("Dual items", header).with_note(
                "Consistent is what Zhou et al. 2020 call it: both choices right, or both wrong. By chance it is 50 %, and both are \
                 right in 25 %.",
            );
            for test in dual {
                let shares = [test.both_right, test.both_wrong, test.accuracy, test.consistency].map(percent);
                table.row([test.test, grouped(test.items)].into_iter().chain(shares));
            }
            tables.push(table);
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_wrong_is_told_apart_from_both_right() {
        let mut tally = ChoiceTally::default();
        for (right, n) in [([true, true], 3), ([false, false], 2), ([true, false], 4), ([false, true], 1)] {
            (0..n).for_each(|_| tally.add("swap", &right, 2));
        }
        tally.add("smr", &[true], 3);
        tally.add("smr", &[false], 3);
        let dual = &tally.dual()[0];
        assert_eq!((dual.items, dual.both_right, dual.both_wrong), (10, 0.3, 0.2));
        assert_eq!((dual.consistency, dual.accuracy), (0.5, 0.55));
        let single = &tally.single()[0];
        assert_eq!((single.items, single.accuracy), (2, 0.5));
        assert!((single.chance - 1.0 / 3.0).abs() < 1e-12);
        let tables = tally.tables();
        assert_eq!(tables[1].rows[0].join(" "), "swap 10 30.0 20.0 55.0 50.0");
        assert!(tables[0].to_string().contains("smr"));
    }
}
