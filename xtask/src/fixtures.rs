//! `cargo xtask fixtures`: writes the golden files again.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step;

/// Re-run the exporters tests/fixtures/CASE/export.py, which write the golden files beside them.
///
/// They need the Python packages that each exporter's header names (torch, transformers, ...).
#[derive(clap::Args)]
pub struct Args {
    /// The Python that has those packages.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Only these cases (default: all).
    cases: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let folder = step::root().join("tests").join("fixtures");
    let entries = fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))?;
    let mut cases = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("{}", folder.display()))?;
        if entry.path().join("export.py").is_file() {
            cases.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    cases.sort();
    if let Some(unknown) = args.cases.iter().find(|case| !cases.contains(case)) {
        bail!("no exporter for `{unknown}`; there are: {}", cases.join(", "));
    }
    cases.retain(|case| args.cases.is_empty() || args.cases.contains(case));
    // A bare name is looked up in PATH, a path is the caller's: the exporters run elsewhere.
    let python = match args.python.components().count() {
        1 => args.python.clone(),
        _ => std::path::absolute(&args.python).context("--python")?,
    };
    for case in &cases {
        let mut export = Command::new(&python);
        export.arg("export.py").current_dir(folder.join(case));
        step::run(&format!("fixture {case}"), &mut export)?;
    }
    Ok(())
}
