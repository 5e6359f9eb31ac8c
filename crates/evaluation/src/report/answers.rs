//! Extractive question answering, scored as in SQuAD.

use std::ops::Range;

use maud::{Markup, html};
use serde_json::Value;

use super::{Baseline, Predictions, Table, html, mean};
use crate::figures::{Figures, shown};
use crate::squad::{self, Answered};

/// Bytes of a context shown around the answers.
const AROUND: usize = 400;

/// Question words by which questions are grouped.
const QUESTION_WORDS: [&str; 8] = ["what", "who", "when", "where", "which", "why", "how many", "how"];

/// How answers are scored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SquadVersion {
    /// SQuAD 1.1: each question has an answer.
    One,
    /// SQuAD 2.0: some questions have none.
    Two {
        /// The null score above which no answer is given.
        threshold: f64,
    },
}

/// Questions with their gold and predicted answers.
#[derive(Clone, Debug)]
pub struct AnswerPredictions {
    /// How they are scored.
    pub version: SquadVersion,
    /// The questions.
    pub examples: Vec<AnswerExample>,
}

/// An answer, and where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// Its bytes in the context, to mark them.
    pub range: Option<Range<usize>>,
}

/// A question of [`AnswerPredictions`].
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerExample {
    /// Its name.
    pub id: String,
    /// The question.
    pub question: String,
    /// The text with the answer.
    pub context: String,
    /// The gold answers' texts; empty for an unanswerable question.
    pub golds: Vec<String>,
    /// The range of one of them, to mark it.
    pub gold_range: Option<Range<usize>>,
    /// The best non-null answer, regardless of the threshold; an empty text if there is none.
    pub predicted: Answer,
    /// The model's confidence in it.
    pub score: f64,
    /// The null score minus the best answer's; ignored in SQuAD 1.1.
    pub null_score: f64,
    /// The loss in nats.
    pub loss: f64,
}

impl AnswerExample {
    fn answered(&self) -> Answered<'_> {
        Answered { golds: &self.golds, predicted: &self.predicted.text, null_score: self.null_score }
    }
}

impl AnswerPredictions {
    /// The answer given; empty if the null score is above the threshold.
    fn given(&self, example: usize) -> &Answer {
        const NONE: &Answer = &Answer { text: String::new(), range: None };
        let example = &self.examples[example];
        match self.version {
            SquadVersion::Two { threshold } if example.null_score > threshold => NONE,
            _ => &example.predicted,
        }
    }

    /// Exact match and F1 of the answer given.
    fn score(&self, example: usize) -> (f64, f64) {
        let answered = Answered { predicted: &self.given(example).text, ..self.examples[example].answered() };
        match self.version {
            SquadVersion::One => squad::score_v1(&answered),
            SquadVersion::Two { .. } => squad::score_v2(&answered),
        }
    }

    /// Number of questions, exact match and F1, by the first known question word.
    fn kinds(&self) -> Vec<Vec<String>> {
        let kind = |example: usize| {
            let question = self.examples[example].question.to_lowercase();
            let words: Vec<&str> = question.split(|c: char| !c.is_alphanumeric()).collect();
            let question = format!(" {} ", words.join(" "));
            // The first in the question; "how many" before "how".
            let at = |word: &&str| question.find(&format!(" {word} "));
            QUESTION_WORDS.into_iter().filter(|word| at(word).is_some()).min_by_key(at).unwrap_or("other")
        };
        let kinds: Vec<&str> = (0..self.len()).map(kind).collect();
        let row = |name: &str, keep: &dyn Fn(&str) -> bool| {
            let scores: Vec<(f64, f64)> =
                (0..self.len()).filter(|i| keep(kinds[*i])).map(|i| self.score(i)).collect();
            let (exact, f1) = (mean(scores.iter().map(|s| s.0)), mean(scores.iter().map(|s| s.1)));
            vec![name.to_string(), shown(exact), shown(f1), scores.len().to_string()]
        };
        let names = QUESTION_WORDS.into_iter().chain(["other"]).filter(|name| kinds.contains(name));
        let mut rows: Vec<Vec<String>> = names.map(|name| row(name, &|kind| kind == name)).collect();
        rows.push(row("(all)", &|_| true));
        rows
    }
}

const SCORES: [&str; 4] = ["question", "exact", "f1", "questions"];

impl Predictions for AnswerPredictions {
    fn len(&self) -> usize {
        self.examples.len()
    }

    /// `f1`, `exact`; in SQuAD 2.0 also those of questions with (`HasAns`) and without an answer (`NoAns`)
    /// and the best over all thresholds, named as in the script; `loss`.
    fn figures(&self) -> Figures {
        let questions: Vec<Answered<'_>> = self.examples.iter().map(AnswerExample::answered).collect();
        let mut figures = Vec::new();
        match self.version {
            SquadVersion::One => {
                let all = squad::evaluate_v1(&questions);
                figures.extend([("f1", all.f1), ("exact", all.exact)]);
            }
            SquadVersion::Two { threshold } => {
                let squad = squad::evaluate_v2(&questions, threshold);
                figures.extend([
                    ("f1", squad.all.f1),
                    ("exact", squad.all.exact),
                    ("HasAns_f1", squad.has_answer.f1),
                    ("HasAns_exact", squad.has_answer.exact),
                    ("NoAns_f1", squad.no_answer.f1),
                    ("NoAns_exact", squad.no_answer.exact),
                    ("best_f1", squad.best_f1.score),
                    ("best_f1_thresh", squad.best_f1.threshold),
                    ("best_exact", squad.best_exact.score),
                    ("best_exact_thresh", squad.best_exact.threshold),
                ]);
            }
        }
        figures.push(("loss", mean(self.examples.iter().map(|example| example.loss))));
        Figures::new(self.len(), figures)
    }

    /// In SQuAD 2.0, no answer to any question.
    fn baseline(&self) -> Option<Baseline> {
        let right = self.examples.iter().map(|example| f64::from(u8::from(example.golds.is_empty())));
        let share = mean(right);
        (self.version != SquadVersion::One && !self.is_empty()).then(|| Baseline {
            rule: "no answer to any question".into(),
            figures: Figures::new(self.len(), [("f1", share), ("exact", share)]),
        })
    }

    /// A question without an id of the user's has its number for one.
    fn named_by(&self) -> &'static str {
        "id"
    }

    fn is_error(&self, example: usize) -> bool {
        self.score(example).0 == 0.0
    }

    fn loss(&self, example: usize) -> f64 {
        self.examples[example].loss
    }

    fn columns(&self) -> Vec<String> {
        let columns = [
            "id",
            "question",
            "gold",
            "predicted",
            "exact",
            "f1",
            "best_answer",
            "score",
            "null_score",
            "loss",
            "context",
        ];
        columns.map(String::from).to_vec()
    }

    fn row(&self, index: usize) -> Vec<Value> {
        let example = &self.examples[index];
        let (exact, f1) = self.score(index);
        vec![
            example.id.as_str().into(),
            example.question.as_str().into(),
            example.golds.clone().into(),
            self.given(index).text.as_str().into(),
            exact.into(),
            f1.into(),
            example.predicted.text.as_str().into(),
            example.score.into(),
            example.null_score.into(),
            example.loss.into(),
            example.context.as_str().into(),
        ]
    }

    fn tables(&self) -> Vec<Table> {
        let mut rows = vec![SCORES.map(String::from).to_vec()];
        rows.extend(self.kinds());
        vec![Table { file: "questions.tsv", rows }]
    }

    fn breakdown(&self) -> Markup {
        html! {
            section {
                h2 { "Kinds of questions" }
                (html::numbers(&SCORES, &self.kinds()))
                p.note {
                    "In the contexts below: " mark { "gold and predicted" } " " mark.missed { "gold alone" } " "
                    mark.wrong { "predicted alone" }
                }
            }
        }
    }

    fn show(&self, index: usize) -> Markup {
        let example = &self.examples[index];
        let wrong = self.is_error(index);
        let given = self.given(index);
        let golds = match example.golds.is_empty() {
            true => "no answer".into(),
            false => example.golds.join(" / "),
        };
        html! {
            p.id dir="auto" { (example.id) }
            p.text.question dir="auto" { (html::clipped(&example.question)) }
            p.verdict {
                span { "gold " b.label dir="auto" { (html::clipped(&golds)) } }
                span {
                    "predicted "
                    b.label.wrong[wrong] dir="auto" {
                        @if given.text.is_empty() { "no answer" } @else { (html::clipped(&given.text)) }
                    }
                }
                span { "F1 " b { (shown(self.score(index).1)) } }
                @if self.version != SquadVersion::One { span { "null score " b { (shown(example.null_score)) } } }
            }
            (marked(&example.context, example.gold_range.as_ref(), given.range.as_ref()))
        }
    }
}

/// The context around both answers, each marked. An invalid range is not marked.
fn marked(context: &str, gold: Option<&Range<usize>>, predicted: Option<&Range<usize>>) -> Markup {
    let within =
        |range: Option<&Range<usize>>| range.filter(|r| context.get((*r).clone()).is_some()).cloned();
    let (gold, predicted) = (within(gold), within(predicted));
    let both = || gold.iter().chain(&predicted);
    let start = both().map(|range| range.start).min().unwrap_or(0).saturating_sub(AROUND);
    let end = both().map(|range| range.end).max().unwrap_or(0).saturating_add(AROUND).min(context.len());
    let (start, end) = (context.floor_char_boundary(start), context.ceil_char_boundary(end));
    let mut bounds = vec![start, end];
    bounds.extend(both().flat_map(|range| [range.start, range.end]));
    bounds.sort_unstable();
    let covers =
        |range: &Option<Range<usize>>, at: usize| range.as_ref().is_some_and(|range| range.contains(&at));
    html! {
        p.text dir="auto" {
            @if start > 0 { "… " }
            @for bound in bounds.windows(2).filter(|bound| bound[0] < bound[1]) {
                @let part = &context[bound[0]..bound[1]];
                @match (covers(&gold, bound[0]), covers(&predicted, bound[0])) {
                    (true, true) => { mark { (part) } }
                    (true, false) => { mark.missed { (part) } }
                    (false, true) => { mark.wrong { (part) } }
                    (false, false) => { (part) }
                }
            }
            @if end < context.len() { " …" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(question: &str, golds: &[&str], predicted: &str, null_score: f64) -> AnswerExample {
        AnswerExample {
            id: "q".into(),
            question: question.into(),
            context: "The <b>Seine</b> flows through Paris.".into(),
            golds: golds.iter().map(ToString::to_string).collect(),
            gold_range: None,
            predicted: Answer { text: predicted.into(), range: None },
            score: 0.5,
            null_score,
            loss: 1.0,
        }
    }

    #[test]
    fn above_the_threshold_no_answer_is_given() {
        let examples = vec![
            example("Where does it flow?", &["Paris"], "Paris", 1.0),
            example("In how many cities?", &[], "Paris", 1.0),
            example("How?", &[], "Paris", -1.0),
            example("Pourquoi ?", &["Paris"], "through Paris", -1.0),
        ];
        let two = AnswerPredictions { version: SquadVersion::Two { threshold: 0.0 }, examples };
        assert_eq!((0..4).map(|i| two.is_error(i)).collect::<Vec<_>>(), [true, false, true, true]);
        assert_eq!(two.figures().get("NoAns_exact"), Some(0.5));
        // A question's id is no line, even if it is a number.
        let mut numbered = example("Who?", &["Paris"], "Paris", 0.0);
        numbered.id = "17".into();
        let shown =
            AnswerPredictions { version: SquadVersion::One, examples: vec![numbered] }.show(0).into_string();
        assert!(shown.contains(">17<") && !shown.contains("line 17"), "{shown}");
        assert_eq!(two.row(0)[3], "");
        assert_eq!(two.row(0)[6], "Paris");
        let kinds: Vec<String> = two.kinds().iter().map(|row| row.join(" ")).collect();
        let expected = [
            "where 0.0000 0.0000 1",
            "how many 1.0000 1.0000 1",
            "how 0.0000 0.0000 1",
            "other 0.0000 0.6667 1",
        ];
        assert_eq!(kinds[..4], expected);

        let one = AnswerPredictions { version: SquadVersion::One, examples: two.examples[..1].to_vec() };
        assert_eq!(one.figures().main(), ("f1", 1.0));
        assert_eq!(one.figures().get("NoAns_exact"), None);
    }

    #[test]
    fn answers_are_marked_where_they_overlap_and_where_not() {
        let context = "Der Füßer <i> über";
        let html = |gold: Option<Range<usize>>, predicted: Option<Range<usize>>| {
            marked(context, gold.as_ref(), predicted.as_ref()).into_string()
        };
        assert_eq!(
            html(Some(0..11), Some(4..15)),
            "<p class=\"text\" dir=\"auto\"><mark class=\"missed\">Der </mark><mark>Füßer</mark>\
             <mark class=\"wrong\"> &lt;i&gt;</mark> über</p>"
        );
        let plain = "<p class=\"text\" dir=\"auto\">Der Füßer &lt;i&gt; über</p>";
        // Within a character, beyond the end, backwards.
        #[allow(clippy::reversed_empty_ranges, reason = "as a broken file may have it")]
        for range in [6..7, 0..99, 99..100, 5..2] {
            assert_eq!(html(Some(range), None), plain);
        }
    }

    #[test]
    fn long_contexts_are_cut_around_the_answers() {
        let context = "é".repeat(3_000);
        let html = marked(&context, Some(&(2_000..2_002)), None).into_string();
        assert_eq!(html.chars().filter(|c| *c == 'é').count(), 1 + 2 * AROUND / 2);
        assert!(html.contains("… é") && html.contains("é …"));
    }
}
