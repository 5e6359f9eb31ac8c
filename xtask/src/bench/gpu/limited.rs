//! A program that is given so much time and no more.

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

/// How a program ended.
#[derive(Debug, PartialEq)]
pub enum Ended {
    /// Well: the last line of JSON that it printed.
    Line(Value),
    /// It was ended.
    TooLong,
    /// What it said on standard error.
    Failed(String),
}

/// Runs a program for so long at most.
///
/// # Errors
/// It cannot be started.
pub fn last_line(command: &mut Command, limit: Duration) -> Result<Ended> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {:?}", command.get_program()))?;
    // Both are read while it runs: a full pipe would stop it.
    let output = child.stdout.take().map(read);
    let errors = child.stderr.take().map(read);
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if Instant::now() >= end => {
                child.kill()?;
                child.wait()?;
                break None;
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    let Some(status) = status else { return Ok(Ended::TooLong) };
    let text = |reader: Option<thread::JoinHandle<String>>| {
        reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    let (output, errors) = (text(output), text(errors));
    let line = output.lines().rfind(|line| line.starts_with("{\""));
    Ok(match (status.success(), line.and_then(|line| serde_json::from_str(line).ok())) {
        (true, Some(line)) => Ended::Line(line),
        (true, None) => Ended::Failed("it printed no JSON".into()),
        (false, _) => Ended::Failed(errors.trim_end().to_owned()),
    })
}

fn read(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        from.read_to_end(&mut text).ok();
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// What a table says of a failure.
pub fn in_a_word(said: &str) -> &'static str {
    let lower = said.to_lowercase();
    match lower.contains("out of memory")
        || lower.contains("out of device memory")
        || lower.contains("outofmemory")
    {
        true => "out of memory",
        false => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: f64) -> Ended {
        last_line(Command::new("sh").args(["-c", script]), Duration::from_secs_f64(limit)).unwrap()
    }

    #[test]
    fn a_program_ends_well_or_badly_or_is_ended() {
        assert_eq!(shell(r#"echo x; echo '{"ms":2}'"#, 20.0), Ended::Line(serde_json::json!({"ms": 2})));
        assert_eq!(shell("echo no such card >&2; exit 3", 20.0), Ended::Failed("no such card".into()));
        assert_eq!(shell("echo nothing", 20.0), Ended::Failed("it printed no JSON".into()));
        let began = Instant::now();
        assert_eq!(shell("exec sleep 20", 0.2), Ended::TooLong);
        assert!(began.elapsed().as_secs_f64() < 10.0);
    }

    #[test]
    fn a_lack_of_memory_is_told_from_other_failures() {
        for said in [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "An IO error happened\nCaused by:\n  out of device memory allocating 4096 bytes",
        ] {
            assert_eq!(in_a_word(said), "out of memory");
        }
        assert_eq!(in_a_word("thread 'main' panicked: no such device"), "failed");
    }
}
