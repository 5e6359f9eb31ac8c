//! Scores by source length, as an SVG plot.

use std::path::Path;

use plotters::prelude::*;

use super::OfLength;
use crate::{EvaluationError, Result};
use cloze_files::write_atomic;

/// Width and height of the picture.
const SIZE: (u32, u32) = (960, 540);

/// Length of a line in the legend, in pixels.
const LEGEND_LINE: i32 = 24;

/// The colours of the systems, in order.
const COLORS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 69, 65),
    RGBColor(44, 140, 60),
    RGBColor(148, 103, 189),
    RGBColor(227, 138, 31),
    RGBColor(110, 110, 110),
];

/// Draws a line for each system, from the shortest to the longest sentences, to an SVG file at `path`. All
/// systems translated the same lines; `metric` is the metric's name.
///
/// # Errors
/// [`EvaluationError::Plot`], and [`EvaluationError::Io`] of a file that cannot be written.
pub fn draw_by_length(path: &Path, metric: &str, systems: &[(String, Vec<OfLength>)]) -> Result<()> {
    let svg =
        render(metric, systems).map_err(|reason| EvaluationError::Plot { path: path.to_owned(), reason })?;
    Ok(write_atomic(path, svg.as_bytes())?)
}

/// The picture as SVG text; the error is the plotting library's message.
fn render(metric: &str, systems: &[(String, Vec<OfLength>)]) -> std::result::Result<String, String> {
    let lengths = systems.first().map_or(&[][..], |(_, lengths)| lengths);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(message)?;
        let titled = root
            .titled(&format!("{metric} by the length of the source"), ("sans-serif", 24))
            .map_err(message)?;
        let (low, high) = y_range(systems);
        // The last place is in it.
        let places = 0..lengths.len().saturating_sub(1);
        let mut chart = ChartBuilder::on(&titled)
            .margin(12)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(places.into_segmented(), low..high)
            .map_err(message)?;
        let label = |at: &SegmentValue<usize>| match at {
            SegmentValue::CenterOf(at) => {
                lengths.get(*at).map_or(String::new(), |of| format!("{} ({})", of.words(), of.n_lines))
            }
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .light_line_style(BLACK.mix(0.04))
            .bold_line_style(BLACK.mix(0.12))
            .axis_style(BLACK.mix(0.6))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 16))
            .x_desc("words of the source (lines)")
            .y_desc(metric)
            .max_light_lines(1)
            .x_labels(lengths.len().max(1))
            .y_labels(7)
            .x_label_formatter(&label)
            .y_label_formatter(&|y| format!("{y:.*}", if high - low < 3.0 { 1 } else { 0 }))
            .draw()
            .map_err(message)?;
        for ((name, lengths), color) in systems.iter().zip(COLORS.into_iter().cycle()) {
            let points = lengths.iter().enumerate().map(|(at, of)| (SegmentValue::CenterOf(at), of.value));
            let points: Vec<_> = points.filter(|(_, y)| y.is_finite()).collect();
            let dots = points.iter().map(|point| Circle::new(point.clone(), 4, color.filled()));
            chart.draw_series(dots).map_err(message)?;
            let line = LineSeries::new(points, color.stroke_width(2));
            chart.draw_series(line).map_err(message)?.label(name.as_str()).legend(move |(x, y)| {
                PathElement::new([(x, y), (x + LEGEND_LINE, y)], color.stroke_width(2))
            });
        }
        if !lengths.is_empty() {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperRight)
                .legend_area_size(LEGEND_LINE + 8)
                .margin(8)
                .background_style(WHITE.mix(0.85))
                .border_style(BLACK.mix(0.2))
                .label_font(("sans-serif", 14))
                .draw()
                .map_err(message)?;
        }
        root.present().map_err(message)?;
    }
    Ok(svg)
}

fn message(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The values shown, with a margin, and room for the legend above them.
fn y_range(systems: &[(String, Vec<OfLength>)]) -> (f64, f64) {
    let values = systems.iter().flat_map(|(_, lengths)| lengths.iter().map(|of| of.value));
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| (low.min(y), high.max(y)));
    if low > high {
        return (0.0, 1.0);
    }
    let margin = ((high - low) * 0.08).max(0.5);
    let room = (high - low).max(1.0) * 0.08 * systems.len() as f64;
    ((low - margin).max(0.0), high + margin + room)
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
        let svg = render("BLEU", &systems).unwrap();
        for text in [
            "BLEU by the length",
            "a &lt;1&gt;",
            "0–10 (7)",
            "11–20 (7)",
            "&gt; 20 (7)",
            "words of the source",
        ] {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
        assert_eq!(svg.matches("<circle").count(), 6);
    }

    #[test]
    fn odd_systems_still_make_a_picture() {
        for systems in
            [vec![], vec![("a".to_owned(), vec![])], vec![("a".to_owned(), vec![of(0, None, f64::NAN)])]]
        {
            let svg = render("TER", &systems).unwrap();
            assert!(svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"));
        }
    }
}
