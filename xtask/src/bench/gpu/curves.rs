//! The losses of both sides, which should lie on top of one another.

use std::path::Path;

use anyhow::{Context, Result};
use plotters::prelude::*;

/// Both sides' losses in a precision, a number for each step.
pub struct Pair {
    pub precision: &'static str,
    pub ours: Vec<f64>,
    pub theirs: Vec<f64>,
}

impl Pair {
    /// The largest difference of a step's losses; none where a loss is not a number, or a side has none.
    fn difference(&self) -> Option<f64> {
        let differences = self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| (ours - theirs).abs());
        let largest = differences.reduce(|a, b| if b.is_nan() || b > a { b } else { a })?;
        largest.is_finite().then_some(largest)
    }

    /// How far the sides are from one another, in words.
    pub fn told(&self) -> String {
        let steps = self.ours.len().min(self.theirs.len());
        let last = steps.checked_sub(1).map_or(f64::NAN, |last| self.ours[last]);
        match self.difference() {
            Some(largest) => format!(
                "in {} they differ by at most {largest:.4} nats in {steps} steps, which end at {last:.3}",
                self.precision
            ),
            None => format!("in {} they cannot be compared", self.precision),
        }
    }
}

/// Ours as lines, theirs as dots on them, one panel for each precision.
pub fn draw(path: &Path, pairs: &[Pair]) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let area = SVGBackend::new(path, (480 * pairs.len().max(1) as u32, 300)).into_drawing_area();
    area.fill(&WHITE)?;
    for (pair, panel) in pairs.iter().zip(area.split_evenly((1, pairs.len().max(1)))) {
        let points = |losses: &[f64]| -> Vec<(f64, f64)> {
            (1..)
                .zip(losses)
                .map(|(step, loss)| (f64::from(step), *loss))
                .filter(|(_, loss)| loss.is_finite())
                .collect()
        };
        let (ours, theirs) = (points(&pair.ours), points(&pair.theirs));
        let losses = || ours.iter().chain(&theirs).map(|(_, loss)| *loss);
        let (least, most) =
            (losses().fold(f64::INFINITY, f64::min), losses().fold(f64::NEG_INFINITY, f64::max));
        if !least.is_finite() {
            continue;
        }
        let margin = 0.05 * (most - least).max(0.1);
        let steps = pair.ours.len().max(pair.theirs.len()) as f64;
        let mut chart = ChartBuilder::on(&panel)
            .margin(8)
            .caption(format!("loss by step, {}", pair.precision), ("sans-serif", 15))
            .x_label_area_size(24)
            .y_label_area_size(44)
            .build_cartesian_2d(0.0..steps + 1.0, least - margin..most + margin)?;
        chart.configure_mesh().light_line_style(TRANSPARENT).x_labels(6).y_labels(6).draw()?;
        chart
            .draw_series(LineSeries::new(ours.iter().copied(), BLUE.stroke_width(2)))?
            .label("ours")
            .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], BLUE.stroke_width(2)));
        chart
            .draw_series(theirs.iter().map(|&point| Circle::new(point, 2, RED.filled())))?
            .label("PyTorch")
            .legend(|(x, y)| Circle::new((x + 8, y), 2, RED.filled()));
        chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    }
    area.present().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ours: &[f64], theirs: &[f64]) -> Pair {
        Pair { precision: "f32", ours: ours.to_vec(), theirs: theirs.to_vec() }
    }

    #[test]
    fn the_largest_difference_is_told() {
        let told = pair(&[10.0, 9.0, 8.5], &[10.0, 9.25, 8.5]).told();
        assert_eq!(told, "in f32 they differ by at most 0.2500 nats in 3 steps, which end at 8.500");
        for none in [pair(&[], &[1.0]), pair(&[1.0, f64::NAN], &[1.0, 1.0])] {
            assert_eq!(none.told(), "in f32 they cannot be compared");
        }
    }

    #[test]
    fn a_picture_has_both_sides() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/losses.svg");
        draw(&path, &[pair(&[3.0, 2.0], &[3.0, f64::NAN]), pair(&[], &[])]).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        assert!(
            picture.contains("ours") && picture.contains("PyTorch") && picture.contains("loss by step, f32")
        );
    }
}
