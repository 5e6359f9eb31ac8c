//! A report's tables as tab-separated values and JSON lines.

use serde_json::{Map, Value};

use super::Predictions;

/// The columns, of which `id` has the name of what it is.
fn columns(predictions: &dyn Predictions) -> Vec<String> {
    let named = |column: String| if column == "id" { predictions.named_by().to_owned() } else { column };
    predictions.columns().into_iter().map(named).collect()
}

/// The examples as tab-separated values under a header. Tabs, line ends and backslashes within a value are
/// written as `\t`, `\n`, `\r` and `\\`; lists are JSON; missing values are empty.
pub(super) fn tsv(predictions: &dyn Predictions, examples: &[usize]) -> String {
    let text = |value: Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    let mut rows = vec![columns(predictions)];
    rows.extend(examples.iter().map(|example| predictions.row(*example).into_iter().map(text).collect()));
    table(&rows)
}

/// The examples as JSON objects, one per line.
pub(super) fn jsonl(predictions: &dyn Predictions, examples: &[usize]) -> String {
    let columns = columns(predictions);
    let line = |example: &usize| {
        let row = columns.iter().cloned().zip(predictions.row(*example));
        format!("{}\n", Value::Object(row.collect::<Map<_, _>>()))
    };
    examples.iter().map(line).collect()
}

/// Rows as tab-separated values, escaped.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for row in rows {
        for (column, value) in row.iter().enumerate() {
            if column > 0 {
                text.push('\t');
            }
            for c in value.chars() {
                match c {
                    '\t' => text.push_str("\\t"),
                    '\n' => text.push_str("\\n"),
                    '\r' => text.push_str("\\r"),
                    '\\' => text.push_str("\\\\"),
                    c => text.push(c),
                }
            }
        }
        text.push('\n');
    }
    text
}
