//! `cloze tokenizer`.

mod decode;
mod encode;
mod evaluate;
mod inspect;
mod train;

use std::path::Path;

use anyhow::Result;
use clap::Subcommand;
use cloze_tokenizer::Tokenizer;

/// Train a tokenizer, encode and decode text with one, inspect it, or compare several.
///
/// Example: cloze tokenizer train --model wordpiece --vocab-size 8192 --out my-tokenizer corpus/*.txt
#[derive(Subcommand)]
pub enum Command {
    Train(train::Args),
    Encode(encode::Args),
    Decode(decode::Args),
    Inspect(inspect::Args),
    Evaluate(evaluate::Args),
}

/// Runs `command`.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Train(args) => train::run(&args),
        Command::Encode(args) => encode::run(&args),
        Command::Decode(args) => decode::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Evaluate(args) => evaluate::run(&args),
    }
}

/// Help for `--tokenizer`.
const HELP: &str = "The tokenizer: a tokenizer.json, a vocab.txt, a GGUF file, or a folder with one of the first two \
                    or with vocab.json and merges.txt";

fn load(path: &Path) -> Result<Tokenizer> {
    Ok(Tokenizer::load(&cloze::names::unpacked(path)?)?)
}
