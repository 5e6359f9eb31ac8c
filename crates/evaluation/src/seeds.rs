//! Several runs of one config with different seeds: means and deviations.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::figures::{Figures, shown, starred};
use crate::table;

/// The figures of several runs that differ in their seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seeds {
    runs: Vec<Run>,
}

/// One run: its seed and results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// The results.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A figure's statistics over the runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// The figure's name.
    pub name: String,
    /// The mean over the runs that have it.
    pub mean: f64,
    /// Their sample standard deviation (with n - 1); NaN for fewer than two.
    pub deviation: f64,
    /// Number of runs that have it.
    pub runs: usize,
}

impl Seeds {
    /// Adds a run.
    pub fn push(&mut self, seed: u64, figures: Figures) {
        self.runs.push(Run { seed, figures });
    }

    /// The runs, in the order added.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The run with the best main figure; ties go to the first.
    pub fn best(&self) -> Option<&Run> {
        self.runs.iter().reduce(|best, run| if run.figures.better_than(&best.figures) { run } else { best })
    }

    /// Each figure over the runs, in the order of the first run that has it. If a run's figure is NaN, so
    /// are the mean and deviation, so that a failed run is not overlooked.
    pub fn spreads(&self) -> Vec<Spread> {
        let mut spreads: Vec<Spread> = Vec::new();
        for (name, _) in self.runs.iter().flat_map(|run| run.figures.iter()) {
            if spreads.iter().all(|known| known.name != name) {
                let values: Vec<f64> = self.runs.iter().filter_map(|run| run.figures.get(name)).collect();
                let (mean, deviation) = mean_and_deviation(&values);
                spreads.push(Spread { name: name.into(), mean, deviation, runs: values.len() });
            }
        }
        spreads
    }

    /// The spreads and the runs as JSON:
    /// `{"main":"f1","figures":{"f1":{"mean":0.9,"deviation":0.01,"runs":3},…},"runs":[{"seed":1,…},…]}`.
    pub fn to_json(&self) -> serde_json::Value {
        let number = |value: f64| value.is_finite().then_some(value);
        let spread = |spread: Spread| {
            let value = serde_json::json!({
                "mean": number(spread.mean),
                "deviation": number(spread.deviation),
                "runs": spread.runs,
            });
            (spread.name, value)
        };
        let figures: serde_json::Map<_, _> = self.spreads().into_iter().map(spread).collect();
        serde_json::json!({ "main": self.main(), "figures": figures, "runs": self.runs })
    }

    fn main(&self) -> Option<&str> {
        self.runs.first().map(|run| run.figures.main().0)
    }
}

/// A table of means, deviations and each run's figures, the main one with a star.
impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds = self.runs.iter().map(|run| format!("seed {}", run.seed));
        let header = ["figure", "mean", "± deviation"].map(String::from).into_iter().chain(seeds);
        let rows = self.spreads().into_iter().map(|spread| {
            let name = starred(&spread.name, self.main() == Some(&spread.name));
            let of_runs =
                self.runs.iter().map(move |run| run.figures.get(&spread.name).map_or(String::new(), shown));
            [name, shown(spread.mean), shown(spread.deviation)].into_iter().chain(of_runs)
        });
        f.write_str(&table::numbers(header, rows))
    }
}

/// Mean and sample standard deviation (with n - 1), which is NaN for fewer than two values.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, f64::NAN);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds() -> Seeds {
        let mut seeds = Seeds::default();
        seeds.push(1, Figures::new(10, [("f1", 0.5), ("loss", 1.0)]));
        seeds.push(2, Figures::new(10, [("f1", 0.75), ("loss", f64::NAN)]));
        seeds.push(7, Figures::new(10, [("f1", 0.7), ("loss", 1.0), ("extra", 0.25)]));
        seeds
    }

    #[test]
    fn deviations_are_of_the_sample() {
        // statistics.mean and statistics.stdev of Python.
        let spread = &seeds().spreads()[0];
        assert!((spread.mean - 0.65).abs() < 1e-12);
        assert!((spread.deviation - 0.132_287_565_553_229_5).abs() < 1e-12);
        assert_eq!(mean_and_deviation(&[2.0, 2.0, 2.0]), (2.0, 0.0));
        assert!(mean_and_deviation(&[2.0]).1.is_nan());
        assert!(Seeds::default().spreads().is_empty() && Seeds::default().best().is_none());
        assert_eq!(seeds().best().unwrap().seed, 2);
    }

    #[test]
    fn runs_stand_beside_their_mean() {
        let expected = "
┌────────┬────────┬─────────────┬────────┬────────┬────────┐
│ figure ┆   mean ┆ ± deviation ┆ seed 1 ┆ seed 2 ┆ seed 7 │
╞════════╪════════╪═════════════╪════════╪════════╪════════╡
│ f1 *   ┆ 0.6500 ┆      0.1323 ┆ 0.5000 ┆ 0.7500 ┆ 0.7000 │
│ loss   ┆      – ┆           – ┆ 1.0000 ┆      – ┆ 1.0000 │
│ extra  ┆ 0.2500 ┆           – ┆        ┆        ┆ 0.2500 │
└────────┴────────┴─────────────┴────────┴────────┴────────┘";
        assert_eq!(seeds().to_string(), expected.trim_start());
    }

    #[test]
    fn json_has_spreads_and_runs() {
        let json = seeds().to_json();
        assert_eq!(json["main"], "f1");
        assert_eq!(json["figures"]["extra"], serde_json::json!({"mean": 0.25, "deviation": null, "runs": 1}));
        assert_eq!(json["figures"]["loss"]["mean"], serde_json::Value::Null);
        assert_eq!(json["runs"][2]["seed"], 7);
        assert_eq!(json["runs"][2]["figures"]["extra"], 0.25);
        let read: Vec<Run> = serde_json::from_value(json["runs"].clone()).unwrap();
        assert_eq!(read[0], seeds().runs()[0]);
    }
}
