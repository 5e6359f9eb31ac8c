//! The page: figures, the task's breakdown, the worst errors, and a sample of all examples.
//!
//! It has no script and loads nothing, enforced by its content security policy; maud escapes all text. Only
//! the map has a script.

use maud::{DOCTYPE, PreEscaped, html};

use super::{Predictions, Report};
use crate::figures::shown;
use crate::table;

pub use maud::Markup;

/// Examples in the sample of all.
const SAMPLE: usize = 50;

/// Characters of a text shown on the page; the files have all of it.
const SHOWN: usize = 1_000;

const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A page's additions to the common parts.
#[derive(Default)]
pub(super) struct Kind<'a> {
    /// Its own style.
    pub style: &'a str,
    /// The SHA-256 in base64 of the one script that may run.
    pub script: Option<&'a str>,
}

/// A page with this content, without a script.
pub(super) fn document(title: &str, content: Markup) -> Markup {
    document_of(title, &Kind::default(), content)
}

/// The same, of another kind.
pub(super) fn document_of(title: &str, kind: &Kind<'_>, content: Markup) -> Markup {
    let script = kind.script.map(|hash| format!("; script-src 'sha256-{hash}'")).unwrap_or_default();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content={ (POLICY) (script) };
                title { (title) }
                style { (PreEscaped(include_str!("style.css"))) (PreEscaped(kind.style)) }
            }
            body { (content) }
        }
    }
}

/// An unescaped picture: its author must have escaped its text.
pub(super) fn picture(svg: &str) -> Markup {
    html! { div.curve { (PreEscaped(svg)) } }
}

/// The whole page; `worst` are the worst errors, worst first.
pub(super) fn page(report: &Report<'_>, worst: &[usize], curve: Option<&str>) -> Markup {
    let (main, value) = report.figures.main();
    let content = html! {
        header {
            h1 dir="auto" { (report.title) }
            dl {
                @for (name, value) in report.facts {
                    div { dt { (name) } dd dir="auto" { (value) } }
                }
                div { dt { "examples" } dd { (report.figures.examples()) } }
            }
        }
        main {
            section {
                h2 { "Figures" }
                div.figures {
                    div.tile.main { span { (main) } strong { (shown(value)) } }
                    @for (name, value) in report.figures.iter().filter(|(name, _)| *name != main) {
                        div.tile { span { (name) } strong { (shown(value)) } }
                    }
                }
            }
            @if let Some(svg) = curve {
                section { h2 { "Learning curve" } (picture(svg)) }
            }
            @if let Some(predictions) = report.predictions { (examples(predictions, worst)) }
        }
    };
    document(report.title, content)
}

/// The page's part on the examples.
fn examples(predictions: &dyn Predictions, worst: &[usize]) -> Markup {
    let sample = sample(predictions.len(), SAMPLE);
    let errors = (0..predictions.len()).filter(|example| predictions.is_error(*example)).count();
    html! {
        (predictions.breakdown())
        section {
            h2 { "Worst errors" }
            @if worst.is_empty() {
                p.note { "There are none." }
            } @else {
                p.note { (worst.len()) " of " (errors) " errors, by their loss." }
            }
            @for (rank, example) in worst.iter().enumerate() { (card(predictions, *example, Some(rank + 1))) }
        }
        section {
            h2 { "A sample of all" }
            p.note { (sample.len()) " of " (predictions.len()) " examples, evenly spaced." }
            @for example in sample { (card(predictions, example, None)) }
        }
    }
}

/// An example, with its rank among the worst.
fn card(predictions: &dyn Predictions, example: usize, rank: Option<usize>) -> Markup {
    let error = predictions.is_error(example);
    html! {
        article.error[error] {
            p.head {
                @if let Some(rank) = rank { strong { "#" (rank) } }
                span { "loss " (shown(predictions.loss(example))) }
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

/// An example's name and its texts.
pub(super) fn texts(id: &str, texts: &[String]) -> Markup {
    html! {
        p.id dir="auto" { (id) }
        @for text in texts { p.text dir="auto" { (clipped(text)) } }
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
