//! A folder with a small text, and runs on it.

use crate::stop_after::StopAfter;
use burn::tensor::Device;
use cloze_trainer::Result;
use cloze_trainer::config::Run;
use cloze_trainer::engine::{Outcome, Plan, RunOptions};
use cloze_trainer::metrics::progress::{RunProgress, Silent};
use cloze_trainer::runs::RunKind;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// Runs of a kind, whose config has this text but for its corpus.
pub struct Bench<C> {
    folder: TempDir,
    config: &'static str,
    kind: PhantomData<C>,
}

impl<K: RunKind> Bench<Run<K>> {
    /// On 150 documents.
    pub fn new(config: &'static str, document: impl Fn(usize) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let documents: Vec<String> = (0..150).map(document).collect();
        std::fs::write(folder.path().join("text.txt"), documents.join("\n")).unwrap();
        Self { folder, config, kind: PhantomData }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn config(&self, sets: &[&str]) -> Result<Run<K>> {
        let path = self.path("config.toml");
        let files = format!("corpus.files = [{:?}]\n", self.path("text.txt"));
        std::fs::write(&path, files + self.config).unwrap();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        Run::load(&path, &sets)
    }

    pub fn run(&self, out: &str, sets: &[&str]) -> Result<Outcome> {
        self.run_with(out, sets, false, &AtomicBool::new(false), &mut Silent)
    }

    pub fn run_with(
        &self,
        out: &str,
        sets: &[&str],
        resume: bool,
        stop: &AtomicBool,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        let options = RunOptions::new(Device::flex(), self.path(out))
            .cache(self.path("cache"))
            .resume(resume)
            .stop(stop);
        self.config(sets)?.run(&options, progress)
    }

    /// The model's file, bit for bit.
    pub fn weights(&self, out: &str) -> Vec<u8> {
        std::fs::read(self.path(out).join("model/model.safetensors")).unwrap()
    }

    /// The files of the model's folder, by their names.
    fn files(&self, out: &str) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.path(out).join("model")).unwrap();
        entries
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
            })
            .collect()
    }

    /// A run that is stopped after three steps and resumed ends with the bits of one that is not, in all files of the model;
    /// and another seed gives others.
    pub fn assert_same_bits_after_a_stop(&self, name: &str, sets: &[&str]) {
        let [whole, parted, other] = ["whole", "parted", "other"].map(|run| format!("{run}-{name}"));
        self.run(&whole, sets).unwrap();
        let stop = AtomicBool::new(false);
        let stopped = self.run_with(&parted, sets, false, &stop, &mut StopAfter(3, &stop)).unwrap();
        assert_eq!(stopped, Outcome::Stopped { step: 3 });
        self.run_with(&parted, sets, true, &AtomicBool::new(false), &mut Silent).unwrap();
        let (whole_files, parted_files) = (self.files(&whole), self.files(&parted));
        assert!(whole_files.keys().eq(parted_files.keys()), "{sets:?}");
        for (name, file) in &whole_files {
            assert!(*file == parted_files[name], "{name}: {sets:?}");
        }
        self.run(&other, &[sets, &["run.seed=7"]].concat()).unwrap();
        assert!(self.weights(&whole) != self.weights(&other), "{sets:?}");
    }
}
