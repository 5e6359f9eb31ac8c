//! Comparisons of systems and scores by length, as tables and as JSON.

use cloze_evaluation::table;
use cloze_evaluation::translation::{Compared, OfLength};
use serde_json::{Value, json};

/// A table of systems compared with the baseline, which is the first.
pub fn paired(metric: &str, names: &[String], compared: &[Compared], decimals: usize) -> String {
    let with_confidence = compared.iter().any(|compared| compared.confidence.is_some());
    let score = if with_confidence { format!("{metric} (μ ± 95 % CI)") } else { metric.to_owned() };
    let rows = names.iter().zip(compared).map(|(name, compared)| {
        let mut score = format!("{:.decimals$}", compared.value);
        if let Some(confidence) = compared.confidence {
            score += &format!(" ({:.decimals$} ± {:.decimals$})", confidence.mean, confidence.half_width);
        }
        // A star where the systems differ by more than chance.
        let p_value = compared.p_value.map_or(String::new(), |p| {
            let star = if p < 0.05 { "*" } else { " " };
            format!("{p:.4}{star}")
        });
        [name.clone(), score, p_value]
    });
    table::numbers(["system", &score, "p-value"], rows)
}

/// A system compared with the baseline, with sacreBLEU's keys.
pub fn json_paired(name: &str, metric: &str, compared: &Compared) -> Value {
    json!({
        "system": name,
        metric: {
            "score": compared.value,
            "p_value": compared.p_value,
            "mean": compared.confidence.map(|confidence| confidence.mean),
            "ci": compared.confidence.map(|confidence| confidence.half_width),
        },
    })
}

/// A table of scores, a row for each length and a column for each system.
pub fn table_by_length(metric: &str, systems: &[(String, Vec<OfLength>)], decimals: usize) -> String {
    let several = systems.len() > 1;
    let names = systems.iter().map(|(name, _)| if several { name.clone() } else { metric.to_owned() });
    let header = ["words".to_owned(), "lines".to_owned()].into_iter().chain(names);
    let lengths = systems.first().map_or(&[][..], |(_, lengths)| lengths);
    let rows = lengths.iter().enumerate().map(|(at, of)| {
        let values = systems.iter().map(move |(_, lengths)| {
            lengths.get(at).map_or(String::new(), |of| format!("{:.decimals$}", of.value))
        });
        [of.words(), table::grouped(of.n_lines as u64)].into_iter().chain(values)
    });
    table::numbers(header, rows)
}

/// Scores by length: `[{"from": 11, "to": 20, "lines": 612, "score": 36.2}, …]`; `to` of the longest is null.
pub fn json_by_length(lengths: &[OfLength], decimals: usize) -> Value {
    let rounded = |value: f64| format!("{value:.decimals$}").parse::<f64>().ok();
    let of_length = |of: &OfLength| json!({"from": of.from, "to": of.to, "lines": of.n_lines, "score": rounded(of.value)});
    lengths.iter().map(of_length).collect()
}
