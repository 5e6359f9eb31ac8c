//! The Python package `tokenizers`, in a process of its own that is told what to time.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// The running script.
pub struct Python {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The package's version.
    pub version: String,
}

impl Python {
    /// Starts the script with the program named in `CLOZE_PYTHON`, else `python3`; `None` where that
    /// cannot import the package.
    pub fn start() -> Option<Self> {
        let program = env::var_os("CLOZE_PYTHON").unwrap_or_else(|| "python3".into());
        let mut process = Command::new(program)
            .args(["-c", include_str!("peer.py")])
            .env("TOKENIZERS_PARALLELISM", "false")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let (input, output) = (process.stdin.take()?, process.stdout.take()?);
        let mut python = Self { process, input, output: BufReader::new(output), version: String::new() };
        python.version = python.answer()?;
        Some(python)
    }

    fn answer(&mut self) -> Option<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).ok()?;
        let line = line.trim();
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// Seconds that `task`, a line for the script, takes.
    pub fn time(&mut self, task: &str) -> Option<f64> {
        writeln!(self.input, "{task}").ok()?;
        self.answer()?.parse().ok()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // The script ends with its input; one that does not is ended.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
