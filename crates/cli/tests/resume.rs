//! A run killed at random points and resumed ends with the bits of one that was never interrupted.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A corpus, a config, and the runs made of them.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (who, what) =
            (["The senate", "A farmer", "Our nation", "The bank"], ["law", "harvest", "road", "debt"]);
        let mut text = String::new();
        for document in 0..40 {
            for sentence in 0..12 {
                let (a, b) = (who[(document + sentence) % 4], what[(document * 3 + sentence) % 4]);
                text += &format!(
                    "{a} saw the {b} of year {} and spoke of it at length.\n",
                    1800 + document + sentence
                );
            }
            text.push('\n');
        }
        fs::write(folder.path().join("corpus.txt"), text).unwrap();
        let config = r#"
            corpus.files = ["corpus.txt"]
            tokenizer = { kind = "train-wordpiece", vocab_size = 200 }
            examples = { seq_len = 32, pairs.kind = "next-sentence" }
            train = { steps = 90, batch_size = 4, accumulate = 2 }
            optimizer.lr = 1e-3
            schedule = { kind = "linear", warmup_steps = 5 }
            eval = { heldout_fraction = 0.2, every = 7, max_examples = 16 }
            checkpoint = { every = 3, keep_last = 2 }
            log.every = 5
            [model]
            n_layers = 1
            d_model = 16
            n_heads = 2
            d_ff = 32
            max_positions = 32
            hidden_dropout = 0.1
            attention_dropout = 0.1
        "#;
        fs::write(folder.path().join("run.toml"), config).unwrap();
        Self { folder }
    }

    fn start(&self, out: &str, more: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_cloze"))
            .current_dir(self.folder.path())
            .args(["train", "run.toml", "--out", out])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run(&self, out: &str, more: &[&str]) -> Output {
        self.start(out, more).wait_with_output().unwrap()
    }

    #[track_caller]
    fn finish(&self, out: &str, more: &[&str]) -> String {
        let output = self.run(out, more);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{err}");
        err
    }

    fn path(&self, out: &str, file: &str) -> PathBuf {
        self.folder.path().join(out).join(file)
    }

    /// Everything that two runs of one config have in common, as text and bytes.
    #[track_caller]
    fn assert_same(&self, a: &str, b: &str) {
        for file in ["model/model.safetensors", "model/tokenizer.json", "model/config.json"] {
            let [a, b] = [a, b].map(|run| fs::read(self.path(run, file)).unwrap());
            assert!(a == b, "{file} differs");
        }
        assert_eq!(self.metrics(a), self.metrics(b));
    }

    /// The metrics without measured times.
    fn metrics(&self, out: &str) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.path(out, "metrics.jsonl")).unwrap();
        let record = |line: &str| {
            let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
            for measured in ["seconds", "tokens_per_second", "waiting"] {
                record.as_object_mut().unwrap().remove(measured);
            }
            record
        };
        text.lines().map(record).collect()
    }

    fn checkpoints(&self, out: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path(out, "checkpoints")) else {
            return Vec::new();
        };
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with("step-"));
        paths.sort();
        paths
    }

    /// Starts the run and ends it with SIGKILL once `ready` says so; whether that was before its end.
    fn kill(&self, out: &str, more: &[&str], ready: impl Fn(Duration) -> bool) -> bool {
        let mut child = self.start(out, more);
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success());
                return false;
            }
            if ready(start.elapsed()) {
                child.kill().unwrap();
                child.wait().unwrap();
                return true;
            }
            sleep(Duration::from_millis(1));
        }
    }
}

/// The resume flag, where there is a run to resume.
fn flags(config: &Path) -> &'static [&'static str] {
    if config.exists() { &["--resume"] } else { &[] }
}

#[test]
fn a_killed_run_ends_with_the_same_bits() {
    let bench = Bench::new();
    bench.finish("whole", &[]);
    let steps: Vec<u64> =
        bench.metrics("whole").iter().filter_map(|record| record["step"].as_u64()).collect();
    assert_eq!(steps.last(), Some(&90));

    // Kills spread over the whole run: early ones by time, amid tokenizer and corpus, later ones each
    // some time after one more checkpoint appeared, wherever that strikes: in a step, in a write.
    let config = bench.path("killed", "config.toml");
    let mut kills = 0;
    for (round, millis) in [2u64, 9, 25, 3, 11, 17, 1, 23, 7, 13].into_iter().enumerate() {
        let before = bench.checkpoints("killed").last().cloned();
        kills += u32::from(bench.kill("killed", flags(&config), |elapsed| match round {
            0..3 => elapsed >= Duration::from_millis(millis),
            _ => {
                let progress = bench.checkpoints("killed").last().cloned() != before;
                progress && {
                    sleep(Duration::from_millis(millis));
                    true
                }
            }
        }));
    }
    assert!(kills >= 6, "only {kills} kills struck before the end");
    bench.finish("killed", flags(&config));
    bench.assert_same("whole", "killed");
}

#[test]
fn damaged_checkpoints_are_named_and_the_one_before_is_used() {
    let bench = Bench::new();
    bench.finish("whole", &[]);
    bench.kill("run", &[], |_| bench.checkpoints("run").len() >= 2);
    let newest = bench.checkpoints("run").pop().unwrap();
    let file = newest.join("optimizer.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    // What a kill in the middle of a write leaves.
    let partial = bench.path("run", "checkpoints/.partial-00000099");
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("model.safetensors"), b"half").unwrap();

    let err = bench.finish("run", &["--resume"]);
    let name = newest.file_name().unwrap().to_str().unwrap();
    assert!(err.contains(&format!("{name} is damaged (optimizer.safetensors")), "{err}");
    assert!(!partial.exists());
    bench.assert_same("whole", "run");
}

#[test]
fn workers_and_prefetch_change_no_bit() {
    let bench = Bench::new();
    bench.finish("one", &[]);
    bench.finish("three", &["--set", "train.workers=3", "--set", "train.prefetch=7"]);
    bench.assert_same("one", "three");
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_and_the_run_goes_on_from_there() {
    let bench = Bench::new();
    bench.finish("whole", &[]);
    let child = bench.start("run", &[]);
    while bench.checkpoints("run").is_empty() {
        sleep(Duration::from_millis(1));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("--resume"), "{err}");
    bench.finish("run", &["--resume"]);
    bench.assert_same("whole", "run");
}

#[test]
fn a_folder_is_not_taken_for_another_run() {
    let bench = Bench::new();
    let error = |out: &str, more: &[&str]| {
        let output = bench.run(out, more);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let err = error("run", &["--resume"]);
    assert!(err.contains("holds no run to resume"), "{err}");
    bench.finish("run", &["--set", "train.steps=6"]);
    let err = error("run", &[]);
    assert!(err.contains("already holds a run") && err.contains("--out"), "{err}");
    let err = error("run", &["--resume", "--set", "train.steps=6", "--set", "optimizer.lr=0.5"]);
    assert!(err.contains("optimizer.lr"), "{err}");
}
