//! Scores by source length, as an SVG plot.

use std::path::Path;

use super::OfLength;
use crate::Result;
use crate::chart::{Chart, ChartLine, ChartPanel, Look, Places};
use crate::table::grouped;
use cloze_files::write_atomic;

/// Draws a line for each system, from the shortest to the longest sentences, to an SVG file at `path`. All
/// systems translated the same lines; `metric` is the metric's name.
///
/// # Errors
/// [`EvaluationError::Io`](crate::EvaluationError::Io) of a file that cannot be written.
pub fn draw_by_length(path: &Path, metric: &str, systems: &[(String, Vec<OfLength>)]) -> Result<()> {
    Ok(write_atomic(path, chart(metric, systems).to_svg().as_bytes())?)
}

fn chart(metric: &str, systems: &[(String, Vec<OfLength>)]) -> Chart {
    let lengths = systems.first().map_or(&[][..], |(_, lengths)| lengths);
    let name = |of: &OfLength| format!("{}\n({})", of.words(), grouped(of.n_lines as u64));
    let line = |(color, (name, lengths)): (usize, &(String, Vec<OfLength>))| ChartLine {
        label: name.clone(),
        look: Look::Marked,
        color,
        points: lengths.iter().enumerate().map(|(at, of)| (at as f64, of.value)).collect(),
    };
    let lines = systems.iter().enumerate().map(line).collect();
    Chart {
        title: format!("{metric} by the length of the source"),
        axis: "words of the source (lines)".into(),
        places: Places::Names(lengths.iter().map(name).collect()),
        panels: vec![ChartPanel { axis: metric.into(), lines }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(from: usize, to: Option<usize>, value: f64) -> OfLength {
        OfLength { from, to, n_lines: 7, value }
    }

    #[test]
    fn systems_and_lengths_are_named() {
        let lengths =
            |shift: f64| vec![of(0, Some(10), 30.0 + shift), of(11, Some(20), 25.5), of(21, None, 20.0)];
        let systems = [("a <1>".to_owned(), lengths(0.0)), ("b".to_owned(), lengths(4.0))];
        let svg = chart("BLEU", &systems).to_svg();
        for text in [
            "BLEU by the length",
            "a &lt;1&gt;",
            ">0–10<",
            ">11–20<",
            ">&gt; 20<",
            ">(7)<",
            "words of the source",
        ] {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
        // A point for each length, and one in the legend.
        assert_eq!(svg.matches("<circle").count(), 2 * 4);
    }

    #[test]
    fn odd_systems_still_make_a_picture() {
        for systems in
            [vec![], vec![("a".to_owned(), vec![])], vec![("a".to_owned(), vec![of(0, None, f64::NAN)])]]
        {
            let svg = chart("TER", &systems).to_svg();
            assert!(svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"));
        }
    }
}
