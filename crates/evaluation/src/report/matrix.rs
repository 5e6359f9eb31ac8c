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

/// A table whose cells show their numbers.
fn numbered(labels: &[String], matrix: &ConfusionMatrix) -> Markup {
    let style = |gold: usize, predicted: usize| {
        let color = if gold == predicted { "right" } else { "wrong" };
        // A little of the colour shows that a cell is not empty; more than this would hide its number.
        let strength = match matrix.count(gold, predicted) {
            0 => 0.0,
            _ => 0.06 + 0.54 * share(matrix, gold, predicted),
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
