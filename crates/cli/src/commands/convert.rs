//! `cloze convert`.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use cloze_model::huggingface::{ConvertConfig, FloatType, convert};

use crate::folder_files::{Tokenizers, copy_kept};
use crate::model;
use crate::new_folder::NewFolder;
use crate::output::{Output, say};

/// Rewrite a model folder: weights as safetensors, the tokenizer as tokenizer.json.
///
/// Example: cloze convert --model google-bert/bert-base-uncased --out bert
///
/// Reads whatever --model of the other commands reads, including PyTorch files and older vocabularies. All
/// weights are kept, heads included, bit for bit unless --dtype is given. Marian vocabularies are copied
/// unchanged, because transformers reads no other format. Prints the new folder.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze convert --model runs/sst2/model --out sst2-half --dtype bf16
  cloze convert --model runs/base/model --out base --max-shard-size 500MB")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// The output folder, which must be new or empty.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The format to store weights in (default: unchanged).
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
    /// Maximum size of a weights file before a new shard is started: bytes, or e.g. 500MB, 5GB.
    #[arg(long, value_name = "N", value_parser = size, default_value = "5GB")]
    max_shard_size: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    /// 32 bits.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// bfloat16: 16 bits with the range of 32.
    Bf16,
}

pub fn run(args: &Args) -> Result<()> {
    NewFolder::check(&args.out)?;
    let folder = model::folder(&args.model)?;
    let tokenizers = Tokenizers::load(&folder)?;
    let dtype = args.dtype.map(|dtype| match dtype {
        Dtype::F32 => FloatType::F32,
        Dtype::F16 => FloatType::F16,
        Dtype::Bf16 => FloatType::Bf16,
    });
    let config = ConvertConfig { dtype, max_shard_size: args.max_shard_size };

    let out = NewFolder::new(&args.out)?;
    let report = convert(&folder, &out.path(), &config)?;
    tokenizers.save(&folder, &out.path())?;
    copy_kept(&folder, &out.path())?;
    out.finish()?;

    say(format_args!("{} tensors as {}", report.n_tensors, report.dtype.name()));
    if !report.left_out.is_empty() {
        say(format_args!("omitted, because they are not weights: {}", report.left_out.join(", ")));
    }
    tokenizers.tell_ignored();
    let mut output = Output::new();
    output.line(args.out.display())?;
    output.flush()
}

/// Bytes: `500`, `10KB`, `500MB`, `5GB`, with powers of ten as in transformers.
fn size(text: &str) -> Result<usize, String> {
    let upper = text.trim().to_ascii_uppercase();
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000), ("", 1usize)];
    let read = units.iter().find_map(|(unit, bytes)| Some((upper.strip_suffix(unit)?, bytes)));
    let bytes = read.and_then(|(number, bytes)| number.trim_end().parse::<usize>().ok()?.checked_mul(*bytes));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "expected a number of bytes, or e.g. 500MB, 5GB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("5GB"), Ok(cloze_model::huggingface::MAX_SHARD_SIZE));
        assert_eq!([size("17"), size("2kb"), size("3 MB")], [Ok(17), Ok(2_000), Ok(3_000_000)]);
        for text in ["", "0", "GB", "-1", "1.5GB", "5TB", "99999999999GB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
