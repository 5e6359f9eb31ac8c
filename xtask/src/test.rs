//! `cargo xtask test`: every test that is cheap.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::step;

/// Run all tests: documentation examples first, then everything else.
///
/// Uses cargo-nextest where it is installed, `cargo test` otherwise. Builds in release, with the checks of
/// a debug build in this workspace's crates; the `cloze` that this leaves in the target folder has them too.
#[derive(clap::Args)]
pub struct Args {
    /// Run the slow, full-size tests too.
    #[arg(long)]
    pub full: bool,
    /// An interpreter with transformers and sentence-transformers, for the book's commands that need Python.
    #[arg(long, value_name = "PYTHON", requires = "full")]
    pub python: Option<PathBuf>,
    /// Passed on to the test runner, such as a filter; leaves the documentation examples out.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

/// What lints and tests are built with beside the default: a second backend, to hold the first one's against, and MPI where
/// it is [there](MPI).
pub fn features() -> [&'static str; 4] {
    let features = if has_mpi() { "cloze/ndarray,cloze/mpi" } else { "cloze/ndarray" };
    ["--features", features, SECOND_BACKEND[0], SECOND_BACKEND[1]]
}

/// The same for lints and documentation, which run nothing, with NCCL: no library of it is needed to compile it.
pub fn checked_features() -> [&'static str; 4] {
    let [features, mut named, config, second_backend] = features();
    if has_mpi() {
        named = "cloze/ndarray,cloze/mpi,cloze/nccl";
    }
    [features, named, config, second_backend]
}

/// The second backend only has to be right, and takes minutes of a core to optimise. Without any optimisation, captions of 200 scenes
/// take minutes.
pub const SECOND_BACKEND: [&str; 2] = ["--config", "profile.release.package.burn-ndarray.opt-level=1"];

/// Set where an MPI library and libclang are installed: the tests then train with several processes too. A machine that
/// lacks either could not build the program.
const MPI: &str = "CLOZE_MPI";

fn has_mpi() -> bool {
    std::env::var_os(MPI).is_some_and(|value| !value.is_empty() && value != "0")
}

/// The profile of the tests: release, so that the dependencies are built once for the program and its tests,
/// with a debug build's checks (of overflow, of assertions, of pointers) in the workspace's own crates.
///
/// Crates that instantiate burn's generic code are barely optimised, and then take what others have instantiated:
/// otherwise each test binary would optimise it anew, for tests whose time is spent in dependencies and in cloze-ops.
pub const PROFILE: [&str; 29] = [
    "--release",
    "--config",
    "profile.release.debug-assertions=true",
    "--config",
    "profile.release.overflow-checks=true",
    "--config",
    "profile.release.package.'*'.debug-assertions=false",
    "--config",
    "profile.release.package.'*'.overflow-checks=false",
    "--config",
    "profile.release.package.cloze.opt-level=1",
    "--config",
    "profile.release.package.cloze-backends.opt-level=1",
    "--config",
    "profile.release.package.cloze-data.opt-level=1",
    "--config",
    "profile.release.package.cloze-evaluation.opt-level=1",
    "--config",
    "profile.release.package.cloze-examples.opt-level=1",
    "--config",
    "profile.release.package.cloze-hub.opt-level=1",
    "--config",
    "profile.release.package.cloze-model.opt-level=1",
    "--config",
    "profile.release.package.cloze-tests.opt-level=1",
    "--config",
    "profile.release.package.cloze-trainer.opt-level=1",
    "--config",
    "profile.release.package.xtask.opt-level=1",
];

/// So many generated inputs for a test that asks the environment, in place of its few.
const CASES: (&str, &str) = ("CLOZE_CASES", "20000");

/// How many tests of one program run at once.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Names the interpreter to the tests of the book's pages.
const PYTHON: &str = "CLOZE_PYTHON";

pub fn run(args: &Args) -> Result<()> {
    // The tests run in other folders. A virtual environment's interpreter is a link, which has to stay one.
    let python = args.python.as_ref().map(std::path::absolute).transpose().context("--python")?;
    let python = python.map(|python| (PYTHON, python));
    if args.args.is_empty() {
        // Cargo says what it builds here; while it tests documentation it would be silent about that.
        let mut build = step::cargo("build");
        build.args(["--workspace", "--lib"]).args(PROFILE).args(features());
        step::run("build the libraries", &mut build)?;
        let mut test = step::cargo("test");
        test.args(["--workspace", "--doc", "--quiet"]).args(PROFILE).args(features());
        step::run("documentation examples", &mut test)?;
    }
    // Last, so that the runner's own summary closes the output.
    if !has_mpi() {
        println!(
            "the tests of training with several processes are left out: set {MPI}=1 where MPI is installed"
        );
    }
    if step::succeeds(step::bare_cargo().args(["nextest", "--version"])) {
        let mut nextest = step::bare_cargo();
        nextest.args(["nextest", "run", "--workspace", "--no-fail-fast", "--manifest-path"]);
        nextest.arg(step::root().join("Cargo.toml")).args(PROFILE).args(features());
        if args.full {
            nextest.args(["--run-ignored", "all"]).env(CASES.0, CASES.1).envs(python);
        }
        step::run("tests (cargo nextest)", nextest.args(&args.args))
    } else {
        let mut test = step::cargo("test");
        // Everything but the documentation examples, which have run, and the benchmarks.
        test.args(["--workspace", "--no-fail-fast", "--lib", "--bins", "--tests", "--examples"]);
        test.args(PROFILE).args(features());
        test.args(&args.args);
        // Dropout is drawn by a seed that all threads of a process share. Where nextest is, each test has a process of its own.
        if std::env::var_os(TEST_THREADS).is_none() {
            test.env(TEST_THREADS, "1");
        }
        if args.full {
            let separator = (!args.args.iter().any(|arg| arg == "--")).then_some("--");
            test.args(separator).arg("--include-ignored").env(CASES.0, CASES.1).envs(python);
        }
        step::run("tests (cargo test)", &mut test)
    }
}
