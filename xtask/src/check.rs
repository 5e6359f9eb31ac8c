//! `cargo xtask check`: all that must hold before a change goes in.

use std::path::PathBuf;

use anyhow::Result;

use crate::{backends, package, step, test};

/// Format, lints, documentation, packages, licences and sources of dependencies, advisories, tests,
/// and the pages in a browser if Chromium is installed.
#[derive(clap::Args)]
pub struct Args {
    /// Add the slow, full-size tests, README's and the book's long commands, every model on a graphics adapter
    /// (software will do), and an hour of `cargo xtask campaign`.
    #[arg(long)]
    full: bool,
    /// An interpreter with transformers and sentence-transformers, for the book's commands that need Python (default:
    /// leave those out).
    #[arg(long, value_name = "PYTHON", requires = "full")]
    python: Option<PathBuf>,
    /// Leave the tests out.
    #[arg(long, conflicts_with = "full")]
    no_tests: bool,
}

pub fn run(args: &Args) -> Result<()> {
    step::run("format", step::cargo("fmt").args(["--all", "--check"]))?;
    let mut clippy = step::cargo("clippy");
    clippy
        .args(["--workspace", "--all-targets"])
        .args(test::PROFILE)
        .args(test::checked_features())
        .args(["--", "-D", "warnings"]);
    step::run("lints", &mut clippy)?;
    step::run(
        "documentation",
        step::cargo("doc")
            .args(["--workspace", "--no-deps"])
            .args(test::PROFILE)
            .args(test::checked_features())
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    package::run(&package::Args {})?;
    dependencies()?;
    if args.no_tests {
        return Ok(());
    }
    test::run(&test::Args { full: args.full, python: args.python.clone(), args: Vec::new() })?;
    #[cfg(unix)]
    crate::look::run(&crate::look::Args::usual())?;
    if args.full {
        backends::run(&backends::Args::of("wgpu"))?;
    }
    #[cfg(unix)]
    if args.full {
        crate::campaign::run(&crate::campaign::Args::lasting(60.0))?;
    }
    Ok(())
}

/// What `deny.toml` allows in the tree.
fn dependencies() -> Result<()> {
    let deny = || {
        let mut command = step::bare_cargo();
        command.arg("deny").arg("--manifest-path").arg(step::root().join("Cargo.toml"));
        command
    };
    if !step::succeeds(step::bare_cargo().args(["deny", "--version"])) {
        eprintln!(
            "==> dependencies: not checked, cargo-deny is not installed \
             (`cargo install --locked cargo-deny`)"
        );
        return Ok(());
    }
    step::run(
        "dependencies: licences, bans, sources",
        deny().args(["check", "licenses", "bans", "sources"]),
    )?;
    // Advisories need a database from the network: without it there is nothing to check against.
    if step::succeeds(deny().args(["fetch", "db"])) {
        step::run("dependencies: advisories", deny().args(["check", "advisories"]))
    } else {
        eprintln!("==> dependencies: advisories not checked, their database cannot be reached");
        Ok(())
    }
}
