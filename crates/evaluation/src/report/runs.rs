//! Runs side by side: their curves over one another, and what their configs differ in.

use std::collections::HashMap;
use std::path::Path;

use maud::{Markup, html};

use super::html;
use super::index::link;
use super::page::Page;
use crate::Result;
use crate::chart::{Chart, ChartLine, ChartPanel, Look, Places, running_mean};
use crate::figures::shown;
use crate::table::grouped;
use cloze_files::write_atomic;

/// Several runs on one page.
#[derive(Clone, Copy, Debug)]
pub struct RunsReport<'a> {
    /// The page's title, such as the folder of the runs.
    pub title: &'a str,
    /// What else is to be known.
    pub facts: &'a [(&'a str, String)],
    /// The runs. The first ten differ in colour.
    pub runs: &'a [RunCurves],
    /// After how many seconds a browser is to read the page again, while runs go on.
    pub refresh: Option<u32>,
}

/// A run of a [`RunsReport`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunCurves {
    /// Its name, such as its folder's.
    pub name: String,
    /// How far it is, such as `finished` or `step 1,200 of 20,000`.
    pub state: String,
    /// Its page, relative to this one.
    pub page: Option<String>,
    /// Its curves, by a name such as `train/loss` or `dev/accuracy`: those of the run's metrics. Points are steps and values.
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
    /// Its config: keys such as `optimizer.learning_rate`, and values.
    pub config: Vec<(String, String)>,
}

impl RunCurves {
    fn curve(&self, name: &str) -> Option<&[(f64, f64)]> {
        self.curves.iter().find(|(known, _)| known == name).map(|(_, points)| &points[..])
    }
}

/// Curves of training are running means; others have a mark for each evaluation.
fn is_training(name: &str) -> bool {
    name.starts_with("train/") || name.starts_with("speed/")
}

/// Curves that few readers look for.
fn is_minor(name: &str) -> bool {
    name.starts_with("speed/") || matches!(name, "train/learning_rate" | "train/grad_norm")
}

impl RunsReport<'_> {
    /// Writes the page to `path`, atomically.
    ///
    /// # Errors
    /// [`EvaluationError::Io`](crate::EvaluationError::Io).
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(write_atomic(path, self.to_html().as_bytes())?)
    }

    /// The whole page.
    pub fn to_html(&self) -> String {
        let names = self.names();
        let (minor, major): (Vec<&str>, Vec<&str>) = names.iter().copied().partition(|name| is_minor(name));
        let content = html! {
            @if let Some(seconds) = self.refresh { meta http-equiv="refresh" content=(seconds); }
            main {
                section {
                    h2 { "Runs" }
                    (self.table(&major))
                }
                @if !major.is_empty() {
                    section {
                        h2 { "Curves" }
                        p.note { "Training is a running mean; a mark is an evaluation. Runs of other data or batch sizes may not be comparable step by step." }
                        div.curve { (self.chart(&major).to_markup()) }
                        @if !minor.is_empty() {
                            details {
                                summary { "Learning rate, gradients and speed" }
                                div.curve { (self.chart(&minor).to_markup()) }
                            }
                        }
                    }
                }
                section {
                    h2 { "Configs" }
                    (self.differences())
                }
            }
        };
        let count = ("runs", grouped(self.runs.len() as u64));
        let facts: Vec<(&str, String)> = std::iter::once(count).chain(self.facts.iter().cloned()).collect();
        Page { kind: "runs", title: self.title, facts: &facts, ..Page::default() }.with(content).into_string()
    }

    /// All curves' names: losses of training, then evaluations, each in order of occurrence.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for (name, points) in self.runs.iter().flat_map(|run| &run.curves) {
            if !names.contains(&name.as_str()) && points.iter().any(|(_, value)| value.is_finite()) {
                names.push(name);
            }
        }
        names.sort_by_key(|name| !name.starts_with("train/"));
        names
    }

    fn chart(&self, names: &[&str]) -> Chart {
        let panel = |name: &&str| {
            let lines = self.runs.iter().enumerate().filter_map(|(color, run)| {
                let points = run.curve(name)?;
                let (look, points) = match is_training(name) {
                    true => (Look::Smoothed { raw: Vec::new() }, running_mean(points)),
                    false => (Look::Marked, points.to_vec()),
                };
                Some(ChartLine { label: run.name.clone(), look, color, points })
            });
            ChartPanel { axis: (*name).to_owned(), lines: lines.collect() }
        };
        Chart {
            title: String::new(),
            axis: "step".into(),
            places: Places::Numbers,
            panels: names.iter().map(panel).collect(),
        }
    }

    /// Each run with its state and the last value of each curve.
    fn table(&self, names: &[&str]) -> Markup {
        let last = |run: &RunCurves, name: &str| {
            let points = run.curve(name).unwrap_or_default();
            points.iter().rev().map(|(_, value)| *value).find(|value| value.is_finite())
        };
        html! {
            div.scroll {
                table.numbers {
                    thead { tr { th { "run" } th { "state" } @for name in names { th { (name) ", last" } } } }
                    tbody {
                        @for run in self.runs {
                            tr {
                                td dir="auto" {
                                    @match &run.page { Some(page) => a href=(link(page)) { (run.name) }, None => (run.name) }
                                }
                                td { (run.state) }
                                @for name in names { td { @if let Some(value) = last(run, name) { (shown(value)) } } }
                            }
                        }
                    }
                }
            }
        }
    }

    /// The keys that the runs' configs differ in.
    fn differences(&self) -> Markup {
        let configs: Vec<HashMap<&str, &str>> = self
            .runs
            .iter()
            .map(|run| run.config.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect())
            .collect();
        let mut keys: Vec<&str> = Vec::new();
        for (key, _) in self.runs.iter().flat_map(|run| &run.config) {
            if !keys.contains(&key.as_str()) {
                keys.push(key);
            }
        }
        let differs = |key: &&str| configs.windows(2).any(|two| two[0].get(key) != two[1].get(key));
        let (different, same): (Vec<&str>, Vec<&str>) = keys.into_iter().partition(differs);
        let header: Vec<&str> =
            std::iter::once("key").chain(self.runs.iter().map(|run| run.name.as_str())).collect();
        let row = |key: &&str| {
            let values = configs
                .iter()
                .map(|config| config.get(key).map_or_else(|| "–".into(), |value| html::clipped(value)));
            std::iter::once((*key).to_owned()).chain(values).collect::<Vec<String>>()
        };
        let rows: Vec<Vec<String>> = different.iter().map(row).collect();
        html! {
            @if rows.is_empty() { p.note { "The configs do not differ." } } @else { (html::numbers(&header, &rows)) }
            @if !same.is_empty() && !rows.is_empty() { p.note { (grouped(same.len() as u64)) " keys have the same value in all of them." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, rate: &str, losses: &[f64], accuracy: f64) -> RunCurves {
        let points = losses.iter().enumerate().map(|(at, loss)| (at as f64 + 1.0, *loss)).collect();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        RunCurves {
            name: name.into(),
            state: "finished".into(),
            page: Some(format!("{name}/index.html")),
            curves: vec![
                ("dev/accuracy".into(), vec![(2.0, 0.25), (4.0, accuracy)]),
                ("train/loss".into(), points),
                ("train/learning_rate".into(), vec![(1.0, 0.125)]),
            ],
            config: vec![pair("seed", "42"), pair("optimizer.rate", rate), pair("data.train", "a.txt")],
        }
    }

    #[test]
    fn runs_are_laid_over_one_another_and_only_differences_are_listed() {
        let mut runs =
            vec![run("a <1>", "0.001", &[4.0, 3.0], 0.75), run("b", "0.01", &[4.0, f64::NAN], 0.5)];
        runs[1].config.push(("model.d_ff".into(), "3072".into()));
        let report = RunsReport { title: "runs/<x>", facts: &[], runs: &runs, refresh: None };
        let page = report.to_html();
        for part in [
            "runs/&lt;x&gt;",
            "href=\"a%20%3C1%3E/index.html\"",
            "0.7500",
            "optimizer.rate",
            "model.d_ff",
            "2 keys have the same value",
        ] {
            assert!(page.contains(part), "{part} is missing");
        }
        for absent in ["data.train", "<script", "NaN", "refresh"] {
            assert!(!page.contains(absent), "{absent}");
        }
        assert!(page.find("train/loss").unwrap() < page.find("dev/accuracy").unwrap());
        let chart = report.chart(&["train/loss", "dev/accuracy"]);
        assert_eq!(chart.panels.len(), 2);
        let colors: Vec<usize> = chart.panels[1].lines.iter().map(|line| line.color).collect();
        assert_eq!((colors, chart.panels[0].lines[0].points[1]), (vec![0, 1], (2.0, 3.0)));
    }

    #[test]
    fn a_page_of_running_runs_reads_itself_again_and_equal_configs_are_told() {
        let runs = [run("a", "1", &[], 0.5), run("b", "1", &[], 0.5)];
        let page = RunsReport { title: "x", facts: &[], runs: &runs, refresh: Some(30) }.to_html();
        assert!(
            page.contains("http-equiv=\"refresh\" content=\"30\"")
                && page.contains("The configs do not differ.")
        );
    }

    #[test]
    fn no_runs_are_still_a_page() {
        let page = RunsReport { title: "x", facts: &[], runs: &[], refresh: None }.to_html();
        assert!(page.contains("The configs do not differ."));
    }
}
