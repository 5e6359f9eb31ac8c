//! Hits on a terminal.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, Width, presets};
use serde_json::Value;

use super::query::{Answer, Neighbour};

/// The width where the terminal's is unknown.
pub const USUAL_WIDTH: u16 = 80;
/// The widest column of text that is easily read.
const WIDEST: u16 = 110;
/// The most lines of a hit's text.
const MOST_LINES: usize = 5;

/// The hits of a query, with rank, score, place and wrapped text, for a terminal of this width.
pub fn shown(answer: &Answer<'_>, width: u16) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width.clamp(40, WIDEST));
    for (hit, rank) in answer.found.iter().zip(1..) {
        let text = hit.text.as_ref().or(hit.image.as_ref()).map_or("", String::as_str);
        table.add_row([rank.to_string(), format!("{:.3}", hit.score), place(hit)]);
        let mut row = Row::from(["", "", &one_line(text)]);
        row.max_height(MOST_LINES);
        table.add_row(row);
    }
    for column in [0, 1] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    if let Some(column) = table.column_mut(2) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(20)));
    }
    let found = if answer.found.is_empty() { "  nothing found".to_owned() } else { table.trim_fmt() };
    format!("{}\n{found}\n", one_line(answer.query))
}

/// Where a hit is: its id, which is `path:line` of a passage, its heading, and its other fields.
fn place(hit: &Neighbour) -> String {
    let is_passage = hit.fields.contains_key("path") && hit.fields.contains_key("line");
    let mut place = one_line(&hit.id);
    for (name, value) in &hit.fields {
        match (name.as_str(), value) {
            ("path" | "line", _) if is_passage => {}
            ("heading", Value::String(heading)) if is_passage => place += &format!("  {}", one_line(heading)),
            (name, Value::String(text)) => place += &format!("  {name}={}", one_line(text)),
            (name, value) => place += &format!("  {name}={value}"),
        }
    }
    place
}

/// A text on one line, without characters that control a terminal.
fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hits_are_ranked_placed_and_wrapped() {
        let hit = |id: &str, score, text: &str, fields: Value| Neighbour {
            id: id.into(),
            score,
            text: Some(text.into()),
            image: None,
            fields: serde_json::from_value(fields).unwrap(),
        };
        let long = "the old sea ".repeat(40);
        let found = vec![
            hit(
                "docs/a.md:12",
                0.51249,
                "## Storms\n\nA \u{1b}[31mstorm\u{7} at sea.",
                json!({"path": "docs/a.md", "line": 12, "heading": "Sea > Storms"}),
            ),
            hit("17", -0.25, &long, json!({"year": 1999})),
        ];
        let text = shown(&Answer { query: "a\nstorm", found }, 50);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "a storm",
                " 1   0.512  docs/a.md:12  Sea > Storms",
                "            ## Storms A [31mstorm at sea.",
                " 2  -0.250  17  year=1999",
            ]
        );
        assert_eq!(lines.len(), 4 + MOST_LINES);
        assert!(lines.iter().all(|line| line.chars().count() <= 50) && text.contains('…'), "{text}");
        let none = shown(&Answer { query: "x", found: Vec::new() }, 80);
        assert_eq!(none, "x\n  nothing found\n");
    }
}
