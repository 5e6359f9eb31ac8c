//! `cloze search info`.

use std::path::PathBuf;

use anyhow::Result;
use cloze_search::Index;

use crate::output::Output;

/// Check an index and describe its contents.
///
/// Example: cloze search info --index my-index
#[derive(clap::Args)]
pub struct Args {
    /// The index's folder.
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    let info = Index::open(&args.index)?.info();
    let mut output = Output::new();
    output.line(serde_json::to_string_pretty(&info)?)?;
    output.finish()
}
