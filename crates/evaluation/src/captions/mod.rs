//! Scores of image captions: [`bleu`], [`rouge_l`] and [`cider_d`] as pycocoevalcap 1.2 computes them on the same tokens,
//! and the share of captions that differ from one another ([`distinct_share`]).
//!
//! Captions are text whose tokens are separated by white space; [`tokenize`] turns a caption as people write it into
//! such text. `references[i]` are the references of `candidates[i]`, and images may have different numbers of them.
//! (pycocoevalcap's ROUGE-L cuts at each space, which is the same where one space separates tokens.)
//! Scores are shares as in pycocoevalcap: BLEU and ROUGE-L from 0 to 1, CIDEr-D from 0 to 10.
//!
//! ```
//! use cloze_evaluation::captions::{bleu, cider_d, rouge_l};
//!
//! let candidates = ["a dog runs on the beach", "two men play chess"];
//! let references = [
//!     vec!["a dog runs along the beach", "a brown dog on the sand"],
//!     vec!["two old men play chess in a park"],
//! ];
//! let [bleu_1, ..] = bleu(&candidates, &references)?;
//! assert_eq!(format!("{:.3}", bleu_1.corpus), "0.670");
//! assert_eq!(format!("{:.3}", rouge_l(&candidates, &references)?.corpus), "0.731");
//! assert_eq!(format!("{:.3}", cider_d(&candidates, &references)?.corpus), "3.014");
//! # Ok::<(), cloze_evaluation::EvaluationError>(())
//! ```

mod bleu;
mod cider;
mod distinct;
mod rouge_l;
mod tokens;

pub use bleu::bleu;
pub use cider::cider_d;
pub use distinct::distinct_share;
pub use rouge_l::rouge_l;
pub use tokens::tokenize;

use crate::{EvaluationError, Result};

/// The longest n-grams of [`bleu`] and [`cider_d`], in tokens.
pub const MAX_ORDER: usize = 4;

/// A metric's scores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaptionScores {
    /// The score of all captions together. BLEU is computed from the counts of all captions; ROUGE-L and CIDEr-D are
    /// means over images.
    pub corpus: f64,
    /// The score of each caption.
    pub images: Vec<f64>,
}

impl CaptionScores {
    /// The scores of images with their mean.
    fn mean_of(images: Vec<f64>) -> Self {
        let corpus = images.iter().sum::<f64>() / images.len() as f64;
        Self { corpus, images }
    }
}

/// Each candidate with its references.
///
/// # Errors
/// [`EvaluationError::NoLines`] without candidates, [`EvaluationError::CaptionCount`] and
/// [`EvaluationError::NoReference`].
fn pairs<'a, C: AsRef<str>, R: AsRef<[S]>, S: AsRef<str> + 'a>(
    candidates: &'a [C],
    references: &'a [R],
) -> Result<Vec<(&'a str, Vec<&'a str>)>> {
    let (expected, found) = (candidates.len(), references.len());
    if expected != found {
        return Err(EvaluationError::CaptionCount { found, expected });
    }
    if candidates.is_empty() {
        return Err(EvaluationError::NoLines);
    }
    if let Some(image) = references.iter().position(|references| references.as_ref().is_empty()) {
        return Err(EvaluationError::NoReference { image });
    }
    let texts = |references: &'a R| references.as_ref().iter().map(AsRef::as_ref).collect();
    Ok(candidates.iter().map(AsRef::as_ref).zip(references.iter().map(texts)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Values of pycocoevalcap, from `tests/fixtures/captions/export.py`.
    const GOLDEN: &str = include_str!("../../../../tests/fixtures/captions/golden.json");

    fn golden() -> Value {
        serde_json::from_str(GOLDEN).unwrap()
    }

    fn same(found: &CaptionScores, expected: &Value, what: &str) {
        let close = |found: f64, expected: &Value, what: &str| {
            let expected = expected.as_f64().unwrap();
            assert!((found - expected).abs() <= 1e-9, "{what}: {found}, expected {expected}");
        };
        close(found.corpus, &expected["corpus"], what);
        let images = expected["images"].as_array().unwrap();
        assert_eq!(found.images.len(), images.len(), "{what}");
        for (image, (found, expected)) in found.images.iter().zip(images).enumerate() {
            close(*found, expected, &format!("{what}, image {image}"));
        }
    }

    #[test]
    fn scores_are_those_of_pycocoevalcap() {
        let golden = golden();
        let corpora = golden["corpora"].as_object().unwrap();
        assert!(corpora.len() > 4);
        for (name, case) in corpora {
            let candidates: Vec<String> = serde_json::from_value(case["candidates"].clone()).unwrap();
            let references: Vec<Vec<String>> = serde_json::from_value(case["references"].clone()).unwrap();
            for (order, scores) in (1..).zip(&bleu(&candidates, &references).unwrap()) {
                let key = format!("Bleu_{order}");
                same(scores, &case[&key], &format!("{name}, {key}"));
            }
            same(&rouge_l(&candidates, &references).unwrap(), &case["ROUGE_L"], &format!("{name}, ROUGE_L"));
            same(&cider_d(&candidates, &references).unwrap(), &case["CIDEr"], &format!("{name}, CIDEr"));
        }
    }

    /// pycocoevalcap fails on such a corpus: it takes the maximum of no document frequencies.
    #[test]
    fn references_without_tokens_score_zero() {
        let (candidates, references) = (["a dog", ""], [vec![""], vec!["", " "]]);
        assert_eq!(cider_d(&candidates, &references).unwrap().images, [0.0, 0.0]);
        let all = bleu(&candidates, &references).unwrap();
        assert!(all.iter().all(|scores| scores.corpus < 1e-9));
    }

    #[test]
    fn how_tokens_are_separated_does_not_matter() {
        let references = [vec!["a dog runs on sand", "the dog"], vec!["a cat"]];
        let spaced = [vec!["  a dog\truns  on sand\n", "the\u{3000}dog"], vec![" a cat"]];
        let (candidates, others) =
            (["a dog on sand", "a cat sleeps"], [" a  dog on\u{a0}sand", "a cat\tsleeps "]);
        assert_eq!(bleu(&candidates, &references).unwrap(), bleu(&others, &spaced).unwrap());
        assert_eq!(rouge_l(&candidates, &references).unwrap(), rouge_l(&others, &spaced).unwrap());
        assert_eq!(cider_d(&candidates, &references).unwrap(), cider_d(&others, &spaced).unwrap());
    }

    #[test]
    fn what_cannot_be_scored_is_named() {
        let none: [&str; 0] = [];
        let errors = |candidates: &[&str], references: &[Vec<&str>]| {
            let bleu = bleu(candidates, references).unwrap_err().to_string();
            assert_eq!(rouge_l(candidates, references).unwrap_err().to_string(), bleu);
            assert_eq!(cider_d(candidates, references).unwrap_err().to_string(), bleu);
            bleu
        };
        assert_eq!(errors(&none, &[]), "nothing to score: there are no lines or no references");
        assert_eq!(
            errors(&["a", "b"], &[vec!["a"]]),
            "references of 1 images for 2 captions; expected those of one image for each"
        );
        assert_eq!(
            errors(&["a", "b"], &[vec!["a"], vec![]]),
            "caption 1 (counted from 0) has no reference; expected one or more"
        );
        assert!(distinct_share(&none).is_err());
    }

    /// [`tokenize`] beside the `PTBTokenizer` of pycocoevalcap.
    #[test]
    fn captions_are_tokenized_as_by_ptb() {
        let golden = golden();
        let captions = golden["tokenized"].as_array().unwrap();
        assert!(captions.len() > 20);
        for pair in captions {
            let (caption, theirs) = (pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
            assert_eq!(tokenize(caption), theirs, "{caption}");
            assert_eq!(tokenize(theirs), theirs, "tokenized text changes: {theirs}");
        }
        // CoreNLP keeps the apostrophes and the full stop.
        assert_eq!(tokenize("rock 'n' roll at the Dept."), "rock n roll at the dept");
        assert_eq!(tokenize(" .,- "), "");
    }
}
