//! `cargo xtask outside`: a program outside the workspace, made of what README.md and the book show.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{program, step, test};

/// Build the crate in tests/outside, which depends on `cloze` as README.md says, and run its examples.
///
/// The examples are those of the book's page on the library; models of random weights stand where these look for published ones. The versions of
/// dependencies are the workspace's, and what the workspace has built of them is used again.
#[derive(clap::Args)]
pub struct Args {}

/// The crate's folder in the repository.
const FOLDER: &str = "tests/outside";

pub fn run(_: &Args) -> Result<()> {
    let root = step::root();
    let folder = root.join(FOLDER);
    let lock = folder.join("Cargo.lock");
    // Cargo leaves out of it what this crate does not need.
    fs::copy(root.join("Cargo.lock"), &lock).with_context(|| format!("cannot write {}", lock.display()))?;
    let profile = profile(&root)?;
    let cargo = |subcommand: &str| {
        let mut command = cargo(&folder, subcommand);
        command.args(&profile);
        command
    };
    step::run("outside: format", bare(&folder, "fmt").arg("--check"))?;
    step::run("outside: build", cargo("build").args(["--bins", "--examples"]))?;
    let place = std::env::temp_dir().join(format!("cloze-outside-{}", std::process::id()));
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let ran = examples(&folder).and_then(|examples| {
        let run = || {
            let mut run = cargo("run");
            run.arg("--quiet").current_dir(&place);
            run
        };
        step::run("outside: small models", run().args(["--bin", "outside", "--"]).arg(&place))?;
        examples
            .iter()
            .try_for_each(|(name, _)| step::run(&format!("outside: {name}"), run().args(["--example", name])))
    });
    // The models are of no more use; that they stay where they cannot be removed is no failure.
    let _ = fs::remove_dir_all(&place);
    ran
}

/// `cargo SUBCOMMAND` on the crate, with the workspace's target folder and features of its dependencies.
fn cargo(folder: &Path, subcommand: &str) -> Command {
    let mut command = bare(folder, subcommand);
    command.arg("--release");
    if program::is_built_with_tests() {
        // The crate has a feature of its own for those of the tests; the rest is their profile.
        command.args(["--features", "shared"]).args(test::SECOND_BACKEND).args(&test::PROFILE[1..]);
    }
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        command.arg("--target-dir").arg(step::root().join("target"));
    }
    command
}

/// The arguments that give the crate the workspace's release profile. With another profile nothing built for the
/// workspace could be used again.
fn profile(root: &Path) -> Result<Vec<String>> {
    let manifest = root.join("Cargo.toml");
    let read = || -> Result<toml::Table> { Ok(toml::from_str(&fs::read_to_string(&manifest)?)?) };
    let manifest = read().with_context(|| format!("cannot read {}", manifest.display()))?;
    let mut settings = Vec::new();
    if let Some(release) = manifest.get("profile").and_then(|profiles| profiles.get("release")) {
        flatten("profile.release", release, &mut settings);
    }
    Ok(settings.into_iter().flat_map(|setting| ["--config".to_owned(), setting]).collect())
}

/// Every value below `value` as `key=value`, with its dotted key.
fn flatten(key: &str, value: &toml::Value, settings: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            table.iter().for_each(|(name, value)| flatten(&format!("{key}.{name}"), value, settings));
        }
        value => settings.push(format!("{key}={value}")),
    }
}

fn bare(folder: &Path, subcommand: &str) -> Command {
    let mut command = step::bare_cargo();
    command.arg(subcommand).arg("--manifest-path").arg(folder.join("Cargo.toml"));
    command
}

/// The crate's examples by name: their texts, in the order of the names.
fn examples(folder: &Path) -> Result<Vec<(String, String)>> {
    let folder = folder.join("examples");
    let read = || -> std::io::Result<Vec<(String, String)>> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        paths.sort();
        let name = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        paths.iter().map(|path| Ok((name(path), fs::read_to_string(path)?))).collect()
    };
    read().with_context(|| format!("cannot read {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page on the library.
    const PAGE: &str = "docs/src/build/library.md";

    /// The blocks of a language on a page.
    fn blocks(page: &str, language: &str) -> Vec<String> {
        let page = fs::read_to_string(step::root().join(page)).unwrap();
        let blocks = page.split("```").skip(1).step_by(2);
        blocks.filter_map(|block| block.strip_prefix(&format!("{language}\n"))).map(str::to_owned).collect()
    }

    #[test]
    fn the_book_shows_the_examples_as_they_are() {
        let examples = examples(&step::root().join(FOLDER)).unwrap();
        let mut shown = blocks(PAGE, "rust");
        // The README shows some of them.
        let mut of_readme = blocks("README.md", "rust");
        of_readme.retain(|block| !shown.contains(block));
        assert!(of_readme.is_empty(), "README.md shows what the book does not: {of_readme:?}");
        for (name, text) in examples {
            let place = shown.iter().position(|block| *block == text);
            shown.remove(place.unwrap_or_else(|| panic!("the book does not show {name}.rs as it is")));
        }
        assert!(shown.is_empty(), "the book shows what is no example: {shown:?}");
    }

    #[test]
    fn the_crate_has_the_workspaces_profile() {
        let profile = profile(&step::root()).unwrap();
        assert!(profile.contains(&"profile.release.package.burn-nn.opt-level=0".to_owned()), "{profile:?}");
    }

    #[test]
    fn the_crate_depends_on_what_readme_and_book_say() {
        let read = |text: &str| toml::from_str::<toml::Table>(text).unwrap().remove("dependencies").unwrap();
        let shown = blocks(PAGE, "toml");
        assert_eq!(shown.len(), 1, "one set of dependencies for all examples");
        assert_eq!(blocks("README.md", "toml"), shown);
        // A user's clone of the repository lies beside the user's crate.
        let shown = shown[0].replace("\"../cloze/crates/cli\"", "\"../../crates/cli\"");
        let manifest = fs::read_to_string(step::root().join(FOLDER).join("Cargo.toml")).unwrap();
        assert_eq!(read(&manifest), read(&shown));
    }
}
