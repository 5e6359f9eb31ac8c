//! Cuts inside words beside those between morphemes.

use std::path::Path;

use anyhow::{Context, Result, bail};
use cloze_data::labelled::{Column, DataFormat, LabelledSource, RecordColumn, Records, records};
use cloze_evaluation::segmentation::{
    BoundaryFigures, BoundaryScore, MorphemeBoundaries, morpheme_boundaries,
};
use cloze_evaluation::table::{self, grouped, percent};
use cloze_tokenizer::Tokenizer;
use rayon::prelude::*;
use serde::Serialize;

use super::figures::shown;
use crate::progress::Progress;
use crate::rows::BadRowArgs;

/// Words read together.
const BATCH: usize = 1 << 12;

/// A tokenizer's figures.
#[derive(Serialize)]
pub struct MorphemeFigures {
    /// Those on all words.
    all: WordFigures,
    /// Those on the words that their morphemes spell.
    spelt: WordFigures,
}

#[derive(Serialize)]
struct WordFigures {
    words: u64,
    micro_precision: f64,
    micro_recall: f64,
    micro_f1: f64,
    macro_precision: f64,
    macro_recall: f64,
    macro_f1: f64,
}

impl WordFigures {
    fn new(score: &BoundaryScore) -> Self {
        let BoundaryFigures {
            micro_precision,
            micro_recall,
            micro_f1,
            macro_precision,
            macro_recall,
            macro_f1,
        } = score.figures();
        let words = score.words();
        Self { words, micro_precision, micro_recall, micro_f1, macro_precision, macro_recall, macro_f1 }
    }
}

/// A word, and the boundaries of its morphemes.
struct Word {
    text: String,
    gold: MorphemeBoundaries,
}

/// The figures of each tokenizer on a file of words and their morphemes. The file is read once, and memory does not
/// depend on its length.
///
/// # Errors
/// A file that cannot be read or has no row; a row without a word or morphemes.
pub fn evaluate(tokenizers: &[Tokenizer], path: &Path) -> Result<Vec<MorphemeFigures>> {
    let mut rows = open(path)?;
    let mut scores = vec![[BoundaryScore::default(); 2]; tokenizers.len()];
    let mut progress = Progress::new("words", false);
    let mut n_words = 0;
    loop {
        let words = next(&mut rows, path)?;
        if words.is_empty() {
            break;
        }
        for (tokenizer, [all, spelt]) in tokenizers.iter().zip(&mut scores) {
            let found = words.par_iter().map(|word| boundaries(tokenizer, &word.text));
            let found: Vec<_> =
                found.collect::<cloze_tokenizer::Result<_>>().with_context(|| path.display().to_string())?;
            for (found, Word { gold, .. }) in found.iter().zip(&words) {
                all.add(found, &gold.places);
                if gold.is_spelt {
                    spelt.add(found, &gold.places);
                }
            }
        }
        n_words += words.len();
        progress.show(n_words, None);
    }
    progress.finish();
    if n_words == 0 {
        bail!("{}: there is no word; expected a word, a tab and its morphemes in each line", path.display());
    }
    let figures = |[all, spelt]: [BoundaryScore; 2]| MorphemeFigures {
        all: WordFigures::new(&all),
        spelt: WordFigures::new(&spelt),
    };
    Ok(scores.into_iter().map(figures).collect())
}

fn open(path: &Path) -> Result<Records> {
    let source = LabelledSource {
        files: vec![path.display().to_string()],
        format: DataFormat::Tsv,
        header: Some(false),
        ..BadRowArgs::default().source()
    };
    let column = |field: &str, number| RecordColumn {
        field: field.into(),
        column: Column::Number(number),
        required: true,
    };
    Ok(records(&source, Path::new(""), vec![column("word", 1), column("morphemes", 2)])?)
}

/// The next words; none at the end.
fn next(rows: &mut Records, path: &Path) -> Result<Vec<Word>> {
    let mut words = Vec::new();
    while words.len() < BATCH
        && let Some(row) = rows.next().transpose().map_err(BadRowArgs::corrected)?
    {
        let place = || format!("{}:{}", path.display(), row.line);
        let [word, joined] = [0, 1].map(|at| row.cells[at].as_str().unwrap_or_default().trim());
        let morphemes: Vec<&str> = joined.split(" @@").map(str::trim).collect();
        if word.is_empty() || morphemes.iter().all(|morpheme| morpheme.is_empty()) {
            let what = if word.is_empty() { "the word is" } else { "the morphemes are" };
            bail!("{}: {what} missing; expected a word, a tab and its morphemes between \" @@\"", place());
        }
        let Some(gold) = morpheme_boundaries(word, &morphemes) else {
            bail!("{}: the word or its morphemes are too long to be aligned; take the row out", place());
        };
        words.push(Word { text: word.to_owned(), gold });
    }
    Ok(words)
}

/// Where a tokenizer cuts a word within a text, in characters of the word.
fn boundaries(tokenizer: &Tokenizer, word: &str) -> cloze_tokenizer::Result<Vec<usize>> {
    /// A word within a text comes after a space.
    const BEFORE: &str = " ";
    let encoding = tokenizer.encode(&format!("{BEFORE}{word}"), false)?;
    let starts = encoding.offsets.iter().filter_map(|(start, _)| start.checked_sub(BEFORE.len()));
    let inside = starts.filter(|start| (1..word.len()).contains(start));
    let mut places: Vec<usize> =
        inside.filter_map(|start| Some(word.get(..start)?.chars().count())).collect();
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// Rows for each tokenizer.
pub fn table(all: &[(String, &MorphemeFigures)]) -> String {
    let header = [
        "morphemes",
        "words",
        "number",
        "precision",
        "recall",
        "F1",
        "mean precision",
        "mean recall",
        "F1 of means",
    ];
    let row = |name: &str, which: &str, figures: &WordFigures| {
        let share = |share: f64| shown(share, percent);
        [
            name.to_owned(),
            which.to_owned(),
            grouped(figures.words),
            share(figures.micro_precision),
            share(figures.micro_recall),
            share(figures.micro_f1),
            share(figures.macro_precision),
            share(figures.macro_recall),
            share(figures.macro_f1),
        ]
    };
    let rows = |(name, figures): &(String, &MorphemeFigures)| {
        [row(name, "all", &figures.all), row(name, "spelt by morphemes", &figures.spelt)]
    };
    table::numbers(header, all.iter().flat_map(rows))
}
