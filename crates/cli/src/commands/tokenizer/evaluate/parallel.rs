//! Parity between languages.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use cloze_evaluation::table::{self, grouped, percent};
use cloze_tokenizer::Tokenizer;
use serde::Serialize;

use super::counting::{self, Counts};
use super::figures::{TextFigures, decimals, shown};
use crate::failure::WrongUsage;

/// Parses a language and its file.
pub fn language(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((language, file)) if !language.is_empty() && !file.is_empty() => {
            Ok((language.into(), file.into()))
        }
        _ => Err("expected LANGUAGE=FILE".to_owned()),
    }
}

/// Checks that languages can be compared.
///
/// # Errors
/// [`WrongUsage`] for one language alone, or one that is named twice.
pub fn check(languages: &[(String, PathBuf)]) -> Result<()> {
    let problem = match languages {
        [] => return Ok(()),
        [(language, _)] => format!("there is only {language:?}; expected two languages or more"),
        all => {
            let is_repeated = |at: &usize| all[..*at].iter().any(|(before, _)| *before == all[*at].0);
            match (1..all.len()).find(is_repeated) {
                Some(at) => format!("{:?} is given twice; expected a file for each language", all[at].0),
                None => return Ok(()),
            }
        }
    };
    Err(WrongUsage::new(anyhow!("--parallel: {problem}")).into())
}

/// A tokenizer's figures on one language.
#[derive(Serialize)]
pub struct LanguageFigures {
    language: String,
    /// Tokens over those of the first language: the premium of Petrov et al. (2023) over all lines.
    parity: f64,
    #[serde(flatten)]
    text: TextFigures,
}

/// The figures of each tokenizer on each language.
///
/// # Errors
/// Files that cannot be read, or that differ in their number of lines.
pub fn evaluate(
    tokenizers: &[Tokenizer],
    languages: &[(String, PathBuf)],
    alpha: f64,
    max_line_bytes: usize,
) -> Result<Vec<Vec<LanguageFigures>>> {
    let mut counts: Vec<Counts> = Vec::new();
    for (_, file) in languages {
        let found = counting::files(tokenizers, std::slice::from_ref(file), max_line_bytes)?;
        if let Some(first) = counts.first().filter(|first| first.lines != found.lines) {
            bail!(
                "{}: its number of lines is {}, and that of {} is {}; expected the same sentences line by line",
                file.display(),
                grouped(found.lines as u64),
                languages[0].1.display(),
                grouped(first.lines as u64)
            );
        }
        counts.push(found);
    }
    let of_tokenizer = |(at, tokenizer): (usize, &Tokenizer)| {
        let figures = |((language, _), counts): (&(String, PathBuf), &Counts)| {
            TextFigures::new(tokenizer, &counts.of_tokenizers[at], alpha).in_language(language)
        };
        let mut all: Vec<LanguageFigures> = languages.iter().zip(&counts).map(figures).collect();
        let first = all.first().map_or(0, |first| first.text.tokens);
        all.iter_mut().for_each(|one| one.parity = one.text.tokens as f64 / first as f64);
        all
    };
    Ok(tokenizers.iter().enumerate().map(of_tokenizer).collect())
}

impl TextFigures {
    fn in_language(self, language: &str) -> LanguageFigures {
        LanguageFigures { language: language.to_owned(), parity: f64::NAN, text: self }
    }
}

/// A row for each tokenizer and language.
pub fn table(all: &[(String, &LanguageFigures)]) -> String {
    let header = [
        "parallel text",
        "language",
        "tokens",
        "parity",
        "tokens per word",
        "one token",
        "bytes per token",
        "unknown",
    ];
    let row = |(name, LanguageFigures { language, parity, text }): &(String, &LanguageFigures)| {
        [
            name.clone(),
            language.clone(),
            grouped(text.tokens),
            shown(*parity, decimals),
            shown(text.tokens_per_word, decimals),
            shown(text.whole_words, percent),
            shown(text.bytes_per_token, decimals),
            shown(text.unknown, percent),
        ]
    };
    table::numbers(header, all.iter().map(row))
}
