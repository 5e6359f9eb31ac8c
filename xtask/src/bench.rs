//! `cargo xtask bench`.

use anyhow::Result;

use crate::step;

/// Run the benchmarks of every crate.
#[derive(clap::Args)]
pub struct Args {
    /// Passed on to `cargo bench`: `-p CRATE`, a filter.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    // Only `benches/`: a library's own tests measure nothing.
    step::run("benchmarks", step::cargo("bench").args(["--bench", "*"]).args(&args.args))
}
