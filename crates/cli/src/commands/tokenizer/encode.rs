//! `cloze tokenizer encode`.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use cloze_tokenizer::{
    Encoding, Error, OffsetUnit, PaddingStrategy, Sequence, Tokenizer, TruncationDirection,
};
use serde::Serialize;

use crate::chunks::Chunks;
use crate::failure::WrongUsage;
use crate::lines::{self, BATCH, BATCH_OF_IDS, Batch, Line, Lines, Longer};
use crate::npy::{Element, Npy};
use crate::output::{Output, STANDARD_INPUT};

/// Encode lines of text on standard input to lines of ids on standard output.
///
/// Example: cloze tokenizer encode --tokenizer my-tokenizer < texts.txt > ids.txt
///
/// The formats u16, u32 and npy concatenate the ids of all lines without separators: rely on the tokenizer's
/// special tokens to separate them, or give one line per text. They can be read with numpy.fromfile(...,
/// "<u2"), numpy.fromfile(..., "<u4") and numpy.load.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze tokenizer encode --tokenizer my-tokenizer --format npy --output corpus.npy < corpus.txt
  echo 'Hello, world' | cloze tokenizer encode --tokenizer my-tokenizer --format tokens
  echo 'Hello, world' | cloze tokenizer encode --tokenizer tokenizer.json --format json")]
pub struct Args {
    #[arg(long, value_name = "FILE_OR_DIR", help = super::HELP)]
    tokenizer: PathBuf,
    /// Omit the special tokens around a line, such as [CLS] and [SEP].
    #[arg(long)]
    no_special: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Ids)]
    format: Format,
    /// The output file, created only once it is complete (default: standard output).
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Bytes of a line to keep. If the tokenizer's truncation shortens a longer line anyway, its beginning is
    /// encoded; otherwise it is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The ids, separated by spaces.
    Ids,
    /// The ids of all lines as 16-bit integers, little-endian; for a vocabulary of at most 65,536 tokens.
    U16,
    /// The ids of all lines as 32-bit integers, little-endian.
    U32,
    /// The ids of all lines as one array of unsigned 32-bit integers in NumPy's format, once all lines are
    /// read.
    Npy,
    /// The tokens as the vocabulary spells them, separated by spaces.
    Tokens,
    /// An object with ids, tokens, type ids, byte offsets into the line, word ids and masks.
    Json,
}

pub fn run(args: &Args) -> Result<()> {
    let mut tokenizer = super::load(&args.tokenizer)?;
    tokenizer.set_keep_overflow(false);
    if args.format == Format::U16 {
        check_16_bits(&tokenizer)?;
    }
    // A line's beginning is enough where it is all that truncation leaves.
    let cuts = tokenizer.truncation().is_some_and(|cut| cut.direction == TruncationDirection::Right);
    let longer = if cuts { Longer::Cut } else { Longer::Refused };
    let mut lines = Lines::stdin(args.max_line_bytes, longer);
    let mut sink = Sink::new(args.format, args.output.as_deref())?;
    let together =
        tokenizer.padding().is_some_and(|padding| padding.strategy == PaddingStrategy::BatchLongest);
    if together || matches!(args.format, Format::Tokens | Format::Json) {
        whole_encodings(args, &tokenizer, &mut lines, &mut sink)?;
    } else {
        ids_alone(args, &tokenizer, &mut lines, &mut sink)?;
    }
    sink.finish()
}

/// Encodes lines to ids only, each line separately.
fn ids_alone<R: std::io::Read>(
    args: &Args,
    tokenizer: &Tokenizer,
    lines: &mut Lines<R>,
    sink: &mut Sink,
) -> Result<()> {
    let padding = tokenizer.padding();
    let padded = match padding.map(|padding| padding.strategy) {
        Some(PaddingStrategy::Fixed(length)) => length,
        _ => 0,
    };
    let work = |ids: &mut Vec<u32>, line: Line, bytes: &mut Vec<u8>| {
        ids.clear();
        tokenizer.encode_ids_into(line, !args.no_special, ids)?;
        if let Some(padding) = padding {
            padding.apply_to_ids(ids, 0);
        }
        args.format.append(ids, bytes)
    };
    let (mut chunks, mut batch) = (Chunks::default(), Batch::default());
    while lines.read(BATCH_OF_IDS, &mut batch)? {
        let failed = chunks.run(&batch, padded, Vec::new, work, |bytes| sink.bytes(bytes))?;
        sink.flush()?;
        if let Some((place, error)) = failed {
            return Err(error.of_line(lines, batch.first() + place, batch.line(place)));
        }
    }
    Ok(())
}

/// Encodes lines to full encodings, or pads them to the longest line read together.
fn whole_encodings<R: std::io::Read>(
    args: &Args,
    tokenizer: &Tokenizer,
    lines: &mut Lines<R>,
    sink: &mut Sink,
) -> Result<()> {
    let (mut batch, mut bytes) = (Batch::default(), Vec::new());
    while lines.read(BATCH, &mut batch)? {
        let batch_lines: Vec<Line> = batch.iter().collect();
        let mut first = 0;
        for part in parts(&batch_lines, tokenizer) {
            let texts: Vec<Sequence> = part.iter().map(|line| Sequence::from(*line)).collect();
            let encode = |texts| tokenizer.encode_inputs(texts, !args.no_special, OffsetUnit::Bytes);
            let (encodings, mut failed) = match encode(&texts[..]) {
                Ok(encodings) => (encodings, None),
                // The lines before the one that fails.
                Err(Error::Batch { index, source, .. }) => {
                    (encode(&texts[..index])?, Some((index, Failed::Tokenizer(*source))))
                }
                Err(error) => return Err(error.into()),
            };
            for (index, encoding) in encodings.iter().enumerate() {
                bytes.clear();
                match args.format.append_encoding(encoding, &mut bytes) {
                    Ok(()) => sink.bytes(&bytes)?,
                    Err(error) => {
                        failed = Some((index, error));
                        break;
                    }
                }
            }
            sink.flush()?;
            if let Some((index, error)) = failed {
                return Err(error.of_line(lines, batch.first() + first + index, part[index]));
            }
            first += part.len();
        }
    }
    Ok(())
}

/// Lines encoded together: few enough for memory, or the whole batch if padded to the longest.
fn parts<'a, 'b>(lines: &'a [Line<'b>], tokenizer: &Tokenizer) -> Vec<&'a [Line<'b>]> {
    /// Bytes of text, or pieces that lines are padded to.
    const PART: usize = 1 << 18;
    let padded = match tokenizer.padding().map(|padding| padding.strategy) {
        Some(PaddingStrategy::BatchLongest) => return vec![lines],
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
    lines.chunk_by(together).collect()
}

/// Why a line has no result.
enum Failed {
    Tokenizer(Error),
    /// An id that does not fit in 16 bits.
    Id(u32),
    Json(serde_json::Error),
}

impl Failed {
    /// The error, with the line's location.
    fn of_line<R: std::io::Read>(self, lines: &Lines<R>, number: usize, line: Line) -> anyhow::Error {
        match self {
            Self::Tokenizer(error) => lines.failure(number, line, error),
            Self::Id(id) => too_large(&format!("{}: a token has", lines.place(number)), id),
            Self::Json(error) => anyhow::Error::new(error).context(lines.place(number)),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Tokenizer(error)
    }
}

/// Refuses a tokenizer whose ids need more than 16 bits.
fn check_16_bits(tokenizer: &Tokenizer) -> Result<()> {
    let vocab = tokenizer.model().vocab().iter();
    let added = tokenizer.added_tokens().map(|(id, token)| (id, token.content.as_str()));
    match vocab.chain(added).find(|(id, _)| u16::try_from(*id).is_err()) {
        Some((id, token)) => Err(too_large(&format!("the tokenizer's {token:?} has"), id)),
        None => Ok(()),
    }
}

fn too_large(what: &str, id: u32) -> anyhow::Error {
    WrongUsage::new(anyhow!(
        "{what} the id {id}, and `--format u16` holds ids up to 65535: use `--format u32`"
    ))
    .into()
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
    /// Appends a line's encoding.
    fn append_encoding(self, encoding: &Encoding, bytes: &mut Vec<u8>) -> Result<(), Failed> {
        match self {
            Self::Tokens => {
                for (place, token) in encoding.tokens.iter().enumerate() {
                    if place > 0 {
                        bytes.push(b' ');
                    }
                    bytes.extend(token.as_bytes());
                }
            }
            Self::Json => {
                let json = Json {
                    ids: &encoding.ids,
                    tokens: &encoding.tokens,
                    type_ids: &encoding.type_ids,
                    offsets: &encoding.offsets,
                    word_ids: &encoding.word_ids,
                    special_tokens_mask: &encoding.special_tokens_mask,
                    attention_mask: &encoding.attention_mask,
                };
                serde_json::to_writer(&mut *bytes, &json).map_err(Failed::Json)?;
            }
            Self::Ids | Self::U16 | Self::U32 | Self::Npy => return self.append(&encoding.ids, bytes),
        }
        bytes.push(b'\n');
        Ok(())
    }

    /// Appends a line's ids, in an ids-only format.
    fn append(self, ids: &[u32], bytes: &mut Vec<u8>) -> Result<(), Failed> {
        match self {
            Self::U16 => {
                for id in ids {
                    bytes.extend(u16::try_from(*id).map_err(|_| Failed::Id(*id))?.to_le_bytes());
                }
            }
            Self::U32 | Self::Npy => bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes())),
            Self::Ids | Self::Tokens | Self::Json => {
                let mut digits = itoa::Buffer::new();
                for (place, id) in ids.iter().enumerate() {
                    if place > 0 {
                        bytes.push(b' ');
                    }
                    bytes.extend(digits.format(*id).as_bytes());
                }
                bytes.push(b'\n');
            }
        }
        Ok(())
    }
}

/// Where results are written.
enum Sink {
    Bytes(Output),
    Npy(Npy),
}

impl Sink {
    fn new(format: Format, path: Option<&Path>) -> Result<Self> {
        let output = Output::apart_from(path, [Path::new(STANDARD_INPUT)])?;
        Ok(match format {
            Format::Npy => Self::Npy(Npy::new(Element::U32, "ids", output)?),
            _ => Self::Bytes(output),
        })
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Bytes(output) => output.bytes(bytes),
            Self::Npy(array) => array.append(bytes),
        }
    }

    /// Flushes what has been written so far, as far as the format allows.
    fn flush(&mut self) -> Result<()> {
        match self {
            Self::Bytes(output) => output.flush(),
            Self::Npy(_) => Ok(()),
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Bytes(output) => output.finish(),
            Self::Npy(array) => array.finish(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_in_each_format() {
        let written = |format: Format, ids: &[u32]| {
            let mut bytes = Vec::new();
            format.append(ids, &mut bytes).ok().map(|()| bytes)
        };
        assert_eq!(written(Format::Ids, &[0, 7, 4_294_967_295]).unwrap(), b"0 7 4294967295\n");
        assert_eq!(written(Format::Ids, &[]).unwrap(), b"\n");
        assert_eq!(written(Format::U16, &[1, 65_535]).unwrap(), [1, 0, 255, 255]);
        assert_eq!(written(Format::U16, &[65_536]), None);
        assert_eq!(written(Format::U32, &[1, 65_536]).unwrap(), [1, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(written(Format::Npy, &[258]).unwrap(), [2, 1, 0, 0]);
    }
}
