//! Figures by model layer, on one page with a plot per group.

use std::path::Path;

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::html;
use super::page::Page;
use crate::Result;
use crate::chart::{Chart, ChartLine, ChartPanel, Look, Places};
use crate::figures::shown;
use crate::table;
use cloze_files::write_atomic;

/// Figures for each layer of a model.
///
/// ```text
/// NAME.html     figures and a picture for each panel
/// NAME.json     {"facts":{…},"layers":[0,1,…],"panels":{"part of speech":{"linear":[0.5,0.75,…]}}}
/// ```
#[derive(Debug, Clone, Copy)]
pub struct LayersReport<'a> {
    /// The page's title.
    pub title: &'a str,
    /// What was measured, such as the model and the data.
    pub facts: &'a [(&'a str, String)],
    /// The layers by number; 0 is the embeddings.
    pub layers: &'a [usize],
    /// Groups of figures.
    pub panels: &'a [LayerPanel],
}

/// Figures drawn on the same axes.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerPanel {
    /// What was measured.
    pub title: String,
    /// A description of the figures.
    pub note: String,
    /// The lines.
    pub lines: Vec<LayerLine>,
    /// Figures that do not belong to a single layer, such as that of a baseline first.
    pub whole: Vec<(String, f64)>,
    /// Whether a layer is the better, the greater the first line's value is.
    pub is_quality: bool,
}

/// A figure for each layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerLine {
    /// The figure's name.
    pub name: String,
    /// Its value for each of the report's layers; non-finite ones are left out of the plot.
    pub values: Vec<f64>,
}

impl LayerLine {
    /// A figure for each layer.
    pub fn new(name: impl Into<String>, values: Vec<f64>) -> Self {
        Self { name: name.into(), values }
    }
}

impl LayersReport<'_> {
    /// Writes the report's files into `folder`, created if missing; each file is written atomically.
    ///
    /// # Errors
    /// [`EvaluationError::Io`](crate::EvaluationError::Io).
    pub fn write(&self, folder: &Path, name: &str) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(crate::EvaluationError::io("make", folder))?;
        let json = serde_json::to_string_pretty(&self.to_json()).expect("figures are strings and numbers");
        write_atomic(&folder.join(format!("{name}.json")), (json + "\n").as_bytes())?;
        Ok(write_atomic(&folder.join(format!("{name}.html")), self.page().into_string().as_bytes())?)
    }

    /// All figures. Non-finite ones are null.
    pub fn to_json(&self) -> Value {
        let facts: Map<String, Value> =
            self.facts.iter().map(|(name, value)| ((*name).into(), json!(value))).collect();
        let panel = |panel: &LayerPanel| {
            let lines = panel.lines.iter().map(|line| (line.name.clone(), json!(line.values)));
            let whole = panel.whole.iter().map(|(name, value)| (name.clone(), json!(value)));
            Value::Object(lines.chain(whole).collect())
        };
        let panels: Map<String, Value> = self.panels.iter().map(|of| (of.title.clone(), panel(of))).collect();
        json!({ "facts": facts, "layers": self.layers, "panels": panels })
    }

    /// The tables, one per panel, as terminal text.
    pub fn to_text(&self) -> String {
        let tables: Vec<String> = self
            .panels
            .iter()
            .map(|panel| {
                let (mut header, rows) = self.rows(panel);
                header[0].clone_from(&panel.title);
                let whole = panel.whole.iter().map(|(name, value)| format!("\n{name}: {}", shown(*value)));
                table::numbers(header, rows) + &whole.collect::<String>()
            })
            .collect();
        tables.join("\n")
    }

    /// A panel's table: a row for each layer.
    fn rows(&self, panel: &LayerPanel) -> (Vec<String>, Vec<Vec<String>>) {
        let header =
            std::iter::once("layer".to_owned()).chain(panel.lines.iter().map(|line| line.name.clone()));
        let row = |(at, layer): (usize, &usize)| {
            let values =
                panel.lines.iter().map(|line| line.values.get(at).map_or(String::new(), |v| shown(*v)));
            std::iter::once(layer.to_string()).chain(values).collect()
        };
        (header.collect(), self.layers.iter().enumerate().map(row).collect())
    }

    /// The best layer of each panel that has one, in a sentence.
    fn summary(&self) -> Option<String> {
        let best = |panel: &LayerPanel| {
            let line = panel.lines.first().filter(|_| panel.is_quality)?;
            let values = self.layers.iter().zip(&line.values).filter(|(_, value)| value.is_finite());
            // Of equally good ones the first.
            let (layer, value) = values.rev().max_by(|a, b| a.1.total_cmp(b.1))?;
            let whole = panel.whole.first().map(|(name, value)| format!(", {name} {}", shown(*value)));
            let (title, name) = (&panel.title, &line.name);
            Some(format!(
                "{title} from layer {layer} ({name} {}{})",
                shown(*value),
                whole.unwrap_or_default()
            ))
        };
        let found: Vec<String> = self.panels.iter().filter_map(best).collect();
        (!found.is_empty()).then(|| format!("Read best: {}.", found.join("; ")))
    }

    /// The colour of each line, by panel: lines of one name have one colour on the whole page, and no two lines of a
    /// panel look alike.
    fn colors(&self) -> Vec<Vec<usize>> {
        let mut names: Vec<&str> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            if !names.contains(&line.name.as_str()) {
                names.push(&line.name);
            }
        }
        let color = |line: &LayerLine| names.iter().position(|name| *name == line.name).unwrap_or_default();
        self.panels.iter().map(|panel| panel.lines.iter().map(color).collect()).collect()
    }

    fn page(&self) -> Markup {
        let colors = self.colors();
        let content = html! {
            main {
                @for (panel, colors) in self.panels.iter().zip(&colors) {
                    section {
                        h2 { (panel.title) }
                        p.note { (panel.note) }
                        @if !panel.whole.is_empty() {
                            div.figures {
                                @for (name, value) in &panel.whole {
                                    div.tile { span { (name) } strong { (shown(*value)) } }
                                }
                            }
                        }
                        (self.picture(panel, colors))
                        (self.table(panel))
                    }
                }
            }
        };
        let summary = self.summary();
        Page { kind: "probe", title: self.title, summary, facts: self.facts, ..Page::default() }.with(content)
    }

    fn table(&self, panel: &LayerPanel) -> Markup {
        let (header, rows) = self.rows(panel);
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        html::numbers(&header, &rows)
    }

    /// Lines over the layers.
    fn picture(&self, panel: &LayerPanel, colors: &[usize]) -> Markup {
        if !panel.lines.iter().flat_map(|line| &line.values).any(|value| value.is_finite()) {
            return html! { p.note { "There are no values to draw." } };
        }
        let line = |(line, color): (&LayerLine, &usize)| ChartLine {
            label: line.name.clone(),
            look: Look::Marked,
            color: *color,
            points: line.values.iter().enumerate().map(|(at, value)| (at as f64, *value)).collect(),
        };
        let lines = panel.lines.iter().zip(colors).map(line).collect();
        let chart = Chart {
            title: String::new(),
            axis: "layer".into(),
            places: Places::Names(self.layers.iter().map(usize::to_string).collect()),
            panels: vec![ChartPanel { axis: panel.title.clone(), lines }],
        };
        html! { div.curve { (chart.to_markup()) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(values: Vec<f64>) -> LayerPanel {
        LayerPanel {
            title: "part <of> speech".into(),
            note: "accuracy".into(),
            lines: vec![LayerLine::new("linear", values), LayerLine::new("MLP", vec![0.25, f64::NAN])],
            whole: vec![("mixed".into(), 0.875)],
            is_quality: true,
        }
    }

    #[test]
    fn a_report_is_a_page_and_json() {
        let (facts, panels) = ([("model", "a<b>".to_owned())], [panel(vec![0.5, 0.75])]);
        let report = LayersReport { title: "probes", facts: &facts, layers: &[0, 2], panels: &panels };
        let folder = tempfile::tempdir().unwrap();
        report.write(&folder.path().join("new"), "probe").unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join("new").join(name)).unwrap();
        let page = read("probe.html");
        for part in ["a&lt;b&gt;", "part &lt;of&gt; speech", "0.8750", "<polyline"] {
            assert!(page.contains(part), "{part} is missing");
        }
        // Three values, and a mark for each line in the legend.
        assert_eq!(page.matches("<circle").count(), 3 + 2);
        assert!(!page.contains("<script") && !page.contains("NaN"));
        let json: Value = serde_json::from_str(&read("probe.json")).unwrap();
        assert_eq!(json["layers"], json!([0, 2]));
        let expected = json!({ "linear": [0.5, 0.75], "MLP": [0.25, null], "mixed": 0.875 });
        assert_eq!(json["panels"]["part <of> speech"], expected);
    }

    #[test]
    fn the_best_layer_is_said_where_there_is_one() {
        let mut panels = [panel(vec![0.5, 0.75]), panel(vec![0.25, f64::NAN]), panel(vec![0.1, 0.2])];
        panels[2].is_quality = false;
        let report = LayersReport { title: "probes", facts: &[], layers: &[0, 2], panels: &panels };
        assert_eq!(
            report.summary().unwrap(),
            "Read best: part <of> speech from layer 2 (linear 0.7500, mixed 0.8750); part <of> speech from layer 0 (linear \
             0.2500, mixed 0.8750)."
        );
        assert_eq!(LayersReport { panels: &panels[2..], ..report }.summary(), None);
    }

    #[test]
    fn a_colour_goes_with_a_line_of_one_name() {
        let line = |name: &str| LayerLine::new(name, vec![1.0]);
        let lines = [&["a", "b", "c"][..], &["a", "c"], &["d", "b"]];
        let panels = lines.map(|names| LayerPanel {
            lines: names.iter().map(|name| line(name)).collect(),
            ..panel(vec![])
        });
        let report = LayersReport { title: "probes", facts: &[], layers: &[0], panels: &panels };
        assert_eq!(report.colors(), [vec![0, 1, 2], vec![0, 2], vec![3, 1]]);
        let page = report.page().into_string();
        // A line's group in the plot, and one in the legend.
        assert_eq!(
            (page.matches("\"line line-2\"").count(), page.matches("\"line line-3\"").count()),
            (4, 2)
        );
    }

    #[test]
    fn a_terminal_sees_a_table() {
        let panels = [panel(vec![0.5, 0.75])];
        let report = LayersReport { title: "probes", facts: &[], layers: &[0, 2], panels: &panels };
        let text = report.to_text();
        assert!(text.contains("part <of> speech") && text.contains("0.7500"), "{text}");
        assert!(text.ends_with("mixed: 0.8750"), "{text}");
    }

    #[test]
    fn nothing_to_draw_is_said() {
        let panels = [LayerPanel { lines: vec![LayerLine::new("x", vec![f64::NAN])], ..panel(vec![]) }];
        let report = LayersReport { title: "probes", facts: &[], layers: &[0], panels: &panels };
        assert!(report.page().into_string().contains("There are no values to draw."));
    }
}
