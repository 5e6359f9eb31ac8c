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

use clap::Parser;

fn main() -> ExitCode {
    cloze_allocator::keep_freed();
    // Wrong usage ends here: clap prints one `error:` line and exits with 2.
    let cli = commands::Cli::parse();
    match commands::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
