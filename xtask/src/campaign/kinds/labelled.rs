//! Labelled data in every format.

use anyhow::Result;
use serde_json::Value;

use crate::campaign::case::Case;
use crate::campaign::formats;
use crate::campaign::mutate;
use crate::campaign::program::Attempt;

/// Files, each with the configuration that reads it.
const FILES: [(&str, &str); 9] = [
    ("dev.tsv", "classification"),
    ("dev.csv", "classification"),
    ("dev.jsonl", "classification"),
    ("dev.xml", "classification"),
    ("dev.parquet", "classification"),
    ("dev.conll", "tagging"),
    ("dev.json", "answers"),
    ("dev.choices.jsonl", "choices"),
    ("dev.numbers.tsv", "regression"),
];

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let (name, task) = *case.random.pick(&FILES);
    let path = format!("seeds/{name}");
    let seed = case.world.read(&path)?;
    let text = String::from_utf8_lossy(&seed).into_owned();
    let damaged = match (name, case.random.below(4)) {
        ("dev.parquet", _) => mutate::bytes(&mut case.random, &seed),
        ("dev.json", 0 | 1) => mutate::json(&mut case.random, &serde_json::from_str(&text)?).into_bytes(),
        ("dev.jsonl" | "dev.choices.jsonl", 0 | 1) => lines(case, &text),
        ("dev.xml", 0) => entities(&text),
        _ => mutate::text(&mut case.random, &text),
    };
    case.world.bring_data(case)?;
    let (place, damaged) = match case.random.below(12) {
        0 if name != "dev.parquet" => (format!("{path}.gz"), formats::gzip(&damaged)),
        _ => (path, damaged),
    };
    // As many updates as of a short file, however often a line was repeated.
    let batch_size = format!("train.batch_size={}", 2 + damaged.len() / 1_000);
    case.write(&place, damaged)?;
    case.bring(&format!("models/{task}"), "model")?;
    let config = format!("seeds/{task}.toml");
    let (dev, train) = (format!("data.dev=[{place:?}]"), format!("data.train.files=[{place:?}]"));
    let mut attempt = match case.random.below(3) {
        0 => Attempt::new([
            "train",
            &config,
            "--out",
            "out",
            "--set",
            "train.epochs=1",
            "--set",
            &batch_size,
            "--set",
            &train,
            "--set",
            &dev,
        ]),
        _ => Attempt::new(["eval", "--model", "model", &config, "--set", &dev, "--out", "report"]),
    };
    if case.random.one_in(3) {
        attempt = attempt.arg("--set").arg("data.train.on_bad_row=\"skip\"");
    }
    case.run(attempt.seconds(30))?;
    Ok(())
}

/// One of the lines damaged as JSON.
fn lines(case: &mut Case<'_>, text: &str) -> Vec<u8> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = case.random.below(lines.len());
    let value: Value = serde_json::from_str(&lines[at]).unwrap_or_default();
    lines[at] = mutate::json(&mut case.random, &value);
    (lines.join("\n") + "\n").into_bytes()
}

/// Entities of entities, each ten times the one before.
fn entities(text: &str) -> Vec<u8> {
    let entity = |i: usize| format!("<!ENTITY e{} \"{}\">", i + 1, format!("&e{i};").repeat(10));
    let entities: String = (0..12).map(entity).collect();
    let head = format!("<?xml version=\"1.0\"?><!DOCTYPE all [<!ENTITY e0 \"lol\">{entities}]>");
    text.replacen("<?xml version=\"1.0\"?>", &head, 1).replacen("<text>", "<text>&e12;", 1).into_bytes()
}
