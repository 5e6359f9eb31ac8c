//! `cloze tokenizer evaluate`.

mod counting;
mod figures;
mod morphemes;
mod parallel;

use std::path::PathBuf;

use anyhow::Result;
use cloze_tokenizer::Tokenizer;
use serde::Serialize;

use crate::lines;
use crate::output::Output;
use figures::TextFigures;
use morphemes::MorphemeFigures;
use parallel::LanguageFigures;

/// Compare tokenizers: how many pieces they make of texts, and where they cut words.
///
/// Example: cloze tokenizer evaluate --tokenizer my-tokenizer --tokenizer runs/reviews/model texts.txt
///
/// Words are those of data for tagging, with punctuation split off, and the same for all tokenizers. Special tokens
/// around a text are not counted, and truncation is not applied. Prints, for each tokenizer: all tokens, tokens per
/// word (fertility), the share of words that are one token, bytes per token, the share of unknown tokens, the part of
/// the vocabulary that occurs, and the Rényi efficiency (Zouhar et al. 2023).
///
/// --parallel compares translations, files with a sentence per line: parity is the number of tokens over that of the
/// first file. --morphemes compares the cuts inside words with those between morphemes.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze tokenizer evaluate --tokenizer my-tokenizer --parallel en=val.en --parallel de=val.de
  cloze tokenizer evaluate --tokenizer my-tokenizer --morphemes eng.word.dev.tsv --json
  cloze tokenizer evaluate --tokenizer my-tokenizer < texts.txt")]
pub struct Args {
    /// A tokenizer: a tokenizer.json, a vocab.txt, a GGUF file, or a folder with one of the first two or with
    /// vocab.json and merges.txt. Repeat it to compare several.
    #[arg(long = "tokenizer", value_name = "FILE_OR_DIR", required = true)]
    tokenizers: Vec<PathBuf>,
    /// Files of text (default: standard input, unless --parallel or --morphemes is given).
    #[arg(value_name = "TEXT")]
    texts: Vec<PathBuf>,
    /// A translation of the same lines: a language's name and a file. Repeat it for each language; the others are
    /// compared with the first.
    #[arg(long, value_name = "LANGUAGE=FILE", value_parser = parallel::language)]
    parallel: Vec<(String, PathBuf)>,
    /// Words and their morphemes, as in SIGMORPHON 2022: TSV without a header, a word, a tab, and its morphemes
    /// separated by " @@". If they do not spell the word, the boundaries are found by an alignment of the letters.
    #[arg(long, value_name = "FILE")]
    morphemes: Option<PathBuf>,
    /// The order of the Rényi efficiency; 1 is Shannon's.
    #[arg(long, value_name = "NUMBER", default_value_t = 2.5, value_parser = order, allow_negative_numbers = true)]
    alpha: f64,
    /// The longest line in bytes; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Parses the order of the Rényi efficiency.
fn order(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|alpha: &f64| alpha.is_finite() && *alpha >= 0.0);
    number.ok_or_else(|| "expected a number of 0 or more".into())
}

/// What is printed.
#[derive(Serialize)]
struct Evaluation {
    alpha: f64,
    tokenizers: Vec<Evaluated>,
}

/// What is printed of a tokenizer.
#[derive(Serialize)]
struct Evaluated {
    tokenizer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextFigures>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parallel: Vec<LanguageFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    morphemes: Option<MorphemeFigures>,
}

pub fn run(args: &Args) -> Result<()> {
    parallel::check(&args.parallel)?;
    let load = |path: &PathBuf| -> Result<Tokenizer> {
        let mut tokenizer = super::load(path)?;
        // Words are counted whole.
        tokenizer.set_truncation(None)?;
        tokenizer.set_padding(None)?;
        Ok(tokenizer)
    };
    let tokenizers = args.tokenizers.iter().map(load).collect::<Result<Vec<_>>>()?;
    let evaluated = |path: &PathBuf| Evaluated {
        tokenizer: path.display().to_string(),
        text: None,
        parallel: Vec::new(),
        morphemes: None,
    };
    let mut all: Vec<Evaluated> = args.tokenizers.iter().map(evaluated).collect();
    if !args.texts.is_empty() || args.parallel.is_empty() && args.morphemes.is_none() {
        let counts = counting::files(&tokenizers, &args.texts, args.max_line_bytes)?;
        for ((one, tokenizer), counts) in all.iter_mut().zip(&tokenizers).zip(&counts.of_tokenizers) {
            one.text = Some(TextFigures::new(tokenizer, counts, args.alpha));
        }
    }
    if !args.parallel.is_empty() {
        let languages = parallel::evaluate(&tokenizers, &args.parallel, args.alpha, args.max_line_bytes)?;
        all.iter_mut().zip(languages).for_each(|(one, languages)| one.parallel = languages);
    }
    if let Some(path) = &args.morphemes {
        let figures = morphemes::evaluate(&tokenizers, path)?;
        all.iter_mut().zip(figures).for_each(|(one, figures)| one.morphemes = Some(figures));
    }
    let evaluation = Evaluation { alpha: args.alpha, tokenizers: all };
    let mut output = Output::new();
    match args.json {
        true => output.line(serde_json::to_string(&evaluation)?)?,
        false => {
            for table in tables(&evaluation) {
                output.line(table)?;
            }
        }
    }
    output.finish()
}

/// The tables of what was evaluated.
fn tables(evaluation: &Evaluation) -> Vec<String> {
    let Evaluation { alpha, tokenizers } = evaluation;
    let of = |one: &Evaluated| one.tokenizer.clone();
    let texts: Vec<_> = tokenizers.iter().filter_map(|one| Some((of(one), one.text.as_ref()?))).collect();
    let languages: Vec<_> = tokenizers
        .iter()
        .flat_map(|one| one.parallel.iter().map(move |language| (of(one), language)))
        .collect();
    let morphemes: Vec<_> =
        tokenizers.iter().filter_map(|one| Some((of(one), one.morphemes.as_ref()?))).collect();
    let mut tables = Vec::new();
    tables.extend((!texts.is_empty()).then(|| figures::table(&texts, *alpha)));
    tables.extend((!languages.is_empty()).then(|| parallel::table(&languages)));
    tables.extend((!morphemes.is_empty()).then(|| morphemes::table(&morphemes)));
    tables
}
