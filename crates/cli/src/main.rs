//! `cloze`: Transformers from raw text to a working model, on the command line.
//!
//! Results go to standard output, everything else to standard error. Exit status: 0 done,
//! 1 failed, 2 wrong usage or configuration. A failure is one `error:` line with its causes.

// Documentation of the arguments is their `--help`, where [CLS] is no link and <mask> no HTML.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]

mod answers;
mod check;
mod chunks;
mod commands;
mod compute;
mod failure;
mod folder_files;
#[cfg(feature = "wgpu")]
mod graphics;
mod help;
#[cfg(feature = "hub")]
mod hub;
mod images;
mod input;
mod lines;
mod memory;
mod model;
mod new_folder;
mod npy;
mod output;
mod profile;
mod progress;
mod ranks;
mod rows;
mod run_args;
mod spellings;
mod stop;
mod text_vectors;
mod warnings;

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use cloze::device;

use crate::failure::WrongUsage;

/// The maximum of `RAYON_NUM_THREADS`: more threads take minutes to start and then run one after another.
const MOST_THREADS: usize = 1024;

/// The number of worker threads: `RAYON_NUM_THREADS`, or one per core, which processes that do one command together
/// share.
fn n_threads() -> anyhow::Result<usize> {
    let cores = || ranks::n_cores(std::thread::available_parallelism().map_or(1, usize::from));
    let Some(asked) = std::env::var_os("RAYON_NUM_THREADS").filter(|asked| !asked.is_empty()) else {
        return Ok(cores());
    };
    match asked.to_str().and_then(|asked| asked.parse().ok()) {
        Some(0) => Ok(cores()),
        Some(n) if n <= MOST_THREADS => Ok(n),
        _ => {
            let found = asked.to_string_lossy();
            let expected = format!("a number from 1 to {MOST_THREADS}, or 0 for one thread for each core");
            Err(WrongUsage::new(anyhow!("RAYON_NUM_THREADS is {found:?}; expected {expected}")).into())
        }
    }
}

/// Makes this thread part of the thread pool: work that it spawns then starts at once, whereas a thread outside
/// the pool would sleep until all of it is done.
///
/// A thread that `only_waits` stays outside: the pool would lack its core.
fn join_pool(only_waits: bool) -> anyhow::Result<()> {
    let n_threads = n_threads()?;
    // A pool of this thread alone would do nothing while it waits for a file or for another thread.
    if n_threads > 1 {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads);
        let pool = if only_waits { pool } else { pool.use_current_thread() };
        pool.build_global()
            .with_context(|| format!("cannot start {n_threads} threads (RAYON_NUM_THREADS)"))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    cloze_allocator::keep_freed();
    #[cfg(feature = "wgpu")]
    graphics::look_for_no_desktop();
    device::keep_kernels();
    stop::ignore_file_size_signal();
    failure::hide_panics_that_become_errors();
    let words: Vec<_> = std::env::args_os().collect();
    spellings::read(&words);
    let cli = match commands::parse(&words) {
        Ok(cli) => cli,
        Err(error) => return failure::report_usage(&error),
    };
    warnings::listen(cli.command.is_profiled());
    spellings::tell();
    let command = cli.command;
    let result = ranks::join(command.can_be_shared())
        .and_then(|()| join_pool(command.only_waits()))
        .and_then(|()| failure::of_device(|| commands::run(command)));
    ranks::leave(result, failure::report)
}
