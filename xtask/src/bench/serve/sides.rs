//! The services that are compared, each a process.

use std::ffi::OsString;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::super::measure;
use crate::memory;

/// How long a service may take to load its model.
const PATIENCE: Duration = Duration::from_secs(180);

/// A service.
pub struct Side {
    pub name: &'static str,
    /// The program, and its arguments but the model's and the port's.
    kind: Kind,
    pub route: &'static str,
    pub field: &'static str,
    pub more: Value,
    /// The least cosine of its vectors and those of `cloze embed`; 1: the same bits.
    pub agreement: f32,
}

enum Kind {
    Ours { program: OsString, more: &'static [&'static str] },
    FastApi { python: OsString },
    Infinity { program: OsString, dtype: &'static str },
}

/// The services that can be had here: ours, FastAPI in `python`, infinity as CLOZE_INFINITY.
pub fn all(program: &Path, python: Option<&OsString>) -> Vec<Side> {
    let ours = |name, more| Side {
        name,
        kind: Kind::Ours { program: program.into(), more },
        route: "/embed",
        field: "inputs",
        more: json!({}),
        agreement: 1.0,
    };
    let mut all = vec![ours("cloze", &[]), ours("cloze, int8", &["--int8"])];
    all.extend(python.map(|python| Side {
        name: "FastAPI",
        kind: Kind::FastApi { python: python.clone() },
        agreement: 0.9999,
        ..ours("", &[])
    }));
    match std::env::var_os("CLOZE_INFINITY") {
        Some(program) => {
            let infinity = |name, dtype, agreement| Side {
                name,
                kind: Kind::Infinity { program: program.clone(), dtype },
                route: "/embeddings",
                field: "input",
                more: json!({ "model": "default" }),
                agreement,
            };
            all.extend([
                infinity("infinity", "float32", 0.9999),
                infinity("infinity, bf16", "bfloat16", 0.99),
            ]);
        }
        None => eprintln!("CLOZE_INFINITY is not set: infinity is left out (cargo xtask bench serve --help)"),
    }
    all
}

impl Side {
    /// Whether it is ours.
    pub fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Ours { .. })
    }

    /// What `cloze embed` needs beside the model to give the same vectors.
    pub fn embed_with(&self) -> &'static [&'static str] {
        match &self.kind {
            Kind::Ours { more, .. } => more,
            _ => &[],
        }
    }

    /// Starts it; returns when it answers.
    pub fn start(&self, model: &Path, others: &[&str]) -> Result<Running> {
        // Free just now.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = match &self.kind {
            Kind::Ours { program, more } => {
                let mut command = Command::new(program);
                command.args(["serve", "--port", &port.to_string(), "--model"]).arg(model);
                command.args(*more).args(others);
                command
            }
            Kind::FastApi { python } => {
                let mut command = measure::peer(python, "serve.py", &[]);
                command.arg(model).arg(port.to_string());
                command
            }
            Kind::Infinity { program, dtype } => {
                let mut command = Command::new(program);
                command.args(["v2", "--engine", "torch", "--device", "cpu", "--dtype", dtype]);
                // BetterTransformer is gone from the packages that it needs.
                command.args(["--no-bettertransformer"]);
                command.args(["--served-model-name", "default", "--log-level", "warning"]);
                command.args(["--port", &port.to_string(), "--host", "127.0.0.1", "--model-id"]).arg(model);
                command.envs([("DO_NOT_TRACK", "1"), ("HF_HUB_OFFLINE", "1")]);
                command
            }
        };
        command.env("OMP_NUM_THREADS", "2").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let mut running = Running { child, address: format!("127.0.0.1:{port}") };
        let start = Instant::now();
        while !running.answers() {
            if let Some(status) = running.child.try_wait()? {
                bail!("{command:?} ended: {status}");
            }
            if start.elapsed() > PATIENCE {
                bail!("{command:?} does not answer after {} s", PATIENCE.as_secs());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(running)
    }
}

/// A service's process, which ends with this.
pub struct Running {
    child: Child,
    pub address: String,
}

impl Running {
    /// Whether its port is open: services open theirs when the model is loaded.
    fn answers(&self) -> bool {
        TcpStream::connect(&self.address).is_ok()
    }

    /// The memory that it holds, and the most that it held, in MB.
    pub fn memory(&self) -> Result<[f64; 2]> {
        let of = |field| {
            let kilobytes = memory::kilobytes(self.child.id(), field);
            kilobytes.map(|kilobytes| kilobytes as f64 / 1e3).with_context(|| format!("no {field}"))
        };
        Ok([of("VmRSS")?, of("VmHWM")?])
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
