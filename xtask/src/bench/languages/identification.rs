//! From which layers the language of a word can be told: a probe for parts of speech, with each word's language in their place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tasks::{convert, with_words};
use crate::bench::{measure, report};

/// The treebanks' folders, by language.
const TREEBANKS: [(&str, &str); 3] = [("en", "ud-ewt"), ("de", "ud-de"), ("fr", "ud-fr")];

/// Sentences of each language that probes are trained with, and those that they are measured with.
const TRAINED: usize = 700;
const MEASURED: usize = 300;

/// A linear probe's figures on each layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identified {
    pub accuracy: Vec<f64>,
    /// The accuracy less that of a control task, whose classes are drawn at random for each word (Hewitt & Liang 2019).
    pub selectivity: Vec<f64>,
}

/// Probes an encoder; the treebanks with languages and the report are written to `folder`.
pub fn probe(program: &Path, model: &Path, data: &Path, folder: &Path) -> Result<Identified> {
    let files = |part: &str, most: usize| {
        let write = |(language, treebank): (&str, &str)| {
            let to = folder.join(format!("{language}-{part}.conllu"));
            let from = data.join(treebank).join(part).with_extension("conllu");
            convert(&from, &to, |text| with_language(text, language, most)).map(|()| to)
        };
        TREEBANKS.into_iter().map(write).collect::<Result<Vec<PathBuf>>>()
    };
    let (train, dev) = (files("dev", TRAINED)?, files("test", MEASURED)?);
    let config = folder.join("probe.toml");
    let text = format!(
        "[run]\nname = \"languages\"\nseed = 42\n[model]\npath = {model:?}\n[data]\ntrain = {train:?}\ndev = {dev:?}\n\
         max_train = {}\nmax_dev = {}\n[probe]\ntasks = [\"part-of-speech\"]\nepochs = 3\n",
        TREEBANKS.len() * TRAINED,
        TREEBANKS.len() * MEASURED
    );
    fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
    let out = folder.join("run");
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    measure::output(Command::new(program).arg("probe").arg(&config).arg("--out").arg(&out))?;
    let printed = out.join("probe.json");
    let text = fs::read_to_string(&printed).with_context(|| format!("cannot read {}", printed.display()))?;
    read(&text).with_context(|| format!("{} has no figures", printed.display()))
}

fn read(text: &str) -> Option<Identified> {
    let report: Value = serde_json::from_str(text).ok()?;
    let panel = &report["panels"]["part of speech"];
    let of = |name: &str| panel[name].as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<_>>>();
    Some(Identified { accuracy: of("linear: accuracy")?, selectivity: of("linear: selectivity")? })
}

/// The first sentences, with the language as each word's part of speech.
fn with_language(text: &str, language: &str, most: usize) -> String {
    let first: Vec<&str> = text.split("\n\n").filter(|part| !part.trim().is_empty()).take(most).collect();
    with_words(&(first.join("\n\n") + "\n\n"), |columns| columns[3] = language.to_owned())
}

/// A row for each layer, two columns for each encoder.
pub fn table(encoders: &[(&str, Identified)]) -> String {
    let layers = encoders.iter().map(|(_, of)| of.accuracy.len()).max().unwrap_or(0);
    let columns = encoders.iter().flat_map(|(name, _)| [(*name).to_owned(), format!("{name}, selectivity")]);
    let header: Vec<String> = ["layer".to_owned()].into_iter().chain(columns).collect();
    let shown =
        |values: &[f64], layer: usize| values.get(layer).map_or("–".into(), |value| format!("{value:.4}"));
    let row = |layer: usize| {
        let of = encoders
            .iter()
            .flat_map(move |(_, of)| [shown(&of.accuracy, layer), shown(&of.selectivity, layer)]);
        [layer.to_string()].into_iter().chain(of).collect::<Vec<_>>()
    };
    report::table(header.iter().map(String::as_str), (0..layers).map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_language_in_place_of_parts_of_speech() {
        let word = |tag: &str| format!("1\tJa\tja\t{tag}\t_\t_\t0\troot\t_\t_\n\n");
        let text = format!("# text = Ja\n{}{}{}", word("INTJ"), word("X"), word("X"));
        assert_eq!(with_language(&text, "de", 2), format!("# text = Ja\n{}{}", word("de"), word("de")));
    }

    #[test]
    fn layers_are_read_and_shown() {
        let text = r#"{"panels": {"part of speech": {"linear: accuracy": [0.9, 0.95], "linear: selectivity": [0.1, 0.2]}}}"#;
        let found = read(text).unwrap();
        let table = table(&[("MLM", found)]);
        let cells: Vec<&str> = table.lines().last().unwrap().split('|').map(str::trim).collect();
        assert_eq!(cells, ["", "1", "0.9500", "0.2000", ""], "{table}");
        assert!(read("{}").is_none());
    }
}
