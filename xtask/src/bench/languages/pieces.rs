//! How many pieces a language shares with English (Wu & Dredze 2019, §4.3).

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::tasks::convert;
use crate::bench::measure;

/// The sentences of a treebank as text, a line each.
fn sentences(treebank: &str) -> String {
    let mut text = String::new();
    for line in treebank.lines() {
        let mut columns = line.split('\t');
        let is_word = columns.next().is_some_and(|id| id.parse::<u64>().is_ok());
        match columns.next() {
            Some(word) if is_word => text += &format!("{word} "),
            None if line.is_empty() && !text.ends_with('\n') => text.push('\n'),
            _ => {}
        }
    }
    text
}

/// The pieces of a treebank's words, in a file in `folder`.
fn encode(program: &Path, tokenizer: &Path, treebank: &Path, folder: &Path, name: &str) -> Result<String> {
    let (text, tokens): (PathBuf, PathBuf) = (folder.join(name), folder.join(format!("{name}.tokens")));
    convert(treebank, &text, sentences)?;
    let mut command = Command::new(program);
    command.args(["tokenizer", "encode", "--no-special", "--format", "tokens", "--tokenizer"]).arg(tokenizer);
    measure::process(&mut command, &text, &tokens)?;
    fs::read_to_string(&tokens).with_context(|| format!("cannot read {}", tokens.display()))
}

/// The shares of other treebanks' pieces that occur in the English one.
pub fn shared(
    program: &Path,
    tokenizer: &Path,
    english: &Path,
    others: &[PathBuf],
    folder: &Path,
) -> Result<Vec<f64>> {
    let english = encode(program, tokenizer, english, folder, "pieces-english.txt")?;
    let known: HashSet<&str> = english.split_whitespace().collect();
    let of = |(number, treebank): (usize, &PathBuf)| {
        let pieces = encode(program, tokenizer, treebank, folder, &format!("pieces-{number}.txt"))?;
        Ok(share(&known, &pieces))
    };
    others.iter().enumerate().map(of).collect()
}

/// Of all occurrences.
fn share(known: &HashSet<&str>, pieces: &str) -> f64 {
    let (mut all, mut shared) = (0, 0);
    for piece in pieces.split_whitespace() {
        all += 1;
        shared += usize::from(known.contains(piece));
    }
    shared as f64 / f64::from(all.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_words_between_spaces() {
        let text = "# text = zum Haus\n1-2\tzum\t_\n1\tzu\t_\n2\tdem\t_\n3\tHaus\t_\n\n1\tJa\t_\n\n";
        assert_eq!(sentences(text), "zu dem Haus \nJa \n");
    }

    #[test]
    fn a_share_is_of_occurrences() {
        let known = HashSet::from(["in", "##s"]);
        assert_eq!(share(&known, "in ein ##s\nin\n"), 0.75);
        assert_eq!(share(&known, ""), 0.0);
    }
}
