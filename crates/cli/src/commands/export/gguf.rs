//! `cloze export gguf`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use burn::tensor::TensorData;
use clap::ValueEnum;
use cloze_gguf::{Blocks, FolderTensor, Model, Pooling, Sentence, TensorType, Values, export};
use cloze_model::huggingface::{QuantizedTensor, SentenceConfig, tensors_of};
use cloze_model::ops::{Bits, Scales};
use cloze_tokenizer::Tokenizer;
use indicatif::HumanBytes;
use serde_json::{Map, Value};

use crate::failure::WrongUsage;
use crate::model;
use crate::output::{Output, say};

/// Write a model as a GGUF file, the format of llama.cpp.
///
/// Example: cloze export gguf --model sentence-transformers/all-MiniLM-L6-v2 --out minilm.gguf
///
/// The model is a BERT or NomicBERT that embeds texts, a GPT-2, a Llama, or a Mistral without a window; its tokenizer
/// and pooling are in the file too. Matrices and tables have the type of --weights. Norms, biases, positions and token
/// types stay in 32 bits, and a matrix whose rows 32 does not divide stays in 16, as in llama.cpp. The blocks of a folder
/// that `cloze quantize` wrote as q8_0 or q4_0 go into the file bit for bit; its int8 and its smoothed matrices have no form
/// there and are rounded to --weights. Prints the file.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze export gguf --model openai-community/gpt2 --weights q4_0 --out gpt2-q4.gguf
  cloze export gguf --model runs/tiny --out tiny.gguf
  cloze embed --model minilm.gguf < texts.txt > vectors.jsonl
  cloze convert --model gpt2-q4.gguf --out gpt2-again")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// The output file.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The type of matrices and tables (default: a quantised folder's blocks as they are, and f16 for the rest).
    #[arg(long, value_enum)]
    weights: Option<Weights>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Weights {
    /// 32 bits.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// bfloat16: 16 bits with the range of 32.
    Bf16,
    /// Blocks of 32 integers of 8 bits with a scale.
    #[value(name = "q8_0")]
    Q8_0,
    /// Blocks of 32 integers of 4 bits with a scale.
    #[value(name = "q4_0")]
    Q4_0,
}

impl Weights {
    fn kind(self) -> TensorType {
        match self {
            Self::F32 => TensorType::F32,
            Self::F16 => TensorType::F16,
            Self::Bf16 => TensorType::Bf16,
            Self::Q8_0 => TensorType::Q8_0,
            Self::Q4_0 => TensorType::Q4_0,
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let out = &args.out;
    if out.is_dir() {
        let error = anyhow!("--out: {} is a folder; name a file in it", out.display());
        return Err(WrongUsage::new(error).into());
    }
    let folder = model::folder(&args.model)?;
    let config = object(&folder.join("config.json"))?;
    let tokenizer = Tokenizer::load(&folder)?;
    let tokenizer_json: Value = serde_json::from_str(&tokenizer.to_json()).context("the tokenizer")?;
    let tokenizer_config = tokenizer_config(&tokenizer, &folder)?;
    let sentence = SentenceConfig::load(&folder)?;
    let tensors = tensors_of(&folder)?;
    let tensors_of_integers = tensors.quantized.len();
    let place = fs::canonicalize(&args.model).unwrap_or_else(|_| PathBuf::from(&args.model));
    let name = place.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let floats = tensors.floats.iter().map(|(name, data)| FolderTensor {
        name,
        shape: data.shape().to_vec(),
        values: Values::Floats(data.as_slice::<f32>().expect("weights are read as FP32").into()),
    });
    let integers = tensors.quantized.iter().map(|(name, tensor)| FolderTensor {
        name,
        shape: tensor.matrix.dims().to_vec(),
        values: match blocks(tensor) {
            Some(blocks) => Values::Blocks(blocks),
            None => Values::Floats(numbers(tensor.dequantized()).into()),
        },
    });
    let tensors: Vec<FolderTensor> = floats.chain(integers).collect();
    let model = Model {
        name: &name,
        config: &config,
        tokenizer: &tokenizer_json,
        tokenizer_config: &tokenizer_config,
        sentence: sentence.as_ref().map(|config| of_sentence(config, &tokenizer_json)).transpose()?,
        tensors,
    };
    if let Some(parent) = out.parent().filter(|parent| *parent != Path::new("")) {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    let report = export(out, &model, args.weights.map(Weights::kind))?;

    let size = fs::metadata(out).map_or(0, |found| found.len());
    let architecture = report.architecture.name();
    let kind = report.weights.name();
    say(format_args!("{} tensors of `{architecture}` as {kind}: {}", report.n_tensors, HumanBytes(size)));
    let n_rounded = tensors_of_integers.saturating_sub(report.n_kept);
    if report.n_kept > 0 {
        say(format_args!("{} matrices have the folder's blocks, bit for bit", report.n_kept));
    }
    if n_rounded > 0 {
        let to = args.weights.map_or(TensorType::F16, Weights::kind).name();
        say(format_args!(
            "{n_rounded} matrices of integers are written as {to}: GGUF has no such blocks, or --weights asks for it"
        ));
    }
    if !report.in_f16.is_empty() {
        say(format_args!("in F16, because 32 does not divide their rows: {}", report.in_f16.join(", ")));
    }
    if !report.left_out.is_empty() {
        say(format_args!("omitted, because llama.cpp does not use them: {}", report.left_out.join(", ")));
    }
    report.notes.iter().for_each(say);
    let prompts: Vec<&str> =
        sentence.iter().flat_map(|config| &config.prompts).map(|(name, _)| name.as_str()).collect();
    if !prompts.is_empty() {
        say(format_args!("omitted, because GGUF has no place for them: the prompts {}", prompts.join(", ")));
    }
    let mut output = Output::new();
    output.line(out.display())?;
    output.flush()
}

/// A folder's integers as blocks of a GGUF file; none if they are no such blocks, or if features have factors, which
/// llama.cpp does not multiply with.
fn blocks(tensor: &QuantizedTensor) -> Option<Blocks<'_>> {
    let has_factors = tensor.tokens.as_ref().is_some_and(|tokens| tokens.factors.is_some());
    let kind = match tensor.matrix.bits() {
        Bits::Eight => TensorType::Q8_0,
        Bits::Four => TensorType::Q4_0,
    };
    match tensor.matrix.scales() {
        Scales::Blocks(scales) if !has_factors => Blocks::new(kind, tensor.matrix.values(), scales),
        _ => None,
    }
}

fn numbers(data: TensorData) -> Vec<f32> {
    data.try_into_vec().expect("FP32")
}

/// A file with a JSON object.
fn object(path: &Path) -> Result<Map<String, Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{}: not a JSON object", path.display()))
}

/// The roles of tokens as they are saved, and the chat template, which is kept as it is.
fn tokenizer_config(tokenizer: &Tokenizer, folder: &Path) -> Result<Value> {
    let saved = tempfile::tempdir().context("cannot create a temporary folder")?;
    tokenizer.save(saved.path())?;
    const CONFIG: &str = "tokenizer_config.json";
    let mut config = object(&saved.path().join(CONFIG))?;
    let own = object(&folder.join(CONFIG)).unwrap_or_default().remove("chat_template");
    let template = fs::read_to_string(folder.join("chat_template.jinja")).ok().map(Value::from).or(own);
    if let Some(template) = template {
        config.insert("chat_template".into(), template);
    }
    Ok(config.into())
}

/// What GGUF says of sentence-transformers' modules.
fn of_sentence(config: &SentenceConfig, tokenizer: &Value) -> Result<Sentence> {
    if let Some(module) = config.dense.first() {
        return Err(anyhow!(
            "the model cannot be written as GGUF: its module `{module}` (Dense) has no place there"
        ));
    }
    let pooling = match config.pooling_modes.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["mean"] => Pooling::Mean,
        ["cls"] => Pooling::Cls,
        ["lasttoken"] => Pooling::Last,
        _ => {
            let modes = config.pooling_modes.join(", ");
            return Err(anyhow!(
                "the model cannot be written as GGUF: its pooling is {modes}; expected one of mean, cls, lasttoken"
            ));
        }
    };
    let lowercases = tokenizer.pointer("/normalizer/lowercase") == Some(&Value::Bool(true));
    if config.lowercase && !lowercases {
        return Err(anyhow!(
            "the model cannot be written as GGUF: `do_lower_case` in sentence_bert_config.json, with a tokenizer that \
             keeps capital letters, has no place there"
        ));
    }
    Ok(Sentence { pooling, normalize: config.normalize, max_len: config.max_len })
}
