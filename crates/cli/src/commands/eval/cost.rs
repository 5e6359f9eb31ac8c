//! What a model's answers take.

use std::path::Path;

use anyhow::Result;
use cloze_evaluation::table;
use cloze_trainer::finetune::Cost;
use serde::{Deserialize, Serialize};

use crate::model;

/// Examples that are answered one at a time, for their latency.
pub const SINGLY: usize = 200;

/// A model's cost on some examples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostReport {
    /// Bytes of the files of weights.
    bytes: u64,
    /// The numbers that the model has.
    parameters: u64,
    /// Operations in the layers for an example, in 10⁹; none for a model without an encoder.
    gflops: Option<f64>,
    /// The median time of an example by itself, in milliseconds.
    latency_ms: f64,
    /// The same, which 95 of 100 examples do not take longer than.
    latency_p95_ms: f64,
    /// Examples a second, in batches.
    examples_per_second: f64,
    /// The greatest memory of this process so far, in bytes; none where the system does not tell.
    peak_memory: Option<u64>,
}

impl CostReport {
    /// The cost of the model in a folder.
    pub fn of(cost: &Cost, folder: &Path) -> Result<Self> {
        let mut latencies = cost.latencies.clone();
        latencies.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let place = (share * latencies.len().saturating_sub(1) as f64).round() as usize;
            latencies.get(place).map_or(0.0, |seconds| 1e3 * seconds)
        };
        Ok(Self {
            bytes: model::weight_bytes(folder)?,
            parameters: cost.parameters,
            gflops: cost.flops.map(|flops| flops / cost.examples.max(1) as f64 / 1e9),
            latency_ms: quantile(0.5),
            latency_p95_ms: quantile(0.95),
            examples_per_second: cost.examples as f64 / cost.seconds,
            peak_memory: peak_memory(),
        })
    }

    /// The cost as a table for a terminal.
    pub fn table(&self) -> String {
        table::facts("cost", Self::HEADER.iter().zip(self.cells()))
    }

    pub const HEADER: [&str; 7] = [
        "weights, MB",
        "parameters",
        "GFLOP an example",
        "latency, ms",
        "95 % within, ms",
        "examples/s",
        "peak memory, MB",
    ];

    /// Its numbers, in the order of the header.
    pub fn cells(&self) -> [String; 7] {
        let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        let none = || "–".to_owned();
        [
            megabytes(self.bytes),
            table::grouped(self.parameters),
            self.gflops.map_or_else(none, |gflops| format!("{gflops:.2}")),
            format!("{:.2}", self.latency_ms),
            format!("{:.2}", self.latency_p95_ms),
            format!("{:.0}", self.examples_per_second),
            self.peak_memory.map_or_else(none, megabytes),
        ]
    }
}

/// The greatest resident memory of this process, which Linux tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(1024 * kibibytes)
}
