//! `cloze export`: models in other programs' formats.

mod onnx;

use anyhow::Result;
use clap::Subcommand;

/// Write a model in the format of another program.
///
/// Example: cloze export onnx --model sentence-transformers/all-MiniLM-L6-v2 --out minilm-onnx
#[derive(Subcommand)]
pub enum Command {
    Onnx(onnx::Args),
}

pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Onnx(args) => onnx::run(args),
    }
}
