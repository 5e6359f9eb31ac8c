//! Figures of a tokenizer on texts.

use cloze_evaluation::segmentation::renyi_efficiency;
use cloze_evaluation::table::{self, grouped, percent};
use cloze_tokenizer::{PieceCounts, Tokenizer};
use serde::Serialize;

/// A figure that is not a number is null in JSON and a dash in tables.
#[derive(Serialize)]
pub struct TextFigures {
    pub bytes: u64,
    pub words: u64,
    pub tokens: u64,
    pub tokens_per_word: f64,
    /// The share of words that are one token.
    pub whole_words: f64,
    pub bytes_per_token: f64,
    /// The share of unknown tokens.
    pub unknown: f64,
    pub vocabulary: usize,
    pub vocabulary_used: usize,
    pub renyi_efficiency: f64,
}

impl TextFigures {
    pub fn new(tokenizer: &Tokenizer, counts: &PieceCounts, alpha: f64) -> Self {
        Self {
            bytes: counts.bytes(),
            words: counts.words(),
            tokens: counts.pieces(),
            tokens_per_word: counts.pieces_per_word(),
            whole_words: counts.whole_share(),
            bytes_per_token: counts.bytes_per_piece(),
            unknown: counts.unknown_share(),
            vocabulary: tokenizer.vocab_size(),
            vocabulary_used: counts.used(),
            renyi_efficiency: renyi_efficiency(counts.by_id().iter().copied(), alpha),
        }
    }
}

/// A number as tables show it.
pub fn shown(number: f64, show: impl Fn(f64) -> String) -> String {
    if number.is_finite() { show(number) } else { "–".to_owned() }
}

/// A share with two decimals of its percentage: rare unknown tokens are to be seen.
fn small_percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// A number with three decimals.
pub fn decimals(number: f64) -> String {
    format!("{number:.3}")
}

/// A column for each tokenizer.
pub fn table(all: &[(String, &TextFigures)], alpha: f64) -> String {
    let renyi = format!("Rényi efficiency (α = {alpha})");
    type Show = fn(&TextFigures) -> String;
    let rows: [(&str, Show); 9] = [
        ("bytes", |f| grouped(f.bytes)),
        ("words", |f| grouped(f.words)),
        ("tokens", |f| grouped(f.tokens)),
        ("tokens per word", |f| shown(f.tokens_per_word, decimals)),
        ("words that are one token", |f| shown(f.whole_words, percent)),
        ("bytes per token", |f| shown(f.bytes_per_token, decimals)),
        ("unknown tokens", |f| shown(f.unknown, small_percent)),
        ("vocabulary used", |f| {
            let share = f.vocabulary_used as f64 / f.vocabulary as f64;
            let (used, all) = (grouped(f.vocabulary_used as u64), grouped(f.vocabulary as u64));
            format!("{used} of {all} ({})", shown(share, percent))
        }),
        (&renyi, |f| shown(f.renyi_efficiency, |number| format!("{number:.4}"))),
    ];
    let header: Vec<&str> = std::iter::once("").chain(all.iter().map(|(name, _)| name.as_str())).collect();
    let row = |(name, show): (&str, Show)| {
        let values = all.iter().map(|(_, figures)| show(figures));
        std::iter::once(name.to_owned()).chain(values).collect::<Vec<_>>()
    };
    table::numbers(header, rows.into_iter().map(row))
}
