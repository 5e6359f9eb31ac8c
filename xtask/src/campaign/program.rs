//! The program under limits of time, memory and file size, ended by signals where that is asked for.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::patience::Patience;
use crate::memory;

/// Bytes of standard output that are read back at most.
const READ_BACK: u64 = 64 << 20;

/// A call of the program.
#[derive(Debug, Clone, Default)]
pub struct Attempt {
    pub args: Vec<OsString>,
    /// What standard input is; nothing without.
    pub input: Option<Vec<u8>>,
    pub environment: Vec<(&'static str, OsString)>,
    pub limits: Limits,
    /// How we end it before its own end.
    pub ending: Option<Ending>,
}

/// What a call may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// By the clock; more where the processor was busy with others, see [`Patience`].
    pub time: Duration,
    /// Memory of its own, in MB: file mappings are not counted.
    pub memory: u64,
    /// The size that a file may grow to, in KB.
    pub file: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(60), memory: 2_000, file: None }
    }
}

/// A signal at a moment.
#[derive(Debug, Clone)]
pub struct Ending {
    pub when: When,
    pub signal: Signal,
}

#[derive(Debug, Clone)]
pub enum When {
    After(Duration),
    /// Once this file is there.
    Exists(PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Kill,
    Terminate,
    Interrupt,
    /// Stopped for so long, then sent on its way.
    Pause(Duration),
}

impl Attempt {
    /// `cloze ARGS`.
    pub fn new<S: Into<OsString>>(args: impl IntoIterator<Item = S>) -> Self {
        Self { args: args.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    pub fn environment(mut self, key: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((key, value.into()));
        self
    }

    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// A limit of seconds.
    pub fn seconds(mut self, seconds: u64) -> Self {
        self.limits.time = Duration::from_secs(seconds);
        self
    }

    /// A limit of memory.
    pub fn megabytes(mut self, megabytes: u64) -> Self {
        self.limits.memory = megabytes;
        self
    }

    /// A limit of a file's size.
    pub fn file_kilobytes(mut self, kilobytes: u64) -> Self {
        self.limits.file = Some(kilobytes);
        self
    }

    pub fn ending(mut self, when: When, signal: Signal) -> Self {
        self.ending = Some(Ending { when, signal });
        self
    }

    /// As a shell has it.
    pub fn shown(&self, program: &Path, input: Option<&str>) -> String {
        let mut line = format!("(ulimit -c 0; ulimit -d {}; ", self.limits.memory * 1024);
        if let Some(kilobytes) = self.limits.file {
            line += &format!("ulimit -f {}; ", kilobytes * 2);
        }
        for (key, value) in &self.environment {
            line += &format!("export {key}={}; ", quoted(&value.to_string_lossy()));
        }
        line += "exec ";
        line += &quoted(&program.to_string_lossy());
        for arg in &self.args {
            line += " ";
            line += &quoted(&arg.to_string_lossy());
        }
        line += &format!(" < {})", input.map_or("/dev/null".into(), quoted));
        if let Some(Ending { when, signal }) = &self.ending {
            line += &format!(" # and {signal:?} {when:?}");
        }
        line
    }
}

/// A word that a shell reads as it is.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// What became of a call.
#[derive(Debug, Clone, Default)]
pub struct Ran {
    /// The exit status, if it exited.
    pub code: Option<i32>,
    /// The signal that it died of.
    pub signal: Option<i32>,
    /// Whether it was still running when its time was over.
    pub timed_out: bool,
    /// Whether we ended it before its time, and it did not come to its end.
    pub ended: Option<Signal>,
    /// Standard output, its beginning where there is much of it.
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    /// Whether the limit of a file's size has cut standard error, which is a file here.
    pub err_is_cut: bool,
    /// The most memory it had, in MB, as far as it was seen.
    pub peak: u64,
    pub time: Duration,
}

impl Ran {
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// Standard error as text.
    pub fn error(&self) -> String {
        String::from_utf8_lossy(&self.err).into_owned()
    }

    /// Standard output as text.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }
}

/// Runs `program` in `folder`; `streams` is what the names of its standard streams' files begin with.
pub fn run(program: &Path, folder: &Path, streams: &Path, attempt: &Attempt) -> Result<Ran> {
    let stream = |name: &str| PathBuf::from(format!("{}.{name}", streams.display()));
    let [input, out, err] = ["stdin", "stdout", "stderr"].map(stream);
    let stdin = match &attempt.input {
        None => Stdio::null(),
        Some(bytes) => {
            fs::write(&input, bytes)?;
            File::open(&input)?.into()
        }
    };
    let mut script = format!("ulimit -c 0; ulimit -d {}; ", attempt.limits.memory * 1024);
    if let Some(kilobytes) = attempt.limits.file {
        script += &format!("ulimit -f {}; ", kilobytes * 2);
    }
    script += "exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(program).args(&attempt.args);
    // Nothing of the caller's decides what a case does.
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy().to_uppercase();
        if ["HF_", "HUGGING", "CLOZE", "RAYON", "RUST_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(key);
        }
    }
    command.envs(attempt.environment.iter().map(|(key, value)| (key, value)));
    // In a group of its own, which Ctrl-C does not reach.
    command.current_dir(folder).process_group(0).stdin(stdin);
    command.stdout(File::create(&out)?).stderr(File::create(&err)?);
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    let mut ran = watch(&mut child, folder, attempt, start)?;
    ran.time = start.elapsed();
    ran.out = beginning(&out)?;
    ran.err = beginning(&err)?;
    ran.err_is_cut = attempt.limits.file.is_some_and(|kilobytes| ran.err.len() as u64 >= kilobytes * 1024);
    Ok(ran)
}

/// Waits for the end, and brings it about where that is asked for.
fn watch(child: &mut Child, folder: &Path, attempt: &Attempt, start: Instant) -> Result<Ran> {
    let mut ran = Ran::default();
    let mut ending = attempt.ending.clone();
    let mut patience = Patience::new(child.id(), attempt.limits.time);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        ran.peak = ran.peak.max(peak(child.id()).unwrap_or(0));
        let elapsed = start.elapsed();
        if patience.is_over(elapsed) {
            child.kill()?;
            ran.timed_out = true;
            break child.wait()?;
        }
        let due = |when: &When| match when {
            When::After(time) => elapsed >= *time,
            When::Exists(path) => folder.join(path).exists(),
        };
        if let Some(Ending { signal, .. }) = ending.take_if(|ending| due(&ending.when)) {
            match signal {
                Signal::Kill => child.kill()?,
                Signal::Terminate => send("TERM", child.id()),
                Signal::Interrupt => send("INT", child.id()),
                Signal::Pause(time) => {
                    send("STOP", child.id());
                    sleep(time);
                    send("CONT", child.id());
                    patience.leave_out(time);
                    continue;
                }
            }
            ran.ended = Some(signal);
            continue;
        }
        let fine = attempt.ending.is_some() || elapsed < Duration::from_millis(50);
        sleep(Duration::from_micros(if fine { 500 } else { 3_000 }));
    };
    (ran.code, ran.signal) = (status.code(), status.signal());
    if ran.code == Some(0) {
        ran.ended = None;
    }
    Ok(ran)
}

/// Through a program of the system: no unsafe code is worth a signal.
fn send(signal: &str, process: u32) {
    let _ = Command::new("kill").arg(format!("-{signal}")).arg(process.to_string()).status();
}

/// The most memory that a process has had, in MB.
fn peak(process: u32) -> Option<u64> {
    memory::kilobytes(process, "VmHWM").map(|kilobytes| kilobytes / 1024)
}

fn beginning(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(READ_BACK).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_sh(name: &str, attempt: Attempt) -> Ran {
        let folder = std::env::temp_dir().join(format!("cloze-campaign-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let ran = run(Path::new("sh"), &folder, &folder.join("1"), &attempt).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        ran
    }

    #[test]
    fn streams_status_and_limits_are_those_of_the_call() {
        let ran = run_sh("streams", Attempt::new(["-c", "cat; echo no >&2; exit 3"]).input("yes"));
        assert_eq!((ran.code, ran.output().as_str(), ran.error().as_str()), (Some(3), "yes", "no\n"));
        let endless = Attempt::new(["-c", "sleep 30"]);
        let ran = run_sh(
            "late",
            Attempt {
                limits: Limits { time: Duration::from_millis(50), ..Limits::default() },
                ..endless.clone()
            },
        );
        assert!(ran.timed_out && ran.ended.is_none());
        let ran = run_sh("ended", endless.ending(When::After(Duration::ZERO), Signal::Terminate));
        assert_eq!((ran.signal, ran.ended, ran.timed_out), (Some(15), Some(Signal::Terminate), false));
        let large = Attempt::new(["-c", "head -c 9000 /dev/zero > file"]).file_kilobytes(4);
        assert_ne!(run_sh("large", large).code, Some(0));
    }

    #[test]
    fn a_call_is_shown_as_a_shell_takes_it() {
        let attempt = Attempt::new(["embed", "--model", "it's"]).environment("A", "b c");
        let shown = attempt.shown(Path::new("/bin/cloze"), Some("../1.stdin"));
        assert!(
            shown.ends_with(r"export A='b c'; exec /bin/cloze embed --model 'it'\''s' < ../1.stdin)"),
            "{shown}"
        );
    }
}
