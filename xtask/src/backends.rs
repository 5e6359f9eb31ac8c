//! `cargo xtask backends`: every model on every device, held against flex.

use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::bench::report;
use crate::{program, step};

/// The largest difference of rounding, of a tensor's largest number: that of the cases' own test.
const TOLERANCE: f64 = 1e-4;

/// Compute every model on devices and hold outputs, losses, gradients and an update against flex.
///
/// Each backend is built in by itself. Software devices do for graphics: Mesa's lavapipe for `wgpu`, libtorch's CPU for
/// `tch`, once `cargo xtask tch setup` has found it.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask backends
  cargo xtask backends wgpu --only Transformer
  cargo xtask backends wgpu --unfused
  cargo xtask backends cuda:0 tch")]
pub struct Args {
    /// The devices, by the names that `cloze --device` takes [default: flex ndarray]
    devices: Vec<String>,
    /// Only cases with this in their names.
    #[arg(long, default_value = "")]
    only: String,
    /// Also with each operation by itself, on devices whose backend fuses operations (wgpu, cuda).
    #[arg(long)]
    unfused: bool,
}

/// A column of the table.
struct Column<'a> {
    device: &'a str,
    /// Whether the backend is kept from fusing operations.
    unfused: bool,
}

impl Column<'_> {
    /// The Cargo feature of its backend.
    fn feature(&self) -> Option<&str> {
        program::feature(self.device)
    }

    fn name(&self) -> String {
        format!("{}{}", self.device, if self.unfused { ", unfused" } else { "" })
    }
}

/// What CubeCL and burn read from the folder that a program is started in. Each kernel that is tried for its speed is
/// compiled first, which takes most of the time on a software device: as few as possible are. Without explorations no
/// operations are fused.
const SETTINGS: &str = "[autotune]\nlevel = \"minimal\"\n";
const UNFUSED: &str = "[fusion.beam_search]\nmax_explorations = 0\n";

impl Args {
    /// All cases on one device.
    pub fn of(device: &str) -> Self {
        Self { devices: vec![device.to_owned()], only: String::new(), unfused: true }
    }
}

/// What the package `cloze-backends` prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum Printed {
    Case(Line),
    /// What goes around a mistake of burn's; whether the device still has it, if that could be computed.
    Workaround {
        workaround: String,
        needed: Option<bool>,
    },
}

/// A case on a device.
#[derive(Deserialize)]
struct Line {
    case: String,
    seconds: f64,
    difference: Option<Difference>,
    panic: Option<String>,
}

#[derive(Deserialize)]
struct Difference {
    /// None is not a number.
    relative: Option<f64>,
    tensor: String,
}

impl Line {
    fn passes(&self) -> bool {
        let relative = self.difference.as_ref().and_then(|found| found.relative);
        relative.is_some_and(|relative| relative <= TOLERANCE)
    }

    /// The cell of the table.
    fn shown(&self) -> String {
        match (&self.difference, &self.panic) {
            (Some(Difference { relative: Some(relative), .. }), _) if self.passes() => {
                format!("{relative:.1e}")
            }
            (Some(Difference { relative: Some(relative), tensor }), _) => {
                format!("FAILED: {relative:.1e}, {tensor}")
            }
            (Some(Difference { tensor, .. }), _) => format!("FAILED: not finite, {tensor}"),
            (None, panic) => format!("FAILED: {}", panic.as_deref().unwrap_or("panic")),
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let devices: Vec<&str> = match args.devices.is_empty() {
        true => vec!["flex", "ndarray"],
        false => args.devices.iter().map(String::as_str).collect(),
    };
    let fuses = |device: &str| device.starts_with("wgpu") || device.starts_with("cuda");
    let columns = devices.iter().flat_map(|device| {
        let unfused = (args.unfused && fuses(device)).then_some(Column { device, unfused: true });
        std::iter::once(Column { device, unfused: false }).chain(unfused)
    });
    let columns: Vec<Column> = columns.collect();
    let mut lines = Vec::new();
    for column in &columns {
        let program = build(column.feature())?;
        lines.push(computed(&program, column, &args.only, None)?.lines);
    }
    let Some(cases) = lines.first().filter(|lines| !lines.is_empty()) else {
        bail!("no case has {:?} in its name", args.only)
    };
    let rows = cases.iter().enumerate().map(|(place, line)| {
        let cells = lines.iter().map(|lines| lines[place].shown());
        std::iter::once(line.case.clone()).chain(cells).collect::<Vec<_>>()
    });
    let names: Vec<String> = columns.iter().map(Column::name).collect();
    let header = std::iter::once("largest difference from flex").chain(names.iter().map(String::as_str));
    println!("{}", report::table(header, rows));
    for (name, lines) in names.iter().zip(&lines) {
        let seconds: f64 = lines.iter().map(|line| line.seconds).sum();
        let passed = lines.iter().filter(|line| line.passes()).count();
        println!("{name}: {passed} of {} cases within {TOLERANCE:e}, {seconds:.1} s", lines.len());
    }
    match lines.iter().flatten().filter(|line| !line.passes()).count() {
        0 => Ok(()),
        failed => {
            bail!("{failed} cases differ from flex by more than {TOLERANCE:e} of a tensor's largest number")
        }
    }
}

/// How the cases that were computed in a time did.
pub struct Summary {
    passed: usize,
    /// The largest difference of those that passed.
    largest: f64,
    /// The names of those that did not, and why.
    failed: Vec<String>,
    /// Whether the time was too short for all of them.
    is_cut: bool,
}

impl Summary {
    fn of(lines: &[Line], is_cut: bool) -> Self {
        let passed = lines.iter().filter(|line| line.passes());
        let relative = passed.clone().filter_map(|line| line.difference.as_ref()?.relative);
        let failed = lines.iter().filter(|line| !line.passes());
        Self {
            passed: passed.count(),
            largest: relative.fold(0.0, f64::max),
            failed: failed.map(|line| format!("{}: {}", line.case, line.shown())).collect(),
            is_cut,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, largest, failed, is_cut } = self;
        let of = if *is_cut { "computed in the time" } else { "of all" };
        write!(f, "{passed} of {} cases {of} within {TOLERANCE:e}", passed + failed.len())?;
        if *passed > 0 {
            write!(f, ", the largest difference {largest:.1e}")?;
        }
        failed.iter().try_for_each(|failed| write!(f, "; {failed}"))
    }
}

/// The cases with `only` in their names on a device, as many as can be computed within a time; building does not count.
pub fn within(device: &str, only: &str, limit: Duration) -> Result<Summary> {
    let column = Column { device, unfused: false };
    let program = build(column.feature())?;
    let Computed { lines, is_cut } = computed(&program, &column, only, Some(limit))?;
    Ok(Summary::of(&lines, is_cut))
}

/// Builds the cases with a backend; where the program lies.
fn build(feature: Option<&str>) -> Result<PathBuf> {
    let mut build = step::cargo("build");
    // Beside the program, so that both are made from the same builds of their dependencies.
    build.args(["--release", "--package", "cloze-backends", "--package", "cloze"]);
    if let Some(feature) = feature {
        let features = format!("cloze-backends/{feature},cloze/{feature}");
        build.args(["--features", &features]).envs(program::environment(Some(feature))?);
    }
    step::executable(
        &format!("build the cases for {}", feature.unwrap_or("flex")),
        &mut build,
        "cloze-backends",
    )
}

/// Cases on a device.
struct Computed {
    lines: Vec<Line>,
    /// Whether there was no time for more.
    is_cut: bool,
}

/// What a device computes, within a time if there is a limit, with a line on standard error for each case as it comes.
fn computed(program: &Path, column: &Column, only: &str, limit: Option<Duration>) -> Result<Computed> {
    let mut command = Command::new(program);
    command.envs(program::environment(column.feature())?).arg(column.device).args(["--only", only]);
    let name = column.name();
    let folder = std::env::temp_dir().join(format!("cloze-backends-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(folder.join("cubecl.toml"), SETTINGS)?;
    if column.unfused {
        fs::write(folder.join("burn.toml"), UNFUSED)?;
    }
    command.current_dir(&folder);
    let computed = read_lines(&mut command, &name, limit.map(|limit| Instant::now() + limit));
    // Nobody needs what is left in it.
    let _ = fs::remove_dir_all(&folder);
    computed
}

fn read_lines(command: &mut Command, name: &str, end: Option<Instant>) -> Result<Computed> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    // Panics tell their places on it, and a graphics loader whatever it likes: kept for a program that dies.
    let mut errors = child.stderr.take().context("no standard error")?;
    let said = thread::spawn(move || {
        let mut text = Vec::new();
        errors.read_to_end(&mut text).ok();
        String::from_utf8_lossy(&text).into_owned()
    });
    // By another thread, so that a case which takes too long can be waited for until the end and no longer.
    let printed = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || printed.into_iter().try_for_each(|line| sender.send(line)));
    let mut lines = Vec::new();
    loop {
        let next = match end {
            Some(end) => receiver.recv_timeout(end.saturating_duration_since(Instant::now())),
            None => receiver.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
        };
        let line = match next {
            Ok(line) => line?,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                return Ok(Computed { lines, is_cut: true });
            }
        };
        let line = match serde_json::from_str(&line)? {
            Printed::Case(line) => line,
            Printed::Workaround { workaround, needed } => {
                let verdict = match needed {
                    Some(true) => "still needed",
                    Some(false) => "not needed here",
                    None => "cannot be told: it panicked",
                };
                eprintln!("{name}, {workaround}: {verdict}");
                continue;
            }
        };
        eprintln!("{name}, {}: {} ({:.1} s)", line.case, line.shown(), line.seconds);
        lines.push(line);
    }
    let (status, said) = (child.wait()?, said.join().unwrap_or_default());
    if !status.success() {
        let last = said.lines().last().unwrap_or("it said nothing");
        bail!("{name}: the program ended with {status} after {} cases: {last}", lines.len())
    }
    Ok(Computed { lines, is_cut: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(json: &str) -> Line {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_cell_is_a_difference_or_what_failed() {
        let cell = |rest: &str| {
            line(&format!(r#"{{"device": "wgpu", "case": "BERT", "seconds": 1.0, {rest}}}"#)).shown()
        };
        assert_eq!(cell(r#""difference": {"relative": 2.5e-7, "tensor": "loss"}"#), "2.5e-7");
        assert_eq!(cell(r#""difference": {"relative": 0.5, "tensor": "loss"}"#), "FAILED: 5.0e-1, loss");
        assert_eq!(cell(r#""difference": {"relative": null, "tensor": "loss"}"#), "FAILED: not finite, loss");
        assert_eq!(cell(r#""panic": "no such operation""#), "FAILED: no such operation");
    }

    #[test]
    fn a_summary_counts_what_passed_and_names_what_did_not() {
        let case = |name: &str, relative: f64| {
            line(&format!(
                r#"{{"device": "cuda:0", "case": "{name}", "seconds": 1.0,
                    "difference": {{"relative": {relative}, "tensor": "loss"}}}}"#
            ))
        };
        let all = [case("BERT", 2.5e-7), case("GPT", 3e-5), case("XLNet", 0.5)];
        let told =
            "2 of 3 cases of all within 1e-4, the largest difference 3.0e-5; XLNet: FAILED: 5.0e-1, loss";
        assert_eq!(Summary::of(&all, false).to_string(), told);
        assert_eq!(Summary::of(&[], true).to_string(), "0 of 0 cases computed in the time within 1e-4");
    }

    #[cfg(unix)]
    #[test]
    fn a_case_that_takes_too_long_is_waited_for_no_longer() {
        let mut shell = Command::new("sh");
        let case = r#"{"device": "wgpu", "case": "BERT", "seconds": 1.0, "difference": {"relative": 0.0, "tensor": "x"}}"#;
        shell.args(["-c", &format!("echo '{case}'; exec sleep 20")]);
        let began = Instant::now();
        let found = read_lines(&mut shell, "wgpu", Some(began + Duration::from_secs(2))).unwrap();
        assert!(found.is_cut && found.lines.len() == 1 && began.elapsed().as_secs() < 15);
    }
}
