//! Running one step of a task.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Raised by Ctrl-C, for tasks that are no single step.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A step whose program ran and said no.
#[derive(Debug)]
pub struct Failed {
    /// The step's heading.
    heading: String,
    /// What became of its program.
    status: ExitStatus,
    /// The exit code to leave with.
    pub code: u8,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step `{}` failed ({})", self.heading, self.status)
    }
}

impl std::error::Error for Failed {}

/// Prints the heading, runs `command` to its end and prints how long it took.
///
/// # Errors
/// [`Failed`] when the program ends with anything but success; otherwise why it did not start.
pub fn run(heading: &str, command: &mut Command) -> Result<()> {
    output(heading, command.stdout(Stdio::inherit())).map(drop)
}

/// Runs a step of cargo's that builds the target `name`, and returns where its executable lies.
///
/// # Errors
/// As [`run`]; and when cargo names no executable.
pub fn executable(heading: &str, cargo: &mut Command, name: &str) -> Result<PathBuf> {
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let messages = output(heading, cargo.stdout(Stdio::piped()))?;
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let here = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| here).map(PathBuf::from)
    });
    executables.next_back().with_context(|| format!("step `{heading}`: cargo names no executable for {name}"))
}

/// Runs a step; what it wrote to its standard output where that is a pipe.
fn output(heading: &str, command: &mut Command) -> Result<String> {
    eprintln!("==> {heading}");
    let started = Instant::now();
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::inherit())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("step `{heading}`: cannot start `{program}`"))?;
    let status = output.status;
    if !status.success() {
        return Err(Failed { heading: heading.to_owned(), status, code: exit_code(status) }.into());
    }
    eprintln!("    {heading}: {}", spell(started.elapsed()));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether `command` can be run and succeeds; it prints nothing.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// `cargo SUBCOMMAND` on this workspace, with the caller's working folder and target folder.
pub fn cargo(subcommand: &str) -> Command {
    let mut command = bare_cargo();
    command.arg(subcommand).arg("--manifest-path").arg(root().join("Cargo.toml"));
    command
}

/// The cargo that runs this program.
pub fn bare_cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The repository's root folder.
pub fn root() -> PathBuf {
    // Set by `cargo run` to where the sources lie now; the compiled-in path serves a bare call.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// A program ended by a signal has no exit code: 128 + the signal's number, as in a shell.
fn exit_code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal: Option<i32> = None;
    let code = status.code().or_else(|| signal.map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// `8.3 s` or `3 min 05 s`.
fn spell(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        let whole = time.as_secs();
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_reads_as_people_say_it() {
        assert_eq!(spell(Duration::from_millis(8_340)), "8.3 s");
        assert_eq!(spell(Duration::from_secs(185)), "3 min 05 s");
    }

    #[test]
    fn a_failed_step_keeps_its_exit_code_and_names_itself() {
        let error = run("no such file", bare_cargo().arg("--no-such-flag")).unwrap_err();
        assert_eq!(error.downcast_ref::<Failed>().unwrap().code, 1);
        assert!(error.to_string().contains("step `no such file` failed"), "{error}");
        let error = run("absent", &mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.to_string().contains("cannot start `no-such-program-here`"), "{error}");
        assert!(error.downcast_ref::<Failed>().is_none());
    }
}
