//! `cloze embed`.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Seek, Write};

use anyhow::{Context, Result};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use cloze_tokenizer::{Error, Sequence};
use cloze_trainer::TrainerError;
use cloze_trainer::embed::{self, EmbedConfig, Embedder, SentencePooling};
use indicatif::HumanCount;
use serde::Serialize;

use crate::compute::Compute;
use crate::lines::{self, Lines, Longer};
use crate::model;
use crate::output::{Output, say};
use crate::progress::Progress;

/// Turn lines of text on standard input into vectors that are near each other where meanings are.
///
/// How a text's states become one vector, whether vectors are scaled to length 1, and how long a
/// text may be, is read from the modules of sentence-transformers in the folder, where it has them.
/// Each line has its vector, an empty one that of the tokens which every text begins and ends with.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cloze embed --model sentence-transformers/all-MiniLM-L6-v2 < sentences.txt > embeddings.jsonl
  cloze embed --model sentence-transformers/all-MiniLM-L6-v2 --format npy < sentences.txt > embeddings.npy
  cloze embed --model runs/tiny/model --pooling cls --normalize < sentences.txt")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// How a text's states become one vector (default: as the folder says, else mean).
    #[arg(long, value_enum)]
    pooling: Option<Pooling>,
    /// Scale each vector to length 1, or with `=false` do not (default: as the folder says, else not).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    normalize: Option<bool>,
    /// What to print.
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// Tokens that are worked on at a time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = EmbedConfig::default().batch_tokens,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..)
    )]
    batch_tokens: usize,
    /// Bytes of a line that are kept. A longer line is encoded from its beginning if the model's length cuts it there;
    /// else it is an error.
    #[arg(long, value_name = "N", default_value_t = lines::MAX_LINE_BYTES, value_parser = lines::limit())]
    max_line_bytes: usize,
    #[command(flatten)]
    compute: Compute,
}

#[derive(Clone, Copy, ValueEnum)]
enum Pooling {
    /// The mean of all tokens' states.
    Mean,
    /// The first token's state.
    Cls,
    /// Each feature's greatest value over all tokens.
    Max,
    /// The mean over all tokens of the last four layers' states side by side: four times as many features.
    Last4,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// {"embedding": [...]} for each line, as soon as it is there.
    Jsonl,
    /// One array of 32-bit floats in NumPy's format, [lines, features], when all lines are read.
    Npy,
}

pub fn run(args: &Args) -> Result<()> {
    let config = EmbedConfig {
        pooling: args.pooling.map(|pooling| match pooling {
            Pooling::Mean => embed::Pooling::Mean.into(),
            Pooling::Cls => embed::Pooling::Cls.into(),
            Pooling::Max => embed::Pooling::Max.into(),
            Pooling::Last4 => SentencePooling::last4(),
        }),
        normalize: args.normalize,
        batch_tokens: args.batch_tokens,
        int8: args.compute.int8,
    };
    let device = args.compute.open()?;
    let embedder = Embedder::load(&model::folder(&args.model)?, config, &device)?;
    let mut sink: Box<dyn Sink> = match args.format {
        Format::Jsonl => Box::new(Jsonl(Output::new())),
        Format::Npy => Box::new(Npy::new()?),
    };
    let mut progress = Progress::new("lines", io::stdout().is_terminal());
    let (mut count, mut truncated) = (0, 0);
    let mut lines = Lines::stdin(args.max_line_bytes, Longer::Cut);
    while let Some((first, batch)) = lines.next_batch()? {
        let texts: Vec<Sequence> = batch.iter().map(Sequence::from).collect();
        let mut failed = None;
        let mut good = &texts[..];
        // The lines before one that fails have their vectors.
        let embeddings = loop {
            match args.compute.run(|| embedder.embed_sequences(good)) {
                Ok(embeddings) => break embeddings,
                Err(TrainerError::Tokenizer(Error::Batch { index, source, .. })) => {
                    failed = Some(lines.failure(first + index, &batch[index], *source));
                    good = &texts[..index];
                }
                Err(error) => return Err(error.into()),
            }
        };
        for embedding in embeddings.values.chunks_exact(embedder.width()) {
            sink.embedding(embedding)?;
        }
        sink.flush()?;
        if let Some(error) = failed {
            return Err(error);
        }
        count += batch.len();
        truncated += embeddings.truncated;
        progress.show(count, None);
    }
    progress.finish();
    if truncated > 0 {
        say(format_args!(
            "{} of {} lines are longer than {} tokens: only their beginnings are embedded",
            HumanCount(truncated as u64),
            HumanCount(count as u64),
            embedder.max_len()
        ));
    }
    sink.finish(embedder.width())
}

/// Where embeddings go.
trait Sink {
    fn embedding(&mut self, values: &[f32]) -> Result<()>;

    /// Hands on what is there.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Ends the output of vectors of `width` features.
    fn finish(self: Box<Self>, width: usize) -> Result<()>;
}

struct Jsonl(Output);

#[derive(Serialize)]
struct Line<'a> {
    embedding: &'a [f32],
}

impl Sink for Jsonl {
    fn embedding(&mut self, values: &[f32]) -> Result<()> {
        self.0.line(serde_json::to_string(&Line { embedding: values })?)
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }

    fn finish(mut self: Box<Self>, _width: usize) -> Result<()> {
        self.0.flush()
    }
}

/// NumPy's header has the number of rows, which is known at the end: until then they wait in a
/// temporary file.
struct Npy {
    rows: BufWriter<File>,
    count: usize,
}

const WAITING: &str = "cannot keep embeddings in a temporary file";

impl Npy {
    fn new() -> Result<Self> {
        Ok(Self { rows: BufWriter::new(tempfile::tempfile().context(WAITING)?), count: 0 })
    }
}

impl Sink for Npy {
    fn embedding(&mut self, values: &[f32]) -> Result<()> {
        self.count += 1;
        values.iter().try_for_each(|x| self.rows.write_all(&x.to_le_bytes())).context(WAITING)
    }

    fn finish(self: Box<Self>, width: usize) -> Result<()> {
        let mut output = Output::new();
        output.bytes(&npy_header(self.count, width))?;
        let mut rows = self.rows.into_inner().map_err(io::IntoInnerError::into_error).context(WAITING)?;
        rows.rewind().context(WAITING)?;
        let mut chunk = vec![0; 1 << 16];
        loop {
            match rows.read(&mut chunk).context(WAITING)? {
                0 => return output.flush(),
                n => output.bytes(&chunk[..n])?,
            }
        }
    }
}

/// The header of version 1.0 of NumPy's format: magic, length, a Python literal, padding to 64 bytes.
fn npy_header(rows: usize, columns: usize) -> Vec<u8> {
    let mut literal = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let unpadded = 10 + literal.len() + 1;
    literal.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    literal.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((literal.len() as u16).to_le_bytes());
    header.extend(literal.as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_numpy_writes() {
        let header = npy_header(3, 384);
        assert_eq!(header.len() % 64, 0);
        assert_eq!(&header[..10], b"\x93NUMPY\x01\x00\x76\x00");
        let literal = std::str::from_utf8(&header[10..]).unwrap();
        assert!(literal.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 384), }  "));
        assert!(literal.ends_with(" \n"));
    }

    #[test]
    fn a_line_is_json_with_as_many_digits_as_needed() {
        let line = serde_json::to_string(&Line { embedding: &[0.1, -2.0, 1e-9] }).unwrap();
        assert_eq!(line, r#"{"embedding":[0.1,-2.0,1e-9]}"#);
    }
}
