//! How a pretraining step grows.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::*;

use super::measure::{self, Measured};
use super::processor::Processor;
use super::report;
use crate::step;

/// How to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Put the table into benches/README.md and the plot beside it.
    #[arg(long)]
    write: bool,
}

/// What varies, and the values it takes; all else is BERT-mini, 16 × 128, vocabulary 8,192, f32.
const AXES: [(&str, &[usize]); 4] = [
    ("batch", &[1, 4, 16, 64]),
    ("length", &[64, 128, 256, 512]),
    ("layers", &[2, 4, 8, 16]),
    ("threads", &[1, 2]),
];

/// A measured point.
struct Point {
    axis: &'static str,
    value: usize,
    measured: Measured,
}

pub fn run(args: &Args) -> Result<()> {
    let executable = measure::build("cloze-trainer", "pretraining_step")?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut points = Vec::new();
    for (axis, values) in AXES {
        for &value in values.iter().filter(|&&value| axis != "threads" || value <= cores) {
            eprintln!("{axis} {value}");
            let of = |name: &str, usual: usize| if axis == name { value } else { usual }.to_string();
            let (batch, length, layers) = (of("batch", 16), of("length", 128), of("layers", 4));
            let arguments = ["mini", &batch, &length, "8192", "6", "f32", &layers];
            let mut command = measure::ours(&executable, &arguments);
            command.env("RAYON_NUM_THREADS", of("threads", cores));
            points.push(Point { axis, value, measured: Measured::from(&mut command)? });
        }
    }
    let rows = points.iter().map(|Point { axis, value, measured }| {
        [
            format!("{axis} {value}"),
            report::short(measured.ms),
            report::short(measured.per_s),
            format!("{:.0} %", 100.0 * measured.gflop / measured.ms * 1e3 / measured.gflop_per_s),
            report::short(measured.peak_mb),
        ]
    });
    let mut text = report::table(["", "ms", "tokens/s", "of the product's rate", "peak MB"], rows);
    text += &format!(
        "\n\nBERT-mini, 16 × 128, vocabulary 8,192, f32, {cores} threads but for what varies. {}.",
        report::machine(None)
    );
    println!("{text}");
    if args.write {
        let plot = format!("scaling-{}.svg", Processor::here().class.to_string().to_lowercase());
        draw(&step::root().join("benches").join(&plot), &points)?;
        report::write_class("scaling", &format!("{text}\n\n![Tokens a second]({plot})"))?;
    }
    Ok(())
}

/// Tokens a second against what varies, one panel each.
fn draw(path: &Path, points: &[Point]) -> Result<()> {
    let area = SVGBackend::new(path, (960, 280)).into_drawing_area();
    area.fill(&WHITE)?;
    let top = points.iter().map(|point| point.measured.per_s).fold(0.0, f64::max) * 1.1;
    for ((axis, _), panel) in AXES.iter().zip(area.split_evenly((1, AXES.len()))) {
        let line: Vec<(f64, f64)> = points
            .iter()
            .filter(|point| point.axis == *axis)
            .map(|point| ((point.value as f64).log2(), point.measured.per_s))
            .collect();
        let (Some(first), Some(last)) = (line.first(), line.last()) else {
            continue;
        };
        let mut chart = ChartBuilder::on(&panel)
            .margin(8)
            .caption(axis, ("sans-serif", 15))
            .x_label_area_size(24)
            .y_label_area_size(52)
            .build_cartesian_2d(first.0 - 0.2..last.0 + 0.2, 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(line.len())
            .x_label_formatter(&|x| format!("{:.0}", x.exp2()))
            .y_labels(5)
            .y_label_formatter(&|y| report::short(*y))
            .draw()?;
        chart.draw_series(LineSeries::new(line.iter().copied(), BLUE.stroke_width(2)))?;
        chart.draw_series(line.iter().map(|&point| Circle::new(point, 3, BLUE.filled())))?;
    }
    area.present()?;
    Ok(())
}
