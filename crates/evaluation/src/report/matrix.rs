//! A confusion matrix as files, and as a heat map that scales from 2 to 150 classes.

use maud::{Markup, html};

use super::{Table, html};
use crate::confusion::ConfusionMatrix;
use crate::figures::shown;
use crate::scores::ZeroDivision;

/// Up to this many classes, cells show their numbers.
const NUMBERED: usize = 20;

/// Up to this many column names are written horizontally instead of vertically.
const ACROSS: usize = 4;

/// The most frequent confusions listed.
const CONFUSIONS: usize = 20;

/// A cell's side without a number, and the room for names, in pixels.
const CELL: usize = 14;
const NAMES: usize = 140;

/// `confusion.tsv`: rows are gold classes, columns predicted ones.
pub(super) fn confusion(labels: &[String], matrix: &ConfusionMatrix) -> Table {
    let mut rows = vec![[&["gold/predicted".to_string()][..], labels].concat()];
    for (class, label) in labels.iter().enumerate() {
        let counts = matrix.row(class).iter().map(u64::to_string);
        rows.push([label.clone()].into_iter().chain(counts).collect());
    }
    Table { file: "confusion.tsv", rows }
}

const SCORES: [&str; 6] = ["class", "precision", "recall", "f1", "gold", "predicted"];

/// `classes.tsv`: each class's scores, and its gold and predicted counts.
pub(super) fn classes(labels: &[String], matrix: &ConfusionMatrix) -> Table {
    let mut rows = vec![SCORES.map(String::from).to_vec()];
    rows.extend(scores(labels, matrix));
    Table { file: "classes.tsv", rows }
}

fn scores(labels: &[String], matrix: &ConfusionMatrix) -> Vec<Vec<String>> {
    let row = |(class, label): (usize, &String)| {
        let counts = matrix.class(class);
        let scores = counts.scores(ZeroDivision::Zero);
        let [precision, recall, f1] = [scores.precision, scores.recall, scores.f1].map(shown);
        vec![label.clone(), precision, recall, f1, counts.gold.to_string(), counts.predicted.to_string()]
    };
    labels.iter().enumerate().map(row).collect()
}

/// The section of the page: the heat map, the most frequent confusions, each class's scores.
pub(super) fn section(title: &str, labels: &[String], matrix: &ConfusionMatrix) -> Markup {
    let confusions = confusions(labels, matrix);
    html! {
        section {
            h2 { (title) }
            p.note { "Rows are gold, columns predicted; colours are shares of the row." }
            div.scroll { @if labels.len() <= NUMBERED { (numbered(labels, matrix)) } @else { (map(labels, matrix)) } }
            @if labels.len() > 2 && !confusions.is_empty() {
                h3 { "Most frequent confusions" }
                div.pairs { (html::numbers(&["gold", "predicted", "examples", "of the class"], &confusions)) }
            }
            @if labels.len() > NUMBERED {
                details { summary { "All " (labels.len()) " classes" } (html::numbers(&SCORES, &scores(labels, matrix))) }
            } @else {
                h3 { "Classes" }
                (html::numbers(&SCORES, &scores(labels, matrix)))
            }
        }
    }
}

/// A cell's share of its row.
fn share(matrix: &ConfusionMatrix, gold: usize, predicted: usize) -> f64 {
    matrix.count(gold, predicted) as f64 / matrix.class(gold).gold.max(1) as f64
}

/// The opacity of the colour below a number, for a share of the whole from 0 to 1. A little shows that a cell is not
/// empty; more than the most would hide the number.
pub(super) fn strength(share: f64) -> f64 {
    const LEAST: f64 = 0.06;
    const MOST: f64 = 0.52;
    LEAST + (MOST - LEAST) * share.clamp(0.0, 1.0)
}

/// A table whose cells show their numbers.
fn numbered(labels: &[String], matrix: &ConfusionMatrix) -> Markup {
    let style = |gold: usize, predicted: usize| {
        let color = if gold == predicted { "right" } else { "wrong" };
        let strength = match matrix.count(gold, predicted) {
            0 => 0.0,
            _ => strength(share(matrix, gold, predicted)),
        };
        format!("background: rgba(var(--{color}), {strength:.2})")
    };
    html! {
        table.matrix {
            thead {
                tr {
                    th {}
                    @for label in labels {
                        th.tall[labels.len() > ACROSS] title=(label) { span dir="auto" { (label) } }
                    }
                }
            }
            tbody {
                @for (gold, label) in labels.iter().enumerate() {
                    tr {
                        th title=(label) dir="auto" { (label) }
                        @for (predicted, count) in matrix.row(gold).iter().enumerate() {
                            td style=(style(gold, predicted)) title={ (html::percent(share(matrix, gold, predicted))) " of " (label) } {
                                (count)
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A picture of small cells, whose numbers appear on hovering. Empty cells are not drawn.
fn map(labels: &[String], matrix: &ConfusionMatrix) -> Markup {
    let n = labels.len();
    let side = NAMES + n * CELL + 8;
    let at = |class: usize| NAMES + class * CELL;
    let name = |label: &str| match label.char_indices().nth(20) {
        Some((end, _)) => format!("{}…", &label[..end]),
        None => label.into(),
    };
    let cells = (0..n).flat_map(|gold| (0..n).map(move |predicted| (gold, predicted)));
    html! {
        svg.drawn.wide width=(side) height=(side) viewBox={ "0 0 " (side) " " (side) } role="img" aria-label="confusion matrix" {
            g.small {
                @for (class, label) in labels.iter().enumerate() {
                    text x=(NAMES - 4) y=(at(class) + CELL - 2) text-anchor="end" { (name(label)) }
                    text transform={ "translate(" (at(class) + CELL - 2) " " (NAMES - 4) ") rotate(-90)" } { (name(label)) }
                }
            }
            rect.frame x=(NAMES) y=(NAMES) width=(n * CELL) height=(n * CELL) {}
            @for (gold, predicted) in cells.filter(|(gold, predicted)| matrix.count(*gold, *predicted) > 0) {
                rect.right[gold == predicted].wrong[gold != predicted]
                    x=(at(predicted)) y=(at(gold)) width=(CELL - 1) height=(CELL - 1)
                    fill-opacity={ (format!("{:.2}", 0.25 + 0.75 * share(matrix, gold, predicted))) } {
                    title {
                        (labels[gold]) " → " (labels[predicted]) ": " (matrix.count(gold, predicted))
                        " (" (html::percent(share(matrix, gold, predicted))) ")"
                    }
                }
            }
        }
    }
}

/// The most frequent confusions: gold, predicted, count, gold total.
fn confusions(labels: &[String], matrix: &ConfusionMatrix) -> Vec<Vec<String>> {
    let n = labels.len();
    let pairs = (0..n).flat_map(|gold| (0..n).map(move |predicted| (gold, predicted)));
    let mut pairs: Vec<(usize, usize)> =
        pairs.filter(|(gold, predicted)| gold != predicted && matrix.count(*gold, *predicted) > 0).collect();
    pairs.sort_by_key(|(gold, predicted)| std::cmp::Reverse(matrix.count(*gold, *predicted)));
    pairs.truncate(CONFUSIONS);
    let row = |(gold, predicted): (usize, usize)| {
        vec![
            labels[gold].clone(),
            labels[predicted].clone(),
            matrix.count(gold, predicted).to_string(),
            html::percent(share(matrix, gold, predicted)),
        ]
    };
    pairs.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contrast of two colours (WCAG 2.2).
    fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
        let linear = |value: f64| match value / 255.0 {
            small if small <= 0.04045 => small / 12.92,
            value => ((value + 0.055) / 1.055).powf(2.4),
        };
        let [a, b] = [a, b].map(|c| 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn numbers_are_legible_on_the_strongest_colours() {
        let style = include_str!("style.css");
        let (_, dark) = style.split_once("prefers-color-scheme: dark").unwrap();
        for style in [style, dark] {
            let value = |name: &str| {
                let (_, rest) = style.split_once(&format!("--{name}: ")).unwrap();
                rest.split(';').next().unwrap()
            };
            let hex = |name| {
                let digits = value(name).trim_start_matches('#');
                std::array::from_fn(|i| f64::from(u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()))
            };
            let (paper, ink): ([f64; 3], [f64; 3]) = (hex("paper"), hex("ink"));
            for name in ["right", "wrong"] {
                let color: Vec<f64> = value(name).split(", ").map(|part| part.parse().unwrap()).collect();
                let most = strength(1.0);
                let below = std::array::from_fn(|i| most * color[i] + (1.0 - most) * paper[i]);
                assert!(contrast(ink, below) >= 4.5, "{name}: {}", contrast(ink, below));
            }
        }
    }

    #[test]
    fn the_most_frequent_confusions_come_first() {
        let labels = ["a", "b", "c"].map(String::from);
        let mut matrix = ConfusionMatrix::new(3);
        for (gold, predicted) in [(0, 0), (0, 1), (2, 1), (2, 1), (2, 2)] {
            matrix.add(gold, predicted);
        }
        let rows =
            [["c", "b", "2", "66.7 %"], ["a", "b", "1", "50.0 %"]].map(|row| row.map(String::from).to_vec());
        assert_eq!(confusions(&labels, &matrix), rows);
    }

    #[test]
    fn many_classes_are_drawn_without_their_empty_cells() {
        let labels: Vec<String> = (0..150).map(|i| format!("a class & its long name {i}")).collect();
        let mut matrix = ConfusionMatrix::new(150);
        (0..150).for_each(|i| matrix.add(i, i / 2));
        let html = section("Matrix", &labels, &matrix).into_string();
        // The frame, and a cell for each of the 150 pairs.
        assert_eq!(html.matches("<rect").count(), 151);
        assert!(html.contains("a class &amp; its long n…"));
    }
}
