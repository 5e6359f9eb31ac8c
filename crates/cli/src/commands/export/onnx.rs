//! `cloze export onnx`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use cloze_model::bert::Pooling;
use cloze_model::huggingface::convert_config;
use cloze_onnx::{ExportConfig, export};
use cloze_trainer::finetune::{TaskFile, TaskSection};
use cloze_trainer::images::is_image_model;

use crate::folder_files::{Tokenizers, copy_kept};
use crate::model;
use crate::new_folder::NewFolder;
use crate::output::{Output, say};

/// Write an encoder and its head as an ONNX model, for ONNX Runtime, optimum and sentence-transformers.
///
/// Example: cloze export onnx --model sentence-transformers/all-MiniLM-L6-v2 --out minilm-onnx
///
/// Exports encoders of all families that cloze reads, alone or with a head: masked pieces, classes and numbers, tags,
/// answers, choices, and sentence embeddings with their pooling. The batch and the length may vary. The folder has the
/// files that optimum's has: model.onnx, config.json and the tokenizer. The model of a sentence-transformers folder is in
/// onnx/, beside its modules. The integers of a folder that `cloze quantize` wrote stay as they are; blocks of 8 bits and
/// tables of 4 need ONNX Runtime 1.23. Decoders, encoder–decoders, recurrent models and conditional random fields are not
/// exported. Prints the new folder.
///
/// Of models of images (ViT, DeiT, the encoder of an MAE) the input is pixel_values, of the model's size in any number, and the
/// output logits, or last_hidden_state of an encoder; the folder has preprocessor_config.json in place of a tokenizer.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze export onnx --model runs/reviews/model --out reviews-onnx
  cloze export onnx --model google-bert/bert-base-uncased --states --out bert-states
  cloze export onnx --model tiny --out tiny-onnx
  cloze export onnx --model runs/digits/model --out digits-onnx

In Python:
  SentenceTransformer('minilm-onnx', backend='onnx')
  ORTModelForSequenceClassification.from_pretrained('reviews-onnx')")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// The output folder, which must be new or empty.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Export the encoder's last states (last_hidden_state), without its head, pooling and modules.
    #[arg(long)]
    states: bool,
}

pub fn run(args: &Args) -> Result<()> {
    NewFolder::check(&args.out)?;
    let folder = model::folder(&args.model)?;
    let is_of_images = is_image_model(&folder);
    let tokenizers = (!is_of_images).then(|| Tokenizers::load(&folder)).transpose()?;
    let pooling = if args.states { None } else { pooling(&folder)? };
    let config = ExportConfig { states: args.states, pooling };
    let exported = export(&folder, &config, &cloze::device::open(None)?)
        .with_context(|| folder.display().to_string())?;

    let out = NewFolder::new(&args.out)?;
    convert_config(&folder, &out.path())?;
    match &tokenizers {
        Some(tokenizers) => tokenizers.save(&folder, &out.path())?,
        None => copy_preprocessor(&folder, &out.path())?,
    }
    let mut file = out.path();
    if exported.is_sentence {
        copy_kept(&folder, &file)?;
        file.push("onnx");
        fs::create_dir(&file).with_context(|| format!("cannot create {}", file.display()))?;
    }
    exported.model.save(&file.join("model.onnx"))?;
    out.finish()?;

    let (nodes, bytes) = (exported.model.n_nodes(), exported.model.n_bytes());
    say(format_args!("{nodes} nodes, {:.1} MB of parameters", bytes as f64 / 1e6));
    if let Some(tokenizers) = &tokenizers {
        tokenizers.tell_ignored();
    }
    let mut output = Output::new();
    output.line(args.out.display())?;
    output.flush()
}

/// Copies the file that says how images become inputs; without one they become so in the usual way.
fn copy_preprocessor(from: &Path, to: &Path) -> Result<()> {
    const FILE: &str = "preprocessor_config.json";
    let path = from.join(FILE);
    if path.is_file() {
        fs::copy(&path, to.join(FILE)).with_context(|| format!("cannot copy {}", path.display()))?;
    }
    Ok(())
}

/// The pooling for the head of a model that was trained here, if its task sets one.
///
/// # Errors
/// A task whose answers an ONNX model cannot give.
fn pooling(folder: &Path) -> Result<Option<Pooling>> {
    match TaskFile::<TaskSection>::read(folder)?.map(|file| file.task) {
        Some(
            TaskSection::Classification { pooling, .. }
            | TaskSection::Regression { pooling, .. }
            | TaskSection::MultiLabel { pooling, .. },
        ) => Ok(pooling),
        Some(TaskSection::Tagging(section)) if section.crf => Err(anyhow!(
            "{}: a conditional random field cannot be exported to ONNX; a tagger that was trained without `crf` can, or \
             the encoder's states (--states)",
            folder.display()
        )),
        _ => Ok(None),
    }
}
