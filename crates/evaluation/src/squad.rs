//! Exact match and token F1 of answers, as in SQuAD's official scripts (Rajpurkar et al. 2016,
//! section 6.1; Rajpurkar et al. 2018, section 5).

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

/// A question with its gold answers and the predicted one.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// The gold answers; empty for an unanswerable question.
    pub golds: &'a [String],
    /// The predicted answer; empty for none.
    pub predicted: &'a str,
    /// The model's confidence that there is no answer: the null score minus that of `predicted`, or a
    /// probability.
    pub null_score: f64,
}

/// Shares of the questions, from 0 to 1; NaN without questions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Match {
    /// Questions answered exactly.
    pub exact: f64,
    /// The mean F1 of the answers' tokens.
    pub f1: f64,
    /// Questions.
    pub total: usize,
}

/// A share reached, and the threshold of the null score above which no answer is given to reach it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The share, from 0 to 1.
    pub score: f64,
    /// The threshold.
    pub threshold: f64,
}

/// The results of the SQuAD 2.0 script.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Squad2 {
    /// All questions.
    pub all: Match,
    /// Answerable questions.
    pub has_answer: Match,
    /// Unanswerable questions.
    pub no_answer: Match,
    /// The best share of exact answers over all thresholds. With tied null scores it may be
    /// unreachable: as in the script, questions are considered one by one.
    pub best_exact: Best,
    /// The best F1 over all thresholds.
    pub best_f1: Best,
}

/// The figures of SQuAD 1.1, where each question has answers; one without counts as wrong.
pub fn evaluate_v1(questions: &[Answered<'_>]) -> Match {
    let best = |question: &Answered<'_>, metric: fn(&str, &str) -> f64| -> f64 {
        question.golds.iter().map(|gold| metric(gold, question.predicted)).fold(0.0, f64::max)
    };
    mean(questions.iter().map(|question| (best(question, exact_match), best(question, token_f1_v1))))
}

/// The figures of SQuAD 2.0, where a prediction whose null score is above `threshold` counts as none.
pub fn evaluate_v2(questions: &[Answered<'_>], threshold: f64) -> Squad2 {
    let scored: Vec<Scored> = questions.iter().map(Scored::new).collect();
    let of = |keep: fn(&Scored) -> bool| {
        mean(scored.iter().filter(|scored| keep(scored)).map(|scored| scored.at(threshold)))
    };
    Squad2 {
        all: of(|_| true),
        has_answer: of(|scored| scored.has_answer),
        no_answer: of(|scored| !scored.has_answer),
        best_exact: best(&scored, |scored| scored.exact),
        best_f1: best(&scored, |scored| scored.f1),
    }
}

/// The exact match and the token F1 of one question in SQuAD 2.0, without a threshold.
pub fn score_v2(question: &Answered<'_>) -> (f64, f64) {
    let scored = Scored::new(question);
    (scored.exact, scored.f1)
}

/// The exact match and the token F1 of one question in SQuAD 1.1.
pub fn score_v1(question: &Answered<'_>) -> (f64, f64) {
    let Match { exact, f1, .. } = evaluate_v1(std::slice::from_ref(question));
    (exact, f1)
}

/// 1 if both answers are equal after [`normalize`], else 0.
pub fn exact_match(gold: &str, predicted: &str) -> f64 {
    f64::from(u8::from(normalize(gold) == normalize(predicted)))
}

/// The F1 of the [`normalize`]d answers' tokens; if either has none, 1 if both have none, else 0 (SQuAD 2.0).
pub fn token_f1(gold: &str, predicted: &str) -> f64 {
    let (gold, predicted) = (normalize(gold), normalize(predicted));
    if gold.is_empty() || predicted.is_empty() {
        return f64::from(u8::from(gold == predicted));
    }
    overlap(&gold, &predicted)
}

/// As [`token_f1`], but 0 if an answer has no tokens (SQuAD 1.1).
fn token_f1_v1(gold: &str, predicted: &str) -> f64 {
    overlap(&normalize(gold), &normalize(predicted))
}

/// The F1 of the tokens of two normalized answers.
fn overlap(gold: &str, predicted: &str) -> f64 {
    let mut left: HashMap<&str, usize> = HashMap::new();
    for token in gold.split_terminator(' ') {
        *left.entry(token).or_default() += 1;
    }
    let mut common = 0;
    for token in predicted.split_terminator(' ') {
        if let Some(count) = left.get_mut(token).filter(|count| **count > 0) {
            *count -= 1;
            common += 1;
        }
    }
    if common == 0 {
        return 0.0;
    }
    let precision = f64::from(common) / predicted.split_terminator(' ').count() as f64;
    let recall = f64::from(common) / gold.split_terminator(' ').count() as f64;
    2.0 * precision * recall / (precision + recall)
}

/// A word in the sense of Python's `\w`: letters and numbers, but neither combining marks nor circled
/// letters.
static WORD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[\p{L}\p{N}_]+").expect("the pattern is one that a test compiles"));

/// The answer in lower case without ASCII punctuation and English articles, with single spaces
/// between words.
///
/// Characters are classed as in Python: combining marks are not part of words, so an article before one
/// counts as an article; the four separators U+001C to U+001F are white space.
///
/// ```
/// # use cloze_evaluation::squad::normalize;
/// assert_eq!(normalize("The  Eiffel-Tower, a landmark."), "eiffeltower landmark");
/// ```
pub fn normalize(answer: &str) -> String {
    let lower = answer.to_lowercase();
    let bare: String = lower.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let mut kept = String::with_capacity(bare.len());
    let mut end = 0;
    for word in WORD.find_iter(&bare).filter(|word| matches!(word.as_str(), "a" | "an" | "the")) {
        kept += &bare[end..word.start()];
        kept.push(' ');
        end = word.end();
    }
    kept += &bare[end..];
    let words: Vec<&str> = kept.split(is_space).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// White space as in Python's `str.isspace`.
fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

/// A question's scores, as if its prediction were always given.
struct Scored {
    has_answer: bool,
    predicts: bool,
    null_score: f64,
    exact: f64,
    f1: f64,
}

impl Scored {
    fn new(question: &Answered<'_>) -> Self {
        let golds = question.golds.iter().map(String::as_str).filter(|gold| !normalize(gold).is_empty());
        let mut golds: Vec<&str> = golds.collect();
        if golds.is_empty() {
            golds.push("");
        }
        let best = |metric: fn(&str, &str) -> f64| {
            golds.iter().map(|gold| metric(gold, question.predicted)).fold(0.0, f64::max)
        };
        Self {
            has_answer: !question.golds.is_empty(),
            predicts: !question.predicted.is_empty(),
            null_score: question.null_score,
            exact: best(exact_match),
            f1: best(token_f1),
        }
    }

    fn at(&self, threshold: f64) -> (f64, f64) {
        if self.null_score > threshold {
            let right = f64::from(u8::from(!self.has_answer));
            (right, right)
        } else {
            (self.exact, self.f1)
        }
    }
}

/// The means of exact matches and F1s.
fn mean(scores: impl Iterator<Item = (f64, f64)>) -> Match {
    let (exact, f1, total) =
        scores.fold((0.0, 0.0, 0), |(exact, f1, n), score| (exact + score.0, f1 + score.1, n + 1));
    Match { exact: exact / total as f64, f1: f1 / total as f64, total }
}

/// `find_best_thresh` of the script: answers are given in order of confidence to maximise the sum.
fn best(scored: &[Scored], score: fn(&Scored) -> f64) -> Best {
    let mut order: Vec<&Scored> = scored.iter().collect();
    // Not total_cmp: Python's order keeps 0 and -0 as they come.
    order.sort_by(|a, b| {
        a.null_score.partial_cmp(&b.null_score).unwrap_or_else(|| a.null_score.total_cmp(&b.null_score))
    });
    let mut sum = scored.iter().filter(|scored| !scored.has_answer).count() as f64;
    let mut best = Best { score: sum, threshold: 0.0 };
    for scored in order {
        sum += match (scored.has_answer, scored.predicts) {
            (true, _) => score(scored),
            (false, true) => -1.0,
            (false, false) => 0.0,
        };
        if sum > best.score {
            best = Best { score: sum, threshold: scored.null_score };
        }
    }
    Best { score: best.score / scored.len() as f64, ..best }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_versions_differ_in_answers_of_articles_alone() {
        let golds = ["The".to_string()];
        let question = Answered { golds: &golds, predicted: "the", null_score: 0.0 };
        assert_eq!(score_v1(&question), (1.0, 0.0));
        assert_eq!(score_v2(&question), (1.0, 1.0));
    }

    #[test]
    fn no_questions_have_no_figures() {
        assert!(evaluate_v1(&[]).exact.is_nan());
        let none = evaluate_v2(&[], 0.0);
        assert!(none.all.f1.is_nan() && none.best_f1.score.is_nan());
    }

    #[test]
    fn null_scores_that_are_nan_do_no_harm() {
        let golds = ["x".to_string()];
        let question = |null_score| Answered { golds: &golds, predicted: "x", null_score };
        let figures =
            evaluate_v2(&[question(f64::NAN), question(1.0), question(f64::NAN), question(-1.0)], 0.0);
        assert_eq!(figures.all.exact, 0.75);
        assert_eq!(figures.best_exact.score, 1.0);
    }
}
