//! Entities in sentences of words.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::{Baseline, Predictions, Table, Targets, html, mean, unpredicted};
use crate::entities::{EntityCounts, Span};
use crate::figures::{Figures, shown};
use crate::scores::{Average, Counts, ZeroDivision};

/// Words of a sentence shown on the page.
const WORDS: usize = 250;

/// Sentences with their gold and predicted entities.
#[derive(Clone, Debug, Default)]
pub struct EntityPredictions {
    /// The sentences.
    pub examples: Vec<EntityExample>,
    /// Whether each word is a span labelled with its class, such as a part of speech; the main figure is then
    /// the share of words classified correctly.
    pub of_words: bool,
}

/// A sentence of [`EntityPredictions`].
#[derive(Clone, Debug, PartialEq)]
pub struct EntityExample {
    /// Its name, such as its file and line.
    pub id: String,
    /// Its words.
    pub words: Vec<String>,
    /// The gold entities. Entities beyond the words are counted but not shown.
    pub gold: Vec<Span>,
    /// The predicted entities.
    pub predicted: Vec<Span>,
    /// Its loss: the mean over its words or the sentence's, depending on the training objective.
    pub loss: f64,
}

impl EntityPredictions {
    /// Counts of gold, predicted and correct entities by type.
    pub fn counts(&self) -> EntityCounts {
        let mut counts = EntityCounts::default();
        self.examples.iter().for_each(|example| counts.add(&example.gold, &example.predicted));
        counts
    }

    /// What one class for every word scores; `of` tells where it is the most frequent.
    fn one_for_all(&self, counts: &EntityCounts, class: &str, of: &str) -> Option<Baseline> {
        let all = counts.total().gold;
        let right = counts.types().find(|(label, _)| *label == class).map_or(0, |(_, of)| of.gold);
        (all > 0).then(|| Baseline {
            rule: format!("the most frequent class of {of}, `{class}`, for every word"),
            figures: Figures::new(self.len(), [("accuracy", right as f64 / all as f64)]),
        })
    }
}

const SCORES: [&str; 7] = ["type", "precision", "recall", "f1", "gold", "predicted", "correct"];

/// Each type's scores, then those of all types.
fn types(counts: &EntityCounts) -> Vec<Vec<String>> {
    let row = |label: &str, counts: Counts| {
        let scores = counts.scores(ZeroDivision::Zero);
        let shares = [scores.precision, scores.recall, scores.f1].map(shown);
        let counts = [counts.gold, counts.predicted, counts.correct].map(|count| count.to_string());
        [label.to_string()].into_iter().chain(shares).chain(counts).collect()
    };
    let mut rows: Vec<Vec<String>> = counts.types().map(|(label, counts)| row(label, counts)).collect();
    rows.push(row("(all)", counts.total()));
    rows
}

/// An entity's words; empty if it is not within the sentence.
fn words<'a>(example: &'a EntityExample, span: &Span) -> &'a [String] {
    example.words.get(span.start..span.end).unwrap_or_default()
}

impl Predictions for EntityPredictions {
    fn len(&self) -> usize {
        self.examples.len()
    }

    /// `f1`, `precision` and `recall` over all entities, then `f1_macro`, `f1_weighted`, `loss`. For word
    /// classes, `accuracy` replaces the first three, which all equal it.
    fn figures(&self) -> Figures {
        let counts = self.counts();
        let average = |average| counts.average(average, ZeroDivision::Zero);
        let all = average(Average::Micro);
        let of_all: &[(&str, f64)] = match self.of_words {
            true => &[("accuracy", all.recall)],
            false => &[("f1", all.f1), ("precision", all.precision), ("recall", all.recall)],
        };
        let others = [
            ("f1_macro", average(Average::Macro).f1),
            ("f1_weighted", average(Average::Weighted).f1),
            ("loss", mean(self.examples.iter().map(|example| example.loss))),
        ];
        Figures::new(self.len(), of_all.iter().copied().chain(others))
    }

    /// For word classes, the most frequent one for every word. For entities, none: most words are in no entity.
    fn baseline(&self) -> Option<Baseline> {
        let counts = self.counts();
        if !self.of_words {
            return (counts.total().gold > 0).then(|| Baseline {
                rule: "no entity in any sentence".into(),
                figures: Figures::new(self.len(), ["f1", "precision", "recall"].map(|name| (name, 0.0))),
            });
        }
        let of_types = counts.types().map(|(label, of)| (label.to_owned(), of.gold)).collect();
        let most = Targets::Classes(of_types);
        self.one_for_all(&counts, most.most_frequent()?, "these words")
    }

    fn baseline_of(&self, training: &Targets) -> Option<Baseline> {
        match self.of_words {
            true => self.one_for_all(&self.counts(), training.most_frequent()?, "the training data"),
            false => self.baseline(),
        }
    }

    fn warning(&self) -> Option<String> {
        let counts = self.counts();
        let all = counts.total();
        let none = (all.predicted == 0 && all.gold > 0).then(|| {
            format!(
                "no entity was found, of {}; train for more epochs, at another learning rate, or on more sentences",
                all.gold
            )
        });
        let what = if self.of_words { "classes of words" } else { "kinds of entities" };
        none.or_else(|| unpredicted::warning(what, counts.types()))
    }

    fn set_names(&mut self, names: &[String]) {
        html::set_names(self.examples.iter_mut().map(|example| &mut example.id), names);
    }

    fn is_error(&self, example: usize) -> bool {
        let EntityExample { gold, predicted, .. } = &self.examples[example];
        let within = |these: &[Span], those: &[Span]| these.iter().all(|span| those.contains(span));
        !within(gold, predicted) || !within(predicted, gold)
    }

    fn loss(&self, example: usize) -> f64 {
        self.examples[example].loss
    }

    fn columns(&self) -> Vec<String> {
        let columns = ["id", "text", "gold", "predicted", "correct", "loss", "gold_spans", "predicted_spans"];
        columns.map(String::from).to_vec()
    }

    fn row(&self, index: usize) -> Vec<Value> {
        let example = &self.examples[index];
        let readable = |spans: &[Span]| {
            let entity = |span: &Span| format!("{} ({})", words(example, span).join(" "), span.label);
            spans.iter().map(entity).collect::<Vec<_>>().join("; ")
        };
        vec![
            example.id.as_str().into(),
            example.words.join(" ").into(),
            readable(&example.gold).into(),
            readable(&example.predicted).into(),
            (!self.is_error(index)).into(),
            example.loss.into(),
            json!(example.gold),
            json!(example.predicted),
        ]
    }

    fn tables(&self) -> Vec<Table> {
        let mut rows = vec![SCORES.map(String::from).to_vec()];
        rows.extend(types(&self.counts()));
        vec![Table { file: "types.tsv", rows }]
    }

    fn breakdown(&self) -> Markup {
        html! {
            section {
                h2 { "Types" }
                (html::numbers(&SCORES, &types(&self.counts())))
                p.note {
                    "In the texts below: " mark { "right" } " " mark.missed { "missed" } " " mark.wrong { "wrong" }
                }
            }
        }
    }

    fn show(&self, index: usize) -> Markup {
        let example = &self.examples[index];
        html! {
            (html::name(&example.id))
            @if self.is_error(index) {
                div.line { span { "gold" } (marked(example, &example.gold, &example.predicted, "missed")) }
                div.line { span { "predicted" } (marked(example, &example.predicted, &example.gold, "wrong")) }
            } @else {
                (marked(example, &example.gold, &example.predicted, "missed"))
            }
        }
    }
}

/// The sentence with `spans` marked; those missing from `others` are marked as `otherwise`. Of overlapping
/// spans the first is marked.
fn marked(example: &EntityExample, spans: &[Span], others: &[Span], otherwise: &str) -> Markup {
    let words = &example.words[..example.words.len().min(WORDS)];
    let mut spans: Vec<&Span> = spans.iter().collect();
    spans.sort_by_key(|span| (span.start, span.end));
    let mut parts: Vec<(&[String], Option<&Span>)> = Vec::new();
    let mut done = 0;
    for span in spans {
        if span.start >= done && span.start < span.end && span.end <= words.len() {
            parts.push((&words[done..span.start], None));
            parts.push((&words[span.start..span.end], Some(span)));
            done = span.end;
        }
    }
    parts.push((&words[done..], None));
    html! {
        p.text dir="auto" {
            @for (words, span) in parts {
                @if let Some(span) = span {
                    mark class=[(!others.contains(span)).then_some(otherwise)] {
                        (words.join(" ")) small { (span.label) }
                    }
                    " "
                } @else if !words.is_empty() {
                    (words.join(" ")) " "
                }
            }
            @if words.len() < example.words.len() { "… (" (example.words.len()) " words)" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(label: &str, start: usize, end: usize) -> Span {
        Span { label: label.into(), start, end }
    }

    fn example(gold: Vec<Span>, predicted: Vec<Span>) -> EntityExample {
        let words = ["Angela", "Merkel", "met", "<b>", "in", "Berlin"].map(String::from).to_vec();
        EntityExample { id: "s".into(), words, gold, predicted, loss: 1.0 }
    }

    #[test]
    fn entities_are_marked_as_right_missed_and_wrong() {
        let per = span("PER", 0, 2);
        let predictions = EntityPredictions {
            examples: vec![example(
                vec![per.clone(), span("LOC", 5, 6)],
                vec![per.clone(), span("<i>", 3, 4)],
            )],
            of_words: false,
        };
        let html = predictions.show(0).into_string();
        assert!(html.contains(r#"<mark>Angela Merkel<small>PER</small></mark>"#), "{html}");
        assert!(html.contains(r#"<mark class="missed">Berlin<small>LOC</small></mark>"#), "{html}");
        assert!(html.contains(r#"<mark class="wrong">&lt;b&gt;<small>&lt;i&gt;</small></mark>"#), "{html}");
        assert_eq!(predictions.row(0)[2], "Angela Merkel (PER); Berlin (LOC)");
        let types: Vec<String> = predictions.tables()[0].rows.iter().map(|row| row.join(" ")).collect();
        let expected = [
            "type precision recall f1 gold predicted correct",
            "<i> 0.0000 0.0000 0.0000 0 1 0",
            "LOC 0.0000 0.0000 0.0000 1 0 0",
            "PER 1.0000 1.0000 1.0000 1 1 1",
            "(all) 0.5000 0.5000 0.5000 2 2 1",
        ];
        assert_eq!(types, expected);
    }

    #[test]
    fn bounds_that_are_not_there_are_not_shown() {
        let strange =
            vec![span("A", 4, 9), span("B", 2, 2), span("C", 3, 1), span("D", 0, 3), span("E", 2, 4)];
        let predictions = EntityPredictions { examples: vec![example(strange, vec![])], of_words: false };
        assert_eq!(predictions.show(0).into_string().matches("<mark").count(), 1);
        assert_eq!(predictions.row(0)[2], " (A);  (B);  (C); Angela Merkel met (D); met <b> (E)");
    }

    #[test]
    fn order_and_repetition_are_no_errors() {
        let (a, b) = (span("A", 0, 1), span("B", 1, 2));
        let examples = vec![example(vec![a.clone(), b.clone()], vec![b, a.clone(), a])];
        let predictions = EntityPredictions { examples, of_words: false };
        assert!(!predictions.is_error(0));
        assert_eq!(predictions.figures().main(), ("f1", 1.0));
    }

    #[test]
    fn classes_of_words_have_an_accuracy() {
        let gold = vec![span("NOUN", 0, 1), span("VERB", 1, 2), span("NOUN", 2, 3), span("ADP", 3, 4)];
        let predicted = vec![span("NOUN", 0, 1), span("NOUN", 1, 2), span("NOUN", 2, 3), span("ADP", 3, 4)];
        let predictions = EntityPredictions { examples: vec![example(gold, predicted)], of_words: true };
        let figures = predictions.figures();
        assert_eq!(figures.main(), ("accuracy", 0.75));
        assert!(figures.get("f1").is_none() && figures.get("f1_macro").is_some());
    }
}
