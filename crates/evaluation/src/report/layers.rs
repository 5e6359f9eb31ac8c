//! Figures by model layer, on one page with a plot per group.

use std::path::Path;

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::html;
use crate::Result;
use crate::figures::shown;
use crate::table;
use cloze_files::write_atomic;

/// The side of the plot, its margins and the height of a legend line, in pixels.
const WIDTH: f64 = 620.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 8.0;
const LEGEND: f64 = 18.0;

/// Number of line colours.
const COLORS: usize = 6;

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
    /// Figures that do not belong to a single layer.
    pub whole: Vec<(String, f64)>,
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

    fn page(&self) -> Markup {
        let content = html! {
            header {
                h1 dir="auto" { (self.title) }
                dl {
                    @for (name, value) in self.facts {
                        div { dt { (name) } dd dir="auto" { (value) } }
                    }
                }
            }
            main {
                @for panel in self.panels {
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
                        (self.picture(panel))
                        (self.table(panel))
                    }
                }
            }
        };
        html::document(self.title, content)
    }

    fn table(&self, panel: &LayerPanel) -> Markup {
        let (header, rows) = self.rows(panel);
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        html::numbers(&header, &rows)
    }

    /// Lines over the layers, in the page's colours.
    fn picture(&self, panel: &LayerPanel) -> Markup {
        let all =
            || panel.lines.iter().flat_map(|line| line.values.iter().copied()).filter(|y| y.is_finite());
        let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
        if low > high {
            return html! { p.note { "There are no values to draw." } };
        }
        // A single value gets an axis around it.
        let room = if low == high { 0.5 * low.abs().max(1.0) } else { 0.05 * (high - low) };
        let (low, high) = (low - room, high + room);
        let last = self.layers.len().saturating_sub(1).max(1) as f64;
        let x = |at: usize| LEFT + 12.0 + (WIDTH - 24.0) * at as f64 / last;
        let y = |value: f64| TOP + HEIGHT * (high - value) / (high - low);
        let px = |value: f64| format!("{value:.1}");
        let bottom = TOP + HEIGHT;
        let legend = bottom + 56.0;
        let height = px(legend + LEGEND * panel.lines.len() as f64);
        let width = px(LEFT + WIDTH + 12.0);
        let ticks = (0..=4).map(|i| low + (high - low) * f64::from(i) / 4.0);
        html! {
            div.curve {
                svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="img" aria-label={ (panel.title) " by layer" } {
                    @for tick in ticks {
                        line.grid y1=(px(y(tick))) y2=(px(y(tick))) x1=(px(LEFT)) x2=(px(LEFT + WIDTH)) {}
                        text x=(px(LEFT - 6.0)) y=(px(y(tick) + 4.0)) text-anchor="end" { (shown(tick)) }
                    }
                    @for (at, layer) in self.layers.iter().enumerate() {
                        text x=(px(x(at))) y=(px(bottom + 16.0)) text-anchor="middle" { (layer) }
                    }
                    rect.frame x=(px(LEFT)) y=(px(TOP)) width=(px(WIDTH)) height=(px(HEIGHT)) {}
                    text x=(px(LEFT + WIDTH / 2.0)) y=(px(bottom + 38.0)) text-anchor="middle" { "layer" }
                    @for (number, line) in panel.lines.iter().enumerate() {
                        @let points: Vec<(f64, f64)> = line.values.iter().enumerate().filter(|(_, v)| v.is_finite()).map(|(at, v)| (x(at), y(*v))).collect();
                        @let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                        @let row = legend + LEGEND * number as f64;
                        g class={ "series line-" (number % COLORS) } {
                            polyline points=(path.join(" ")) {}
                            @for (x, y) in points { circle cx=(px(x)) cy=(px(y)) r="3" {} }
                            rect x=(px(LEFT)) y=(px(row - 9.0)) width="14" height="8" {}
                            text x=(px(LEFT + 22.0)) y=(px(row)) { (line.name) }
                        }
                    }
                }
            }
        }
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
        assert_eq!(page.matches("<circle").count(), 3);
        assert!(!page.contains("<script") && !page.contains("NaN"));
        let json: Value = serde_json::from_str(&read("probe.json")).unwrap();
        assert_eq!(json["layers"], json!([0, 2]));
        let expected = json!({ "linear": [0.5, 0.75], "MLP": [0.25, null], "mixed": 0.875 });
        assert_eq!(json["panels"]["part <of> speech"], expected);
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
