//! Captions of images: a model's with their references and, of generated scenes, what is wrong with them.

use hashbrown::{HashMap, HashSet};
use maud::{Markup, html};
use serde_json::Value;

use super::{Baseline, Predictions, Selection, Table, html, words};
use crate::Result;
use crate::captions::{CaptionScores, bleu, cider_d, distinct_share, rouge_l, tokenize};
use crate::figures::Figures;

/// Captions among the best ones, and among the random ones, on the page.
const SHOWN: usize = 10;

/// References of an image on the page; the files have all.
const REFERENCES: usize = 10;

/// Problems in the page's table; `problems.tsv` has all.
const PROBLEMS: usize = 20;

/// Characters of a caption inside of a sentence.
const QUOTED: usize = 120;

/// With fewer distinct captions than this share of the distinct references, a model may see little of its images.
const FEW: f64 = 0.05;

/// Captions of a split's images, scored by CIDEr-D, BLEU-4 and ROUGE-L on the tokens of [`tokenize`].
///
/// ```
/// use cloze_evaluation::report::{CaptionExample, CaptionPredictions, Predictions};
///
/// let example = |id: &str, reference: &str, caption: &str| CaptionExample {
///     id: id.into(),
///     references: vec![reference.into()],
///     caption: caption.into(),
///     verdict: None,
/// };
/// let examples = vec![
///     example("1.png", "A dog runs on the beach.", "a dog runs on the beach"),
///     example("2.png", "Two men play chess.", "two men play cards"),
/// ];
/// let figures = CaptionPredictions::new(examples, 1)?.figures();
/// assert_eq!(figures.main().0, "cider");
/// assert_eq!(figures.get("distinct"), Some(1.0));
/// # Ok::<(), cloze_evaluation::EvaluationError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CaptionPredictions {
    examples: Vec<CaptionExample>,
    /// Each caption's tokens, separated by spaces.
    captions: Vec<String>,
    scores: Scores,
    seed: u64,
}

/// A caption of [`CaptionPredictions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptionExample {
    /// Its name, such as the image's file.
    pub id: String,
    /// What people, or a generator, wrote about the image: one or more captions.
    pub references: Vec<String>,
    /// The model's caption.
    pub caption: String,
    /// Whether the caption is true, if that is known.
    pub verdict: Option<CaptionVerdict>,
}

/// Whether a caption is true of its image. It is known of generated scenes alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptionVerdict {
    /// Whether all that the caption says is true, and nothing is left out.
    pub right: bool,
    /// What is wrong: false facts, what the grammar does not have, what was left out.
    pub problems: Vec<String>,
}

/// The metrics of captions.
#[derive(Clone, Debug)]
struct Scores {
    cider: CaptionScores,
    bleu_4: f64,
    rouge_l: CaptionScores,
    distinct: f64,
}

impl Scores {
    /// The scores of tokenized captions.
    fn of(captions: &[impl AsRef<str>], references: &[Vec<String>]) -> Result<Self> {
        let [.., bleu_4] = bleu(captions, references)?;
        Ok(Self {
            cider: cider_d(captions, references)?,
            bleu_4: bleu_4.corpus,
            rouge_l: rouge_l(captions, references)?,
            distinct: distinct_share(captions)?,
        })
    }

    fn figures(&self) -> [(&'static str, f64); 4] {
        let Self { cider, bleu_4, rouge_l, distinct } = self;
        [("cider", cider.corpus), ("bleu_4", *bleu_4), ("rouge_l", rouge_l.corpus), ("distinct", *distinct)]
    }

    /// Whether CIDEr-D tells captions apart. It is 0 for all if there is one image alone, or if no caption shares with a
    /// reference what few images have.
    fn has_cider(&self) -> bool {
        self.cider.images.iter().any(|score| *score > 0.0)
    }
}

impl CaptionPredictions {
    /// Scores captions. The seed decides which are shown at random.
    ///
    /// # Errors
    /// [`EvaluationError::NoLines`](crate::EvaluationError::NoLines) without examples, and
    /// [`EvaluationError::NoReference`](crate::EvaluationError::NoReference).
    pub fn new(examples: Vec<CaptionExample>, seed: u64) -> Result<Self> {
        let captions: Vec<String> = examples.iter().map(|example| tokenize(&example.caption)).collect();
        let scores = Scores::of(&captions, &references(&examples))?;
        Ok(Self { examples, captions, scores, seed })
    }

    /// The captions.
    pub fn examples(&self) -> &[CaptionExample] {
        &self.examples
    }

    /// The share of captions that are right; none if a verdict is missing.
    fn right(&self) -> Option<f64> {
        let right = |example: &CaptionExample| Some(f64::from(u8::from(example.verdict.as_ref()?.right)));
        let all: Option<Vec<f64>> = self.examples.iter().map(right).collect();
        Some(super::mean(all?.into_iter()))
    }

    fn has_verdicts(&self) -> bool {
        self.examples.iter().any(|example| example.verdict.is_some())
    }

    /// What the loss of an example is measured by.
    fn measure(&self) -> &'static str {
        if self.scores.has_cider() { "CIDEr-D" } else { "ROUGE-L" }
    }

    /// An example's score by that measure.
    fn score(&self, example: usize) -> f64 {
        let Scores { cider, rouge_l, .. } = &self.scores;
        if self.scores.has_cider() { cider.images[example] } else { rouge_l.images[example] }
    }

    /// The places of an example's references, the one that resembles the caption most first.
    fn closest_first(&self, index: usize) -> Vec<usize> {
        let references = &self.examples[index].references;
        let likeness = |place: &usize| {
            let score = rouge_l(&[&self.captions[index]], &[[tokenize(&references[*place])]]);
            score.map_or(0.0, |score| score.corpus)
        };
        let all = 0..references.len();
        // Of equally close ones the first.
        let closest = all.clone().rev().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        closest.into_iter().chain(all.filter(|place| Some(*place) != closest)).collect()
    }

    /// How often each problem occurs, the most frequent first.
    fn problems(&self) -> Vec<(&str, usize)> {
        let verdicts = self.examples.iter().filter_map(|example| example.verdict.as_ref());
        let all = verdicts.flat_map(|verdict| verdict.problems.iter().map(String::as_str));
        let mut counts: Vec<(&str, usize)> = counted(all).into_iter().collect();
        counts.sort_by(|(a, in_a), (b, in_b)| in_b.cmp(in_a).then_with(|| a.cmp(b)));
        counts
    }
}

/// The tokenized references of each example.
fn references(examples: &[CaptionExample]) -> Vec<Vec<String>> {
    let of = |example: &CaptionExample| example.references.iter().map(|text| tokenize(text)).collect();
    examples.iter().map(of).collect()
}

/// How often each text occurs.
fn counted<'a>(texts: impl Iterator<Item = &'a str>) -> HashMap<&'a str, usize> {
    let mut counts = HashMap::new();
    texts.for_each(|text| *counts.entry(text).or_default() += 1);
    counts
}

/// The most frequent text and how often it occurs; of equally frequent ones the first.
fn most_frequent<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Option<(&'a str, usize)> {
    let counts = counted(texts.clone());
    let most = counts.values().max().copied()?;
    texts.into_iter().find(|text| counts[text] == most).map(|text| (text, most))
}

/// A caption inside of a sentence.
fn quoted(caption: &str) -> String {
    match caption.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("`{} …`", &caption[..end]),
        None => format!("`{caption}`"),
    }
}

impl Predictions for CaptionPredictions {
    fn len(&self) -> usize {
        self.examples.len()
    }

    /// `right`, the share of captions whose verdict is right, if all have one; `cider` from 0 to 10; `bleu_4` and
    /// `rouge_l` from 0 to 1; `distinct`, the share of distinct captions.
    fn figures(&self) -> Figures {
        let right = self.right().map(|right| ("right", right));
        Figures::new(self.len(), right.into_iter().chain(self.scores.figures()))
    }

    fn warning(&self) -> Option<String> {
        if (0..self.len()).all(|example| !self.is_error(example)) {
            return None;
        }
        let (caption, times) = most_frequent(self.captions.iter().map(String::as_str))?;
        let found = self.captions.iter().collect::<HashSet<_>>().len();
        let references = references(&self.examples);
        // One of each image: a grammar of few sentences has as few captions.
        let expected =
            references.iter().filter_map(|of_image| of_image.first()).collect::<HashSet<_>>().len();
        let (quoted, images) = (quoted(caption), self.len());
        let what = if found == 1 && expected > 1 {
            format!("one caption for all {images} images: {quoted}")
        } else if (found as f64) < FEW * expected as f64 {
            format!("{found} different captions for {images} images, {quoted} for {times} of them")
        } else {
            return None;
        };
        Some(format!(
            "{what}; the model sees little of the images: train for more epochs or at another learning rate, or check that each \
             image has its own captions in the data"
        ))
    }

    /// The most frequent reference for every image, without `right`.
    fn baseline(&self) -> Option<Baseline> {
        let references = references(&self.examples);
        let (most, _) = most_frequent(references.iter().flatten().map(String::as_str))?;
        let scores = Scores::of(&vec![most; self.len()], &references).ok()?;
        Some(Baseline {
            rule: format!("the most frequent reference {} for every image", quoted(most)),
            figures: Figures::new(self.len(), scores.figures()),
        })
    }

    /// Whether the verdict is wrong. Without a verdict: whether the caption differs from each reference; it may be right
    /// nevertheless.
    fn is_error(&self, index: usize) -> bool {
        let CaptionExample { references, verdict, .. } = &self.examples[index];
        match verdict {
            Some(verdict) => !verdict.right,
            None => references.iter().all(|reference| tokenize(reference) != self.captions[index]),
        }
    }

    /// 10 minus CIDEr-D. If CIDEr-D is 0 for all captions, as it is of one image alone: 1 minus ROUGE-L.
    fn loss(&self, example: usize) -> f64 {
        let highest = if self.scores.has_cider() { 10.0 } else { 1.0 };
        highest - self.score(example)
    }

    /// `right` and `problems` are there if an example has a verdict.
    fn columns(&self) -> Vec<String> {
        let verdict: &[&str] = if self.has_verdicts() { &["right", "problems"] } else { &[] };
        let all = ["id", "caption", "references", "cider", "rouge_l"].iter().chain(verdict);
        all.map(|name| String::from(*name)).collect()
    }

    fn row(&self, index: usize) -> Vec<Value> {
        let CaptionExample { id, references, caption, verdict } = &self.examples[index];
        let Scores { cider, rouge_l, .. } = &self.scores;
        let mut row: Vec<Value> = vec![
            id.as_str().into(),
            caption.as_str().into(),
            references.clone().into(),
            cider.images[index].into(),
            rouge_l.images[index].into(),
        ];
        if self.has_verdicts() {
            let verdict = verdict.as_ref();
            row.push(verdict.map(|verdict| verdict.right).into());
            row.push(verdict.map(|verdict| verdict.problems.clone()).into());
        }
        row
    }

    /// `problems.tsv`, how many captions have each problem, if an example has a verdict.
    fn tables(&self) -> Vec<Table> {
        let rows =
            self.problems().into_iter().map(|(problem, count)| vec![problem.into(), count.to_string()]);
        let rows = std::iter::once(vec!["problem".into(), "captions".into()]).chain(rows).collect();
        self.has_verdicts().then_some(Table { file: "problems.tsv", rows }).into_iter().collect()
    }

    fn breakdown(&self) -> Markup {
        let problems = self.problems();
        let rows =
            problems.iter().take(PROBLEMS).map(|(problem, count)| vec![(*problem).into(), count.to_string()]);
        html! {
            section {
                h2 { "Captions" }
                @if !problems.is_empty() {
                    (html::numbers(&["problem", "captions"], &rows.collect::<Vec<_>>()))
                    @if problems.len() > PROBLEMS {
                        p.note { (PROBLEMS) " of " (problems.len()) " problems; problems.tsv has all." }
                    }
                }
                p.note {
                    "Each caption with its " (self.measure()) ", from 0 to " (if self.scores.has_cider() { "10" } else { "1" })
                    ", beside the reference that resembles it most. In the texts: "
                    mark.missed { "only in the reference" } " " mark.wrong { "only in the caption" }
                    @if !self.is_judged() { ". What differs may be right nevertheless" } "."
                }
            }
        }
    }

    fn show(&self, index: usize) -> Markup {
        let CaptionExample { id, references, caption, verdict } = &self.examples[index];
        let order = self.closest_first(index);
        let clipped = |place: usize| html::clipped(references.get(place).map_or("", String::as_str));
        let [closest, caption] =
            words::compared_as_spoken(&clipped(order.first().copied().unwrap_or(0)), &html::clipped(caption));
        let others = order.get(1..).unwrap_or(&[]);
        let shown = &others[..others.len().min(REFERENCES - 1)];
        let problems = verdict.as_ref().map_or(&[][..], |verdict| &verdict.problems);
        html! {
            (html::name(id))
            div.line { span { "caption" } p.text dir="auto" { (caption) } }
            div.line { span { "reference" } p.text dir="auto" { (closest) } }
            @if !shown.is_empty() {
                div.line {
                    span { "others" }
                    div {
                        @for place in shown { p.text dir="auto" { (clipped(*place)) } }
                        @if shown.len() < others.len() { p.note { "and " (others.len() - shown.len()) " more" } }
                    }
                }
            }
            @if !problems.is_empty() {
                div.line {
                    span { (if problems.len() == 1 { "problem" } else { "problems" }) }
                    div { @for problem in problems { p { span.label.wrong dir="auto" { (html::clipped(problem)) } } } }
                }
            }
        }
    }

    fn corner(&self, example: usize) -> String {
        format!("{} {:.2}", self.measure(), self.score(example))
    }

    /// Whether all examples have a verdict.
    fn is_judged(&self) -> bool {
        self.examples.iter().all(|example| example.verdict.is_some())
    }

    /// The best, the worst, and some at random. Captions that are right come before all others.
    fn selections(&self, worst: &[usize]) -> Vec<Selection> {
        let mut best: Vec<usize> = (0..self.len()).collect();
        let key = |example: usize| (self.is_judged() && self.is_error(example), -self.score(example));
        best.sort_by(|a, b| {
            let ((wrong_a, a), (wrong_b, b)) = (key(*a), key(*b));
            wrong_a.cmp(&wrong_b).then(a.total_cmp(&b))
        });
        best.truncate(SHOWN);
        let drawn = html::drawn(self.len(), SHOWN, self.seed);
        let of_all = |count: usize, how: &str| match count {
            0 => "There are none.".into(),
            _ => format!("{count} of {} captions, {how}.", self.len()),
        };
        let by = |which: &str| format!("{which}by their {}", self.measure());
        let (of_best, of_worst) =
            if self.is_judged() { (by("right ones first, "), by("wrong ones, ")) } else { (by(""), by("")) };
        let selection =
            |title: &str, note, examples, ranked| Selection { title: title.into(), note, examples, ranked };
        vec![
            selection("Best captions", of_all(best.len(), &of_best), best, true),
            selection("Worst captions", of_all(worst.len(), &of_worst), worst.to_vec(), true),
            selection("Random captions", of_all(drawn.len(), "drawn by the run's seed"), drawn, false),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Picture, Report, WithPictures};

    fn example(id: &str, references: &[&str], caption: &str) -> CaptionExample {
        let references = references.iter().map(|text| (*text).into()).collect();
        CaptionExample { id: id.into(), references, caption: caption.into(), verdict: None }
    }

    fn judged(caption: &str, problems: &[&str]) -> CaptionExample {
        let problems: Vec<String> = problems.iter().map(|text| (*text).into()).collect();
        let verdict = Some(CaptionVerdict { right: problems.is_empty(), problems });
        CaptionExample { verdict, ..example("7", &["a red circle above a blue square"], caption) }
    }

    fn of(examples: Vec<CaptionExample>) -> CaptionPredictions {
        CaptionPredictions::new(examples, 7).unwrap()
    }

    fn photos() -> Vec<CaptionExample> {
        vec![
            example(
                "a<b>.png",
                &["Two dogs play in snow.", "A brown dog runs on sand."],
                "a brown dog runs on <sand>",
            ),
            example("c.png", &["Two men play chess in a park."], "two men play chess in a park"),
            example("d.png", &["A woman rides a red bicycle."], "a child sleeps"),
        ]
    }

    #[test]
    fn figures_are_those_of_the_tokens() {
        let all = of(photos());
        let figures = all.figures();
        let names: Vec<&str> = figures.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["cider", "bleu_4", "rouge_l", "distinct"]);
        assert_eq!(figures.main().0, "cider");
        // Case and the full stop count for nothing.
        assert_eq!(all.scores.rouge_l.images[1], 1.0);
        assert!((all.loss(1) - (10.0 - all.scores.cider.images[1])).abs() < 1e-12 && all.loss(1) < 1e-9);
        assert!(all.loss(1) < all.loss(0) && all.loss(0) < all.loss(2));
        assert_eq!([0, 1, 2].map(|at| all.is_error(at)), [true, false, true]);
        assert!(!all.is_judged() && all.tables().is_empty());
        assert_eq!(all.corner(1), "CIDEr-D 10.00");
        assert_eq!(all.columns().len(), all.row(0).len());
        assert_eq!(all.row(0)[2], serde_json::json!(["Two dogs play in snow.", "A brown dog runs on sand."]));
    }

    #[test]
    fn verdicts_come_first() {
        let all = of(vec![
            judged("a red circle above a green square", &["no <green> square", "left out: blue square"]),
            judged("a blue square below a red circle", &[]),
            judged("a red circle above a green circle", &["no <green> square"]),
        ]);
        assert_eq!(all.figures().main(), ("right", 1.0 / 3.0));
        assert_eq!([0, 1, 2].map(|at| all.is_error(at)), [true, false, true]);
        assert!(all.is_judged());
        // The right caption has other words than its reference, and is the best nevertheless.
        assert_eq!(all.selections(&[])[0].examples[0], 1);
        let columns = all.columns();
        assert_eq!(columns[5..], ["right", "problems"]);
        assert_eq!(
            all.row(0)[5..],
            [Value::from(false), vec!["no <green> square", "left out: blue square"].into()]
        );
        let rows = &all.tables()[0].rows;
        assert_eq!(rows[1..], [["no <green> square", "2"], ["left out: blue square", "1"]]);
        let shown = all.show(0).into_string();
        assert!(shown.contains("line 7") && shown.contains("no &lt;green&gt; square"), "{shown}");
        assert!(shown.contains(r#"<mark class="wrong">green</mark>"#), "{shown}");

        // One without a verdict: no share of right ones.
        let some = of(vec![judged("a red circle", &[]), example("8", &["a dog"], "a dog")]);
        assert_eq!(some.figures().main().0, "cider");
        assert_eq!(some.row(1)[5..], [Value::Null, Value::Null]);
        assert!(!some.is_judged());
    }

    #[test]
    fn one_image_is_measured_by_rouge_l() {
        let all = of(vec![example("1", &["a dog runs on sand"], "a dog runs")]);
        assert_eq!(all.figures().get("cider"), Some(0.0));
        let rouge_l = all.figures().get("rouge_l").unwrap();
        assert_eq!(all.loss(0), 1.0 - rouge_l);
        assert_eq!(all.corner(0), format!("ROUGE-L {rouge_l:.2}"));
    }

    #[test]
    fn the_closest_reference_is_compared() {
        let all = of(photos());
        assert_eq!(all.closest_first(0), [1, 0]);
        let shown = all.show(0).into_string();
        assert!(shown.contains("a&lt;b&gt;.png") && shown.contains("&lt;sand&gt;"), "{shown}");
        // Neither the capital letter nor the punctuation is a difference.
        assert!(!shown.contains("<mark"), "{shown}");
        let shown = all.show(2).into_string();
        assert!(shown.contains(r#"A <mark class="missed">woman rides a red bicycle</mark>."#), "{shown}");
        let many: Vec<&str> = vec!["a dog"; 15];
        let shown = of(vec![example("1", &many, "a cat")]).show(0).into_string();
        assert_eq!(shown.matches("a dog").count(), REFERENCES - 1, "{shown}");
        assert!(shown.contains("and 5 more"), "{shown}");
    }

    #[test]
    fn one_caption_for_all_is_a_warning() {
        let same = |n: usize, caption: &dyn Fn(usize) -> String| {
            let each = |at: usize| example("", &[&format!("thing {at} here")], &caption(at));
            of((0..n).map(each).collect()).warning()
        };
        let warning = same(3, &|_| "A man.".into()).unwrap();
        assert!(warning.starts_with("one caption for all 3 images: `a man`; "), "{warning}");
        let warning = same(100, &|at| format!("thing {}", at.min(2))).unwrap();
        assert!(
            warning.starts_with("3 different captions for 100 images, `thing 2` for 98 of them; "),
            "{warning}"
        );
        assert_eq!(same(100, &|at| format!("thing {}", at % 5)), None);
        assert_eq!(same(1, &|_| "a man".into()), None);
        // References that are few themselves.
        let each = |at: usize| example("", &[["a dog", "a cat"][at % 2]], ["a dog", "a bird"][at % 2]);
        assert_eq!(of((0..200).map(each).collect()).warning(), None);
        // All right.
        assert_eq!(
            of(vec![example("1", &["a man"], "a man"), example("2", &["a boy", "a man"], "a man")]).warning(),
            None
        );
        let long = "word ".repeat(QUOTED);
        assert!(same(3, &|_| long.clone()).unwrap().len() < long.len());
    }

    #[test]
    fn the_baseline_is_the_most_frequent_reference() {
        let mut examples = photos();
        assert!(of(photos()).baseline().unwrap().rule.contains("`two dogs play in snow`"));
        examples.push(example("e.png", &["two men play chess in a park"], "a dog"));
        let Baseline { rule, figures } = of(examples).baseline().unwrap();
        assert_eq!(rule, "the most frequent reference `two men play chess in a park` for every image");
        assert_eq!(figures.get("distinct"), Some(0.25));
        assert!(figures.get("cider").unwrap() > 0.0 && figures.get("right").is_none());
    }

    #[test]
    fn what_cannot_be_scored_is_an_error() {
        assert!(CaptionPredictions::new(Vec::new(), 1).is_err());
        let error = CaptionPredictions::new(vec![example("1", &[], "a dog")], 1).unwrap_err();
        assert!(error.to_string().contains("no reference"), "{error}");
        // Texts without tokens are scored.
        let empty = of(vec![example("1", &[""], ""), example("2", &["."], "a dog")]);
        assert!(empty.figures().iter().all(|(_, value)| value.is_finite()) && empty.baseline().is_some());
        assert_eq!(empty.show(0).into_string().matches("<mark").count(), 0);
    }

    #[test]
    fn best_worst_and_random_captions_are_shown() {
        let texts = ["a dog runs on sand", "two men play chess", "a red bus stops", "snow falls on trees"];
        let each = |at: usize| {
            let words: Vec<&str> = texts[at % 4].split(' ').take(1 + at % 5).collect();
            example(&at.to_string(), &[texts[at % 4]], &words.join(" "))
        };
        let all = |seed| CaptionPredictions::new((0..40).map(each).collect(), seed).unwrap();
        let [best, worst, random] = &all(7).selections(&[5, 10])[..] else { panic!("three") };
        assert!(best.examples.is_sorted_by(|a, b| all(7).loss(*a) <= all(7).loss(*b)));
        assert!(!all(7).is_error(best.examples[0]));
        assert_eq!((&worst.examples[..], random.examples.len()), (&[5, 10][..], SHOWN));
        assert_eq!(worst.note, "2 of 40 captions, by their CIDEr-D.");
        assert_eq!(all(7).selections(&[]), all(7).selections(&[]));
        assert_ne!(all(7).selections(&[])[2], all(8).selections(&[])[2]);
        assert_eq!(all(7).selections(&[])[1].note, "There are none.");
    }

    #[test]
    fn a_report_has_pictures_tables_and_the_baseline() {
        let all = of(vec![
            judged("a red circle above a green square", &["no green square"]),
            judged("a blue square below a red circle", &[]),
        ]);
        let figures = all.figures();
        let pictures = |example: usize| vec![Picture { caption: "", png: vec![example as u8, 2, 3] }];
        let all = WithPictures::new(all, pictures);
        let folder = tempfile::tempdir().unwrap();
        let report = Report { title: "run: dev", facts: &[], figures: &figures, predictions: Some(&all) };
        report.write(folder.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let page = read("report.html");
        assert!(page.contains("src=\"data:image/png;base64,AAID\"") && page.contains("img-src data:"));
        assert!(page.contains("<article class=\" error\">") && page.contains("<article class=\"right\">"));
        assert!(page.contains("The model's right is 0.5000 on 2 examples. Its cider is"), "{page}");
        assert_eq!(read("problems.tsv"), "problem\tcaptions\nno green square\t1\n");
        let line: Value = serde_json::from_str(read("predictions.jsonl").lines().next().unwrap()).unwrap();
        assert_eq!(line["problems"], serde_json::json!(["no green square"]));
    }
}
