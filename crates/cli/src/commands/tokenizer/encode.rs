//! `cloze tokenizer encode`.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use cloze_tokenizer::{Encoding, Error, OffsetUnit, Padding, PaddingStrategy, Sequence, TruncationDirection};
use serde::Serialize;

use crate::lines::{self, Line, Lines, Longer};
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
    /// Bytes of a line that are kept. A longer line is encoded from its beginning if the tokenizer's truncation cuts
    /// it there; else it is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
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
    let mut tokenizer = super::load(&args.tokenizer)?;
    tokenizer.set_keep_overflow(false);
    // A line's beginning is enough where it is all that truncation leaves.
    let cuts = tokenizer.truncation().is_some_and(|cut| cut.direction == TruncationDirection::Right);
    let longer = if cuts { Longer::Cut } else { Longer::Refused };
    let mut lines = Lines::stdin(args.max_line_bytes, longer);
    let mut output = Output::new();
    while let Some((mut first, batch)) = lines.next_batch()? {
        for part in parts(&batch, tokenizer.padding()) {
            let texts: Vec<Sequence> = part.iter().map(Sequence::from).collect();
            let encode = |texts| tokenizer.encode_inputs(texts, !args.no_special, OffsetUnit::Bytes);
            let (encodings, failed) = match encode(&texts[..]) {
                Ok(encodings) => (encodings, None),
                // The lines before the one that fails.
                Err(Error::Batch { index, source, .. }) => {
                    (encode(&texts[..index])?, Some(lines.failure(first + index, &part[index], *source)))
                }
                Err(error) => return Err(error.into()),
            };
            for encoding in encodings {
                output.line(args.format.of(&encoding)?)?;
            }
            output.flush()?;
            if let Some(error) = failed {
                return Err(error);
            }
            first += part.len();
        }
    }
    Ok(())
}

/// Lines that are encoded together: few enough for memory, and all of a batch where they are padded to the longest.
fn parts<'a>(batch: &'a [Line], padding: Option<&Padding>) -> Vec<&'a [Line]> {
    /// Of text, or of pieces that lines are padded to.
    const PART: usize = 1 << 18;
    let padded = match padding.map(|padding| padding.strategy) {
        Some(PaddingStrategy::BatchLongest) => return vec![batch],
        Some(PaddingStrategy::Fixed(length)) => length,
        None => 0,
    };
    let mut size = 0;
    let together = |_: &Line, next: &Line| {
        size += next.text.len().max(padded);
        let fits = size <= PART;
        if !fits {
            size = 0;
        }
        fits
    };
    batch.chunk_by(together).collect()
}

#[derive(Serialize)]
struct Json<'a> {
    ids: &'a [u32],
    tokens: &'a [String],
    type_ids: &'a [u32],
    offsets: &'a [(usize, usize)],
    word_ids: &'a [Option<u32>],
    special_tokens_mask: &'a [u32],
    attention_mask: &'a [u32],
}

impl Format {
    fn of(self, encoding: &Encoding) -> Result<String> {
        Ok(match self {
            Self::Ids => {
                let ids: Vec<String> = encoding.ids.iter().map(u32::to_string).collect();
                ids.join(" ")
            }
            Self::Tokens => encoding.tokens.join(" "),
            Self::Json => serde_json::to_string(&Json {
                ids: &encoding.ids,
                tokens: &encoding.tokens,
                type_ids: &encoding.type_ids,
                offsets: &encoding.offsets,
                word_ids: &encoding.word_ids,
                special_tokens_mask: &encoding.special_tokens_mask,
                attention_mask: &encoding.attention_mask,
            })?,
        })
    }
}
