//! The learning curve as an SVG plot: panels of lines over the steps.

use std::path::Path;

use super::Record;
use crate::error::Result;
use cloze_evaluation::chart::{Chart, ChartLine, ChartPanel, Look, Places, running_mean};
use cloze_evaluation::figures::Figures;
use cloze_files::write_atomic;

/// The label of the training loss.
pub const TRAINING: &str = "training (running mean)";

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
    /// The running mean of the training loss, over a faint line of the logged values.
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
    let training = Line { label: TRAINING.into(), source: Source::Loss };
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

impl Panel {
    /// The panel's lines with their points. Training has the first colour in every panel, and what was measured
    /// the next ones.
    fn chart(&self, records: &[Record]) -> ChartPanel {
        let mut measured = 1..;
        let lines = self.lines.iter().map(|line| {
            let points = line.source.points(records);
            let (look, color, points) = match line.source {
                Source::Loss | Source::LossTerm(_) => {
                    let mean = running_mean(&points);
                    (Look::Smoothed { raw: points }, 0, mean)
                }
                Source::Figure { .. } => (Look::Marked, measured.next().unwrap_or_default(), points),
                Source::Baseline { .. } => (Look::Baseline, 0, points),
            };
            ChartLine { label: line.label.clone(), look, color, points }
        });
        ChartPanel { axis: self.axis.clone(), lines: lines.collect() }
    }
}

/// The learning curve of `records`, under `title`.
pub fn chart(title: &str, records: &[Record], panels: &[Panel]) -> Chart {
    let panels = panels.iter().map(|panel| panel.chart(records)).collect();
    Chart { title: title.into(), axis: "step".into(), places: Places::Numbers, panels }
}

/// Draws `panels` of `records` to an SVG file at `path`, under `title`.
///
/// # Errors
/// [`TrainerError::Io`](crate::TrainerError::Io) for a file that cannot be written.
pub fn draw(path: &Path, title: &str, records: &[Record], panels: &[Panel]) -> Result<()> {
    Ok(write_atomic(path, chart(title, records, panels).to_svg().as_bytes())?)
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
        let svg = chart("first run <1>", &records, &panels()).to_svg();
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
        let raw = vec![(1.0, 7.5), (2.0, 6.5), (3.0, 5.5)];
        assert_eq!(panels()[0].chart(&records).lines[0].look, Look::Smoothed { raw });
        let colors: Vec<usize> = panels()[1].chart(&records).lines.iter().map(|line| line.color).collect();
        assert_eq!(colors, [1, 2, 0]);
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
        let figure = &lower.chart(&records).lines[0];
        assert_eq!(
            (figure.label.as_str(), &figure.points[..]),
            ("pearson, dev", &[(6.0, -0.2), (12.0, 0.7)][..])
        );
        let [training, dev] = &upper.chart(&records).lines[..] else { panic!("two lines") };
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
                let svg = chart("odd", &records, &panels).to_svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{records:?}");
            }
        }
    }
}
