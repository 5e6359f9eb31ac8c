//! `cargo xtask package`: whether each published crate holds all that it needs.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::step;

/// Package every published crate, and check that nothing which it needs is left out.
///
/// The crates are not compiled from their packages: `cargo package --workspace` does that, in as long as a clean build.
#[derive(clap::Args)]
pub struct Args {}

/// What every package holds beside its sources.
const FILES: [&str; 4] = ["Cargo.toml", "README.md", LICENCES[0], LICENCES[1]];
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// A registry takes so many keywords, of this many characters.
const MOST_KEYWORDS: usize = 5;
const MOST_CHARS: usize = 20;

/// Macros that read a file beside the source while it is compiled.
const READS_FILE: [&str; 3] = ["include_str!(", "include_bytes!(", "include!("];

/// What `cargo metadata` says of the workspace.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// A crate of the workspace.
#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    description: Option<String>,
    license: Option<String>,
    readme: Option<PathBuf>,
    keywords: Vec<String>,
    categories: Vec<String>,
    /// The registries it may be published to: none of a crate that says `publish = false`.
    publish: Option<Vec<String>>,
}

impl Package {
    fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("."))
    }
}

pub fn run(_: &Args) -> Result<()> {
    let metadata = listing(step::cargo("metadata").args(["--no-deps", "--format-version", "1"]))?;
    let Metadata { packages } = serde_json::from_str(&metadata).context("what cargo metadata says")?;
    let mut package = step::cargo("package");
    package.args(["--workspace", "--no-verify", "--allow-dirty", "--quiet"]);
    for kept in packages.iter().filter(|package| !package.is_published()) {
        package.args(["--exclude", &kept.name]);
    }
    for package in packages.iter().filter(|package| package.is_published()) {
        check(package).with_context(|| format!("package {}", package.name))?;
    }
    step::run("packages", &mut package)
}

/// What a cargo command prints; its messages are shown if it fails.
fn listing(command: &mut Command) -> Result<String> {
    let output = command.output().context("cannot start cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// Whether a package describes itself and holds what it needs.
fn check(package: &Package) -> Result<()> {
    describes_itself(package)?;
    let mut list = step::cargo("package");
    let list = listing(list.args(["--list", "--allow-dirty", "--quiet", "-p", &package.name]))?;
    // Cargo writes paths with the system's separator.
    let files: Vec<PathBuf> = list.lines().map(PathBuf::from).collect();
    for file in FILES {
        ensure!(files.contains(&file.into()), "it lacks {file}: see `include` in the root Cargo.toml");
    }
    for licence in LICENCES {
        // A checkout without symbolic links has their targets' names in place of the texts.
        let (ours, theirs) = (package.folder().join(licence), step::root().join(licence));
        let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
        ensure!(read(&ours)? == read(&theirs)?, "its {licence} differs from the repository's");
    }
    for source in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs")) {
        let text = fs::read_to_string(package.folder().join(source))
            .with_context(|| source.display().to_string())?;
        for read in files_read(&text)? {
            let path = beside(source, &read);
            let there = path.as_ref().is_some_and(|path| files.contains(path));
            ensure!(there, "{} includes {read}, which is not in the package", source.display());
        }
    }
    Ok(())
}

/// Whether the registry has what it shows of a crate.
fn describes_itself(package: &Package) -> Result<()> {
    ensure!(package.description.is_some(), "it has no description");
    ensure!(package.license.is_some(), "it has no license");
    ensure!(package.readme.is_some(), "it has no readme");
    ensure!(!package.categories.is_empty(), "it has no categories");
    let keywords = &package.keywords;
    let valid = (1..=MOST_KEYWORDS).contains(&keywords.len())
        && keywords.iter().all(|word| word.chars().count() <= MOST_CHARS);
    ensure!(
        valid,
        "its keywords are {keywords:?}; expected 1 to {MOST_KEYWORDS} of {MOST_CHARS} characters at most"
    );
    Ok(())
}

/// The files that a source reads while it is compiled, as they are written there. Tests, which stand at the end of a
/// source, may read others.
fn files_read(source: &str) -> Result<Vec<String>> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut files = Vec::new();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let Some((_, argument)) = READS_FILE.iter().find_map(|name| line.split_once(name)) else { continue };
        let literal = argument.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        let Some((file, _)) = literal else {
            bail!("`{}`: expected the file's name in quotation marks, to be checked", line.trim())
        };
        files.push(file.to_owned());
    }
    Ok(files)
}

/// The path of `file`, as written in `source`, from the package's root; `None` outside of it.
fn beside(source: &Path, file: &str) -> Option<PathBuf> {
    let mut path = source.parent()?.to_path_buf();
    for part in Path::new(file).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => path.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_read_are_found_but_not_those_of_tests_and_comments() {
        let source = "#![doc = include_str!(\"../README.md\")]\n// include_str!(\"no\")\n\
                      let a = include_bytes!(\"a.bin\");\n#[cfg(test)]\nlet b = include_str!(\"b\");\n";
        assert_eq!(files_read(source).unwrap(), ["../README.md", "a.bin"]);
        assert!(
            files_read("include_str!(concat!(\"a\", \"b\"))").unwrap_err().to_string().contains("concat!")
        );
    }

    #[test]
    fn a_file_outside_of_the_package_is_none_of_its() {
        let source = Path::new("src/report/html.rs");
        assert_eq!(beside(source, "style.css"), Some("src/report/style.css".into()));
        assert_eq!(beside(source, "../../README.md"), Some("README.md".into()));
        assert_eq!(beside(source, "../../../README.md"), None);
    }

    #[test]
    fn a_package_that_says_too_little_is_refused() {
        let package = |keywords: &[&str], publish: Option<Vec<String>>| Package {
            name: "a".into(),
            manifest_path: "/w/a/Cargo.toml".into(),
            description: Some("A.".into()),
            license: Some("MIT".into()),
            readme: Some("README.md".into()),
            keywords: keywords.iter().map(|word| (*word).into()).collect(),
            categories: vec!["science".into()],
            publish,
        };
        assert!(describes_itself(&package(&["bert"], None)).is_ok());
        for keywords in [&[][..], &["a"; 6], &["a-keyword-that-is-too-long"]] {
            assert!(describes_itself(&package(keywords, None)).is_err(), "{keywords:?}");
        }
        assert!(describes_itself(&Package { readme: None, ..package(&["bert"], None) }).is_err());
        assert!(package(&[], None).is_published() && !package(&[], Some(vec![])).is_published());
    }
}
