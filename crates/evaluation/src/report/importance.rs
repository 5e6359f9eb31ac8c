//! The importance of a model's heads and neurons, and which of them were removed.

use std::path::Path;

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::page::Page;
use super::{html, matrix};
use crate::figures::shown;
use crate::{Result, table};
use cloze_files::write_atomic;

/// The importance of the parts of each layer.
///
/// ```text
/// NAME.html     facts, a heat map of the heads, a table of the neurons
/// NAME.json     {"facts":{…},"layers":[{"layer":0,"heads":[0.3,…],"removed_heads":[2],"neurons":96,"removed_neurons":48},…]}
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ImportanceReport<'a> {
    /// The page's title.
    pub title: &'a str,
    /// What was removed from which model, and what it cost.
    pub facts: &'a [(&'a str, String)],
    /// The layers, from the first to the last.
    pub layers: &'a [LayerImportance],
}

/// The importance of one layer's parts.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerImportance {
    /// The layer's number.
    pub layer: usize,
    /// The importance of each head; empty if it was not measured.
    pub heads: Vec<f64>,
    /// The heads that were removed, in ascending order.
    pub removed_heads: Vec<usize>,
    /// The importance of each neuron; empty if it was not measured.
    pub neurons: Vec<f64>,
    /// The neurons that were removed, in ascending order.
    pub removed_neurons: Vec<usize>,
}

impl LayerImportance {
    /// The greatest importance of a removed neuron, and the least of one that stays.
    fn neuron_border(&self) -> [Option<f64>; 2] {
        let is_removed = |neuron: &usize| self.removed_neurons.binary_search(neuron).is_ok();
        let (gone, left): (Vec<usize>, Vec<usize>) = (0..self.neurons.len()).partition(is_removed);
        let of = |neuron: usize| self.neurons[neuron];
        [gone.into_iter().map(of).max_by(f64::total_cmp), left.into_iter().map(of).min_by(f64::total_cmp)]
    }
}

impl ImportanceReport<'_> {
    /// Writes the report's files into `folder`; each file is written atomically.
    ///
    /// # Errors
    /// [`EvaluationError::Io`](crate::EvaluationError::Io).
    pub fn write(&self, folder: &Path, name: &str) -> Result<()> {
        let json = serde_json::to_string_pretty(&self.to_json()).expect("strings and numbers");
        write_atomic(&folder.join(format!("{name}.json")), (json + "\n").as_bytes())?;
        Ok(write_atomic(&folder.join(format!("{name}.html")), self.page().into_string().as_bytes())?)
    }

    /// All numbers but those of single neurons.
    pub fn to_json(&self) -> Value {
        let facts: Map<String, Value> =
            self.facts.iter().map(|(name, value)| ((*name).into(), json!(value))).collect();
        let layers = self.layers.iter().map(|of| {
            json!({
                "layer": of.layer,
                "heads": of.heads,
                "removed_heads": of.removed_heads,
                "neurons": of.neurons.len(),
                "removed_neurons": of.removed_neurons.len(),
            })
        });
        json!({ "facts": facts, "layers": layers.collect::<Vec<_>>() })
    }

    /// A table for the terminal: the importance of each layer's heads, in parentheses if the head was removed.
    pub fn to_text(&self) -> String {
        let width = self.width();
        let header = std::iter::once("layer".to_owned()).chain((0..width).map(|head| format!("head {head}")));
        let rows = self.layers.iter().map(|of| {
            let cells = of.heads.iter().enumerate().map(|(head, value)| match is_removed(of, head) {
                true => format!("({})", shown(*value)),
                false => shown(*value),
            });
            let mut row: Vec<String> = std::iter::once(of.layer.to_string()).chain(cells).collect();
            row.resize(width + 1, String::new());
            row
        });
        table::numbers(header, rows)
    }

    /// How many parts were removed, in a sentence.
    fn summary(&self) -> Option<String> {
        let sum = |count: &dyn Fn(&LayerImportance) -> usize| self.layers.iter().map(count).sum::<usize>();
        let parts = [
            ("heads", sum(&|of| of.removed_heads.len()), sum(&|of| of.heads.len())),
            ("neurons", sum(&|of| of.removed_neurons.len()), sum(&|of| of.neurons.len())),
        ];
        let said = parts.into_iter().filter(|(.., all)| *all > 0).map(|(name, removed, all)| {
            format!("{} of {} {name}", table::grouped(removed as u64), table::grouped(all as u64))
        });
        let said: Vec<String> = said.collect();
        (!said.is_empty()).then(|| format!("Removed: {}.", said.join(" and ")))
    }

    /// The most heads of a layer.
    fn width(&self) -> usize {
        self.layers.iter().map(|of| of.heads.len()).max().unwrap_or(0)
    }

    fn page(&self) -> Markup {
        let content = html! {
            main {
                @if self.width() > 0 {
                    section {
                        h2 { "Heads" }
                        p.note {
                            "How much the loss depends on each head, before any was removed; each layer's numbers have \
                             a sum of squares of 1. Red heads were removed."
                        }
                        div.scroll { (self.map()) }
                    }
                }
                @if self.layers.iter().any(|of| !of.neurons.is_empty()) {
                    section {
                        h2 { "Neurons" }
                        p.note {
                            "The greatest importance of a removed neuron and the least of one that stays; later rounds \
                             measured the rest anew."
                        }
                        (self.neurons())
                    }
                }
            }
        };
        let summary = self.summary();
        Page { kind: "pruning", title: self.title, summary, facts: self.facts, ..Page::default() }
            .with(content)
    }

    /// Layers are rows and heads columns; the colour is the stronger the more important a head is.
    fn map(&self) -> Markup {
        let style = |of: &LayerImportance, head: usize| {
            let greatest = of.heads.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            let strength = matrix::strength(of.heads[head] / greatest);
            let color = if is_removed(of, head) { "wrong" } else { "right" };
            format!("background: rgba(var(--{color}), {strength:.2})")
        };
        html! {
            table.matrix {
                thead { tr { th { "layer" } @for head in 0..self.width() { th { (head) } } } }
                tbody {
                    @for of in self.layers {
                        tr {
                            th { (of.layer) }
                            @for (head, value) in of.heads.iter().enumerate() {
                                td style=(style(of, head)) {
                                    @if is_removed(of, head) { del { (shown(*value)) } } @else { (shown(*value)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn neurons(&self) -> Markup {
        let rows: Vec<Vec<String>> = self
            .layers
            .iter()
            .map(|of| {
                let border = of.neuron_border().map(|value| value.map_or("–".into(), shown));
                let counts = [of.layer, of.neurons.len(), of.removed_neurons.len()].map(|n| n.to_string());
                counts.into_iter().chain(border).collect()
            })
            .collect();
        html::numbers(&["layer", "neurons", "removed", "greatest removed", "least left"], &rows)
    }
}

fn is_removed(of: &LayerImportance, head: usize) -> bool {
    of.removed_heads.binary_search(&head).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers() -> Vec<LayerImportance> {
        let layer = |layer, removed_heads| LayerImportance {
            layer,
            heads: vec![0.25, 0.5, 0.75],
            removed_heads,
            neurons: vec![0.1, 0.4, 0.2],
            removed_neurons: vec![0, 2],
        };
        vec![layer(0, vec![0, 2]), layer(2, vec![])]
    }

    #[test]
    fn removed_heads_are_marked() {
        let (facts, layers) = ([("model", "a<b>".to_owned())], layers());
        let report = ImportanceReport { title: "pruning", facts: &facts, layers: &layers };
        let folder = tempfile::tempdir().unwrap();
        report.write(folder.path(), "pruning").unwrap();
        let page = std::fs::read_to_string(folder.path().join("pruning.html")).unwrap();
        assert_eq!(page.matches("<del>").count(), 2);
        for part in ["a&lt;b&gt;", "rgba(var(--wrong), 0.52)", "rgba(var(--right), 0.21)", "0.4000"] {
            assert!(page.contains(part), "{part} is missing");
        }
        assert!(!page.contains("<script"));
        let json: Value =
            serde_json::from_slice(&std::fs::read(folder.path().join("pruning.json")).unwrap()).unwrap();
        assert_eq!(json["layers"][1]["layer"], 2);
        assert_eq!(json["layers"][0]["removed_neurons"], 2);
        let text = report.to_text();
        assert!(text.contains("(0.2500)") && text.contains("head 2"), "{text}");
        assert_eq!(layers[0].neuron_border(), [Some(0.2), Some(0.4)]);
    }

    #[test]
    fn nothing_measured_is_no_section() {
        let report = ImportanceReport { title: "pruning", facts: &[], layers: &[] };
        assert!(!report.page().into_string().contains("<section>"));
    }
}
