//! The commands, one file each.

mod augment;
mod caption;
mod completions;
mod convert;
mod devices;
mod embed;
mod eval;
mod eval_embeddings;
mod export;
mod fill_mask;
mod generate;
mod glue;
mod inspect;
mod jobs;
mod knowledge;
mod lexicon;
mod likelihood;
mod map;
mod mine_negatives;
mod perplexity;
mod predict;
mod probe;
mod prune;
#[cfg(feature = "hub")]
mod pull;
mod quantize;
mod rerank;
mod runs;
mod score;
mod search;
mod senses;
#[cfg(feature = "serve")]
mod serve;
mod tokenizer;
mod train;
mod transfer;
mod translate;

use std::ffi::OsString;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{help, spellings};

/// Transformers from raw text to a working model.
///
/// Example: cloze embed --model sentence-transformers/all-MiniLM-L6-v2 < texts.txt > vectors.jsonl
///
/// `cloze help jobs` lists what can be done, with the command for each.
///
/// Results go to standard output, everything else to standard error. Exit status: 0 done,
/// 1 failed, 2 wrong usage or configuration.
#[derive(Parser)]
#[command(
    name = "cloze",
    version,
    max_term_width = 100,
    after_long_help = "\
More examples:
  Pretrain a small BERT on the embedded sample, then fill a mask with it:
    cloze train configs/bert-tiny-sample.toml --out runs/tiny
    cloze fill-mask --model runs/tiny/model 'The [MASK] of the United States'

  Train a tokenizer and see what it does to a line of text:
    cloze tokenizer train --model wordpiece --vocab-size 8192 --out my-tokenizer corpus/*.txt
    echo 'Hello, world' | cloze tokenizer encode --tokenizer my-tokenizer --format tokens"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands as they are declared.
pub fn program() -> clap::Command {
    Cli::command()
}

/// The parser of command lines.
pub fn parser() -> clap::Command {
    spellings::with_old_names(help::laid_out(jobs::listed(program())))
}

/// Parses the words of a command line, the program's name first.
///
/// # Errors
/// The parser's, also for help and the version, which it prints.
pub fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    let mut parser = parser();
    let matches = parser.try_get_matches_from_mut(spellings::rewritten(words))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut parser))
}

#[derive(Subcommand)]
pub enum Command {
    Train(train::Args),
    Eval(eval::Args),
    #[command(subcommand)]
    EvalEmbeddings(eval_embeddings::Command),
    Predict(predict::Args),
    #[command(subcommand)]
    Tokenizer(tokenizer::Command),
    FillMask(fill_mask::Args),
    Augment(augment::Args),
    Caption(caption::Args),
    Translate(translate::Args),
    Generate(generate::Args),
    Glue(glue::Args),
    Embed(embed::Args),
    Inspect(inspect::Args),
    #[command(subcommand)]
    Lexicon(lexicon::Command),
    Map(map::Args),
    MineNegatives(mine_negatives::Args),
    Probe(probe::Args),
    Perplexity(perplexity::Args),
    Likelihood(likelihood::Args),
    #[command(subcommand)]
    Knowledge(knowledge::Command),
    Rerank(rerank::Args),
    Runs(runs::Args),
    Transfer(transfer::Args),
    #[command(subcommand)]
    Score(score::Command),
    #[command(subcommand)]
    Search(search::Command),
    #[command(subcommand)]
    Senses(senses::Command),
    #[cfg(feature = "serve")]
    Serve(serve::Args),
    Convert(convert::Args),
    Prune(prune::Args),
    Quantize(quantize::Args),
    #[command(subcommand)]
    Export(export::Command),
    #[cfg(feature = "hub")]
    Pull(pull::Args),
    Devices(devices::Args),
    Jobs(jobs::Args),
    Completions(completions::Args),
}

impl Command {
    /// Whether the command will be profiled.
    pub fn is_profiled(&self) -> bool {
        matches!(self, Self::Train(args) if args.profile.is_some())
    }

    /// Whether processes that a launcher has started can do the command together.
    pub fn can_be_shared(&self) -> bool {
        match self {
            Self::Train(_) | Self::Predict(_) | Self::Translate(_) | Self::Perplexity(_) => true,
            Self::Embed(args) => args.is_of_lines(),
            _ => false,
        }
    }

    /// Whether the main thread only waits for others, so that it should not be one of the thread pool's.
    pub fn only_waits(&self) -> bool {
        #[cfg(feature = "serve")]
        return matches!(self, Self::Serve(_));
        #[cfg(not(feature = "serve"))]
        false
    }
}

/// Runs `command`.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Train(args) => train::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::EvalEmbeddings(command) => eval_embeddings::run(&command),
        Command::Predict(args) => predict::run(&args),
        Command::Tokenizer(command) => tokenizer::run(command),
        Command::FillMask(args) => fill_mask::run(&args),
        Command::Augment(args) => augment::run(&args),
        Command::Caption(args) => caption::run(&args),
        Command::Translate(args) => translate::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Glue(args) => glue::run(&args),
        Command::Embed(args) => embed::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Lexicon(command) => lexicon::run(&command),
        Command::Map(args) => map::run(&args),
        Command::MineNegatives(args) => mine_negatives::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Perplexity(args) => perplexity::run(&args),
        Command::Likelihood(args) => likelihood::run(&args),
        Command::Knowledge(command) => knowledge::run(&command),
        Command::Rerank(args) => rerank::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Transfer(args) => transfer::run(&args),
        Command::Score(command) => score::run(&command),
        Command::Search(command) => search::run(&command),
        Command::Senses(command) => senses::run(&command),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Prune(args) => prune::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Export(command) => export::run(&command),
        #[cfg(feature = "hub")]
        Command::Pull(args) => pull::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Jobs(args) => jobs::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
