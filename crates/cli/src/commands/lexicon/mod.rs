//! `cloze lexicon`: vectors of words as types.

mod build;
mod eval;
mod vectors;
mod word_list;

use anyhow::Result;
use clap::Subcommand;

/// Make one vector for each word with an encoder, and evaluate word vectors.
///
/// Example: cloze lexicon build --model google-bert/bert-base-uncased --words words.txt --out words
///
/// A word is read alone, or its vector is the mean over sentences of a corpus. Evaluation takes vectors of any source,
/// also word2vec's and GloVe's.
#[derive(Subcommand)]
#[command(after_long_help = "\
More examples:
  cloze lexicon build --model google-bert/bert-base-uncased --words words.txt --contexts corpus.txt --out words
  cloze lexicon eval similarity --vectors words.npy simlex.csv
  cloze lexicon eval analogy --vectors words.npy analogies.csv")]
pub enum Command {
    Build(build::Args),
    #[command(subcommand)]
    Eval(eval::Command),
}

/// Runs `command`.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Build(args) => build::run(args),
        Command::Eval(command) => eval::run(command),
    }
}
