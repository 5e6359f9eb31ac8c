//! `cloze`: Transformers from raw text to a working model, on the command line.
//!
//! Results go to standard output, everything else to standard error. Exit status: 0 done,
//! 1 failed, 2 wrong usage or configuration. A failure is one `error:` line with its causes.

// Documentation of the arguments is their `--help`, where [CLS] is no link and <mask> no HTML.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]

mod commands;
mod device;
mod failure;
#[cfg(feature = "hub")]
mod hub;
mod lines;
mod model;
mod output;
mod profile;
mod progress;
mod stop;

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

/// Makes this thread one of the pool that shares out work: what it asks the others for then begins at once, where
/// a stranger to the pool would fall asleep until they have done all of it.
fn join_pool() -> anyhow::Result<()> {
    let n_threads = match std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()) {
        Some(n) if n > 0 => n,
        _ => std::thread::available_parallelism().map_or(1, usize::from),
    };
    // A pool of this thread alone would do nothing while it waits for a file or for another thread.
    if n_threads > 1 {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).use_current_thread();
        pool.build_global()
            .with_context(|| format!("cannot start {n_threads} threads (RAYON_NUM_THREADS)"))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    cloze_allocator::keep_freed();
    stop::ignore_file_size_signal();
    // Wrong usage ends here: clap prints one `error:` line and exits with 2.
    let cli = commands::Cli::parse();
    match join_pool().and_then(|()| commands::run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
