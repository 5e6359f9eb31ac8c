//! `cloze pull`.

use std::path::PathBuf;

use anyhow::Result;
use cloze_hub::ModelName;

use crate::failure::WrongUsage;
use crate::hub;
use crate::output::Output;

/// Download a model from the Hugging Face hub and print its folder.
///
/// Example: cloze pull sentence-transformers/all-MiniLM-L6-v2
///
/// Downloads what is needed to run it: configuration, tokenizer, sentence-transformers' modules and the
/// weights, as safetensors if available. Files go to the same cache as Python's huggingface_hub, where --model
/// of other commands finds them by the same name. Interrupted downloads resume.
#[derive(clap::Args)]
#[command(after_long_help = format!("\
More examples:
  cloze pull google-bert/bert-base-uncased@main --out bert
  cloze embed --model sentence-transformers/all-MiniLM-L6-v2 < sentences.txt

{}", hub::ENVIRONMENT))]
pub struct Args {
    /// The model's name, optionally with a branch, tag or commit other than its main branch.
    #[arg(value_name = "NAME[@REV]")]
    name: String,
    /// Copy the files to this folder, which must be new or empty, and print its path instead of the cache's.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    let name: ModelName = args.name.parse().map_err(WrongUsage::new)?;
    let model = hub::fetch(&name)?;
    let folder = match &args.out {
        Some(out) => {
            model.copy_to(out)?;
            out
        }
        None => &model.folder,
    };
    let mut output = Output::new();
    output.line(folder.display())?;
    output.flush()
}
