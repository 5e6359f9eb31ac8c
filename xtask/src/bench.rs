//! `cargo xtask bench`.

use anyhow::Result;

use crate::step;

/// Run the benchmarks: of every crate, or `tokenizer`, the tokenizer's table beside its peers.
#[derive(clap::Args)]
pub struct Args {
    /// `tokenizer`, then `--megabytes N` of text and `--rounds N`; anything else is passed on to
    /// `cargo bench`: `-p CRATE`, a filter.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    if let Some((first, rest)) = args.args.split_first()
        && first == "tokenizer"
    {
        let mut bench = step::cargo("bench");
        bench.args(["-p", "cloze-tokenizer", "--bench", "tokenizer", "--"]).args(rest);
        return step::run("tokenizer beside its peers", &mut bench);
    }
    // Only `benches/`: a library's own tests measure nothing.
    step::run("benchmarks", step::cargo("bench").args(["--bench", "*"]).args(&args.args))
}
