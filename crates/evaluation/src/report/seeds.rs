//! Several runs compared on one page.

use std::path::Path;

use maud::{Markup, html};
use serde_json::json;

use super::html;
use super::page::Page;
use crate::Result;
use crate::figures::shown;
use crate::seeds::Seeds;
use cloze_files::write_atomic;

/// Results of several runs of one config that differ in their seeds.
///
/// ```text
/// seeds.html     means, deviations, each run's figures and learning curve
/// seeds.json     {"best":2,"model":"seed-2/model","dev":{…},"test":{…}}, splits as Seeds::to_json has them
/// ```
#[derive(Clone, Copy)]
pub struct SeedsReport<'a> {
    /// The page's title.
    pub title: &'a str,
    /// The seed of the best model, if any was measured, and its folder.
    pub best: Option<(u64, &'a str)>,
    /// Each measured split, by name.
    pub splits: &'a [(&'a str, &'a Seeds)],
    /// The runs.
    pub runs: &'a [SeedRun],
}

/// A run of a [`SeedsReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedRun {
    /// Its seed.
    pub seed: u64,
    /// Its learning curve, the text of an SVG file. It is inserted unchanged, so its text must already be
    /// escaped, as in the files that `cloze-trainer` draws.
    pub curve: String,
}

impl SeedsReport<'_> {
    /// Writes the report's files into `folder`, which exists; each is written atomically.
    ///
    /// # Errors
    /// [`EvaluationError::Io`](crate::EvaluationError::Io).
    pub fn write(&self, folder: &Path) -> Result<()> {
        let (best, model) = self.best.unzip();
        let mut json = json!({ "best": best, "model": model });
        for (split, seeds) in self.splits {
            json[*split] = seeds.to_json();
        }
        let text = serde_json::to_string_pretty(&json).expect("figures are strings and numbers");
        write_atomic(&folder.join("seeds.json"), (text + "\n").as_bytes())?;
        Ok(write_atomic(&folder.join("seeds.html"), self.page().into_string().as_bytes())?)
    }

    /// The main figure of the first split in a sentence.
    fn summary(&self) -> Option<String> {
        let (split, seeds) = self.splits.first()?;
        let (main, _) = seeds.runs().first()?.figures.main();
        let spread = seeds.spreads().into_iter().find(|spread| spread.name == main)?;
        Some(format!(
            "{main} on {split} over {} runs: {} ± {} (mean and standard deviation).",
            seeds.runs().len(),
            shown(spread.mean),
            shown(spread.deviation)
        ))
    }

    fn page(&self) -> Markup {
        let content = html! {
            main {
                @for (split, seeds) in self.splits {
                    section {
                        h2 { (split) }
                        (figures(seeds))
                    }
                }
                section {
                    h2 { "Learning curves" }
                    @for run in self.runs {
                        h3 { "seed " (run.seed) }
                        (html::picture(&run.curve))
                    }
                }
            }
        };
        let mut facts = vec![("runs", self.runs.len().to_string())];
        if let Some((seed, model)) = self.best {
            facts.extend([("best seed", seed.to_string()), ("its model", model.to_owned())]);
        }
        let summary = self.summary();
        Page { kind: "seeds", title: self.title, summary, facts: &facts, ..Page::default() }.with(content)
    }
}

/// Each figure's mean, deviation and value in each run.
fn figures(seeds: &Seeds) -> Markup {
    let of_runs = seeds.runs().iter().map(|run| format!("seed {}", run.seed));
    let header: Vec<String> =
        ["figure", "mean", "± deviation"].map(String::from).into_iter().chain(of_runs).collect();
    let rows: Vec<Vec<String>> = seeds
        .spreads()
        .into_iter()
        .map(|spread| {
            let of_runs =
                seeds.runs().iter().map(|run| run.figures.get(&spread.name).map_or(String::new(), shown));
            let (mean, deviation) = (shown(spread.mean), shown(spread.deviation));
            [spread.name.clone(), mean, deviation].into_iter().chain(of_runs).collect()
        })
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    html::numbers(&header, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Figures;

    #[test]
    fn the_page_and_the_json_say_which_seed_was_best() {
        let mut dev = Seeds::default();
        dev.push(1, Figures::new(10, [("f1", 0.5)]));
        dev.push(2, Figures::new(10, [("f1", 0.75)]));
        let run = |seed| SeedRun { seed, curve: "<svg></svg>".into() };
        let (splits, runs) = ([("dev", &dev)], [run(1), run(2)]);
        let report =
            SeedsReport { title: "a <b>", best: Some((2, "seed-2/model")), splits: &splits, runs: &runs };
        let folder = tempfile::tempdir().unwrap();
        report.write(folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("seeds.html")).unwrap();
        for part in ["a &lt;b&gt;", "0.6250", "0.1768", "seed-2/model", "<svg></svg>"] {
            assert!(page.contains(part), "{part} is missing");
        }
        let json = std::fs::read_to_string(folder.path().join("seeds.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["best"], &json["model"]), (&json!(2), &json!("seed-2/model")));
        assert_eq!(json["dev"]["figures"]["f1"]["mean"], 0.625);
        assert!(json.get("test").is_none());
    }
}
