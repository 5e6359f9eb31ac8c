//! The learning curve as an SVG picture: losses above, accuracies or a task's figures below.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::Record;
use crate::error::{Result, TrainerError};
use crate::evaluation::figures::Figures;

/// Width and height of the picture.
const SIZE: (u32, u32) = (960, 720);

/// Length of a line in the legend, in pixels.
const LEGEND_LINE: i32 = 24;

const TRAINING: RGBColor = RGBColor(31, 119, 180);
const HELD_OUT: RGBColor = RGBColor(214, 69, 65);
const PAIRS: RGBColor = RGBColor(44, 140, 60);
const BASELINE: RGBColor = RGBColor(110, 110, 110);

/// A line of a panel: its points by step.
struct Series {
    label: String,
    color: RGBColor,
    look: Look,
    points: Vec<(f64, f64)>,
}

/// How a line is drawn.
#[derive(PartialEq)]
enum Look {
    /// A line with a dot at each point: few points, each measured.
    Dotted,
    /// A smoothed line over the faint one of the points.
    Smoothed,
    /// A dashed line: what the others are to beat.
    Dashed,
}

/// Draws the curve of `records` to an SVG file at `path`, under `title`: the masked-token loss in training
/// (smoothed) and held out, and held-out accuracies, each beside the unigram baseline's; of fine-tuning, the loss in
/// training and on development data, and the main figure on development data.
///
/// # Errors
/// [`TrainerError::Plot`].
pub fn draw(path: &Path, title: &str, records: &[Record]) -> Result<()> {
    let svg =
        render(title, records).map_err(|reason| TrainerError::Plot { path: path.to_owned(), reason })?;
    std::fs::write(path, svg).map_err(TrainerError::io("write", path))
}

/// The picture as SVG text; the error is the plotting library's message.
fn render(title: &str, records: &[Record]) -> std::result::Result<String, String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = root.fill(&WHITE).map_err(message).and_then(|()| {
            let titled = root.titled(title, ("sans-serif", 24)).map_err(message)?;
            let (upper, lower) = titled.split_vertically(55.percent_height());
            let pretraining = |record: &Record| matches!(record, Record::Train(_) | Record::Eval(_));
            let figure = main_figure(records);
            match records.iter().any(pretraining) {
                false if figure.points.is_empty() => {
                    panel(&titled, "step", "loss", 0.0, &tuning_losses(records))
                }
                false => {
                    panel(&upper, "", "loss", 0.0, &tuning_losses(records))?;
                    panel(&lower, "step", "figure", 0.35, &[figure])
                }
                true => {
                    panel(&upper, "", "masked-token loss (nats)", 0.0, &losses(records))?;
                    panel(&lower, "step", "accuracy", 0.35, &accuracies(records))
                }
            }
        });
        drawn.and_then(|()| root.present().map_err(message))?;
    }
    Ok(svg)
}

fn message(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The points of `value` over the evaluations.
fn held_out(records: &[Record], value: impl Fn(&super::EvalRecord) -> Option<f64>) -> Vec<(f64, f64)> {
    let points = records.iter().filter_map(|record| match record {
        Record::Eval(eval) => Some((eval.step as f64, value(eval)?)),
        _ => None,
    });
    points.filter(|(_, y)| y.is_finite()).collect()
}

/// The line of the loss in training.
fn training_loss(points: impl Iterator<Item = (f64, f64)>) -> Series {
    Series {
        label: "training (smoothed)".into(),
        color: TRAINING,
        look: Look::Smoothed,
        points: points.filter(|(_, y)| y.is_finite()).collect(),
    }
}

fn losses(records: &[Record]) -> Vec<Series> {
    let training = records.iter().filter_map(|record| match record {
        Record::Train(train) => Some((train.step as f64, train.masked_loss)),
        _ => None,
    });
    vec![
        training_loss(training),
        Series {
            label: "held out".into(),
            color: HELD_OUT,
            look: Look::Dotted,
            points: held_out(records, |eval| Some(eval.masked_loss)),
        },
        Series {
            label: "unigram baseline".into(),
            color: BASELINE,
            look: Look::Dashed,
            points: held_out(records, |eval| Some(eval.unigram_loss)),
        },
    ]
}

fn accuracies(records: &[Record]) -> Vec<Series> {
    vec![
        Series {
            label: "masked tokens, held out".into(),
            color: HELD_OUT,
            look: Look::Dotted,
            points: held_out(records, |eval| Some(eval.masked_accuracy)),
        },
        Series {
            label: "sentence pairs, held out".into(),
            color: PAIRS,
            look: Look::Dotted,
            points: held_out(records, |eval| eval.pair_accuracy),
        },
        Series {
            label: "unigram baseline".into(),
            color: BASELINE,
            look: Look::Dashed,
            points: held_out(records, |eval| Some(eval.unigram_accuracy)),
        },
    ]
}

/// The points of `value` over the evaluations on development data.
fn dev(records: &[Record], value: impl Fn(&Figures) -> Option<f64>) -> Vec<(f64, f64)> {
    let points = records.iter().filter_map(|record| match record {
        Record::Figures(dev) if dev.split == "dev" => Some((dev.step as f64, value(&dev.figures)?)),
        _ => None,
    });
    points.filter(|(_, y)| y.is_finite()).collect()
}

fn tuning_losses(records: &[Record]) -> Vec<Series> {
    let training = records.iter().filter_map(|record| match record {
        Record::Tuning(tuning) => Some((tuning.step as f64, tuning.loss)),
        _ => None,
    });
    vec![
        training_loss(training),
        Series {
            label: "development data".into(),
            color: HELD_OUT,
            look: Look::Dotted,
            points: dev(records, |figures| figures.get("loss")),
        },
    ]
}

fn main_figure(records: &[Record]) -> Series {
    let name = records.iter().find_map(|record| match record {
        Record::Figures(dev) if dev.split == "dev" => Some(dev.figures.main().0),
        _ => None,
    });
    Series {
        label: format!("{}, development data", name.unwrap_or_default()),
        color: HELD_OUT,
        look: Look::Dotted,
        points: dev(records, |figures| Some(figures.main().1)),
    }
}

/// Draws one panel with its axes and legend; without any point, empty axes. `headroom` is the room for the
/// legend above lines that rise, as a share of their range.
fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    x_label: &str,
    y_label: &str,
    headroom: f64,
    series: &[Series],
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
        .x_label_formatter(&|step| super::summary::grouped(*step as u64))
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

fn draw_line(chart: &mut Chart<'_, '_>, line: &Series, last_step: f64) -> std::result::Result<(), String> {
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
    drawn.label(line.label.as_str()).legend(move |(x, y)| {
        let sample = [(x, y), (x + LEGEND_LINE, y)];
        DashedPathElement::new(sample, dash, 5, thick)
    });
    Ok(())
}

fn points(series: &[Series]) -> impl Iterator<Item = (f64, f64)> {
    series.iter().flat_map(|line| line.points.iter().copied())
}

/// The values shown, with a margin; a tenth wide at least, so that axes have different labels.
fn y_range(series: &[Series]) -> (f64, f64) {
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

/// The exponential moving average of the values, free of a start at zero, over about a thirtieth of them.
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
    use super::super::{EvalRecord, FiguresRecord, TrainRecord, TuningRecord};
    use super::*;

    fn train(step: u64, masked_loss: f64) -> Record {
        Record::Train(TrainRecord { step, masked_loss, ..Default::default() })
    }

    fn eval(step: u64, masked_loss: f64, pair_accuracy: Option<f64>) -> Record {
        Record::Eval(EvalRecord {
            step,
            masked_loss,
            pair_accuracy,
            unigram_loss: 6.2,
            unigram_accuracy: 0.06,
            masked_accuracy: 0.1,
            ..Default::default()
        })
    }

    #[test]
    fn a_run_is_drawn_with_title_axes_and_legend() {
        let records =
            [train(1, 8.0), train(2, 7.0), eval(2, 7.2, Some(0.5)), train(3, 6.0), eval(4, 6.1, None)];
        let svg = render("first run <1>", &records).unwrap();
        for text in [
            "first run &lt;1&gt;",
            "step",
            "masked-token loss (nats)",
            "accuracy",
            "training (smoothed)",
            "held out",
            "unigram baseline",
            "sentence pairs, held out",
        ] {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(svg.ends_with("</svg>\n") || svg.ends_with("</svg>"));
    }

    #[test]
    fn fine_tuning_has_its_own_panels() {
        let tuning = |step, loss| Record::Tuning(TuningRecord { step, loss, ..Default::default() });
        let figures = |step, split: &str, pearson| {
            let figures = Figures::new(10, [("pearson", pearson), ("loss", f64::NAN)]);
            Record::Figures(FiguresRecord { step, split: split.into(), figures, seconds: 1.0 })
        };
        let records = [
            tuning(5, 2.0),
            figures(6, "dev", -0.2),
            tuning(10, 1.0),
            figures(12, "dev", 0.7),
            figures(12, "test", 0.6),
        ];
        let svg = render("tuned", &records).unwrap();
        assert!(svg.contains("pearson, development data") && !svg.contains("masked-token"), "{svg}");
        assert_eq!(main_figure(&records).points, [(6.0, -0.2), (12.0, 0.7)]);
        assert!(y_range(&[main_figure(&records)]).0 < -0.2);
        let [training, dev] = &tuning_losses(&records)[..] else { panic!("two lines") };
        assert_eq!((training.points.len(), dev.points.len()), (2, 0));
        // Without development data there is an empty panel.
        assert!(!render("untested", &records[..1]).unwrap().contains("development data"));
    }

    #[test]
    fn the_legend_names_only_what_is_drawn() {
        let svg = render("no pairs", &[train(1, 8.0), eval(1, 7.0, None)]).unwrap();
        assert!(!svg.contains("sentence pairs"));
    }

    #[test]
    fn odd_records_still_make_a_picture() {
        for records in [
            vec![],
            vec![train(1, f64::NAN)],
            vec![train(1, 3.0)],
            vec![eval(0, 3.0, None)],
            vec![train(1, f64::NAN), train(2, 5.0), eval(2, f64::NAN, None), train(3, f64::INFINITY)],
        ] {
            let svg = render("odd", &records).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{records:?}");
        }
    }

    #[test]
    fn values_that_are_not_finite_are_left_out() {
        let records = [
            train(1, f64::NAN),
            train(2, 5.0),
            eval(2, f64::NAN, Some(0.5)),
            eval(3, 4.0, None),
            train(3, f64::INFINITY),
        ];
        let [training, held_out, unigram] = &losses(&records)[..] else { panic!("three lines") };
        assert_eq!(training.points, [(2.0, 5.0)]);
        assert_eq!(held_out.points, [(3.0, 4.0)]);
        assert_eq!(unigram.points, [(2.0, 6.2), (3.0, 6.2)]);
        assert_eq!(accuracies(&records)[1].points, [(2.0, 0.5)]);
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
