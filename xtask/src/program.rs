//! The program `cloze`, built in release.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

use crate::{step, tch, test};

/// Set where the tests are built next, as in CI: the program is then the one that the tests are built with, and is
/// built once for both. It trains at half the speed.
const WITH_TESTS: &str = "CLOZE_BUILD_WITH_TESTS";

/// Builds the program, with a backend beside the default ones where one is named; where it lies.
pub fn build(backend: Option<&str>) -> Result<PathBuf> {
    let mut build = step::cargo("build");
    build.args(["--release", "--package", "cloze", "--bin", "cloze"]);
    if let Some(backend) = backend {
        build.args(["--features", &format!("cloze/{backend}")]).envs(environment(Some(backend))?);
    }
    if is_built_with_tests() {
        build.args(["--package", "cloze-tests"]).args(&test::PROFILE[1..]).args(test::features());
    }
    step::executable("build cloze", &mut build, "cloze")
}

/// The Cargo feature that a device needs beyond the default ones. For a name it does not know,
/// none: `cloze` then says what is wrong with it.
pub fn feature(device: &str) -> Option<&str> {
    let backend = device.split(':').next().unwrap_or(device);
    ["ndarray", "wgpu", "tch", "cuda"].into_iter().find(|feature| *feature == backend)
}

/// What a build with a backend, and a program that it makes, has to have in its environment.
pub fn environment(backend: Option<&str>) -> Result<Vec<(&'static str, OsString)>> {
    if backend == Some("tch") { tch::environment() } else { Ok(Vec::new()) }
}

/// Whether the program is to be the tests'.
pub fn is_built_with_tests() -> bool {
    std::env::var_os(WITH_TESTS).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_asks_for_its_backend_only_where_it_is_not_the_default() {
        assert_eq!(feature("flex"), None);
        assert_eq!(feature("wgpu:1"), Some("wgpu"));
        assert_eq!(feature("tch:cuda:0"), Some("tch"));
        assert_eq!(feature("abacus"), None);
    }
}
