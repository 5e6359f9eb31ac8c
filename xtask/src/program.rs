//! The program `cloze`, built in release.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

use crate::{step, tch, test};

/// Set where the tests are built next, as in CI: the program is then built with the tests' features of its
/// dependencies, which are so built once for both.
const WITH_TESTS: &str = "CLOZE_BUILD_WITH_TESTS";

/// Builds the program, with a backend beside the default ones where one is named; where it lies.
pub fn build(backend: Option<&str>) -> Result<PathBuf> {
    let mut build = step::cargo("build");
    build.args(["--release", "--package", "cloze", "--bin", "cloze"]);
    if let Some(backend) = backend {
        build.args(["--features", &format!("cloze/{backend}")]).envs(environment(backend)?);
    }
    if is_built_with_tests() {
        build.args(["--package", "cloze-tests"]).args(test::FEATURES);
    }
    step::executable("build cloze", &mut build, "cloze")
}

/// What a build with a backend, and a program that it makes, has to have in its environment.
pub fn environment(backend: &str) -> Result<Vec<(&'static str, OsString)>> {
    if backend == "tch" { tch::environment() } else { Ok(Vec::new()) }
}

/// Whether dependencies are to be built with the tests' features.
pub fn is_built_with_tests() -> bool {
    std::env::var_os(WITH_TESTS).is_some()
}
