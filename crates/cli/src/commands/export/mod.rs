//! `cloze export`: a model in the format of another program.

mod gguf;

use anyhow::Result;
use clap::Subcommand;

/// Write a model for another program.
///
/// Example: cloze export gguf --model sentence-transformers/all-MiniLM-L6-v2 --out minilm.gguf
#[derive(Subcommand)]
pub enum Command {
    Gguf(gguf::Args),
}

/// Runs `command`.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Gguf(args) => gguf::run(args),
    }
}
