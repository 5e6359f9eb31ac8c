//! A run of the program: what goes in, what comes out.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// What a run of the program left behind.
pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

/// The program with its three streams in our hands.
pub fn spawn<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Child {
    Command::new(env!("CARGO_BIN_EXE_cloze"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs the program to its end.
pub fn run(args: &[&str], input: &[u8]) -> Ran {
    finished(spawn(args), input)
}

fn finished(mut child: Child, input: &[u8]) -> Ran {
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that fails early reads no input: that is its affair.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// The same in a folder, where relative paths begin.
pub fn run_in(folder: &Path, args: &[&str], input: &[u8]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
    let child = command.current_dir(folder).args(args);
    finished(
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        input,
    )
}

impl Ran {
    /// The output of a run that went well.
    #[track_caller]
    pub fn done(self) -> String {
        assert_eq!(self.status, 0, "{}", self.err);
        self.out
    }

    /// The one line that a failure is told in; others may come before it.
    #[track_caller]
    pub fn error_line(&self, status: i32) -> &str {
        assert_eq!(self.status, status, "{}", self.err);
        let errors: Vec<&str> = self.err.lines().filter(|line| line.starts_with("error:")).collect();
        assert_eq!(errors.len(), 1, "{}", self.err);
        errors[0]
    }
}
