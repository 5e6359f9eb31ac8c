//! Predictions compared with gold, as readable files.
//!
//! ```text
//! report.html         all of it on one page, which needs nothing else and loads nothing
//! figures.json        the figures
//! predictions.tsv     every example with gold, prediction and loss; predictions.jsonl has the same
//! worst.tsv           the twenty errors with the highest loss, the worst first; worst.jsonl has the same
//! confusion.tsv …     the task's tables: a confusion matrix, scores by class or by type
//! ```
//!
//! A run's pages lead to its `index.html`, an [`IndexReport`]. Each task's examples have their own file here and implement [`Predictions`]; other crates can implement
//! it for further tasks.

mod answers;
mod attention;
mod captions;
mod choices;
mod classes;
mod dendrogram;
mod entities;
mod files;
mod html;
mod importance;
mod index;
mod inspection;
mod knowledge;
mod labels;
mod layers;
mod map;
mod matrix;
mod page;
mod pictures;
mod runs;
mod scatter;
mod seeds;
mod service;
mod similarities;
mod transfer;
mod translations;
mod unpredicted;
mod values;
mod words;

use std::path::Path;

pub use answers::{Answer, AnswerExample, AnswerPredictions, SquadVersion};
pub use attention::{AttendedWord, CaptionPage, CaptionedImage};
pub use captions::{CaptionExample, CaptionPredictions, CaptionVerdict};
pub use choices::{ChoiceExample, ChoicePredictions};
pub use classes::{ClassExample, ClassPredictions};
pub use entities::{EntityExample, EntityPredictions};
pub use importance::{ImportanceReport, LayerImportance};
pub use index::{IndexLink, IndexReport, IndexSplit};
pub use inspection::InspectionReport;
pub use knowledge::KnowledgeReport;
pub use labels::{LabelExample, LabelPredictions};
pub use layers::{LayerLine, LayerPanel, LayersReport};
pub use map::MapReport;
pub use maud::Markup;
pub use pictures::{Picture, RestoredExample, RestoredPredictions, WithPictures};
pub use runs::{RunCurves, RunsReport};
pub use seeds::{SeedRun, SeedsReport};
pub use service::ServicePage;
pub use similarities::{SimilarityExample, SimilarityKind, SimilarityPredictions};
pub use transfer::{LayerSimilarity, TransferMatrix, TransferReport};
pub use translations::{TranslationExample, TranslationPredictions};
pub use values::{ValueExample, ValuePredictions};

use serde::Serialize;

use super::figures::{Figures, shown, starred};
use crate::table;
use crate::{EvaluationError, Result};
use cloze_files::write_atomic;

/// Errors listed as the worst ones.
pub const WORST: usize = 20;

/// A model's predictions for the examples of an evaluation, with gold.
///
/// Methods that take an example's index panic if it is out of range.
pub trait Predictions {
    /// Examples.
    fn len(&self) -> usize;

    /// Whether there are no examples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The task's figures; the first is the usual and main one.
    fn figures(&self) -> Figures;

    /// What is wrong with the predictions as a whole, such as one class for all examples, and what to try.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Whether an example's prediction is wrong.
    fn is_error(&self, example: usize) -> bool;

    /// An example's loss: how wrong it is.
    fn loss(&self, example: usize) -> f64;

    /// The columns of `predictions.tsv` and keys of `predictions.jsonl`. In both, `id` is written as
    /// [`named_by`](Self::named_by) says.
    fn columns(&self) -> Vec<String>;

    /// An example's values in the order of the columns.
    fn row(&self, example: usize) -> Vec<serde_json::Value>;

    /// Tables that show where errors come from, one file each.
    fn tables(&self) -> Vec<Table>;

    /// The same for the page, as HTML.
    fn breakdown(&self) -> Markup;

    /// An example for the page, as HTML.
    fn show(&self, example: usize) -> Markup;

    /// Names the examples by their places, one for each, such as their lines: `17` or `b.csv:17`. Nothing happens if
    /// there are more or fewer names than examples, and examples with names of their own keep them.
    fn set_names(&mut self, names: &[String]) {
        let _ = names;
    }

    /// What names the examples in files, by the name of the first: `line` or `row` if it is a place in the user's file,
    /// `id` if it is a name of the user's, such as a question's id or the path of an image.
    fn named_by(&self) -> &'static str {
        if self.is_empty() {
            return "id";
        }
        match self.row(0).first().and_then(serde_json::Value::as_str) {
            Some(name) if name.starts_with("row ") && is_number(&name[4..]) => "row",
            Some(name) if is_number(name.rsplit(':').next().unwrap_or_default()) => "line",
            _ => "id",
        }
    }

    /// The number in an example's corner on the page: its loss.
    fn corner(&self, example: usize) -> String {
        format!("loss {}", shown(self.loss(example)))
    }

    /// Whether the page colours an example by [`is_error`](Self::is_error).
    fn is_judged(&self) -> bool {
        true
    }

    /// Whether examples are shown with pictures, which the page then holds.
    fn has_pictures(&self) -> bool {
        false
    }

    /// What a rule without a model scores on the same examples, if there is one to compare with.
    fn baseline(&self) -> Option<Baseline> {
        None
    }

    /// The same of a rule that was found on training data with these targets, as the model was. By default
    /// [`baseline`](Self::baseline), for rules that need no training data.
    fn baseline_of(&self, training: &Targets) -> Option<Baseline> {
        let _ = training;
        self.baseline()
    }

    /// The examples on the page; `worst` are the errors with the highest loss, worst first. By default those,
    /// and a sample of all.
    fn selections(&self, worst: &[usize]) -> Vec<Selection> {
        html::selections(self, worst)
    }
}

/// What a rule without a model scores on the examples of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Baseline {
    /// The rule, such as `the class "no" for every example`.
    pub rule: String,
    /// Its figures, named as the model's.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Baseline {
    /// A model's figures as a table, the main one with a star, beside those of the rule, which is named below.
    pub fn beside(&self, figures: &Figures) -> String {
        let examples = format!("{} examples", figures.examples());
        let (main, _) = figures.main();
        let rows = figures.iter().map(|(name, value)| {
            let of_rule = self.figures.get(name).map_or_else(String::new, shown);
            [starred(name, name == main), shown(value), of_rule]
        });
        let table = table::numbers(["figure", &examples, "baseline"], rows);
        format!("{table}\nbaseline: {}", self.rule)
    }
}

/// The targets of training data, as far as a [`Baseline`] goes by them.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// How often each class, label, or class of words occurs.
    Classes(Vec<(String, u64)>),
    /// The mean of numbers.
    Mean(f64),
}

impl Targets {
    /// The most frequent class, of equally frequent ones the first; none for numbers, or if none occurs.
    pub fn most_frequent(&self) -> Option<&str> {
        let Self::Classes(counts) = self else { return None };
        let most = counts.iter().rev().max_by_key(|(_, count)| *count)?;
        (most.1 > 0).then_some(&most.0)
    }
}

/// Examples shown on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The heading.
    pub title: String,
    /// How they were chosen.
    pub note: String,
    /// Their indices.
    pub examples: Vec<usize>,
    /// Whether they are numbered.
    pub ranked: bool,
}

/// A table of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its file's name.
    pub file: &'static str,
    /// Its rows, the header first.
    pub rows: Vec<Vec<String>>,
}

/// The contents of a report.
#[derive(Clone, Copy)]
pub struct Report<'a> {
    /// The page's title.
    pub title: &'a str,
    /// What was evaluated, such as the model, the data and the split.
    pub facts: &'a [(&'a str, String)],
    /// The figures, those of `predictions` or others.
    pub figures: &'a Figures,
    /// The examples, if any.
    pub predictions: Option<&'a dyn Predictions>,
}

/// A report's place in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct InRun<'a> {
    /// The run's learning curve, an SVG file. It is inserted unchanged, so its text must already be escaped, as
    /// in the files that `cloze-trainer` draws.
    pub curve: Option<&'a Path>,
    /// The run's page, relative to the report's folder.
    pub index: Option<&'a str>,
    /// What a rule without a model scores; by default that of the predictions.
    pub baseline: Option<&'a Baseline>,
}

impl Report<'_> {
    /// The main figure in a sentence, compared with `baseline` or that of the predictions.
    ///
    /// ```
    /// use cloze_evaluation::figures::Figures;
    /// use cloze_evaluation::report::{Baseline, Report};
    ///
    /// let figures = Figures::new(872, [("accuracy", 0.9151)]);
    /// let report = Report { title: "run: dev", facts: &[], figures: &figures, predictions: None };
    /// let rule = "the class `no` for every example".to_owned();
    /// let baseline = Baseline { rule, figures: Figures::new(872, [("accuracy", 0.5092)]) };
    /// assert_eq!(
    ///     report.summary(Some(&baseline)),
    ///     "The model's accuracy is 0.9151 on 872 examples; that of the baseline, the class `no` for every example, is 0.5092."
    /// );
    /// ```
    pub fn summary(&self, baseline: Option<&Baseline>) -> String {
        let (main, value) = self.figures.main();
        let n = table::grouped(self.figures.examples() as u64);
        let examples = if self.figures.examples() == 1 { "example" } else { "examples" };
        let said = format!("The model's {main} is {} on {n} {examples}", shown(value));
        let own = || self.predictions.and_then(Predictions::baseline);
        let Some(Baseline { rule, figures }) = baseline.cloned().or_else(own) else { return said + "." };
        let comparable = |name: &str| figures.get(name).filter(|value| value.is_finite());
        if let Some(theirs) = comparable(main) {
            return format!("{said}; that of the baseline, {rule}, is {}.", shown(theirs));
        }
        let first = self.figures.iter().find_map(|(name, ours)| Some((name, ours, comparable(name)?)));
        match first {
            Some((name, ours, theirs)) => format!(
                "{said}. Its {name} is {}; that of the baseline, {rule}, is {}.",
                shown(ours),
                shown(theirs)
            ),
            None => said + ".",
        }
    }

    /// Writes the report's files into `folder`, created if missing. Each file is written atomically and
    /// replaces one of the same name; others stay.
    ///
    /// # Errors
    /// [`EvaluationError::Io`].
    pub fn write(&self, folder: &Path) -> Result<()> {
        self.write_in_run(folder, &InRun::default())
    }

    /// The same for the report of a run: its page has the learning curve, and leads to the run's page.
    ///
    /// # Errors
    /// [`EvaluationError::Io`].
    pub fn write_in_run(&self, folder: &Path, place: &InRun<'_>) -> Result<()> {
        let read = |path: &Path| std::fs::read_to_string(path).map_err(EvaluationError::io("read", path));
        let curve = place.curve.map(read).transpose()?;
        std::fs::create_dir_all(folder).map_err(EvaluationError::io("make", folder))?;
        let write = |name: &str, text: String| write_atomic(&folder.join(name), text.as_bytes());
        let figures = serde_json::to_string_pretty(self.figures).expect("figures are strings and numbers");
        write("figures.json", figures + "\n")?;
        let worst = self.predictions.map(worst).unwrap_or_default();
        if let Some(predictions) = self.predictions {
            let all: Vec<usize> = (0..predictions.len()).collect();
            for (name, examples) in [("predictions", &all), ("worst", &worst)] {
                write(&format!("{name}.tsv"), files::tsv(predictions, examples))?;
                write(&format!("{name}.jsonl"), files::jsonl(predictions, examples))?;
            }
            for table in predictions.tables() {
                write(table.file, files::table(&table.rows))?;
            }
        }
        Ok(write("report.html", html::page(self, &worst, place, curve.as_deref()).into_string())?)
    }
}

/// Whether a text is a whole number.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The errors with the highest loss, worst first; a NaN loss counts as the worst.
fn worst(predictions: &dyn Predictions) -> Vec<usize> {
    let mut errors: Vec<usize> = (0..predictions.len()).filter(|i| predictions.is_error(*i)).collect();
    let loss = |example: usize| match predictions.loss(example) {
        loss if loss.is_nan() => f64::INFINITY,
        loss => loss,
    };
    errors.sort_by(|a, b| loss(*b).total_cmp(&loss(*a)));
    errors.truncate(WORST);
    errors
}

/// The names of `count` texts' columns.
fn text_columns(count: usize) -> Vec<String> {
    match count {
        1 => vec!["text".into()],
        _ => (1..=count).map(|i| format!("text_{i}")).collect(),
    }
}

/// The texts of an example, padded to `count`.
fn text_values(texts: &[String], count: usize) -> impl Iterator<Item = serde_json::Value> {
    (0..count).map(|i| texts.get(i).map_or("", String::as_str).into())
}

/// Figures without those of probabilities, which a rule does not have.
fn without_losses(figures: &Figures) -> Figures {
    let kept = figures.iter().filter(|(name, _)| *name != "loss" && !name.starts_with("average_precision"));
    Figures::new(figures.examples(), kept)
}

/// The mean; NaN if empty.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    sum / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_stands_beside_the_figures() {
        let figures = Figures::new(60, [("accuracy", 0.81), ("loss", 0.5)]);
        let rule = "the most frequent class of the training data, `no`, for every example".to_owned();
        let baseline = Baseline { rule, figures: Figures::new(60, [("accuracy", 0.4)]) };
        let expected = "
┌────────────┬─────────────┬──────────┐
│ figure     ┆ 60 examples ┆ baseline │
╞════════════╪═════════════╪══════════╡
│ accuracy * ┆      0.8100 ┆   0.4000 │
│ loss       ┆      0.5000 ┆          │
└────────────┴─────────────┴──────────┘
baseline: the most frequent class of the training data, `no`, for every example";
        assert_eq!(baseline.beside(&figures), expected.trim_start());
        let json = serde_json::to_value(&baseline).unwrap();
        assert_eq!(json["figures"]["accuracy"], 0.4);
        assert_eq!(json["rule"], baseline.rule);
    }

    fn example(id: usize, predicted: usize, loss: f64) -> ClassExample {
        ClassExample {
            id: id.to_string(),
            texts: vec!["<script>alert(1)</script>\ta\\b\r\nc".into()],
            gold: 0,
            predicted,
            score: 0.5,
            loss,
        }
    }

    #[test]
    fn the_worst_errors_come_first() {
        let mut examples: Vec<ClassExample> = (0..50).map(|i| example(i, i % 2, i as f64)).collect();
        examples[11].loss = f64::NAN;
        examples[13].loss = f64::INFINITY;
        let predictions = ClassPredictions { labels: vec!["a".into(), "b".into()], positive: None, examples };
        let worst = worst(&predictions);
        assert_eq!(worst.len(), WORST);
        assert_eq!(worst[..4], [11, 13, 49, 47]);
        assert!(worst.iter().all(|i| i % 2 == 1));
    }

    #[test]
    fn a_name_is_a_line_or_an_id() {
        for (name, expected) in [
            ("17", "line"),
            ("data/b.csv:17", "line"),
            ("row 3", "row"),
            ("57f5e1", "id"),
            ("digits/7.png", "id"),
            ("", "id"),
        ] {
            let examples = vec![ClassExample { id: name.into(), ..example(1, 0, 1.0) }];
            let named = ClassPredictions { labels: vec!["a".into()], positive: None, examples }.named_by();
            assert_eq!(named, expected, "{name}");
        }
    }

    #[test]
    fn a_report_replaces_its_files_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new").join("eval");
        let predictions = ClassPredictions {
            labels: vec!["<b>".into(), "b".into()],
            positive: Some(1),
            examples: vec![example(1, 1, 2.0), example(2, 0, f64::NAN)],
        };
        let figures = predictions.figures();
        let facts = [("model", "<img src=x onerror=alert(1)>".to_string())];
        let report = Report {
            title: "</title><script>",
            facts: &facts,
            figures: &figures,
            predictions: Some(&predictions),
        };
        report.write(&folder).unwrap();
        std::fs::write(folder.join("notes.txt"), "mine").unwrap();
        std::fs::write(folder.join("worst.tsv"), "old").unwrap();
        report.write(&folder).unwrap();

        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected = [
            "classes.tsv",
            "confusion.tsv",
            "figures.json",
            "notes.txt",
            "predictions.jsonl",
            "predictions.tsv",
            "report.html",
            "worst.jsonl",
            "worst.tsv",
        ];
        assert_eq!(names, expected);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(
            read("worst.tsv"),
            "line\ttext\tgold\tpredicted\tcorrect\tscore\tloss\n\
             1\t<script>alert(1)</script>\\ta\\\\b\\r\\nc\t<b>\tb\tfalse\t0.5\t2.0\n"
        );
        let lines: Vec<serde_json::Value> =
            read("predictions.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1]["text"], predictions.examples[1].texts[0]);
        assert_eq!(lines[1]["loss"], serde_json::Value::Null);
        assert_eq!(read("confusion.tsv"), "gold/predicted\t<b>\tb\n<b>\t1\t1\nb\t0\t0\n");
        let html = read("report.html");
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        for foreign in ["<script", "<img", "http:", "https:", "src=", "href="] {
            // The text of a fact, escaped, is the one place for `src=`.
            let expected = usize::from(foreign == "src=");
            assert_eq!(html.matches(foreign).count(), expected, "{foreign}");
        }
        let read: Figures = serde_json::from_str(&read("figures.json")).unwrap();
        assert_eq!(read.main(), ("accuracy", 0.5));
    }
}
