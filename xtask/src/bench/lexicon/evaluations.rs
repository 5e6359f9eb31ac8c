//! What vectors are asked, and the figures of the answers.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

/// By the columns of the table.
pub type Figures = BTreeMap<String, f64>;

/// The dictionaries, from the first language to the second.
pub const LANGUAGES: [&str; 2] = ["en-de", "en-fr"];

/// A table of word pairs, and its column.
const SIMILARITY: [(&str, &str); 4] = [
    ("word-similarity-simlex999", "SimLex"),
    ("word-similarity-simverb-3500", "SimVerb"),
    ("word-similarity-wordsim353-sim", "WordSim, similar"),
    ("word-similarity-wordsim353-rel", "WordSim, related"),
];

/// A subcommand of `cloze lexicon eval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Evaluation {
    Similarity,
    Analogy,
    Categories,
    Relations,
    Translation,
}

impl Evaluation {
    pub fn command(self) -> &'static str {
        match self {
            Self::Similarity => "similarity",
            Self::Analogy => "analogy",
            Self::Categories => "categories",
            Self::Relations => "relations",
            Self::Translation => "translation",
        }
    }

    /// The files in the folder of words.
    pub fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Similarity => &[SIMILARITY[0].0, SIMILARITY[1].0, SIMILARITY[2].0, SIMILARITY[3].0],
            Self::Analogy => &["word-analogy-google-analogies"],
            Self::Categories => {
                &["word-categorization-ap", "word-categorization-battig", "word-categorization-bless"]
            }
            Self::Relations => &["semantic-relation-bless"],
            Self::Translation => &[],
        }
    }

    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Similarity => &[SIMILARITY[0].1, SIMILARITY[1].1, SIMILARITY[2].1, SIMILARITY[3].1],
            Self::Analogy => &["analogies"],
            Self::Categories => &["purity"],
            Self::Relations => &["relations", "second word"],
            Self::Translation => &["en-de P@1", "en-de MRR", "en-fr P@1", "en-fr MRR"],
        }
    }

    /// The figures in what the subcommand prints with `--json`; those of translations are [`translation`]'s.
    pub fn figures(self, printed: &Value) -> Result<Figures> {
        let files = || printed["files"].as_array().context("no files");
        let one = |column: &str, value: &Value| Ok((column.to_owned(), value.as_f64().context("no figure")?));
        match self {
            Self::Similarity => {
                // A table that no pair is found of has no figure.
                let found = SIMILARITY.iter().zip(files()?).filter(|(_, file)| !file["spearman"].is_null());
                found.map(|((_, column), file)| one(column, &file["spearman"])).collect()
            }
            // Nor have analogies none of which is found.
            Self::Analogy if printed["all"]["found"] == 0 => Ok(Figures::new()),
            Self::Analogy => Ok(Figures::from([one("analogies", &printed["all"]["add"])?])),
            Self::Categories => {
                let purity = |file: &Value| file["purity"].as_f64().context("no purity");
                let all = files()?.iter().map(purity).collect::<Result<Vec<_>>>()?;
                let mean = all.iter().sum::<f64>() / all.len() as f64;
                Ok(Figures::from([("purity".into(), mean)]))
            }
            Self::Relations => {
                let alone = one("second word", &printed["second_alone"])?;
                Ok(Figures::from([one("relations", &printed["accuracy"])?, alone]))
            }
            Self::Translation => Ok(Figures::new()),
        }
    }
}

/// The figures of a translation from the first language to the second.
pub fn translation(languages: &str, printed: &Value) -> Result<Figures> {
    let one = |name: &str, key: &str| {
        let value = printed["csls"][key].as_f64().with_context(|| format!("{languages}: no {key}"))?;
        Ok((format!("{languages} {name}"), value))
    };
    [one("P@1", "p_at_1"), one("MRR", "mrr")].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use serde_json::json;

    #[test]
    fn every_figure_has_its_column() {
        let files = json!({"files": [{"spearman": 0.4, "purity": 0.5}, {"spearman": null, "purity": 0.75}, {"spearman": 0.6, "purity": 1.0}, {"spearman": 0.7, "purity": 0.75}]});
        let of = |evaluation: Evaluation, printed: &Value| evaluation.figures(printed).unwrap();
        let similar = of(Evaluation::Similarity, &files);
        assert_eq!((similar["SimLex"], similar["WordSim, related"], similar.len()), (0.4, 0.7, 3));
        assert_eq!(of(Evaluation::Categories, &files)["purity"], 0.75);
        let relations = of(Evaluation::Relations, &json!({"accuracy": 0.5, "second_alone": 0.25}));
        assert_eq!((relations["relations"], relations["second word"]), (0.5, 0.25));
        assert!(of(Evaluation::Analogy, &json!({"all": {"found": 0, "add": null}})).is_empty());
        let analogy = of(Evaluation::Analogy, &json!({"all": {"add": 0.5, "mul": 0.6}}));
        let translated = translation("en-fr", &json!({"csls": {"p_at_1": 0.25, "mrr": 0.5}})).unwrap();
        assert_eq!(translated["en-fr MRR"], 0.5);
        for (evaluation, figures) in [
            (Evaluation::Analogy, analogy),
            (Evaluation::Relations, relations),
            (Evaluation::Translation, translated),
        ] {
            assert!(figures.keys().all(|key| evaluation.columns().contains(&key.as_str())), "{figures:?}");
        }
        for evaluation in Evaluation::value_variants() {
            let is_empty = evaluation.figures(&json!({})).map_or(true, |figures| figures.is_empty());
            assert!(is_empty, "{evaluation:?}");
        }
        assert!(translation("en-de", &json!({})).is_err());
    }
}
