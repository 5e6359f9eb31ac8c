//! How alike tasks' encoders are by layer, and what the tasks give one another, on one page.

use std::path::Path;

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::dendrogram::dendrogram;
use super::html;
use super::page::Page;
use crate::figures::shown;
use crate::similarity::{Agreement, average_linkage};
use crate::{EvaluationError, Result, table};
use cloze_files::write_atomic;

/// The similarity of encoders, and transfer between their tasks.
///
/// ```text
/// transfer.html     a dendrogram and a table for each layer, and the matrix of transfer
/// transfer.json     {"facts":{…},"names":[…],"layers":{"12":{"similarity":[[1.0,0.4],…],"merges":[…]}},"transfer":{…}}
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TransferReport<'a> {
    /// The page's title.
    pub title: &'a str,
    /// What was compared, such as the sentences.
    pub facts: &'a [(&'a str, String)],
    /// The encoders.
    pub names: &'a [String],
    /// Their similarity in each layer.
    pub layers: &'a [LayerSimilarity],
    /// What the tasks give one another, if that was measured.
    pub transfer: Option<&'a TransferMatrix>,
}

/// The similarity of encoders in one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSimilarity {
    /// The layer's name, such as its number.
    pub layer: String,
    /// [`similarities`](crate::similarity::similarities), `[encoders][encoders]`.
    pub similarity: Vec<Vec<f64>>,
}

/// Scores of tasks after training on others.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferMatrix {
    /// The targets: each one's place among the encoders.
    pub targets: Vec<usize>,
    /// Each target's metric.
    pub metrics: Vec<String>,
    /// Each target's score without another task.
    pub alone: Vec<f64>,
    /// Scores, `[encoders][targets]`: of a target after training on the source.
    pub scores: Vec<Vec<f64>>,
}

impl TransferMatrix {
    /// What each source adds to each target's own score, `[encoders][targets]`.
    pub fn gains(&self) -> Vec<Vec<f64>> {
        let gain = |row: &Vec<f64>| row.iter().zip(&self.alone).map(|(score, alone)| score - alone).collect();
        self.scores.iter().map(gain).collect()
    }

    /// Whether the similarity of a layer tells the gains.
    pub fn agreement(&self, layer: &LayerSimilarity) -> Agreement {
        let of_targets = |row: &Vec<f64>| self.targets.iter().map(|target| row[*target]).collect();
        let similarity: Vec<Vec<f64>> = layer.similarity.iter().map(of_targets).collect();
        let own: Vec<Option<usize>> = self.targets.iter().copied().map(Some).collect();
        Agreement::of(&similarity, &self.gains(), &own)
    }
}

impl LayerSimilarity {
    /// `1 − similarity`, for groups.
    fn distances(&self) -> Vec<Vec<f64>> {
        self.similarity.iter().map(|row| row.iter().map(|value| 1.0 - value).collect()).collect()
    }
}

/// What the page says of the similarities.
const NOTE: &str = "Spearman's correlation of two encoders' dissimilarities, 1 − Pearson's correlation of sentence vectors \
                    (Kriegeskorte et al. 2008). The dendrogram joins encoders by average linkage of 1 − similarity.";

/// What the page says of the transfer.
const TRANSFER: &str =
    "Scores of each target (column) after training on the source (row), less the score without one (alone).";

/// What the page says of the agreement.
const AGREEMENT: &str = "By layer, over each target's sources: Spearman's correlation of similarity and gain, and the rank by gain of the \
                         most similar source (1 is the best), as Luo et al. 2022 measure it.";

impl TransferReport<'_> {
    /// Writes the report's files into `folder`, created if missing; each file is written atomically.
    ///
    /// # Errors
    /// [`EvaluationError::Io`].
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(EvaluationError::io("make", folder))?;
        let json = serde_json::to_string_pretty(&self.to_json()).expect("numbers and strings");
        write_atomic(&folder.join("transfer.json"), (json + "\n").as_bytes())?;
        Ok(write_atomic(&folder.join("transfer.html"), self.page().into_string().as_bytes())?)
    }

    /// All numbers. Non-finite ones are null.
    pub fn to_json(&self) -> Value {
        let facts: Map<String, Value> =
            self.facts.iter().map(|(name, value)| ((*name).into(), json!(value))).collect();
        let layer = |layer: &LayerSimilarity| {
            let merges = average_linkage(&layer.distances());
            let merges: Vec<Value> = merges
                .iter()
                .map(
                    |merge| json!({ "groups": merge.groups, "distance": merge.distance, "size": merge.size }),
                )
                .collect();
            (layer.layer.clone(), json!({ "similarity": layer.similarity, "merges": merges }))
        };
        let layers: Map<String, Value> = self.layers.iter().map(layer).collect();
        let transfer = self.transfer.map(|matrix| {
            let of_layer = |layer: &LayerSimilarity| {
                let agreement = matrix.agreement(layer);
                let targets = agreement.targets.iter().map(|target| {
                    json!({ "correlation": target.correlation, "rank_of_most_similar": target.rank_of_most_similar })
                });
                let value = json!({
                    "mean_correlation": agreement.mean_correlation(),
                    "mean_rank": agreement.mean_rank(),
                    "targets": targets.collect::<Vec<_>>(),
                });
                (layer.layer.clone(), value)
            };
            let agreement: Map<String, Value> = self.layers.iter().map(of_layer).collect();
            json!({
                "targets": self.targets(matrix),
                "metrics": matrix.metrics,
                "alone": matrix.alone,
                "scores": matrix.scores,
                "gains": matrix.gains(),
                "agreement": agreement,
            })
        });
        json!({ "facts": facts, "names": self.names, "layers": layers, "transfer": transfer })
    }

    /// The tables as text for a terminal.
    pub fn to_text(&self) -> String {
        let of_layer = |layer: &LayerSimilarity| {
            let (header, rows) = self.similarity(layer);
            table::numbers(header, rows)
        };
        let mut tables: Vec<String> = self.layers.iter().map(of_layer).collect();
        if let Some(matrix) = self.transfer {
            for (header, rows) in [self.gains(matrix), self.agreements(matrix)] {
                tables.push(table::numbers(header, rows));
            }
        }
        tables.join("\n")
    }

    fn targets(&self, matrix: &TransferMatrix) -> Vec<String> {
        matrix.targets.iter().map(|target| self.names[*target].clone()).collect()
    }

    /// The similarities of a layer, a row for each encoder.
    fn similarity(&self, layer: &LayerSimilarity) -> Rows {
        let first = format!("similarity, layer {}", layer.layer);
        let header = std::iter::once(first).chain(self.names.iter().cloned());
        let row = |(name, values): (&String, &Vec<f64>)| {
            std::iter::once(name.clone()).chain(values.iter().map(|value| shown(*value))).collect()
        };
        (header.collect(), self.names.iter().zip(&layer.similarity).map(row).collect())
    }

    /// The gains, a row for each source.
    fn gains(&self, matrix: &TransferMatrix) -> Rows {
        let columns = self.targets(matrix).into_iter().zip(&matrix.metrics);
        let columns = columns.map(|(target, metric)| format!("{target} ({metric})"));
        let header = std::iter::once("gain from".to_owned()).chain(columns).collect();
        let row = |name: &str, values: &[f64], is_signed: bool| {
            let value = |value: &f64| match is_signed && value.is_finite() {
                true => format!("{value:+.4}"),
                false => shown(*value),
            };
            std::iter::once(name.to_owned()).chain(values.iter().map(value)).collect()
        };
        let mut rows = vec![row("alone", &matrix.alone, false)];
        rows.extend(self.names.iter().zip(matrix.gains()).map(|(name, gains)| row(name, &gains, true)));
        (header, rows)
    }

    /// The agreement, a row for each layer.
    fn agreements(&self, matrix: &TransferMatrix) -> Rows {
        let mut header = vec!["similarity and gain, layer".to_owned()];
        header.extend(self.targets(matrix));
        header.extend(["mean".to_owned(), "mean rank of the most similar".to_owned()]);
        let row = |layer: &LayerSimilarity| {
            let agreement = matrix.agreement(layer);
            let mut row = vec![layer.layer.clone()];
            row.extend(agreement.targets.iter().map(|target| shown(target.correlation)));
            row.extend([agreement.mean_correlation(), agreement.mean_rank()].map(shown));
            row
        };
        (header, self.layers.iter().map(row).collect())
    }

    fn page(&self) -> Markup {
        let numbers = |(header, rows): Rows| {
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            html::numbers(&header, &rows)
        };
        let content = html! {
            main {
                @if let Some(matrix) = self.transfer {
                    section {
                        h2 { "Transfer" }
                        p.note { (TRANSFER) }
                        (numbers(self.gains(matrix)))
                        h3 { "Does similarity tell it?" }
                        p.note { (AGREEMENT) }
                        (numbers(self.agreements(matrix)))
                    }
                }
                // The last layer is the one that heads read.
                @for (place, layer) in self.layers.iter().rev().enumerate() {
                    section {
                        h2 { "Layer " (layer.layer) }
                        @if place == 0 { p.note { (NOTE) } }
                        @match dendrogram(self.names, &average_linkage(&layer.distances()), "1 − similarity") {
                            Some(picture) => { (picture) },
                            None => { p.note { "There are no distances to draw." } },
                        }
                        (numbers(self.similarity(layer)))
                    }
                }
            }
        };
        Page { kind: "transfer", title: self.title, facts: self.facts, ..Page::default() }.with(content)
    }
}

/// A header and rows.
type Rows = (Vec<String>, Vec<Vec<String>>);

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(layer: &str, similar: f64) -> LayerSimilarity {
        let similarity = vec![vec![1.0, similar, 0.1], vec![similar, 1.0, 0.2], vec![0.1, 0.2, 1.0]];
        LayerSimilarity { layer: layer.into(), similarity }
    }

    #[test]
    fn a_report_is_a_page_tables_and_json() {
        let names = ["a<b>", "rte", "sts"].map(String::from);
        let layers = [layer("0", 0.9), layer("1", f64::NAN)];
        let matrix = TransferMatrix {
            targets: vec![1, 2],
            metrics: vec!["accuracy".into(), "pearson".into()],
            alone: vec![0.5, 0.25],
            scores: vec![vec![0.75, 0.25], vec![0.5, 0.5], vec![0.25, f64::NAN]],
        };
        let facts = [("sentences", "1,000".to_owned())];
        let transfer = Some(&matrix);
        let report =
            TransferReport { title: "tasks", facts: &facts, names: &names, layers: &layers, transfer };
        let folder = tempfile::tempdir().unwrap();
        report.write(folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("transfer.html")).unwrap();
        for part in ["a&lt;b&gt;", "<polyline", "+0.2500", "There are no distances to draw.", "Layer 1"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("NaN") && !page.contains("<script"));
        let json = std::fs::read_to_string(folder.path().join("transfer.json")).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["layers"]["0"]["similarity"][0][1], 0.9);
        assert_eq!(json["layers"]["1"]["similarity"][0][1], Value::Null);
        assert_eq!(json["transfer"]["gains"], json!([[0.25, 0.0], [0.0, 0.25], [-0.25, null]]));
        // For rte: a<b> is more similar than sts, and gives more.
        assert_eq!(json["transfer"]["agreement"]["0"]["targets"][0]["rank_of_most_similar"], 1.0);
        let correlation = json["transfer"]["agreement"]["0"]["targets"][0]["correlation"].as_f64().unwrap();
        assert!((correlation - 1.0).abs() < 1e-12, "{correlation}");
        let text = report.to_text();
        for part in ["similarity, layer 0", "rte (accuracy)", "mean rank of the most similar", "–"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
