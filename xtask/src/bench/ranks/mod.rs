//! `cargo xtask bench ranks`: training by several processes. Its speed, its bits, and its way over networks.

mod bits;
mod cost;
mod networks;
mod sharing;
mod speed;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::measure::{self, Rounds, median};
use crate::step;

/// Which tables to make.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    rounds: Rounds,
    /// Only this table.
    #[arg(long, value_enum)]
    table: Option<Table>,
    /// A program that was built with MPI (default: built here).
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// A program that was built with MPICH (`MPICC=mpicc.mpich`, a target folder of its own): the table of bits then has a column for it.
    #[arg(long, value_name = "FILE")]
    mpich: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Table {
    /// Tokens a second, beside one process and beside DDP.
    Speed,
    /// Whether the weights of 1 to 4 ranks are those of one process, for several models.
    Bits,
    /// The optimiser's memory by four ranks, and many lines embedded by two.
    Sharing,
    /// A model of what a step costs, fitted to 1, 2 and 3 ranks and tried on 4, and what it says of many machines.
    Cost,
    /// The speed and the bytes between two network namespaces of limited bandwidth, beside DDP. Needs root.
    Networks,
}

pub fn run(args: &Args) -> Result<()> {
    let program = match &args.program {
        Some(program) => std::path::absolute(program).context("--program")?,
        None => build()?,
    };
    let place = std::env::temp_dir().join(format!("cloze-ranks-{}", std::process::id()));
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let wanted = |table| args.table.is_none_or(|only| only == table);
    if wanted(Table::Bits) {
        bits::run(&args.rounds, &program, args.mpich.as_deref(), &place)?;
    }
    if wanted(Table::Speed) {
        speed::run(&args.rounds, &program, &place)?;
    }
    if wanted(Table::Sharing) {
        sharing::run(&args.rounds, &program, &place)?;
    }
    if wanted(Table::Cost) {
        cost::run(&args.rounds, &program, &place)?;
    }
    if wanted(Table::Networks) {
        networks::run(&args.rounds, &program, &place)?;
    }
    fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))
}

/// The program with MPI.
fn build() -> Result<PathBuf> {
    let mut build = step::cargo("build");
    build.args(["--release", "--package", "cloze", "--bin", "cloze", "--features", "cloze/mpi"]);
    step::executable("build cloze with MPI", &mut build, "cloze")
}

/// Open MPI's launcher of so many ranks, also for root and on fewer cores.
fn launcher(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["-n", &ranks.to_string()]);
    for name in
        ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"]
    {
        command.env(name, "1");
    }
    command
}

/// A training run.
struct Training<'a> {
    /// The name of its config.
    config: &'a str,
    sets: &'a [&'a str],
    /// Its folder, which is made anew.
    out: &'a Path,
}

impl Training<'_> {
    /// Runs it with a command that ends with the program.
    fn run(&self, command: &mut Command) -> Result<()> {
        measure::output(self.command(command)?).map(drop)
    }

    /// Completes a command that ends with the program.
    fn command<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command> {
        if self.out.exists() {
            fs::remove_dir_all(self.out)?;
        }
        let config = format!("configs/{}.toml", self.config);
        command.current_dir(step::root()).args(["train", &config, "--out"]).arg(self.out);
        Ok(command.args(self.sets.iter().flat_map(|set| ["--set", *set])))
    }
}

/// The median of the tokens a second in a run's records but the first.
fn tokens_per_second(out: &Path) -> Result<f64> {
    let path = out.join("metrics.jsonl");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let records = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let rates = records.iter().filter_map(|record| record["tokens_per_second"].as_f64());
    median(rates.skip(1)).context("the run has no records")
}

/// The weights that a run has ended with.
fn weights(out: &Path) -> Result<Vec<u8>> {
    let path = out.join("model/model.safetensors");
    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The number of parameters in a file of weights.
fn n_parameters(file: &[u8]) -> Result<u64> {
    let (length, rest) = file.split_first_chunk::<8>().context("no weights")?;
    let header = rest.get(..u64::from_le_bytes(*length) as usize).context("no weights")?;
    let tensors: serde_json::Map<String, Value> = serde_json::from_slice(header)?;
    let elements = |tensor: &Value| -> u64 {
        tensor["shape"].as_array().map_or(0, |shape| shape.iter().filter_map(Value::as_u64).product())
    };
    Ok(tensors.iter().filter(|(name, _)| *name != "__metadata__").map(|(_, tensor)| elements(tensor)).sum())
}

/// The peer's two processes, or this one's share of them, as `torchrun` is told.
fn distributed(python: &OsString, run: &[&str], [preset, precision]: [&str; 2], batch: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "torch.distributed.run"]).args(run);
    if run.contains(&"--standalone") {
        command.args(["--nproc-per-node", "2"]);
    }
    command.arg(step::root().join("benches/peers/pretrain.py"));
    command.args(["transformers", preset, batch, "128", "8192", "8", precision]);
    command
}
