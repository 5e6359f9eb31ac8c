//! A report's page: figures, the task's breakdown, the worst errors, and a sample of all examples.

use maud::{Markup, PreEscaped, html};

use super::page::Page;
use super::{Baseline, InRun, Predictions, Report, Selection};
use crate::figures::shown;
use crate::table::{self, grouped};
use crate::translation::Generator;

/// Examples in the sample of all.
const SAMPLE: usize = 50;

/// Characters of a text shown on the page; the files have all of it.
const SHOWN: usize = 1_000;

/// An unescaped picture: its author must have escaped its text.
pub(super) fn picture(svg: &str) -> Markup {
    html! { div.curve { (PreEscaped(svg)) } }
}

/// The whole page; `worst` are the worst errors, worst first.
pub(super) fn page(report: &Report<'_>, worst: &[usize], place: &InRun<'_>, curve: Option<&str>) -> Markup {
    let (main, value) = report.figures.main();
    let baseline = place.baseline.cloned().or_else(|| report.predictions.and_then(Predictions::baseline));
    let content = html! {
        main {
            section {
                h2 { "Figures" }
                div.figures {
                    (tile(main, value, baseline.as_ref(), true))
                    @for (name, value) in report.figures.iter().filter(|(name, _)| *name != main) {
                        (tile(name, value, baseline.as_ref(), false))
                    }
                }
            }
            @if let Some(svg) = curve {
                section { h2 { "Learning curve" } (picture(svg)) }
            }
            @if let Some(predictions) = report.predictions { (examples(predictions, worst)) }
        }
    };
    let facts: Vec<(&str, String)> = report
        .facts
        .iter()
        .cloned()
        .chain([("examples", grouped(report.figures.examples() as u64))])
        .collect();
    let summary = Some(report.summary(baseline.as_ref()));
    let page = Page {
        kind: "evaluation",
        title: report.title,
        summary,
        facts: &facts,
        run: place.index,
        pictures: report.predictions.is_some_and(Predictions::has_pictures),
        ..Page::default()
    };
    page.with(content)
}

/// A figure, with the baseline's if there is one.
pub(super) fn tile(name: &str, value: f64, baseline: Option<&Baseline>, main: bool) -> Markup {
    let theirs = baseline.and_then(|baseline| baseline.figures.get(name)).filter(|value| value.is_finite());
    html! {
        div.tile.main[main] {
            span { (name) }
            strong { (shown(value)) }
            @if let Some(theirs) = theirs { small { "baseline " (shown(theirs)) } }
        }
    }
}

/// The page's part on the examples.
fn examples(predictions: &dyn Predictions, worst: &[usize]) -> Markup {
    html! {
        (predictions.breakdown())
        @for selection in predictions.selections(worst) {
            section {
                h2 { (selection.title) }
                p.note { (selection.note) }
                @for (rank, example) in selection.examples.iter().enumerate() {
                    (card(predictions, *example, selection.ranked.then_some(rank + 1)))
                }
            }
        }
    }
}

/// The worst errors, and examples spread over all of them.
pub(super) fn selections(predictions: &(impl Predictions + ?Sized), worst: &[usize]) -> Vec<Selection> {
    let errors = (0..predictions.len()).filter(|example| predictions.is_error(*example)).count();
    let note = match worst.len() {
        0 => "There are none.".into(),
        shown => format!("{shown} of {errors} errors, by their loss."),
    };
    let sample = sample(predictions.len(), SAMPLE);
    let of_all = format!("{} of {} examples, evenly spaced.", sample.len(), predictions.len());
    vec![
        Selection { title: "Worst errors".into(), note, examples: worst.to_vec(), ranked: true },
        Selection { title: "A sample of all".into(), note: of_all, examples: sample, ranked: false },
    ]
}

/// An example, with its rank among the worst.
fn card(predictions: &dyn Predictions, example: usize, rank: Option<usize>) -> Markup {
    let (judged, error) = (predictions.is_judged(), predictions.is_error(example));
    html! {
        article.right[judged && !error].error[judged && error] {
            p.head {
                @if let Some(rank) = rank { strong { "#" (rank) } }
                span { (predictions.corner(example)) }
            }
            (predictions.show(example))
        }
    }
}

/// Up to `count` of `total` numbers, evenly spaced.
pub(super) fn sample(total: usize, count: usize) -> Vec<usize> {
    let count = count.min(total);
    (0..count).map(|i| i * total / count).collect()
}

/// Up to `count` of `total` numbers drawn at random, in ascending order.
pub(super) fn drawn(total: usize, count: usize, seed: u64) -> Vec<usize> {
    let count = count.min(total);
    let mut all: Vec<usize> = (0..total).collect();
    let mut generator = Generator::new(seed);
    for at in 0..count {
        let rest = u32::try_from(total - at).unwrap_or(u32::MAX);
        all.swap(at, at + generator.below(rest) as usize);
    }
    all.truncate(count);
    all.sort_unstable();
    all
}

/// An example's name and its texts.
pub(super) fn texts(id: &str, texts: &[String]) -> Markup {
    html! {
        (name(id))
        @for text in texts { p.text dir="auto" { (clipped(text)) } }
    }
}

/// An example's name on the page; a number is a line of its file.
pub(super) fn name(id: &str) -> Markup {
    let is_line = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    html! { p.id dir="auto" { @if is_line { "line " } (id) } }
}

/// Replaces ids by names, if there is one for each.
pub(super) fn set_names<'a>(ids: impl ExactSizeIterator<Item = &'a mut String>, names: &[String]) {
    if ids.len() == names.len() {
        ids.zip(names).for_each(|(id, name)| id.clone_from(name));
    }
}

/// The beginning of a text.
pub(super) fn clipped(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} … ({} characters)", &text[..end], text.chars().count()),
        None => text.into(),
    }
}

/// A table of names and numbers.
pub(super) fn numbers(header: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div.scroll {
            table.numbers {
                thead { tr { @for name in header { th { (name) } } } }
                tbody {
                    @for row in rows {
                        tr { @for value in row { td dir="auto" { (value) } } }
                    }
                }
            }
        }
    }
}

/// A share from 0 to 1 in percent.
pub(super) fn percent(share: f64) -> String {
    if share.is_nan() { "–".into() } else { table::percent(share) }
}

/// JSON that is safe in a script element: characters that could end it or begin another, which occur only
/// within strings, are escaped.
pub(super) fn in_script(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_and_within() {
        assert_eq!(sample(3, 50), [0, 1, 2]);
        assert_eq!(sample(10, 4), [0, 2, 5, 7]);
        assert!(sample(0, 50).is_empty());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "é".repeat(SHOWN + 1);
        assert_eq!(clipped(&long), format!("{} … (1001 characters)", "é".repeat(SHOWN)));
        assert_eq!(clipped("short"), "short");
    }
}
