//! The picture of the frontier: how good a model is against its latency and against its bytes.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;

/// A model in the picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Its number in the table.
    pub number: usize,
    /// Its figure, in percent.
    pub figure: f64,
    pub latency_ms: f64,
    pub megabytes: f64,
}

/// What a model costs.
type Cost = fn(&Point) -> f64;

/// The models than which none is both better and cheaper.
pub fn best(points: &[Point], cost: Cost) -> Vec<Point> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| cost(a).total_cmp(&cost(b)).then(b.figure.total_cmp(&a.figure)));
    let mut best: Vec<Point> = Vec::new();
    for point in sorted {
        if best.last().is_none_or(|last| point.figure > last.figure) {
            best.push(point);
        }
    }
    best
}

/// Draws both panels.
pub fn draw(path: &Path, figure: &str, points: &[Point]) -> Result<()> {
    let area = SVGBackend::new(path, (960, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let range = |of: Cost| {
        let (low, high) = points
            .iter()
            .map(of)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        (low, high)
    };
    let (low, high) = range(|point| point.figure);
    let margin = (0.08 * (high - low)).max(0.5);
    let panels: [(&str, Cost); 2] =
        [("latency, ms", |point| point.latency_ms), ("weights, MB", |point| point.megabytes)];
    for ((name, cost), panel) in panels.into_iter().zip(area.split_evenly((1, 2))) {
        let (least, most) = range(cost);
        let mut chart = ChartBuilder::on(&panel)
            .margin(10)
            .x_label_area_size(38)
            .y_label_area_size(46)
            .build_cartesian_2d((least / 1.2..most * 1.25).log_scale(), low - margin..high + margin)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(name)
            .y_desc(figure)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_labels(6)
            .draw()?;
        let line = best(points, cost);
        chart.draw_series(LineSeries::new(
            line.iter().map(|point| (cost(point), point.figure)),
            BLUE.stroke_width(1),
        ))?;
        for point in points {
            let place = (cost(point), point.figure);
            let style = if line.contains(point) { BLUE.filled() } else { BLACK.mix(0.4).filled() };
            chart.draw_series([Circle::new(place, 4, style)])?;
            let number =
                EmptyElement::at(place) + Text::new(point.number.to_string(), (6, -12), ("sans-serif", 13));
            chart.draw_series([number])?;
        }
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_the_frontier_none_is_better_and_cheaper() {
        let point = |number, figure, megabytes| Point { number, figure, latency_ms: 1.0, megabytes };
        let points = [point(1, 88.0, 90.0), point(2, 86.0, 45.0), point(3, 85.0, 60.0), point(4, 87.5, 20.0)];
        let numbers: Vec<usize> =
            best(&points, |point| point.megabytes).iter().map(|point| point.number).collect();
        assert_eq!(numbers, [4, 1]);
    }

    #[test]
    fn a_picture_is_drawn() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("frontier.svg");
        let points = [1.0, 2.0].map(|x| Point {
            number: x as usize,
            figure: 80.0 + x,
            latency_ms: x,
            megabytes: 10.0 * x,
        });
        draw(&path, "accuracy", &points).unwrap();
        let drawn = std::fs::read_to_string(&path).unwrap();
        roxmltree::Document::parse(&drawn).unwrap();
        assert!(drawn.contains("latency, ms"));
    }
}
