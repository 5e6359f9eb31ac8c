//! `cloze tokenizer decode`.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use cloze_tokenizer::Tokenizer;

use crate::chunks::Chunks;
use crate::lines::{self, BATCH_OF_IDS, Batch, Line, Lines, Longer};
use crate::output::Output;

/// Decode lines of ids on standard input to lines of text on standard output.
///
/// Example: cloze tokenizer decode --tokenizer my-tokenizer < ids.txt > texts.txt
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  echo '101 7592 102' | cloze tokenizer decode --tokenizer my-tokenizer --keep-special")]
pub struct Args {
    #[arg(long, value_name = "FILE_OR_DIR", help = super::HELP)]
    tokenizer: PathBuf,
    /// Print the special tokens too, such as [CLS] and [SEP].
    #[arg(long)]
    keep_special: bool,
    /// Maximum bytes of a line; a longer one is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
}

pub fn run(args: &Args) -> Result<()> {
    let tokenizer = super::load(&args.tokenizer)?;
    let mut lines = Lines::stdin(args.max_line_bytes, Longer::Refused);
    let mut output = Output::new();
    let work = |ids: &mut Vec<u32>, line: Line, bytes: &mut Vec<u8>| -> Result<()> {
        read_ids(&tokenizer, line.text, ids)?;
        bytes.extend(tokenizer.decode(ids, !args.keep_special)?.as_bytes());
        bytes.push(b'\n');
        Ok(())
    };
    let (mut chunks, mut batch) = (Chunks::default(), Batch::default());
    while lines.read(BATCH_OF_IDS, &mut batch)? {
        let failed = chunks.run(&batch, 0, Vec::new, work, |bytes| output.bytes(bytes))?;
        output.flush()?;
        if let Some((place, error)) = failed {
            return Err(error).with_context(|| lines.place(batch.first() + place));
        }
    }
    Ok(())
}

/// Parses the ids on a line, separated by white space or commas and all in the vocabulary, into `ids`.
fn read_ids(tokenizer: &Tokenizer, line: &str, ids: &mut Vec<u32>) -> Result<()> {
    ids.clear();
    let words = line.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
    for word in words {
        let id: u32 = word
            .parse()
            .map_err(|_| anyhow!("`{word}` is not a token id; expected whole numbers separated by spaces"))?;
        if tokenizer.id_to_token(id).is_none() {
            let size = tokenizer.vocab_size();
            bail!("id {id} is not in the vocabulary, which has {size} tokens");
        }
        ids.push(id);
    }
    Ok(())
}
