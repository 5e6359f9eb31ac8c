//! GLUE's scores: of each task over the seeds, and their average.

use super::tasks::GlueTask;
use cloze_evaluation::seeds::mean_and_deviation;
use cloze_evaluation::table;
use serde_json::{Value, json};
use std::fmt;

/// The scores on the development data of one part of a task: all of it, or one of the two parts of MNLI.
#[derive(Debug, Clone, PartialEq)]
pub struct PartScores {
    /// Its name, such as `MNLI-mm`.
    pub title: &'static str,
    /// The metrics, each with its value from 0 to 1 for every seed; NaN where it could not be computed.
    pub metrics: Vec<(&'static str, Vec<f64>)>,
}

/// The scores of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskScores {
    /// The task.
    pub task: GlueTask,
    /// Its learning rate.
    pub rate: f64,
    /// Its parts.
    pub parts: Vec<PartScores>,
}

/// The scores of tasks, each trained with the same seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct GlueScores {
    /// The seeds.
    pub seeds: Vec<u64>,
    /// The tasks.
    pub tasks: Vec<TaskScores>,
}

/// The number of tasks that the leaderboard averages.
const AVERAGED: usize = 9;

impl TaskScores {
    /// The score of a run: the mean of its metrics, and of the parts of MNLI.
    fn of_run(&self, run: usize) -> f64 {
        mean(self.parts.iter().map(|part| mean(part.metrics.iter().map(|(_, values)| values[run]))))
    }
}

impl GlueScores {
    /// GLUE's average for each seed, as the leaderboard computes it (Wang et al. 2019, §4.1): the mean over tasks, each
    /// of which has the mean of its metrics; MNLI is one task. NaN without a task.
    pub fn averages(&self) -> Vec<f64> {
        self.averages_of(|_| true)
    }

    /// The same without WNLI, as Devlin et al. 2019, Table 1, have it.
    pub fn averages_without_wnli(&self) -> Vec<f64> {
        self.averages_of(|task| task != GlueTask::Wnli)
    }

    fn averages_of(&self, is_averaged: impl Fn(GlueTask) -> bool) -> Vec<f64> {
        let tasks: Vec<&TaskScores> = self.tasks.iter().filter(|scores| is_averaged(scores.task)).collect();
        (0..self.seeds.len()).map(|run| mean(tasks.iter().map(|scores| scores.of_run(run)))).collect()
    }

    /// The rows of averages: their names and the values by seed.
    fn average_rows(&self) -> Vec<(String, Vec<f64>)> {
        let n = self.tasks.len();
        let of = match n == AVERAGED {
            true => format!("{n} tasks"),
            false => format!("{n} of {AVERAGED} tasks"),
        };
        let mut rows = vec![(format!("average of {of}"), self.averages())];
        if n > 1 && self.tasks.iter().any(|scores| scores.task == GlueTask::Wnli) {
            rows.push(("average without WNLI".into(), self.averages_without_wnli()));
        }
        rows
    }

    /// The scores as JSON, each from 0 to 1: means and deviations over the seeds, and every run's.
    pub fn to_json(&self) -> Value {
        let number = |value: f64| value.is_finite().then_some(value);
        let spread = |values: &[f64]| {
            let (mean, deviation) = mean_and_deviation(values);
            let runs: Vec<Option<f64>> = values.iter().copied().map(number).collect();
            json!({ "mean": number(mean), "deviation": number(deviation), "runs": runs })
        };
        let part = |part: &PartScores| {
            let metrics: serde_json::Map<_, _> =
                part.metrics.iter().map(|(name, values)| ((*name).to_owned(), spread(values))).collect();
            (part.title.to_owned(), Value::Object(metrics))
        };
        let parts: serde_json::Map<_, _> =
            self.tasks.iter().flat_map(|scores| scores.parts.iter().map(part)).collect();
        let rates: serde_json::Map<_, _> =
            self.tasks.iter().map(|scores| (scores.task.name().to_owned(), json!(scores.rate))).collect();
        json!({
            "seeds": self.seeds,
            "learning_rates": rates,
            "tasks": parts,
            "averaged_tasks": self.tasks.len(),
            "average": spread(&self.averages()),
            "average_without_wnli": spread(&self.averages_without_wnli()),
        })
    }
}

/// A table of all scores, times 100 as published.
impl fmt::Display for GlueScores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_metrics = self.tasks.iter().flat_map(|scores| &scores.parts).flat_map(|part| {
            part.metrics.iter().map(|(name, values)| (format!("{} {name}", part.title), values.clone()))
        });
        let several = self.seeds.len() > 1;
        let mut header = vec!["development data, × 100".to_owned(), "mean".into(), "± deviation".into()];
        header.extend(self.seeds.iter().map(|seed| format!("seed {seed}")));
        let rows = of_metrics.chain(self.average_rows()).map(|(name, values)| {
            let (mean, deviation) = mean_and_deviation(&values);
            let mut row = vec![name, shown(mean), shown(deviation)];
            row.extend(values.iter().map(|value| shown(*value)));
            if !several {
                row.truncate(2);
            }
            row
        });
        let header = header.into_iter().take(if several { usize::MAX } else { 2 });
        f.write_str(&table::numbers(header, rows))
    }
}

/// Times 100, with two decimals; a dash for NaN.
fn shown(value: f64) -> String {
    if value.is_nan() { "–".into() } else { format!("{:.2}", 100.0 * value) }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of the leaderboard.
    fn published(scores: [&[f64]; 10]) -> GlueScores {
        let titles = ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI"];
        let part = |place: usize| PartScores {
            title: titles[place],
            metrics: scores[place].iter().map(|score| ("", vec![score / 100.0])).collect(),
        };
        let task = |task, places: &[usize]| TaskScores {
            task,
            rate: 2e-5,
            parts: places.iter().map(|place| part(*place)).collect(),
        };
        let tasks = vec![
            task(GlueTask::Cola, &[0]),
            task(GlueTask::Sst2, &[1]),
            task(GlueTask::Mrpc, &[2]),
            task(GlueTask::Stsb, &[3]),
            task(GlueTask::Qqp, &[4]),
            task(GlueTask::Mnli, &[5, 6]),
            task(GlueTask::Qnli, &[7]),
            task(GlueTask::Rte, &[8]),
            task(GlueTask::Wnli, &[9]),
        ];
        GlueScores { seeds: vec![1], tasks }
    }

    #[test]
    fn the_average_is_the_leaderboards() {
        let rounded = |values: Vec<f64>| (1000.0 * values[0]).round() / 10.0;
        // BERT-large, 80.5.
        let bert = published([
            &[60.5],
            &[94.9],
            &[89.3, 85.4],
            &[87.6, 86.5],
            &[72.1, 89.3],
            &[86.7],
            &[85.9],
            &[92.7],
            &[70.1],
            &[65.1],
        ]);
        assert_eq!(rounded(bert.averages()), 80.5);
        // People, 87.1 (Nangia & Bowman 2019).
        let people = published([
            &[66.4],
            &[97.8],
            &[86.3, 80.8],
            &[92.7, 92.6],
            &[59.5, 80.4],
            &[92.0],
            &[92.8],
            &[91.2],
            &[93.6],
            &[95.9],
        ]);
        assert!((100.0 * people.averages()[0] - 87.05).abs() < 1e-9);
        assert!((100.0 * people.averages_without_wnli()[0] - (783.45 - 95.9) / 8.0).abs() < 1e-9);
    }

    #[test]
    fn means_are_over_seeds() {
        let part =
            |metric, values: [f64; 2]| PartScores { title: "x", metrics: vec![(metric, values.into())] };
        let task = |task, values| TaskScores { task, rate: 2e-5, parts: vec![part("accuracy", values)] };
        let scores = GlueScores {
            seeds: vec![1, 2],
            tasks: vec![task(GlueTask::Rte, [0.5, 0.7]), task(GlueTask::Wnli, [0.5, f64::NAN])],
        };
        let shown = scores.to_string();
        let expected = "
┌─────────────────────────┬───────┬─────────────┬────────┬────────┐
│ development data, × 100 ┆  mean ┆ ± deviation ┆ seed 1 ┆ seed 2 │
╞═════════════════════════╪═══════╪═════════════╪════════╪════════╡
│ x accuracy              ┆ 60.00 ┆       14.14 ┆  50.00 ┆  70.00 │
│ x accuracy              ┆     – ┆           – ┆  50.00 ┆      – │
│ average of 2 of 9 tasks ┆     – ┆           – ┆  50.00 ┆      – │
│ average without WNLI    ┆ 60.00 ┆       14.14 ┆  50.00 ┆  70.00 │
└─────────────────────────┴───────┴─────────────┴────────┴────────┘";
        assert_eq!(shown, expected.trim_start());
        let json = scores.to_json();
        assert_eq!(json["average"]["runs"], json!([0.5, null]));
        assert_eq!(json["average_without_wnli"]["mean"], json!(0.6));
    }
}
