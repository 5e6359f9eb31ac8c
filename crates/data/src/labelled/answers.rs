//! Extracts answers from start and end scores.

use super::features::QuestionFeatures;
use super::questions::Question;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

/// How answers are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnswerConfig {
    /// Number of starts and ends per window to combine, and of answers to keep.
    pub n_best: usize,
    /// The longest answer, in tokens.
    pub max_answer: usize,
    /// No answer is given if the null score exceeds the best answer's by more than this; without a threshold
    /// there is always an answer, as in SQuAD 1.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_threshold: Option<f64>,
}

impl Default for AnswerConfig {
    /// The defaults of transformers' example.
    fn default() -> Self {
        Self { n_best: 20, max_answer: 30, null_threshold: None }
    }
}

/// A model's scores for a window: for each token, one as the start and one as the end.
#[derive(Debug, Clone, Copy)]
pub struct WindowScores<'a> {
    /// The window.
    pub window: &'a QuestionFeatures,
    /// Scores as the answer's first token.
    pub starts: &'a [f32],
    /// Scores as its last.
    pub ends: &'a [f32],
}

/// A possible answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Byte range in the context; `None` for no answer.
    pub bytes: Option<Range<usize>>,
    /// The text there; empty for no answer.
    pub text: String,
    /// The sum of both scores.
    pub score: f64,
    /// Its share among the candidates, by softmax.
    pub probability: f64,
}

/// The predicted answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictedAnswer {
    /// The answer, cut from the context; empty for none.
    pub text: String,
    /// Its byte range in the context.
    pub bytes: Option<Range<usize>>,
    /// The best candidates, best first, including no answer if there is a threshold.
    pub candidates: Vec<Candidate>,
    /// The null score minus the best answer's, from which thresholds are tuned. `None` if no window has an
    /// answer.
    pub null_difference: Option<f64>,
}

/// The best answer to a question over all its windows, as in transformers' `postprocess_qa_predictions`, with
/// two differences: starts and ends are searched in the context only, so there is an answer even if the best
/// tokens lie outside it; and an answer found in two windows is one candidate, with the higher score.
///
/// The null score is the minimum over the windows of the null token's score.
///
/// # Panics
/// If the number of scores differs from the number of tokens.
pub fn best_answer(question: &Question, windows: &[WindowScores], config: AnswerConfig) -> PredictedAnswer {
    let mut null: Option<f64> = None;
    let mut found: HashMap<(usize, usize), f64> = HashMap::new();
    for WindowScores { window, starts, ends } in windows {
        assert_eq!(starts.len(), window.sequence.len(), "one start score for each token");
        assert_eq!(ends.len(), window.sequence.len(), "one end score for each token");
        if window.sequence.is_empty() {
            continue;
        }
        let of_null = f64::from(starts[window.null]) + f64::from(ends[window.null]);
        null = Some(null.map_or(of_null, |null| null.min(of_null)));
        let best_ends = best(ends, &window.context, config.n_best);
        for start in best(starts, &window.context, config.n_best) {
            for end in best_ends.iter().copied() {
                if end < start || end - start >= config.max_answer {
                    continue;
                }
                let Some(bytes) = window.bytes(start, end).filter(|bytes| bytes.start < bytes.end) else {
                    continue;
                };
                let score = f64::from(starts[start]) + f64::from(ends[end]);
                let entry = found.entry((bytes.start, bytes.end)).or_insert(score);
                if score.total_cmp(entry) == Ordering::Greater {
                    *entry = score;
                }
            }
        }
    }
    let mut candidates: Vec<Candidate> = found
        .into_iter()
        .map(|((start, end), score)| {
            // A piece of the byte level may end inside a character.
            let context = &question.context;
            let bytes = context.floor_char_boundary(start)..context.ceil_char_boundary(end);
            let text = context.get(bytes.clone()).unwrap_or_default().to_owned();
            Candidate { bytes: Some(bytes), text, score, probability: 0.0 }
        })
        .collect();
    let place =
        |candidate: &Candidate| candidate.bytes.clone().map_or((0, 0), |bytes| (bytes.start, bytes.end));
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| place(a).cmp(&place(b))));
    let best = candidates.first().cloned();
    let null_difference = best.as_ref().zip(null).map(|(best, null)| null - best.score);
    if let (Some(_), Some(score)) = (config.null_threshold, null) {
        let none = Candidate { bytes: None, text: String::new(), score, probability: 0.0 };
        let place =
            candidates.partition_point(|candidate| candidate.score.total_cmp(&score) != Ordering::Less);
        candidates.insert(place, none);
    }
    candidates.truncate(config.n_best.max(1));
    share(&mut candidates);
    let answered = match (config.null_threshold, null_difference) {
        // A difference that is no number answers nothing.
        (Some(threshold), Some(difference)) => difference <= threshold,
        _ => true,
    };
    let answer = best.filter(|_| answered);
    PredictedAnswer {
        text: answer.as_ref().map_or(String::new(), |answer| answer.text.clone()),
        bytes: answer.and_then(|answer| answer.bytes),
        candidates,
        null_difference,
    }
}

/// The `n` tokens of a range with the highest scores, best first; ties go to the earlier token.
fn best(scores: &[f32], range: &Range<usize>, n: usize) -> Vec<usize> {
    let mut tokens: Vec<usize> = range.clone().collect();
    tokens.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    tokens.truncate(n);
    tokens
}

/// Softmax over the candidates' scores.
fn share(candidates: &mut [Candidate]) {
    let max = candidates.iter().map(|candidate| candidate.score).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = candidates.iter().map(|candidate| (candidate.score - max).exp()).sum();
    for candidate in candidates {
        candidate.probability = (candidate.score - max).exp() / total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenSequence;
    use proptest::prelude::*;

    fn question(context: &str) -> Question {
        Question {
            id: "1".into(),
            title: String::new(),
            context: context.into(),
            question: "q".into(),
            answers: vec![],
            is_impossible: false,
        }
    }

    /// `[CLS] q [SEP] context [SEP]`, the context one token for each of the offsets.
    fn window(offsets: &[(usize, usize)]) -> QuestionFeatures {
        let len = offsets.len() + 4;
        QuestionFeatures {
            sequence: TokenSequence { input_ids: vec![1; len], token_type_ids: vec![0; len] },
            question: 0,
            context: 3..3 + offsets.len(),
            offsets: offsets.to_vec(),
            null: 0,
            answer: (0, 0),
        }
    }

    #[test]
    fn the_best_span_over_windows_is_cut_from_the_context() {
        let question = question("one two three four");
        let windows = [window(&[(0, 3), (4, 7), (8, 13)]), window(&[(8, 13), (14, 18)])];
        let scores = [
            ([5.0, 9.0, 0.0, 1.0, 0.0, 2.0, 0.0], [1.0, 0.0, 9.0, 0.5, 1.0, 1.5, 9.0]),
            ([4.0, 0.0, 0.0, 2.5, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0, 3.0, 0.0, 0.0]),
        ];
        let scored: Vec<WindowScores> = windows
            .iter()
            .zip(&scores)
            .map(|(window, (starts, ends))| {
                let len = window.sequence.len();
                WindowScores { window, starts: &starts[..len], ends: &ends[..len] }
            })
            .collect();
        let config = AnswerConfig::default();
        let found = best_answer(&question, &scored, config);
        assert_eq!((found.text.as_str(), found.bytes.clone()), ("three four", Some(8..18)));
        assert_eq!(found.null_difference, Some(5.0 - 5.5));
        // `three` is in both windows and is one candidate, with the higher score.
        let three: Vec<f64> =
            found.candidates.iter().filter(|c| c.text == "three").map(|c| c.score).collect();
        assert_eq!(three, [3.5]);
        let total: f64 = found.candidates.iter().map(|c| c.probability).sum();
        assert!((total - 1.0).abs() < 1e-12);

        let short = best_answer(&question, &scored, AnswerConfig { max_answer: 1, ..config });
        assert_eq!(short.text, "three");

        let answer = |threshold| {
            best_answer(&question, &scored, AnswerConfig { null_threshold: Some(threshold), ..config })
        };
        assert_eq!(answer(-0.5).text, "three four");
        let none = answer(-0.6);
        assert_eq!((none.text.as_str(), none.bytes), ("", None));
        assert!(none.candidates.iter().any(|c| c.bytes.is_none() && c.score == 5.0));
    }

    #[test]
    fn a_context_without_tokens_has_no_answer() {
        let window = window(&[]);
        let scores = [0.0; 4];
        let scored = [WindowScores { window: &window, starts: &scores, ends: &scores }];
        let found = best_answer(&question(""), &scored, AnswerConfig::default());
        assert_eq!((found.text.as_str(), found.null_difference, found.candidates.len()), ("", None, 0));
    }

    proptest! {
        #[test]
        fn answers_are_pieces_of_the_context_whatever_the_scores(
            context in "[a-zé日 ]{0,12}",
            cuts in prop::collection::vec((0usize..40, 0usize..40), 0..6),
            scores in prop::collection::vec(prop::num::f32::ANY, 24),
            threshold: Option<f64>,
        ) {
            let window = window(&cuts);
            let len = window.sequence.len();
            let scored =
                [WindowScores { window: &window, starts: &scores[..len], ends: &scores[12..12 + len] }];
            let config = AnswerConfig { null_threshold: threshold, ..AnswerConfig::default() };
            let found = best_answer(&question(&context), &scored, config);
            prop_assert!(context.contains(&found.text));
        }
    }
}
