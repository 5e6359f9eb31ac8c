//! `cloze tokenizer decode`.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use cloze_tokenizer::Tokenizer;

use crate::lines::Lines;
use crate::output::Output;

/// Turn lines of ids on standard input into lines of text on standard output.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cloze tokenizer decode --tokenizer my-tokenizer < corpus.ids
  echo '101 7592 102' | cloze tokenizer decode --tokenizer my-tokenizer --keep-special")]
pub struct Args {
    #[arg(long, value_name = "FILE_OR_DIR", help = super::HELP)]
    tokenizer: PathBuf,
    /// Print the special tokens too, such as [CLS] and [SEP].
    #[arg(long)]
    keep_special: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let tokenizer = super::load(&args.tokenizer)?;
    let mut lines = Lines::stdin();
    let mut output = Output::new();
    while let Some((first, batch)) = lines.next_batch()? {
        for (at, line) in batch.iter().enumerate() {
            match ids(&tokenizer, line) {
                Ok(ids) => output.line(tokenizer.decode(&ids, !args.keep_special))?,
                Err(error) => {
                    output.flush()?;
                    return Err(error.context(format!("standard input, line {}", first + at)));
                }
            }
        }
        output.flush()?;
    }
    Ok(())
}

/// The ids on a line, separated by white space or commas, each one in the vocabulary.
fn ids(tokenizer: &Tokenizer, line: &str) -> Result<Vec<u32>> {
    let words = line.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    words
        .map(|word| {
            let id: u32 = word.parse().map_err(|_| {
                anyhow!("`{word}` is not a token id; expected whole numbers separated by spaces")
            })?;
            if tokenizer.id_to_token(id).is_none() {
                let size = tokenizer.vocab_size();
                bail!("id {id} is not in the vocabulary, which has {size} tokens");
            }
            Ok(id)
        })
        .collect()
}
