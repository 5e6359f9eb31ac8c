//! Classes that a model never predicts.

use crate::scores::Counts;

/// Classes that are named; the others are counted.
const NAMED: usize = 5;

/// What is said of the classes that are never predicted though examples have them; `what` they are, in the plural.
pub(super) fn warning<'a>(what: &str, counts: impl Iterator<Item = (&'a str, Counts)>) -> Option<String> {
    let missed = counts.filter(|(_, counts)| counts.gold > 0 && counts.predicted == 0);
    let missed: Vec<String> = missed.map(|(name, counts)| format!("`{name}` (of {})", counts.gold)).collect();
    if missed.is_empty() {
        return None;
    }
    let more = match missed.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let named = missed[..missed.len().min(NAMED)].join(", ");
    Some(format!(
        "{what} that were never predicted: {named}{more}; train for more epochs, at another learning rate, or on more examples \
         of them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_without_predictions_are_named() {
        let counts = |gold, predicted| Counts { correct: 0, gold, predicted };
        let of = |counts: &[(&'static str, Counts)]| warning("classes", counts.iter().copied());
        assert_eq!(of(&[("a", counts(3, 1)), ("b", counts(0, 0))]), None);
        let said = of(&[("a", counts(3, 0)), ("b", counts(2, 4)), ("c", counts(1, 0))]).unwrap();
        assert!(
            said.starts_with("classes that were never predicted: `a` (of 3), `c` (of 1); train"),
            "{said}"
        );
        let said = of(&["a", "b", "c", "d", "e", "f", "g"].map(|name| (name, counts(1, 0)))).unwrap();
        assert!(said.contains("`e` (of 1) and 2 more; "), "{said}");
    }
}
