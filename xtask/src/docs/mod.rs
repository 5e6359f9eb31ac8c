//! `cargo xtask docs`: the book.

mod commands;
mod equations;
mod keys;
mod pages;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::kept;
use crate::{program, step};

/// Build the book in docs/ as pages for a browser, which need no network.
///
/// Uses mdBook; where it is not installed, it is built from the registry once, into the target folder.
#[derive(clap::Args)]
pub struct Args {
    /// Open the book when it is built.
    #[arg(long)]
    open: bool,
}

/// The files in docs/ that mdBook reads from beside the pages: its config, and the stylesheet that the config names.
const BESIDE: [&str; 2] = ["book.toml", "book.css"];

/// The version that is built where none is installed.
const MDBOOK: &str = "0.5.4";

pub fn run(args: &Args) -> Result<()> {
    let (root, target) = (step::root(), kept::target());
    let (place, built) = (target.join("book-pages"), target.join("book"));
    let mdbook = mdbook(&target)?;
    let program = program::build(None)?;
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| format!("cannot empty {}", place.display()))?;
    }
    let made = [commands::page(&program)?, keys::page(&root)?];
    pages::gather(&root, &place.join("src"), made.each_ref().map(String::as_str))?;
    for file in BESIDE {
        fs::copy(root.join("docs").join(file), place.join(file))
            .with_context(|| format!("cannot write {}", place.join(file).display()))?;
    }
    let mut build = Command::new(&mdbook);
    build.arg("build").arg(&place).arg("--dest-dir").arg(&built);
    if args.open {
        build.arg("--open");
    }
    step::run("build the book", &mut build)?;
    println!("{}", built.join("index.html").display());
    Ok(())
}

/// The program, which is built where it is not there.
fn mdbook(target: &Path) -> Result<PathBuf> {
    if step::succeeds(Command::new("mdbook").arg("--version")) {
        return Ok("mdbook".into());
    }
    let tools = target.join("tools");
    let mdbook = tools.join("bin").join(format!("mdbook{}", std::env::consts::EXE_SUFFIX));
    if !mdbook.exists() {
        let mut install = step::bare_cargo();
        install.args(["install", "--quiet", "--locked", "--no-default-features", "--features", "search"]);
        install.args(["--version", MDBOOK, "--root"]).arg(&tools).arg("mdbook");
        step::run("build mdBook, once", &mut install)?;
    }
    Ok(mdbook)
}
