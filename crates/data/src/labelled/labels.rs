//! Sets of labels.

use crate::{DataError, Result};
use cloze_tokenizer::Normalizer;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The classes of a task, numbered from 0.
///
/// ```
/// # use cloze_data::labelled::LabelSet;
/// let labels = LabelSet::found(["10", "9", "9", "-1"])?;
/// assert_eq!(labels.names(), ["-1", "9", "10"]);
/// assert_eq!(labels.id("9"), Some(1));
/// # Ok::<_, cloze_data::DataError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSet {
    names: Vec<String>,
    ids: HashMap<String, usize>,
}

impl LabelSet {
    /// The labels that occur in data: sorted numerically if all are numbers, else by bytes.
    ///
    /// # Errors
    /// [`DataError::Labels`] if there are none.
    pub fn found<T: Into<String>>(labels: impl IntoIterator<Item = T>) -> Result<Self> {
        let distinct: BTreeSet<String> = labels.into_iter().map(Into::into).collect();
        let mut names: Vec<String> = distinct.into_iter().collect();
        let numbers: Option<Vec<f64>> = names.iter().map(|name| name.parse().ok()).collect();
        if numbers.is_some_and(|numbers| numbers.iter().all(|number| number.is_finite())) {
            let number = |name: &String| name.parse::<f64>().unwrap_or_default();
            names.sort_by(|a, b| number(a).total_cmp(&number(b)).then_with(|| a.cmp(b)));
        }
        Self::given(names)
    }

    /// These labels in this order.
    ///
    /// # Errors
    /// [`DataError::Labels`] if there are none, or one is empty or repeated.
    pub fn given<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Result<Self> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let unusable = |problem: String| Err(DataError::Labels { problem });
        if names.is_empty() {
            return unusable("there are no labels".into());
        }
        let mut ids = HashMap::with_capacity(names.len());
        for (id, name) in names.iter().enumerate() {
            if name.is_empty() {
                return unusable(format!("label {id} is empty"));
            }
            if ids.insert(name.clone(), id).is_some() {
                return unusable(format!("`{name}` occurs twice"));
            }
        }
        Ok(Self { names, ids })
    }

    /// The labels that differ from another one in their case, white space or Unicode form (NFKC) only, and are
    /// probably meant to be the same: each group in order.
    pub fn alike(&self) -> Vec<Vec<&str>> {
        let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for name in &self.names {
            let form = |text: &str| Normalizer::NFKC.normalize(text).unwrap_or_else(|_| text.to_owned());
            let plain = form(&form(name).to_lowercase());
            groups.entry(plain.split_whitespace().collect::<Vec<_>>().join(" ")).or_default().push(name);
        }
        groups.into_values().filter(|group| group.len() > 1).collect()
    }

    /// The labels of a Hugging Face `config.json`, whose `id2label` has ids as strings.
    ///
    /// # Errors
    /// [`DataError::Labels`] unless the ids are `0..n` and the names differ.
    pub fn from_id2label(id2label: &BTreeMap<String, String>) -> Result<Self> {
        let names: Option<Vec<&String>> =
            (0..id2label.len()).map(|id| id2label.get(&id.to_string())).collect();
        match names {
            Some(names) => Self::given(names),
            None => {
                let problem =
                    format!("the ids of `id2label` are not 0 to {}", id2label.len().saturating_sub(1));
                Err(DataError::Labels { problem })
            }
        }
    }

    /// The names by id, as in `id2label`.
    pub fn id2label(&self) -> Vec<(String, String)> {
        self.names.iter().enumerate().map(|(id, name)| (id.to_string(), name.clone())).collect()
    }

    /// The names, ordered by id.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Number of labels.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Always `false`.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The id of a label.
    pub fn id(&self, name: &str) -> Option<usize> {
        self.ids.get(name).copied()
    }

    /// The name of an id.
    pub fn name(&self, id: usize) -> Option<&str> {
        self.names.get(id).map(String::as_str)
    }

    /// The id for a number in JSON or Parquet: that of the label with this name or, if no label is a
    /// number, the number itself.
    pub(super) fn id_of_number(&self, number: &str) -> Option<usize> {
        let by_name = self.id(number);
        if by_name.is_some() || self.names.iter().any(|name| name.parse::<f64>().is_ok()) {
            return by_name;
        }
        number.parse().ok().filter(|id| *id < self.len())
    }

    /// The names for a message; a long list is cut.
    pub(super) fn shown(&self) -> String {
        const SHOWN: usize = 30;
        let mut shown: Vec<&str> = self.names.iter().take(SHOWN).map(String::as_str).collect();
        if self.len() > SHOWN {
            shown.push("…");
        }
        shown.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_are_meant_to_be_one_are_found() {
        let set = LabelSet::found(["billing", "Billing", "on  time", "On time", "late"]).unwrap();
        assert_eq!(set.alike(), [vec!["Billing", "billing"], vec!["On time", "on  time"]]);
        let set = LabelSet::found(["caf\u{E9}", "cafe\u{301}", "\u{FF21}", "a", "no\u{A0}t"]).unwrap();
        assert_eq!(set.alike(), [vec!["a", "\u{FF21}"], vec!["cafe\u{301}", "caf\u{E9}"]]);
        assert!(LabelSet::found(["yes", "no"]).unwrap().alike().is_empty());
    }

    #[test]
    fn the_order_is_that_of_numbers_or_of_bytes() {
        let found = |labels: &[&str]| LabelSet::found(labels.iter().copied()).unwrap().names().to_vec();
        assert_eq!(found(&["b", "a", "B", "a"]), ["B", "a", "b"]);
        assert_eq!(found(&["10", "2", "1.5"]), ["1.5", "2", "10"]);
        assert_eq!(found(&["10", "2", "x"]), ["10", "2", "x"]);
        assert_eq!(found(&["nan", "2", "10"]), ["10", "2", "nan"]);
        assert_eq!(found(&["1.0", "1"]), ["1", "1.0"]);
    }

    #[test]
    fn id2label_goes_both_ways() {
        let labels = LabelSet::given(["no", "yes"]).unwrap();
        let id2label: BTreeMap<String, String> = labels.id2label().into_iter().collect();
        assert_eq!(LabelSet::from_id2label(&id2label).unwrap(), labels);
        let hole = BTreeMap::from([("0".into(), "a".into()), ("2".into(), "b".into())]);
        let message = LabelSet::from_id2label(&hole).unwrap_err().to_string();
        assert_eq!(message, "invalid set of labels: the ids of `id2label` are not 0 to 1");
    }

    #[test]
    fn unusable_sets_are_refused() {
        assert!(LabelSet::found(Vec::<String>::new()).is_err());
        assert!(LabelSet::given(["a", "a"]).unwrap_err().to_string().contains("`a` occurs twice"));
        assert!(LabelSet::given(["a", ""]).is_err());
    }

    #[test]
    fn numbers_are_ids_only_where_no_label_is_a_number() {
        let words = LabelSet::given(["no", "yes"]).unwrap();
        assert_eq!((words.id_of_number("1"), words.id_of_number("2")), (Some(1), None));
        let numbers = LabelSet::given(["1", "2"]).unwrap();
        assert_eq!((numbers.id_of_number("1"), numbers.id_of_number("0")), (Some(0), None));
    }
}
