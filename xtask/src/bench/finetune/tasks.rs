//! What is fine-tuned.

use std::path::PathBuf;

use crate::step;

/// A row of the benchmark.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    pub name: &'static str,
    /// The config's name in `configs/`.
    pub config: &'static str,
    /// What is set on our side alone. The peer has no CRF: ours is compared with its softmax.
    pub ours: &'static [&'static str],
    /// The figures that are shown.
    pub figures: &'static [&'static str],
    /// Those that it is trained with unless others are asked for.
    pub seeds: &'static [u64],
}

impl Task {
    const fn new(name: &'static str, figures: &'static [&'static str]) -> Self {
        Self { name, config: name, ours: &[], figures, seeds: &[1, 2, 3] }
    }

    /// With a CRF on our side.
    const fn crf(name: &'static str, config: &'static str) -> Self {
        Self { config, ours: &["task.crf=true"], ..Self::new(name, &["f1"]) }
    }

    /// Its config.
    pub fn path(&self) -> PathBuf {
        step::root().join("configs").join(self.config).with_extension("toml")
    }
}

pub const TASKS: &[Task] = &[
    Task::new("sst2", &["accuracy"]),
    Task::new("mrpc", &["f1", "accuracy"]),
    Task::new("cola", &["matthews"]),
    Task::new("rte", &["accuracy"]),
    Task::new("trec", &["accuracy"]),
    Task::new("sick", &["pearson", "spearman"]),
    Task::new("sts2015", &["pearson", "spearman"]),
    Task::new("wnut17", &["f1"]),
    Task::crf("wnut17-crf", "wnut17"),
    Task::new("wikigold", &["f1"]),
    Task::crf("wikigold-crf", "wikigold"),
    // Three would take two hours.
    Task { seeds: &[1], ..Task::new("squad", &["f1", "exact"]) },
];
