//! Two sides taking turns.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::step;

/// How to measure.
#[derive(clap::Args)]
pub struct Rounds {
    /// How often the sides take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Only the rows whose name contains this.
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Put the table into benches/README.md.
    #[arg(long, conflicts_with = "only")]
    pub write: bool,
}

/// What a side prints: one JSON line.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Measured {
    /// The median time of one unit of work, in milliseconds.
    pub ms: f64,
    /// What is done in a second: tokens, sentences.
    pub per_s: f64,
    /// The process's peak memory.
    pub peak_mb: f64,
    /// Of the work's matrix products, in 10⁹ floating-point operations, where it says so.
    #[serde(default)]
    pub gflop: f64,
    /// How fast the machine makes such a product alone.
    #[serde(default)]
    pub gflop_per_s: f64,
}

impl Measured {
    /// Runs a side and reads what it prints.
    pub fn from(command: &mut Command) -> Result<Self> {
        let line = last_line(command)?;
        serde_json::from_str(&line).with_context(|| format!("{command:?} printed no measurement"))
    }

    /// The medians of several.
    pub fn median(all: &[Self]) -> Self {
        let middle = |of: fn(&Self) -> f64| median(all.iter().map(of)).unwrap_or(f64::NAN);
        Self {
            ms: middle(|m| m.ms),
            per_s: middle(|m| m.per_s),
            peak_mb: middle(|m| m.peak_mb),
            gflop: middle(|m| m.gflop),
            gflop_per_s: middle(|m| m.gflop_per_s),
        }
    }
}

/// The middle one, the mean of the two in the middle of an even number.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (lower, upper) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[lower] + values[upper]) / 2.0)
}

/// Another figure that a side prints.
pub fn value(command: &mut Command, name: &str) -> Result<f64> {
    let line: serde_json::Value = serde_json::from_str(&last_line(command)?)?;
    line[name].as_f64().with_context(|| format!("{command:?} printed no {name}"))
}

/// Runs a side; the last JSON line that it prints.
pub fn last_line(command: &mut Command) -> Result<String> {
    let text = output(command)?;
    let line = text.lines().rfind(|line| line.starts_with("{\""));
    line.map(str::to_owned).with_context(|| format!("{command:?} printed no JSON"))
}

/// Runs a program; what it prints on standard output. Where it fails, the error has what it printed on standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a whole process with a file as its input and another as its output; its milliseconds.
pub fn process(command: &mut Command, input: &Path, output: &Path) -> Result<f64> {
    let read = File::open(input).with_context(|| format!("cannot read {}", input.display()))?;
    let write = File::create(output).with_context(|| format!("cannot write {}", output.display()))?;
    command.stdin(read).stdout(write).stderr(Stdio::piped());
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let ended = child.wait_with_output()?;
    let time = start.elapsed();
    if !ended.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&ended.stderr).trim_end());
    }
    Ok(time.as_secs_f64() * 1e3)
}

/// A row of a table.
pub struct Row {
    /// What both sides do.
    pub work: &'static str,
    pub ours: Command,
    /// The peer's name and how to run it.
    pub peer: (&'static str, Option<Command>),
    /// How many times the peer's rate is wanted.
    pub floor: f64,
}

/// A row with both sides' medians.
pub struct Outcome {
    pub work: &'static str,
    pub peer: &'static str,
    pub floor: f64,
    pub ours: Measured,
    pub theirs: Option<Measured>,
}

/// Measures rows, both sides in turn.
pub fn alternate(rows: Vec<Row>, args: &Rounds) -> Result<Vec<Outcome>> {
    let wanted = |row: &Row| args.only.as_ref().is_none_or(|only| row.work.contains(only.as_str()));
    let rows: Vec<Row> = rows.into_iter().filter(wanted).collect();
    if rows.is_empty() {
        bail!("no row's name contains {:?}", args.only.as_deref().unwrap_or_default());
    }
    let count = rows.len();
    let mut outcomes = Vec::new();
    for (number, Row { work, mut ours, peer: (peer, mut theirs), floor }) in rows.into_iter().enumerate() {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for round in 1..=args.rounds {
            eprintln!("{}/{count} {work}, round {round} of {}", number + 1, args.rounds);
            a.push(Measured::from(&mut ours)?);
            if let Some(theirs) = &mut theirs {
                b.push(Measured::from(theirs)?);
            }
        }
        let theirs = (!b.is_empty()).then(|| Measured::median(&b));
        outcomes.push(Outcome { work, peer, floor, ours: Measured::median(&a), theirs });
    }
    Ok(outcomes)
}

/// The Python that has the peers, if one was named.
pub fn python() -> Option<OsString> {
    let python = std::env::var_os("CLOZE_PYTHON");
    if python.is_none() {
        eprintln!("CLOZE_PYTHON is not set: only our side is measured (cargo xtask bench --help says how)");
    }
    python
}

/// A peer's program, `benches/peers/SCRIPT`.
pub fn peer(python: &OsString, script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(python);
    command.arg(step::root().join("benches/peers").join(script)).args(arguments);
    command
}

/// A path that is there, whole and as text: what a benchmark is given on its command line.
pub fn path_text(path: &Path) -> Result<String> {
    let path = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
    path.into_os_string().into_string().ok().context("a path that is not Unicode")
}

/// Builds a crate's benchmark and returns where it lies.
pub fn build(package: &str, bench: &str) -> Result<PathBuf> {
    let mut build = step::cargo("bench");
    build.args(["-p", package, "--bench", bench, "--no-run"]);
    step::executable(&format!("build {bench}"), &mut build, bench)
}

/// One of our benchmarks. As in the program, memory that is free is kept for the next step.
pub fn ours(executable: &PathBuf, arguments: &[&str]) -> Command {
    let mut command = Command::new(executable);
    command.args(arguments).env("MIMALLOC_PURGE_DELAY", "-1");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_read_or_its_error_shown() {
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"echo loading; echo '{"ms":2.5,"per_s":400,"peak_mb":7,"loss":1}'"#]);
        let measured = Measured::from(&mut shell).unwrap();
        assert_eq!((measured.ms, measured.per_s, measured.gflop), (2.5, 400.0, 0.0));
        let mut broken = Command::new("sh");
        broken.args(["-c", "echo no module named torch >&2; exit 3"]);
        let error = Measured::from(&mut broken).unwrap_err().to_string();
        assert!(error.ends_with("failed:\nno module named torch"), "{error}");
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }

    #[test]
    fn the_median_is_of_each_figure() {
        let one = |ms: f64, per_s: f64| Measured { ms, per_s, peak_mb: ms, gflop: 0.0, gflop_per_s: 0.0 };
        let median = Measured::median(&[one(3.0, 1.0), one(1.0, 9.0), one(2.0, 5.0)]);
        assert_eq!((median.ms, median.per_s, median.peak_mb), (2.0, 5.0, 2.0));
    }
}
