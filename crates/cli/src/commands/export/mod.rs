//! `cloze export`: models in other programs' formats.

mod gguf;
mod onnx;

use anyhow::Result;
use clap::Subcommand;

/// Write a model in the format of another program.
///
/// Example: cloze export onnx --model sentence-transformers/all-MiniLM-L6-v2 --out minilm-onnx
#[derive(Subcommand)]
pub enum Command {
    Gguf(gguf::Args),
    Onnx(onnx::Args),
}

/// Runs `command`.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Gguf(args) => gguf::run(args),
        Command::Onnx(args) => onnx::run(args),
    }
}
