//! The most memory that a call of the program takes.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Runs the program to its end, with a file for its input, and gives the most memory it had, in kB.
pub fn of(args: &[&str], input: Option<File>) -> u64 {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cloze"));
    program.args(args).stdout(Stdio::null()).stdin(input.map_or_else(Stdio::null, Stdio::from));
    let mut child = program.spawn().unwrap();
    let mut peak = 0;
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        if let Some(line) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
            peak = peak.max(line.trim().trim_end_matches(" kB").parse().unwrap());
        }
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{args:?}");
            return peak;
        }
        sleep(Duration::from_millis(2));
    }
}
