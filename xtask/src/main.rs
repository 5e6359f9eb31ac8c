//! The repository's chores, as `cargo xtask TASK`.
//!
//! Thin on purpose: it links none of the workspace's crates and spawns cargo, so it builds in
//! seconds and stays usable while they do not compile. Each step prints a heading and its time;
//! the first failure ends the task with that step's exit code.

mod backends;
mod bench;
#[cfg(unix)]
mod campaign;
mod check;
mod docs;
mod fixtures;
#[cfg(unix)]
mod look;
mod memory;
mod outside;
mod package;
mod program;
mod step;
mod tch;
mod test;
mod train;

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::{Parser, Subcommand};

/// The repository's chores.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Train(train::Args),
    Test(test::Args),
    Check(check::Args),
    Docs(docs::Args),
    Backends(backends::Args),
    Bench(bench::Args),
    #[cfg(unix)]
    Campaign(campaign::Args),
    Fixtures(fixtures::Args),
    #[cfg(unix)]
    Look(look::Args),
    Outside(outside::Args),
    Package(package::Args),
    Tch(tch::Args),
}

fn main() -> ExitCode {
    let task = Xtask::parse().task;
    // Ctrl-C reaches the step's process as well, which may have a checkpoint to save: wait for it
    // and report what it said. (A handler, unlike an ignored signal, is not inherited.)
    if let Err(error) = ctrlc::set_handler(|| step::INTERRUPTED.store(true, Ordering::SeqCst)) {
        eprintln!("warning: Ctrl-C will not wait for the running step: {error}");
    }
    let outcome = match task {
        Task::Train(args) => train::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Check(args) => check::run(&args),
        Task::Docs(args) => docs::run(&args),
        Task::Backends(args) => backends::run(&args),
        Task::Bench(args) => bench::run(&args),
        #[cfg(unix)]
        Task::Campaign(args) => campaign::run(&args),
        Task::Fixtures(args) => fixtures::run(&args),
        #[cfg(unix)]
        Task::Look(args) => look::run(&args),
        Task::Outside(args) => outside::run(&args),
        Task::Package(args) => package::run(&args),
        Task::Tch(args) => tch::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            let code = error.downcast_ref::<step::Failed>().map_or(1, |failed| failed.code);
            ExitCode::from(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        use clap::CommandFactory;
        Xtask::command().debug_assert();
    }

    /// The lines of blocks of `sh` in README.md and the book that begin with `cargo xtask`.
    fn commands() -> Vec<String> {
        let (mut files, mut folders) =
            (vec![step::root().join("README.md")], vec![step::root().join("docs/src")]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        let mut commands = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(file).unwrap();
            let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
            let lines = blocks.flat_map(str::lines).map(|line| line.split('#').next().unwrap().trim_end());
            commands.extend(lines.filter(|line| line.starts_with("cargo xtask")).map(str::to_owned));
        }
        commands
    }

    #[test]
    fn pages_name_tasks_that_exist() {
        let commands = commands();
        assert!(commands.len() > 8, "{commands:?}");
        for command in commands {
            // Words in quotes are values, and a line may go on.
            let words = command.split_whitespace().skip(1).filter(|word| *word != "\\");
            if let Err(error) = Xtask::try_parse_from(words) {
                panic!("`{command}`: {error}");
            }
        }
    }
}
