//! The learning curve as an SVG plot: panels of lines over the steps.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::Record;
use crate::error::{Result, TrainerError};
use cloze_evaluation::figures::{Better, Figures};
use cloze_evaluation::table;
use cloze_files::write_atomic;

/// Width and height of the plot.
const SIZE: (u32, u32) = (960, 720);

/// Length of a line in the legend, in pixels.
const LEGEND_LINE: i32 = 24;

const TRAINING: RGBColor = RGBColor(31, 119, 180);
const BASELINE: RGBColor = RGBColor(110, 110, 110);
/// The colours of evaluation metrics, in the order of a panel's lines.
const MEASURED: [RGBColor; 4] =
    [RGBColor(214, 69, 65), RGBColor(44, 140, 60), RGBColor(148, 103, 189), RGBColor(227, 138, 31)];

/// A panel of the plot: lines over the same axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The label of the vertical axis, such as `loss (nats)`.
    pub axis: String,
    /// Its lines; lines without points are omitted from the legend.
    pub lines: Vec<Line>,
}

/// A line of a panel.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its label in the legend.
    pub label: String,
    /// The source of its points.
    pub source: Source,
}

/// The source of a line's points, which determines its style.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The smoothed training loss, over a faint line of the raw values.
    Loss,
    /// A term of the training loss, by name; drawn the same way.
    LossTerm(String),
    /// A metric of the evaluations on a split: a line with dots.
    Figure {
        /// The split.
        split: String,
        /// The metric's name.
        figure: String,
    },
    /// A baseline metric: a dashed line.
    Baseline {
        /// The split.
        split: String,
        /// The metric's name.
        figure: String,
    },
}

impl Source {
    /// The finite points, by step.
    fn points(&self, records: &[Record]) -> Vec<(f64, f64)> {
        let value = |record: &Record| match (self, record) {
            (Self::Loss, Record::Train(record)) => Some(record.loss),
            (Self::LossTerm(name), Record::Train(record)) => {
                record.losses.iter().find(|(known, _)| known == name).map(|(_, loss)| *loss)
            }
            (
                Self::Figure { split, figure } | Self::Baseline { split, figure },
                Record::Evaluation(record),
            ) if record.split == *split => record.figures.get(figure),
            _ => None,
        };
        let points = records.iter().filter_map(|record| Some((record.step() as f64, value(record)?)));
        points.filter(|(_, y)| y.is_finite()).collect()
    }
}

/// The default panels of a run: the training loss, plus the loss on `split` if measured there; below it the
/// main metric on `split`, unless that is the loss.
pub fn usual_panels(records: &[Record], split: Option<&str>) -> Vec<Panel> {
    let training = Line { label: "training (smoothed)".into(), source: Source::Loss };
    let mut upper = Panel { axis: "loss".into(), lines: vec![training] };
    let figures = split.and_then(|split| figures_on(records, split).map(|figures| (split, figures)));
    let Some((split, figures)) = figures else { return vec![upper] };
    let line = |label: String, figure: &str| Line {
        label,
        source: Source::Figure { split: split.into(), figure: figure.into() },
    };
    let (main, _) = figures.main();
    if figures.get("loss").is_some() {
        upper.lines.push(line(split.into(), "loss"));
    }
    if main == "loss" {
        return vec![upper];
    }
    vec![upper, Panel { axis: "figure".into(), lines: vec![line(format!("{main}, {split}"), main)] }]
}

/// The metrics of the first evaluation on a split.
fn figures_on<'a>(records: &'a [Record], split: &str) -> Option<&'a Figures> {
    records.iter().find_map(|record| match record {
        Record::Evaluation(record) if record.split == split => Some(&record.figures),
        _ => None,
    })
}

/// A line with its points and style.
struct Series<'a> {
    label: &'a str,
    color: RGBColor,
    look: Look,
    points: Vec<(f64, f64)>,
}

/// A line's style.
#[derive(PartialEq)]
enum Look {
    /// A line with a dot at each of a few points.
    Dotted,
    /// A smoothed line over a faint line of the raw values.
    Smoothed,
    /// A dashed line: a baseline.
    Dashed,
}

impl Panel {
    fn series(&self, records: &[Record]) -> Vec<Series<'_>> {
        let mut measured = MEASURED.into_iter().cycle();
        let series = self.lines.iter().map(|line| {
            let (look, color) = match line.source {
                Source::Loss | Source::LossTerm(_) => (Look::Smoothed, TRAINING),
                Source::Figure { .. } => (Look::Dotted, measured.next().unwrap_or(BASELINE)),
                Source::Baseline { .. } => (Look::Dashed, BASELINE),
            };
            Series { label: &line.label, color, look, points: line.source.points(records) }
        });
        series.collect()
    }

    /// Whether its lines rise into the legend's corner.
    fn rises(&self) -> bool {
        self.lines.iter().any(|line| match &line.source {
            Source::Figure { figure, .. } => Better::of(figure) == Better::Higher,
            _ => false,
        })
    }
}

/// Draws `panels` of `records` to an SVG file at `path`, under `title`.
///
/// # Errors
/// [`TrainerError::Plot`], and [`TrainerError::Io`] for a file that cannot be written.
pub fn draw(path: &Path, title: &str, records: &[Record], panels: &[Panel]) -> Result<()> {
    let svg = render(title, records, panels)
        .map_err(|reason| TrainerError::Plot { path: path.to_owned(), reason })?;
    Ok(write_atomic(path, svg.as_bytes())?)
}

/// The plot as SVG text; the error is the plotting library's message.
fn render(title: &str, records: &[Record], panels: &[Panel]) -> std::result::Result<String, String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = root.fill(&WHITE).map_err(message).and_then(|()| {
            let titled = root.titled(title, ("sans-serif", 24)).map_err(message)?;
            // The upper one is as much higher as the labels below the lower one are.
            let areas = match panels.len() {
                2 => {
                    let (upper, lower) = titled.split_vertically(55.percent_height());
                    vec![upper, lower]
                }
                n => titled.split_evenly((n.max(1), 1)),
            };
            for (place, (area, shown)) in areas.iter().zip(panels).enumerate() {
                let x_label = if place + 1 == panels.len() { "step" } else { "" };
                let headroom = if shown.rises() { 0.35 } else { 0.0 };
                panel(area, x_label, &shown.axis, headroom, &shown.series(records))?;
            }
            Ok(())
        });
        drawn.and_then(|()| root.present().map_err(message))?;
    }
    Ok(svg)
}

fn message(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Draws one panel with its axes and legend; without any points, empty axes. `headroom` is the room for the
/// legend above rising lines, as a fraction of their range.
fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    x_label: &str,
    y_label: &str,
    headroom: f64,
    series: &[Series<'_>],
) -> std::result::Result<(), String> {
    let last_step = points(series).map(|(x, _)| x).fold(1.0, f64::max);
    let (low, high) = y_range(series);
    let high = high + headroom * (high - low);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(24)
        .x_label_area_size(if x_label.is_empty() { 24 } else { 44 })
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..last_step, low..high)
        .map_err(message)?;
    chart
        .configure_mesh()
        .light_line_style(BLACK.mix(0.04))
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.6))
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 16))
        .x_desc(x_label)
        .y_desc(y_label)
        .max_light_lines(1)
        .x_labels(9)
        .y_labels(7)
        .x_label_formatter(&|step| table::grouped(*step as u64))
        .y_label_formatter(&|y| format!("{y:.*}", if high - low < 0.5 { 2 } else { 1 }))
        .draw()
        .map_err(message)?;
    for line in series.iter().filter(|line| !line.points.is_empty()) {
        draw_line(&mut chart, line, last_step)?;
    }
    if points(series).next().is_some() {
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
    Ok(())
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn draw_line(
    chart: &mut Chart<'_, '_>,
    line: &Series<'_>,
    last_step: f64,
) -> std::result::Result<(), String> {
    let color = line.color;
    let thick = color.stroke_width(2);
    let drawn = match line.look {
        Look::Dotted => {
            let dots = line.points.iter().map(|&point| Circle::new(point, 3, color.filled()));
            chart.draw_series(dots).map_err(message)?;
            chart.draw_series(LineSeries::new(line.points.iter().copied(), thick)).map_err(message)?
        }
        Look::Smoothed => {
            let raw = LineSeries::new(line.points.iter().copied(), color.mix(0.25));
            chart.draw_series(raw).map_err(message)?;
            chart.draw_series(LineSeries::new(smoothed(&line.points), thick)).map_err(message)?
        }
        Look::Dashed => {
            // From edge to edge, so that a single evaluation shows too.
            let (Some(first), Some(last)) = (line.points.first(), line.points.last()) else {
                return Ok(());
            };
            let ends =
                [(0.0, first.1)].into_iter().chain(line.points.iter().copied()).chain([(last_step, last.1)]);
            chart.draw_series(DashedLineSeries::new(ends, 8, 5, thick)).map_err(message)?
        }
    };
    // One dash longer than the sample is a solid line.
    let dash = if line.look == Look::Dashed { 8 } else { LEGEND_LINE };
    drawn.label(line.label).legend(move |(x, y)| {
        let sample = [(x, y), (x + LEGEND_LINE, y)];
        DashedPathElement::new(sample, dash, 5, thick)
    });
    Ok(())
}

fn points(series: &[Series<'_>]) -> impl Iterator<Item = (f64, f64)> {
    series.iter().flat_map(|line| line.points.iter().copied())
}

/// The range of values, with a margin; at least 0.1 wide, so that axis labels differ.
fn y_range(series: &[Series<'_>]) -> (f64, f64) {
    let (low, high) = points(series)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (_, y)| (low.min(y), high.max(y)));
    if low > high {
        return (0.0, 1.0);
    }
    let margin = ((high - low) * 0.06).max(0.05);
    // A correlation may be below 0.
    let floor = if low < 0.0 { f64::NEG_INFINITY } else { 0.0 };
    ((low - margin).max(floor), high + margin)
}

/// The bias-corrected exponential moving average of the values, over about a thirtieth of them.
fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let keep = 1.0 - 1.0 / (points.len() as f64 / 30.0).max(1.0);
    let (mut sum, mut weight) = (0.0, 0.0);
    points
        .iter()
        .map(|&(x, y)| {
            sum = sum * keep + y;
            weight = weight * keep + 1.0;
            (x, sum / weight)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{EvaluationRecord, TrainRecord};
    use super::*;

    fn train(step: u64, loss: f64) -> Record {
        let losses = vec![("masked_loss".to_owned(), loss - 0.5)];
        Record::Train(TrainRecord { step, loss, losses, ..Default::default() })
    }

    fn evaluation(step: u64, split: &str, figures: &[(&str, f64)]) -> Record {
        let figures = Figures::new(10, figures.iter().copied());
        Record::Evaluation(EvaluationRecord { step, split: split.into(), figures, seconds: 1.0 })
    }

    fn panels() -> Vec<Panel> {
        let figure = |figure: &str| Source::Figure { split: "dev".into(), figure: figure.into() };
        let baseline = Source::Baseline { split: "dev".into(), figure: "chance".into() };
        let line = |label: &str, source| Line { label: label.into(), source };
        let lines = vec![
            line("training", Source::LossTerm("masked_loss".into())),
            line("measured <1>", figure("loss")),
        ];
        let lower =
            vec![line("hits", figure("accuracy")), line("pairs", figure("pairs")), line("chance", baseline)];
        vec![Panel { axis: "nats".into(), lines }, Panel { axis: "share".into(), lines: lower }]
    }

    #[test]
    fn a_run_is_drawn_with_title_axes_and_legend() {
        let records = [
            train(1, 8.0),
            train(2, 7.0),
            evaluation(2, "dev", &[("loss", 7.2), ("accuracy", 0.5), ("chance", 0.25)]),
            train(3, 6.0),
            evaluation(4, "dev", &[("loss", 6.1), ("accuracy", 0.6), ("chance", 0.25)]),
        ];
        let svg = render("first run <1>", &records, &panels()).unwrap();
        for text in [
            "first run &lt;1&gt;",
            "step",
            "nats",
            "share",
            "training",
            "measured &lt;1&gt;",
            "hits",
            "chance",
        ] {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(!svg.contains("pairs"), "the legend names only what is drawn");
        assert!(svg.trim_end().ends_with("</svg>"));
        assert_eq!(panels()[0].series(&records)[0].points, [(1.0, 7.5), (2.0, 6.5), (3.0, 5.5)]);
    }

    #[test]
    fn a_run_that_says_nothing_has_its_loss_and_its_main_figure() {
        let records = [
            train(5, 2.0),
            evaluation(6, "dev", &[("pearson", -0.2), ("loss", f64::NAN)]),
            train(10, 1.0),
            evaluation(12, "dev", &[("pearson", 0.7), ("loss", f64::NAN)]),
            evaluation(12, "test", &[("pearson", 0.6), ("loss", 1.0)]),
        ];
        let panels = usual_panels(&records, Some("dev"));
        let [upper, lower] = &panels[..] else { panic!("two panels") };
        let figure = lower.series(&records);
        assert_eq!(
            (figure[0].label, &figure[0].points[..]),
            ("pearson, dev", &[(6.0, -0.2), (12.0, 0.7)][..])
        );
        assert!(lower.rises() && !upper.rises());
        assert!(y_range(&figure).0 < -0.2);
        let [training, dev] = &upper.series(&records)[..] else { panic!("two lines") };
        assert_eq!((training.points.len(), dev.points.len()), (2, 0));
        // Without anything measured there is one panel, and likewise where the loss is the figure.
        assert_eq!(usual_panels(&records, None).len(), 1);
        assert_eq!(usual_panels(&[evaluation(1, "dev", &[("loss", 1.0)])], Some("dev")).len(), 1);
        assert_eq!(usual_panels(&records[..1], Some("dev")).len(), 1);
    }

    #[test]
    fn odd_records_still_make_a_picture() {
        for records in [
            vec![],
            vec![train(1, f64::NAN)],
            vec![train(1, 3.0)],
            vec![evaluation(0, "dev", &[("loss", 3.0)])],
            vec![
                train(1, f64::NAN),
                train(2, 5.0),
                evaluation(2, "dev", &[("loss", f64::NAN), ("accuracy", f64::NEG_INFINITY)]),
                train(3, f64::INFINITY),
            ],
        ] {
            for panels in [panels(), usual_panels(&records, Some("dev")), Vec::new()] {
                let svg = render("odd", &records, &panels).unwrap();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{records:?}");
            }
        }
    }

    #[test]
    fn smoothing_keeps_a_constant_and_averages_noise() {
        let constant: Vec<_> = (0..300).map(|x| (f64::from(x), 2.0)).collect();
        assert!(smoothed(&constant).iter().all(|(_, y)| (y - 2.0).abs() < 1e-12));
        let noisy: Vec<_> = (0..300).map(|x| (f64::from(x), f64::from(x % 2))).collect();
        let (_, last) = smoothed(&noisy)[299];
        assert!((last - 0.5).abs() < 0.06, "{last}");
        // Few points are left as they are.
        assert_eq!(smoothed(&[(1.0, 5.0), (2.0, 3.0)]), [(1.0, 5.0), (2.0, 3.0)]);
    }
}
