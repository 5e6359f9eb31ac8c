//! `cloze tokenizer encode`.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use cloze_tokenizer::Encoding;
use serde_json::json;

use crate::lines::Lines;
use crate::output::Output;

/// Turn lines of text on standard input into lines of ids on standard output.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cloze tokenizer encode --tokenizer my-tokenizer < corpus.txt > corpus.ids
  echo 'Hello, world' | cloze tokenizer encode --tokenizer my-tokenizer --format tokens
  echo 'Hello, world' | cloze tokenizer encode --tokenizer tokenizer.json --format json")]
pub struct Args {
    #[arg(long, value_name = "FILE_OR_DIR", help = super::HELP)]
    tokenizer: PathBuf,
    /// Leave out the special tokens around a line, such as [CLS] and [SEP].
    #[arg(long)]
    no_special: bool,
    /// What to print for a line.
    #[arg(long, value_enum, default_value_t = Format::Ids)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// The ids, separated by spaces.
    Ids,
    /// The tokens as the vocabulary spells them, separated by spaces.
    Tokens,
    /// An object with ids, tokens, type ids, byte offsets into the line, word ids and masks.
    Json,
}

pub fn run(args: &Args) -> Result<()> {
    let tokenizer = super::load(&args.tokenizer)?;
    let mut lines = Lines::stdin();
    let mut output = Output::new();
    while let Some((_, batch)) = lines.next_batch()? {
        for encoding in tokenizer.encode_batch(&batch, !args.no_special) {
            output.line(args.format.of(&encoding))?;
        }
        output.flush()?;
    }
    Ok(())
}

impl Format {
    fn of(self, encoding: &Encoding) -> String {
        match self {
            Self::Ids => {
                let ids: Vec<String> = encoding.ids.iter().map(u32::to_string).collect();
                ids.join(" ")
            }
            Self::Tokens => encoding.tokens.join(" "),
            Self::Json => json!({
                "ids": encoding.ids,
                "tokens": encoding.tokens,
                "type_ids": encoding.type_ids,
                "offsets": encoding.offsets,
                "word_ids": encoding.word_ids,
                "special_tokens_mask": encoding.special_tokens_mask,
                "attention_mask": encoding.attention_mask,
            })
            .to_string(),
        }
    }
}
