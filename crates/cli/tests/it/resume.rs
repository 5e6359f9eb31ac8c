//! A run killed at random points and resumed ends with the bits of one that was never interrupted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

    /// Whether a checkpoint is being written, or was when the writer was killed.
    fn mid_write(&self, out: &str) -> bool {
        let Ok(entries) = fs::read_dir(self.path(out, "checkpoints")) else {
            return false;
        };
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(".partial-"))
    }

    /// Starts the run and ends it with SIGKILL once `ready` says so; whether that was before its end.
    fn kill(&self, out: &str, more: &[&str], ready: impl Fn(Duration) -> bool) -> bool {
        let mut child = self.start(out, more);
        let start = Instant::now();
        loop {
            if ready(start.elapsed()) {
                child.kill().unwrap();
                return !child.wait().unwrap().success();
            }
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success());
                return false;
            }
            sleep(Duration::from_micros(100));
        }
    }
}

/// The resume flag, where there is a run to resume.
fn flags(config: &Path) -> &'static [&'static str] {
    if config.exists() { &["--resume"] } else { &[] }
}

/// Random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}

#[test]
fn a_killed_run_ends_with_the_same_bits() {
    // Other kills each time; those of a failure come back with the seed it printed.
    let seed = std::env::var("CLOZE_KILLS").ok().map_or_else(
        || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
        |seed| seed.parse().unwrap(),
    );
    println!("CLOZE_KILLS={seed}");
    let mut random = Random(seed);

    let bench = Bench::new();
    bench.finish("whole", &[]);
    let steps: Vec<u64> =
        bench.metrics("whole").iter().filter_map(|record| record["step"].as_u64()).collect();
    assert_eq!(steps.last(), Some(&90));
    // Kills amid tokenizer and corpus are kills only where these are not made already.
    fs::remove_dir_all(bench.folder.path().join("cache")).unwrap();

    // Early kills some time after the start, amid tokenizer and corpus; then each after one more
    // checkpoint: by turns some time later, wherever that strikes, and amid the writing of the next.
    let config = bench.path("killed", "config.toml");
    let (mut kills, mut mid_write) = (0, 0);
    for round in 0..13 {
        let before = bench.checkpoints("killed").last().cloned();
        let later = Duration::from_micros(random.below(25_000));
        let killed = bench.kill("killed", flags(&config), |elapsed| {
            if round < 3 {
                return elapsed >= later;
            }
            let progress = bench.checkpoints("killed").last().cloned() != before;
            if progress && round % 2 == 0 {
                sleep(later);
                return true;
            }
            progress && bench.mid_write("killed")
        });
        kills += u32::from(killed);
        mid_write += u32::from(bench.mid_write("killed"));
    }
    println!("{kills} kills, {mid_write} of them while a checkpoint was written");
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

/// Dropout draws other numbers on another device, so that there is none.
#[cfg(feature = "ndarray")]
#[test]
fn a_run_goes_on_on_another_device() {
    let bench = Bench::new();
    let sets = ["--set", "model.hidden_dropout=0", "--set", "model.attention_dropout=0"];
    bench.finish("flex", &sets);
    let killed = bench.kill("both", &sets, |_| bench.checkpoints("both").len() > 1);
    let elsewhere = [&sets[..], &["--device", "ndarray"]].concat();
    bench.finish("both", &[&elsewhere[..], &["--resume"]].concat());
    assert!(killed, "the run was over before it was killed");
    let losses = |out: &str| -> Vec<f64> {
        bench.metrics(out).iter().filter_map(|record| record["loss"].as_f64()).collect()
    };
    let (flex, both) = (losses("flex"), losses("both"));
    assert!(flex.len() >= 18 && flex.len() == both.len(), "{flex:?}, {both:?}");
    for (flex, both) in flex.iter().zip(&both) {
        assert!((flex - both).abs() <= 1e-3 * flex, "{flex} on flex alone, {both}");
    }
}

#[test]
fn workers_and_prefetch_change_no_bit() {
    let bench = Bench::new();
    bench.finish("one", &[]);
    bench.finish("three", &["--set", "train.workers=3", "--set", "train.prefetch=7"]);
    bench.assert_same("one", "three");
}

#[test]
fn a_profile_changes_no_bit() {
    let bench = Bench::new();
    bench.finish("plain", &[]);
    let err = bench.finish("profiled", &["--profile", "12"]);
    bench.assert_same("plain", "profiled");
    let table = err.lines().skip_while(|line| *line != "profile of 12 steps");
    let row =
        |name: &str| table.clone().find(|line| line.trim_start().starts_with(name)).unwrap().to_string();
    // Two micro-batches a step.
    assert_eq!(row("forward").split_whitespace().nth(1), Some("2"), "{err}");
    for name in ["wait for data", "backward", "update", "linear backward", "adamw", "everything else"] {
        assert!(row(name).contains(" % "), "{err}");
    }
    let trace = fs::read_to_string(bench.path("profiled", "trace.json")).unwrap();
    let events: Vec<serde_json::Value> = serde_json::from_str(&trace).unwrap();
    let begins = |name: &str| events.iter().filter(|e| e["name"] == name && e["ph"] == "B").count();
    assert_eq!((begins("step"), begins("backward")), (12, 24));

    let err = bench.finish("short", &["--profile", "--set", "train.steps=5"]);
    assert!(err.contains("warning: no profile: the run ended within the first 5 steps"), "{err}");
    assert!(!bench.path("short", "trace.json.part").exists());
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_and_the_run_goes_on_from_there() {
    let bench = Bench::new();
    // No checkpoint of the run's own before its end: what there is, the interrupt saved.
    let rare =
        ["--set", "train.steps=300", "--set", "checkpoint.every=1000", "--set", "checkpoint.keep_best=false"];
    bench.finish("whole", &rare);
    let child = bench.start("run", &rare);
    let metrics = bench.path("run", "metrics.jsonl");
    while fs::read_to_string(&metrics).map_or(true, |text| text.lines().count() < 5) {
        sleep(Duration::from_millis(1));
    }
    assert_eq!(bench.checkpoints("run"), Vec::<PathBuf>::new());
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    let saved = bench.checkpoints("run");
    assert_eq!(saved.len(), 1, "{saved:?}");
    let step: u64 = saved[0].file_name().unwrap().to_str().unwrap()["step-".len()..].parse().unwrap();
    assert!(
        err.contains(&format!("error: stopped after step {step}: the same command with --resume")),
        "{err}"
    );
    let err = bench.finish("run", &[&rare[..], &["--resume"]].concat());
    assert!(err.contains(&format!("resuming after step {step}\n")), "{err}");
    bench.assert_same("whole", "run");
}

#[test]
fn a_folder_is_not_taken_for_another_run() {
    let bench = Bench::new();
    let error = |out: &str, more: &[&str]| {
        let output = bench.run(out, more);
        assert_eq!(output.status.code(), Some(1));
        let err = String::from_utf8(output.stderr).unwrap();
        err.lines().find(|line| line.starts_with("error: ")).unwrap().to_string()
    };
    let err = error("run", &["--resume"]);
    assert!(err.contains("holds no run to resume"), "{err}");
    bench.finish("run", &["--set", "train.steps=6"]);
    let err = error("run", &[]);
    assert!(
        err.contains("already holds a run") && err.contains("--resume") && err.contains("--out"),
        "{err}"
    );
    let err = error("run", &["--resume", "--set", "train.steps=6", "--set", "optimizer.lr=0.5"]);
    assert!(err.contains("optimizer.lr: 0.001 became 0.5"), "{err}");
}

#[test]
fn other_texts_or_another_tokenizer_are_noticed() {
    let bench = Bench::new();
    bench.finish("whole", &[]);
    bench.kill("run", &[], |_| bench.checkpoints("run").len() >= 2);
    let refused = || {
        let output = bench.run("run", &["--resume"]);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(!err.contains("panicked"), "{err}");
        assert!(err.contains("error: ") && err.contains("with other texts in `corpus.files`"), "{err}");
    };
    let swap = |file: &str, to: &[u8]| {
        let file = bench.folder.path().join(file);
        let before = fs::read(&file).unwrap();
        fs::write(&file, to).unwrap();
        refused();
        fs::write(&file, before).unwrap();
    };
    let text = fs::read_to_string(bench.folder.path().join("corpus.txt")).unwrap();
    swap("corpus.txt", text.replacen("The senate", "The tribes", 1).as_bytes());
    // Another size of vocabulary, which the checkpoint's tensors do not fit.
    bench.finish("other", &["--set", "tokenizer.vocab_size=150", "--set", "train.steps=6"]);
    swap("run/tokenizer.json", &fs::read(bench.path("other", "tokenizer.json")).unwrap());
    bench.finish("run", &["--resume"]);
    bench.assert_same("whole", "run");
}

#[test]
fn a_run_belongs_to_one_process() {
    let bench = Bench::new();
    let long = ["--set", "train.steps=1000000", "--set", "schedule.warmup_steps=5"];
    let mut first = bench.start("run", &long);
    while bench.checkpoints("run").is_empty() {
        sleep(Duration::from_millis(1));
    }
    for more in [&long[..], &[&long[..], &["--resume"]].concat()] {
        let output = bench.run("run", more);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains("is in use by another process"), "{err}");
    }
    assert_eq!(first.try_wait().unwrap(), None, "the first goes on");
    first.kill().unwrap();
    first.wait().unwrap();
}
