//! `cloze search`: texts in an index, and the nearest ones to a query.

mod change;
mod embedding;
mod hits;
mod info;
mod query;
mod rows;

use anyhow::{Error, Result};
use clap::Subcommand;
use cloze_search::{IndexWriter, SearchError};
use indicatif::HumanCount;

use crate::failure::WrongUsage;
use crate::output::say;
use crate::progress::Progress;

pub use embedding::is_of_images;

/// Search texts by meaning, or images by likeness: keep their vectors in an index on disk and query it.
///
/// Example: cloze search query --index my-index 'a storm at sea'
///
/// An index is a folder. Adding and deleting rows does not rebuild it. Changes that `index`, `add` and `delete`
/// have printed as done survive a later kill.
#[derive(Subcommand)]
#[command(after_long_help = "\
More examples:
  cloze search index --index my-index --model sentence-transformers/all-MiniLM-L6-v2 --field year articles.jsonl
  cloze search index --index my-notes --model sentence-transformers/all-MiniLM-L6-v2 notes
  cloze search add --index my-notes --replace notes
  echo 'a storm at sea' | cloze search query --index my-index -k 5 --where year=1999
  cloze search add --index my-index --replace more.jsonl
  cloze search query --index my-index --exact 'a storm at sea'
  cloze search index --index my-photos --model google/vit-base-patch16-224-in21k photos
  cloze search query --index my-photos like-this.jpg")]
pub enum Command {
    Index(change::IndexArgs),
    Add(change::AddArgs),
    Delete(change::DeleteArgs),
    Compact(change::CompactArgs),
    Query(query::Args),
    Info(info::Args),
}

/// Runs `command`.
pub fn run(command: &Command) -> Result<()> {
    let done = match command {
        Command::Index(args) => change::index(args),
        Command::Add(args) => change::add(args),
        Command::Delete(args) => change::delete(args),
        Command::Compact(args) => change::compact(args),
        Command::Query(args) => query::run(args),
        Command::Info(args) => info::run(args),
    };
    done.map_err(|error| match error.downcast_ref::<SearchError>() {
        Some(found) if found.is_wrong_usage() => Error::from(WrongUsage::new(error)),
        _ => error,
    })
}

/// Runs work on an index, such as building its graph, with a progress display.
fn with_progress(
    writer: &mut IndexWriter,
    work: impl FnOnce(&mut IndexWriter, &mut dyn FnMut(usize, usize)) -> Result<(), SearchError>,
) -> Result<()> {
    let mut progress = Progress::new("rows in the graph", false);
    let done = work(writer, &mut |done, all| progress.show(done, Some(done as f64 / all.max(1) as f64)));
    progress.finish();
    done?;
    let info = writer.index().info();
    if info.strays > 0 {
        say(format_args!(
            "{} vectors cannot be reached in the graph, so every query is compared with them directly",
            HumanCount(info.strays as u64)
        ));
    }
    Ok(())
}
