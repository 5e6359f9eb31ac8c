//! How well texts and words are cut into pieces: the arithmetic of comparing tokenizers.
//!
//! ```text
//! renyi       Rényi efficiency of how often each piece occurs (Zouhar et al. 2023)
//! boundaries  boundaries in words beside those of morphemes
//! morphemes   where the boundaries of morphemes lie in a word that spells them otherwise
//! ```

mod boundaries;
mod morphemes;
mod renyi;

pub use boundaries::{BoundaryFigures, BoundaryScore};
pub use morphemes::{MorphemeBoundaries, morpheme_boundaries};
pub use renyi::renyi_efficiency;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Reference values of tokenization-scorer and Morfessor from `tests/fixtures/segmentation/export.py`.
    const CASES: &str = include_str!("../../../../tests/fixtures/segmentation/cases.json");

    fn cases() -> Value {
        serde_json::from_str(CASES).unwrap()
    }

    fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
        value[key].as_array().unwrap()
    }

    #[test]
    fn efficiencies_are_those_of_tokenization_scorer() {
        let cases = cases();
        for case in list(&cases, "renyi") {
            let counts: Vec<u64> = list(case, "counts").iter().map(|count| count.as_u64().unwrap()).collect();
            for (order, expected) in list(&cases, "orders").iter().zip(list(case, "efficiencies")) {
                let order = order.as_f64().unwrap();
                // Pieces that do not occur change nothing.
                let found = renyi_efficiency(counts.iter().copied().chain([0, 0]), order);
                let expected = expected.as_f64().unwrap();
                assert!((found - expected).abs() < 1e-9, "order {order}: {found}, expected {expected}");
            }
        }
        assert!(renyi_efficiency([7, 0], 2.5).is_nan() && renyi_efficiency([], 2.5).is_nan());
    }

    #[test]
    fn means_over_words_are_those_of_morfessor() {
        let case = &cases()["boundaries"];
        let mut score = BoundaryScore::default();
        for word in list(case, "words") {
            let places = |key| -> Vec<usize> {
                list(word, key).iter().map(|place| place.as_u64().unwrap() as usize).collect()
            };
            score.add(&places("found"), &places("gold"));
        }
        let figures = score.figures();
        for (found, key) in [
            (figures.macro_precision, "precision"),
            (figures.macro_recall, "recall"),
            (figures.macro_f1, "f1"),
        ] {
            assert!((found - case[key].as_f64().unwrap()).abs() < 1e-12, "{key}: {found}");
        }
    }
}
