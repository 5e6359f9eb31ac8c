//! `cloze convert`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use cloze_model::huggingface::{ConvertConfig, FloatType, SentenceConfig, convert};
use cloze_tokenizer::{MarianTokenizers, Tokenizer};
use cloze_trainer::translation::{TRANSLATION_FILE, TokenizerPlaces};

use crate::model;
use crate::new_folder::NewFolder;
use crate::output::{Output, say};

/// Files kept besides configuration, weights and tokenizer: the task of a fine-tuned model, the languages of a
/// translation model, and sentence-transformers' modules, each described in a folder of its own.
const KEPT: [&str; 6] = [
    "task.json",
    TRANSLATION_FILE,
    "generation_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
];

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
    let out = &args.out;
    let new = NewFolder::create(out)?;
    let folder = model::folder(&args.model)?;
    let tokenizers = Tokenizers::load(&folder)?;
    let dtype = args.dtype.map(|dtype| match dtype {
        Dtype::F32 => FloatType::F32,
        Dtype::F16 => FloatType::F16,
        Dtype::Bf16 => FloatType::Bf16,
    });
    let config = ConvertConfig { dtype, max_shard_size: args.max_shard_size };

    let inner = new.path();
    let report = convert(&folder, &inner, &config)?;
    tokenizers.save(&folder, &inner)?;
    keep(&folder, &inner)?;
    new.finish()?;

    say(format_args!("{} tensors as {}", report.n_tensors, report.dtype.name()));
    if !report.left_out.is_empty() {
        say(format_args!("omitted, because they are not weights: {}", report.left_out.join(", ")));
    }
    let ignored = tokenizers.ignored();
    if !ignored.is_empty() {
        say(format_args!(
            "omitted from tokenizer_config.json, because cloze does not support it: {}",
            ignored.into_iter().collect::<Vec<_>>().join(", ")
        ));
    }
    let mut output = Output::new();
    output.line(out.display())?;
    output.flush()
}

/// The tokenizers of a folder.
pub(super) enum Tokenizers {
    /// Each with its folder; rewritten.
    Each(Vec<(PathBuf, Tokenizer)>),
    /// Marian's, whose files are copied: transformers reads no other format, and `tokenizer.json` would hold
    /// only one language.
    Marian,
}

impl Tokenizers {
    pub fn load(folder: &Path) -> Result<Self> {
        let load = |place: PathBuf| Tokenizer::load(&place).map(|tokenizer| (place, tokenizer));
        let places = match TokenizerPlaces::of(folder) {
            TokenizerPlaces::Separate(sides) => sides.to_vec(),
            TokenizerPlaces::Marian => {
                MarianTokenizers::load(folder)?;
                return Ok(Self::Marian);
            }
            _ => vec![folder.to_owned()],
        };
        Ok(Self::Each(places.into_iter().map(load).collect::<Result<_, _>>()?))
    }

    /// Writes them to the same relative paths in `to` as in `from`.
    pub fn save(&self, from: &Path, to: &Path) -> Result<()> {
        match self {
            Self::Each(all) => all.iter().try_for_each(|(place, tokenizer)| {
                let place = to.join(place.strip_prefix(from)?);
                fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
                Ok(tokenizer.save(&place)?)
            }),
            Self::Marian => {
                MarianTokenizers::FILES.iter().try_for_each(|name| copy(from, to, Path::new(name)))
            }
        }
    }

    /// The keys of `tokenizer_config.json` that are dropped because cloze does not support them.
    fn ignored(&self) -> BTreeSet<&str> {
        let all = match self {
            Self::Each(all) => &all[..],
            Self::Marian => &[],
        };
        all.iter().flat_map(|(_, tokenizer)| &tokenizer.config().ignored).map(String::as_str).collect()
    }
}

/// Copies a file, if it exists, from the folder `from` to the same path in the folder `to`.
fn copy(from: &Path, to: &Path, name: &Path) -> Result<()> {
    let (source, target) = (from.join(name), to.join(name));
    if source.is_file() {
        let parent = target.parent().unwrap_or(to);
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        fs::copy(&source, &target).with_context(|| format!("cannot copy {}", source.display()))?;
    }
    Ok(())
}

/// Copies the files in [`KEPT`] and the configuration of each subfolder, such as the module `1_Pooling`; for
/// `Dense` modules the weights too, unchanged.
pub(super) fn keep(from: &Path, to: &Path) -> Result<()> {
    let copy = |name: &Path| copy(from, to, name);
    KEPT.iter().try_for_each(|name| copy(Path::new(name)))?;
    let Some(sentence) = SentenceConfig::load(from)? else { return Ok(()) };
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", from.display()))?;
        copy(&Path::new(&entry.file_name()).join("config.json"))?;
    }
    let weights = ["model.safetensors", "pytorch_model.bin"];
    sentence
        .dense
        .iter()
        .try_for_each(|module| weights.iter().try_for_each(|name| copy(&Path::new(module).join(name))))
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
