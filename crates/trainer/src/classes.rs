//! How often each class occurs in the splits, which is said before training.

use crate::metrics::progress::RunProgress;
use cloze_data::labelled::LabelSet;
use cloze_evaluation::table;

/// Rows of the table; the most frequent classes.
const SHOWN: usize = 30;

/// With fewer training examples a class is rare.
const FEW: u64 = 5;

/// Classes that a warning names; the others are counted.
const NAMED: usize = 10;

/// The classes of a run, with their examples in each split.
#[derive(Debug)]
pub(crate) struct Classes {
    names: Vec<String>,
    /// The name of each split, and its counts in the order of the names.
    splits: Vec<(&'static str, Vec<u64>)>,
}

impl Classes {
    /// The classes by the number of examples that each has in each split, the training data first; none without
    /// classes.
    pub fn new(counts: Vec<(&'static str, Vec<(String, u64)>)>) -> Option<Self> {
        let (_, train) = counts.first()?;
        let names: Vec<String> = train.iter().map(|(name, _)| name.clone()).collect();
        let of = |counts: Vec<(String, u64)>| counts.into_iter().map(|(_, count)| count).collect();
        let splits = counts.into_iter().map(|(split, counts)| (split, of(counts))).collect();
        (!names.is_empty()).then_some(Self { names, splits })
    }

    /// Says how often each class occurs, and what is probably wrong; see [`warnings`](Self::warnings).
    pub fn tell(&self, shots: Option<usize>, progress: &mut dyn RunProgress) {
        progress.note(&self.table());
        self.warnings(shots).iter().for_each(|warning| progress.note(warning));
    }

    /// A row for each class, as text for a terminal; of many classes the most frequent ones.
    fn table(&self) -> String {
        let train = &self.splits[0].1;
        let mut places: Vec<usize> = (0..self.names.len()).collect();
        let rest = places.len().saturating_sub(SHOWN);
        if rest > 0 {
            places.sort_by_key(|place| std::cmp::Reverse(train[*place]));
            places.truncate(SHOWN);
        }
        let header = std::iter::once("class").chain(self.splits.iter().map(|(split, _)| *split));
        let row = |place: usize| {
            let counts = self.splits.iter().map(move |(_, counts)| table::grouped(counts[place]));
            std::iter::once(self.names[place].clone()).chain(counts).collect::<Vec<_>>()
        };
        let more = (rest > 0).then(|| {
            let mut row = vec![String::new(); self.splits.len() + 1];
            row[0] = format!("… and {rest} more");
            row
        });
        table::numbers(header, places.into_iter().map(row).chain(more))
    }

    /// What is probably wrong with the classes. If a number of examples of each is drawn (`shots`), none is rare.
    fn warnings(&self, shots: Option<usize>) -> Vec<String> {
        let alike = self.alike().into_iter().map(|names| {
            format!(
                "warning: {names} are different classes, though they differ in case, white space or Unicode form only; write \
                 them in one way in the data"
            )
        });
        let missing = listed(self.in_training(|count| count == 0).map(|(name, _)| format!("`{name}`")));
        let missing = missing.map(|names| {
            format!("warning: classes without a training example, which the model cannot learn: {names}")
        });
        let rare = self.in_training(|count| (1..FEW).contains(&count));
        let rare =
            listed(rare.map(|(name, count)| format!("`{name}` ({count})"))).filter(|_| shots.is_none());
        let rare = rare.map(|names| {
            format!(
                "warning: classes with fewer than {FEW} training examples, of which to expect little: {names}"
            )
        });
        alike.chain(missing).chain(rare).collect()
    }

    /// The classes with such a count in the training data.
    fn in_training(&self, is_such: impl Fn(u64) -> bool) -> impl Iterator<Item = (&str, u64)> {
        let counts = self.names.iter().zip(&self.splits[0].1);
        counts.map(|(name, count)| (name.as_str(), *count)).filter(move |(_, count)| is_such(*count))
    }

    /// The names of each group of classes that are probably meant to be one.
    fn alike(&self) -> Vec<String> {
        let Ok(labels) = LabelSet::given(self.names.iter().cloned()) else { return Vec::new() };
        let quoted = |name: &&str| format!("`{}`", name.escape_debug());
        labels
            .alike()
            .iter()
            .map(|group| group.iter().map(quoted).collect::<Vec<_>>().join(" and "))
            .collect()
    }
}

/// The first of these names; none if there are none.
fn listed(names: impl Iterator<Item = String>) -> Option<String> {
    let names: Vec<String> = names.collect();
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    (!names.is_empty()).then(|| format!("{}{more}", names[..names.len().min(NAMED)].join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(train: &[(&str, u64)], dev: &[u64]) -> Classes {
        let counts = |counts: &[u64]| {
            train.iter().zip(counts).map(|((name, _), count)| ((*name).to_owned(), *count)).collect()
        };
        let of_train: Vec<u64> = train.iter().map(|(_, count)| *count).collect();
        Classes::new(vec![("train", counts(&of_train)), ("dev", counts(dev))]).unwrap()
    }

    #[test]
    fn counts_are_a_table() {
        let table = classes(&[("no", 1_200), ("yes", 7)], &[3, 0]).table();
        let rows: Vec<Vec<&str>> = table
            .lines()
            .filter(|line| line.contains(['│', '┆']))
            .map(|line| line.split(['│', '┆']).map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(rows, [["class", "train", "dev"], ["no", "1,200", "3"], ["yes", "7", "0"]]);
        let names: Vec<String> = (0..40).map(|class| format!("c{class}")).collect();
        let many: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(100..).collect();
        let table = classes(&many, &[1; 40]).table();
        assert!(
            table.contains("c39") && table.contains("… and 10 more") && !table.contains("c9 "),
            "{table}"
        );
        assert!(Classes::new(vec![("train", Vec::new())]).is_none());
    }

    #[test]
    fn what_is_wrong_with_classes_is_told() {
        let fine = classes(&[("no", 5), ("yes", 50)], &[1, 1]);
        assert!(fine.warnings(None).is_empty());
        let wrong = classes(&[("Positive", 90), ("odd", 0), ("positive", 4)], &[9, 1, 1]);
        let warnings = wrong.warnings(None);
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(warnings[0].starts_with("warning: `Positive` and `positive` are different classes"));
        assert!(warnings[1].starts_with("warning: classes without a training example"));
        assert!(warnings[2].starts_with("warning: classes with fewer than 5 training"));
        assert!(
            warnings[1].ends_with(": `odd`") && warnings[2].ends_with(": `positive` (4)"),
            "{warnings:?}"
        );
        assert_eq!(wrong.warnings(Some(4)).len(), 2);
    }
}
