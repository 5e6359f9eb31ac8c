//! Translations: sources with their references and a model's translations.

use maud::{Markup, html};
use serde_json::Value;

use super::{Baseline, Predictions, Selection, Table, html, words};
use crate::figures::Figures;
use crate::translation::{Bleu, Chrf, Corpus, Metric};

/// Translations among the best ones, and among the random ones, on the page.
const SHOWN: usize = 10;

/// Translations of a split, scored by BLEU together and by chrF one by one.
#[derive(Clone, Debug)]
pub struct TranslationPredictions {
    examples: Vec<TranslationExample>,
    /// chrF of each translation, from 0 to 100.
    scores: Vec<f64>,
    seed: u64,
}

/// A sentence of [`TranslationPredictions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslationExample {
    /// Its name, such as its line.
    pub id: String,
    /// The source.
    pub source: String,
    /// The reference translation.
    pub reference: String,
    /// The model's translation.
    pub translation: String,
}

impl TranslationPredictions {
    /// Scores translations. The seed decides which are shown at random.
    pub fn new(examples: Vec<TranslationExample>, seed: u64) -> Self {
        let score = |example: &TranslationExample| {
            let metric = Chrf::default();
            let mut statistics = Vec::with_capacity(metric.width());
            metric.statistics(&example.translation, &[&example.reference], &mut statistics);
            metric.value::<f64>(&statistics)
        };
        let scores = examples.iter().map(score).collect();
        Self { examples, scores, seed }
    }

    /// The translations.
    pub fn examples(&self) -> &[TranslationExample] {
        &self.examples
    }

    /// BLEU of these texts against the references; NaN without any.
    fn bleu(&self, text: impl Fn(&TranslationExample) -> &str) -> f64 {
        let texts: Vec<&str> = self.examples.iter().map(text).collect();
        let references: Vec<&str> = self.examples.iter().map(|example| &*example.reference).collect();
        let metric = Bleu::default();
        Corpus::of(&metric, &texts, &[references])
            .and_then(|corpus| corpus.score(&metric))
            .map_or(f64::NAN, |score| score.value)
    }
}

impl Predictions for TranslationPredictions {
    fn len(&self) -> usize {
        self.examples.len()
    }

    /// `bleu`, as sacreBLEU computes it by default, and `chrf`, the mean of the sentences' chrF; both from 0 to
    /// 100.
    fn figures(&self) -> Figures {
        let bleu = self.bleu(|example| &example.translation);
        Figures::new(self.len(), [("bleu", bleu), ("chrf", super::mean(self.scores.iter().copied()))])
    }

    /// The sources as they are.
    fn baseline(&self) -> Option<Baseline> {
        let bleu = self.bleu(|example| &example.source);
        bleu.is_finite().then(|| Baseline {
            rule: "the source left untranslated".into(),
            figures: Figures::new(self.len(), [("bleu", bleu)]),
        })
    }

    /// Whether a translation differs from its reference; it may be right nevertheless.
    fn is_error(&self, example: usize) -> bool {
        let example = &self.examples[example];
        example.translation != example.reference
    }

    /// 100 minus chrF.
    fn loss(&self, example: usize) -> f64 {
        100.0 - self.scores[example]
    }

    fn columns(&self) -> Vec<String> {
        ["id", "source", "reference", "translation", "chrf"].map(String::from).to_vec()
    }

    fn row(&self, index: usize) -> Vec<Value> {
        let TranslationExample { id, source, reference, translation } = &self.examples[index];
        let texts = [id, source, reference, translation].map(|text| Value::from(text.as_str()));
        texts.into_iter().chain([self.scores[index].into()]).collect()
    }

    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }

    fn breakdown(&self) -> Markup {
        html! {
            section {
                h2 { "Sentences" }
                p.note {
                    "Each sentence with its chrF, from 0 to 100. In the texts: " mark.missed { "only in the reference" } " "
                    mark.wrong { "only in the translation" } ". What differs may be right nevertheless."
                }
            }
        }
    }

    fn show(&self, index: usize) -> Markup {
        let TranslationExample { id, source, reference, translation } = &self.examples[index];
        let [reference, translation] = [reference, translation].map(|text| html::clipped(text));
        let [reference, translated] = words::compared(&reference, &translation);
        html! {
            (html::name(id))
            div.line { span { "source" } p.text dir="auto" { (html::clipped(source)) } }
            div.line { span { "reference" } p.text dir="auto" { (reference) } }
            div.line { span { "translation" } p.text dir="auto" { (translated) } }
        }
    }

    fn corner(&self, example: usize) -> String {
        format!("chrF {:.1}", self.scores[example])
    }

    fn is_judged(&self) -> bool {
        false
    }

    /// The best, the worst, and some at random.
    fn selections(&self, worst: &[usize]) -> Vec<Selection> {
        let mut best: Vec<usize> = (0..self.len()).collect();
        best.sort_by(|a, b| self.scores[*b].total_cmp(&self.scores[*a]));
        best.truncate(SHOWN);
        let drawn = html::drawn(self.len(), SHOWN, self.seed);
        let of_all = |count: usize, how: &str| format!("{count} of {} sentences, {how}.", self.len());
        let selection =
            |title: &str, note, examples, ranked| Selection { title: title.into(), note, examples, ranked };
        vec![
            selection("Best translations", of_all(best.len(), "by their chrF"), best, true),
            selection("Worst translations", of_all(worst.len(), "by their chrF"), worst.to_vec(), true),
            selection("Random translations", of_all(drawn.len(), "drawn by the run's seed"), drawn, false),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predictions(n: usize, seed: u64) -> TranslationPredictions {
        let example = |at: usize| TranslationExample {
            id: (at + 1).to_string(),
            source: format!("Satz {at} <b>"),
            reference: "A man sits in a small boat".into(),
            translation: "A man sits in a small boat"
                .split(' ')
                .take(1 + at % 7)
                .collect::<Vec<_>>()
                .join(" "),
        };
        TranslationPredictions::new((0..n).map(example).collect(), seed)
    }

    #[test]
    fn sentences_are_scored_and_compared() {
        let all = predictions(14, 1);
        assert_eq!(all.figures().main().0, "bleu");
        assert!(all.figures().get("chrf").unwrap() < 100.0);
        assert_eq!((all.loss(6), all.is_error(6)), (0.0, false));
        assert!(all.is_error(0) && all.loss(0) > all.loss(5));
        assert_eq!(all.baseline().unwrap().figures.main(), ("bleu", 0.0));
        assert_eq!(all.columns().len(), all.row(3).len());
        let shown = all.show(4).into_string();
        assert!(
            shown.contains("&lt;b&gt;") && shown.contains(r#"<mark class="missed">small boat</mark>"#),
            "{shown}"
        );
        assert!(TranslationPredictions::new(Vec::new(), 1).baseline().is_none());
    }

    #[test]
    fn best_worst_and_random_sentences_are_shown() {
        let all = predictions(40, 7);
        let selections = all.selections(&[0, 7]);
        let [best, worst, random] = &selections[..] else { panic!("three") };
        assert_eq!(best.examples[..5], [6, 13, 20, 27, 34]);
        assert_eq!(worst.examples, [0, 7]);
        assert_eq!(random.examples.len(), SHOWN);
        assert!(random.examples.is_sorted_by(|a, b| a < b), "{random:?}");
        // The seed decides, and nothing else.
        assert_eq!(all.selections(&[]), predictions(40, 7).selections(&[]));
        assert_ne!(all.selections(&[])[2], predictions(40, 8).selections(&[])[2]);
        assert_eq!(predictions(3, 7).selections(&[])[2].examples, [0, 1, 2]);
    }
}
