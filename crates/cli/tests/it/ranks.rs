//! Processes of `mpirun` that train one model. Left out, with a line, where there is no MPI.

use crate::library::{at, models};
use crate::workplace::bitmap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A folder with the embedded data, where runs are made.
struct Place(TempDir);

/// A run of every kind of arithmetic that depends on who computes what: dropout, clipping, an average of weights.
const SETS: [&str; 9] = [
    "train.batch_size=8",
    "train.shards=4",
    "model.hidden_dropout=0.1",
    "model.attention_dropout=0.1",
    "optimizer.clip_norm=0.1",
    "schedule.warmup_steps=2",
    "average={ kind = \"ema\", decay = 0.9 }",
    "eval.max_examples=8",
    "log.every=1",
];

impl Place {
    /// None without `mpirun`.
    fn new() -> Option<Self> {
        let has_mpi =
            Command::new("mpirun").arg("--version").output().is_ok_and(|output| output.status.success());
        if !has_mpi {
            eprintln!("left out: there is no mpirun (Debian: openmpi-bin)");
            return None;
        }
        let place = Self(tempfile::tempdir().unwrap());
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for file in ["configs/bert-tiny-sample.toml", "datasets/sotu.txt.zst"] {
            let to = place.0.path().join(file);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(repository.join(file), to).unwrap();
        }
        Some(place)
    }

    /// A command in the folder. On a test's machine there may be fewer cores than ranks, and no user but root.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).env("RAYON_NUM_THREADS", "1");
        for name in
            ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"]
        {
            command.env(name, "1");
        }
        command
    }

    /// The program in `ranks` processes; in one without a launcher for 0.
    fn launched(&self, ranks: usize) -> Command {
        let program = env!("CARGO_BIN_EXE_cloze");
        if ranks == 0 {
            return self.command(program);
        }
        let mut command = self.command("mpirun");
        command.args(["-n", &ranks.to_string(), program]);
        command
    }

    /// Training by `ranks` processes.
    fn training(&self, ranks: usize, out: &str, more: &[&str]) -> Command {
        let mut command = self.launched(ranks);
        command.args(["train", "configs/bert-tiny-sample.toml", "--out", out]);
        let (sets, others): (Vec<&str>, Vec<&str>) = more.iter().partition(|set| set.contains('='));
        command.args(SETS.into_iter().chain(sets).flat_map(|set| ["--set", set])).args(others);
        command
    }

    #[track_caller]
    fn train(&self, ranks: usize, out: &str, more: &[&str]) -> Output {
        let output = self.training(ranks, out, more).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{ranks} ranks: {told}");
        output
    }

    fn path(&self, out: &str, file: &str) -> PathBuf {
        self.0.path().join(out).join(file)
    }

    fn file(&self, out: &str, file: &str) -> Vec<u8> {
        fs::read(self.path(out, file)).unwrap()
    }

    /// Everything but times in a run's metrics.
    fn metrics(&self, out: &str) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.file(out, "metrics.jsonl")).unwrap();
        let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let untimed = records.map(|mut record: serde_json::Value| {
            let record_of = record.as_object_mut().unwrap();
            for key in ["seconds", "tokens_per_second", "waiting"] {
                record_of.remove(key);
            }
            record
        });
        untimed.collect()
    }

    #[track_caller]
    fn assert_same(&self, out: &str, expected: &str, steps: u64) {
        let checkpoint = format!("checkpoints/step-{steps:08}");
        for file in ["model/model.safetensors", &format!("{checkpoint}/optimizer.safetensors"), "result.json"]
        {
            assert!(self.file(out, file) == self.file(expected, file), "{file} of {out} and {expected}");
        }
        assert_eq!(self.metrics(out), self.metrics(expected), "{out} and {expected}");
    }
}

/// Waits for a file.
#[track_caller]
fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(120), "no {}", path.display());
        thread::sleep(Duration::from_millis(5));
    }
}

/// The processes that a launcher has started on this machine.
fn ranks_of(launcher: &Child) -> Vec<u32> {
    let listed = Command::new("pgrep").args(["-P", &launcher.id().to_string()]).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[track_caller]
fn ended_within(mut child: Child, limit: Duration) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < limit, "still running after {limit:?}");
        thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// Any number of ranks trains the same weights, and writes the same files.
#[test]
fn ranks_end_with_the_bits_of_one_process() {
    let Some(place) = Place::new() else { return };
    for (name, more) in
        [("adamw", "train.steps=3"), ("lamb", "optimizer.algorithm=lamb"), ("bf16", "ranks.exchange=bf16")]
    {
        let sets = ["train.steps=3", more];
        place.train(0, name, &sets);
        let all: &[usize] = if name == "adamw" { &[1, 2, 3, 4] } else { &[2] };
        for ranks in all {
            let out = format!("{name}-{ranks}");
            place.train(*ranks, &out, &sets);
            place.assert_same(&out, name, 3);
        }
    }
    let weights = |name: &str| place.file(name, "model/model.safetensors");
    assert!(weights("bf16") != weights("adamw"), "nothing was rounded");
}

/// A loss that compares the examples of a batch sees those of all ranks.
#[test]
fn a_comparing_loss_is_that_of_the_whole_batch() {
    let Some(place) = Place::new() else { return };
    let pairs: String =
        (0..24).map(|i| format!("{{\"text\": \"the old sea {i}\", \"pair\": \"a man of {i}\"}}\n")).collect();
    fs::write(place.0.path().join("pairs.jsonl"), pairs).unwrap();
    let folder = place.0.path().join("images/all");
    fs::create_dir_all(&folder).unwrap();
    (0..24).for_each(|i| fs::write(folder.join(format!("{i:02}.bmp")), bitmap(i)).unwrap());
    let encoder = at(models::ENCODER);
    let embedding = format!(
        r#"
task = {{ kind = "embedding", loss = {{ kind = "in-batch-negatives" }} }}
model = {{ path = {encoder:?} }}
data = {{ train = {{ files = ["pairs.jsonl"], columns = {{ pair = "pair" }} }}, max_len = 16 }}
train = {{ epochs = 1, batch_size = 12 }}
optimizer = {{ lr = 1e-3 }}
schedule = {{ kind = "constant" }}
"#
    );
    let views = r#"
objective = { kind = "contrastive-views", d_projection = 8, probe = false }
model = { kind = "vit", patch_size = 8, n_layers = 1, d_model = 16, n_heads = 2, d_ff = 32 }
data = { train = { files = ["images"] }, size = [32, 32] }
augment = { flip = 0.5, crop = { kind = "resized", scale = [0.2, 1.0] } }
train = { epochs = 1, batch_size = 12 }
optimizer = { lr = 1e-3 }
schedule = { kind = "constant" }
"#;
    for (name, config, dropout) in [("embedding", &*embedding, true), ("views", views, false)] {
        let file = format!("{name}.toml");
        fs::write(place.0.path().join(&file), config).unwrap();
        let train = |ranks: usize, out: &str, sets: &[&str]| {
            let mut command = place.launched(ranks);
            command.args(["train", &file, "--out", out]);
            command.args(sets.iter().copied().chain(["log.every=1"]).flat_map(|set| ["--set", set]));
            let output = command.output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{name} by {ranks} ranks: {told}");
        };
        let drops = ["train.shards=4", "model.dropout.hidden=0.1"];
        let cut = if dropout { &drops[..] } else { &drops[..1] };
        train(0, name, cut);
        for ranks in [2, 3] {
            let out = format!("{name}-{ranks}");
            train(ranks, &out, cut);
            place.assert_same(&out, name, 2);
        }
        // Without dropout, the parts change nothing but rounding. Negatives of a part alone would be another loss.
        let still = if dropout { &["model.dropout.hidden=0", "model.dropout.attention=0"][..] } else { &[] };
        let loss = |out: &str, more: &[&str]| {
            train(0, out, &[still, more].concat());
            place.metrics(out)[0]["loss"].as_f64().unwrap()
        };
        let (whole, parts) =
            (loss(&format!("{name}-whole"), &[]), loss(&format!("{name}-parts"), &["train.shards=4"]));
        assert!((whole - parts).abs() < 1e-5 * whole, "{name}: {whole}, in parts {parts}");
    }
}

/// Lines are shared out, and answered as one process answers them, in order.
#[test]
fn lines_are_answered_as_by_one_process() {
    let Some(place) = Place::new() else { return };
    let line = |i: usize| format!("the old man {} sat by the sea, {} times", "very ".repeat(i * 7 % 40), i);
    let texts: String = (0..3_000).map(|i| if i % 97 == 0 { "\n".into() } else { line(i) + "\n" }).collect();
    fs::write(place.0.path().join("texts.txt"), texts).unwrap();
    for (model, command, more) in [
        (models::ENCODER, "embed", &["--on-bad-row", "skip"][..]),
        (models::ENCODER, "embed", &["--on-bad-row", "skip", "--format", "npy"]),
        (models::CLASSIFIER, "predict", &["--input-format", "lines"]),
        (models::TRANSLATOR, "translate", &["--json", "--max-new", "8"]),
    ] {
        let answers = |ranks: usize| {
            let mut asked = place.launched(ranks);
            asked.args([command, "--model"]).arg(at(model)).args(more);
            let n_lines = if command == "translate" { 60 } else { 3_000 };
            let all = fs::read_to_string(place.0.path().join("texts.txt")).unwrap();
            let some: String = all.split_inclusive('\n').take(n_lines).collect();
            fs::write(place.0.path().join("some.txt"), some).unwrap();
            asked.stdin(fs::File::open(place.0.path().join("some.txt")).unwrap());
            let output = asked.output().unwrap();
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        let expected = answers(0);
        assert!(expected.len() > 1_000, "{command}");
        for ranks in [2, 3] {
            assert!(answers(ranks) == expected, "{command} {more:?} by {ranks} ranks");
        }
    }
}

/// The ranks take turns in predicting a text, and print the figures of one process.
#[test]
fn a_text_is_predicted_as_by_one_process() {
    let Some(place) = Place::new() else { return };
    let lines: String = (0..120).map(|i| format!("the old man {i} sat by the sea\n")).collect();
    fs::write(place.0.path().join("text.txt"), lines).unwrap();
    for model in [models::GENERATOR, models::MASKED] {
        let figures = |ranks: usize| {
            let mut asked = place.launched(ranks);
            asked.args(["perplexity", "--json", "--model"]).arg(at(model)).args(["text.txt", "text.txt"]);
            let output = asked.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let expected = figures(0);
        assert_eq!(expected.lines().count(), 3);
        for ranks in [2, 3] {
            assert_eq!(figures(ranks), expected, "{ranks} ranks");
        }
    }
}

/// A rank that is killed ends the job, and another number of ranks resumes it.
#[test]
fn a_killed_rank_ends_the_job_and_others_resume_it() {
    let Some(place) = Place::new() else { return };
    let sets = ["train.steps=60", "checkpoint.every=2", "eval.every=60"];
    place.train(0, "whole", &sets);
    let mut training = place.training(2, "killed", &sets);
    let mut launcher = training.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place.path("killed", "checkpoints/step-00000002"));
    let victim = ranks_of(&launcher)[1];
    assert!(Command::new("kill").args(["-9", &victim.to_string()]).status().unwrap().success());
    assert!(launcher.try_wait().unwrap().is_none(), "the run was over before the kill");
    let output = ended_within(launcher, Duration::from_secs(10));
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("error: training with other replicas stopped: rank 1 on "), "{told}");
    assert!(told.contains("; the last checkpoint is that of step "), "{told}");
    place.train(4, "killed", &[&sets[..], &["--resume"]].concat());
    place.assert_same("killed", "whole", 60);
}

/// Any rank is killed, or told to stop, at any moment, and another number goes on.
#[test]
#[ignore = "takes minutes"]
fn no_kill_changes_a_bit() {
    const KILLS: u64 = 25;
    const SIGNALS: [&str; 3] = ["-9", "-TERM", "-9"];
    let Some(place) = Place::new() else { return };
    let sets = ["train.steps=600", "checkpoint.every=3", "eval.every=100"];
    place.train(0, "whole", &sets);
    let mut random = 7_u64;
    let mut drawn = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let mut killed = 0;
    for round in 0..KILLS {
        let resume = if place.path("often", "config.toml").exists() { &["--resume"][..] } else { &[] };
        let n_ranks = 1 + drawn(4) as usize;
        let mut training = place.training(n_ranks, "often", &[&sets[..], resume].concat());
        let mut launcher = training.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        thread::sleep(Duration::from_millis(300 + drawn(2_500)));
        let ranks = ranks_of(&launcher);
        if launcher.try_wait().unwrap().is_some() || ranks.is_empty() {
            continue;
        }
        let victim = ranks[drawn(ranks.len() as u64) as usize].to_string();
        let signal = SIGNALS[round as usize % SIGNALS.len()];
        // It may be over by now.
        killed += u64::from(Command::new("kill").args([signal, &victim]).status().unwrap().success());
        let output = ended_within(launcher, Duration::from_secs(10));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!told.contains("panicked") && !told.contains("damaged"), "{told}");
    }
    assert!(killed > KILLS / 2, "{killed} of {KILLS}");
    place.train(2, "often", &[&sets[..], &["--resume"]].concat());
    place.assert_same("often", "whole", 600);
}

/// A signal to any rank stops all after the same step.
#[test]
fn a_signal_to_one_rank_stops_all() {
    let Some(place) = Place::new() else { return };
    let sets = ["train.steps=40", "checkpoint.every=2", "eval.every=40"];
    place.train(0, "whole", &sets);
    let mut training = place.training(2, "stopped", &sets);
    let launcher = training.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place.path("stopped", "checkpoints/step-00000002"));
    let second = ranks_of(&launcher)[1];
    assert!(Command::new("kill").args(["-TERM", &second.to_string()]).status().unwrap().success());
    let output = ended_within(launcher, Duration::from_secs(20));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("stopped after step "), "{told}");
    place.train(3, "stopped", &[&sets[..], &["--resume"]].concat());
    place.assert_same("stopped", "whole", 40);
}

/// A rank that is stopped is noticed after the time-out.
#[test]
fn a_silent_rank_is_named() {
    let Some(place) = Place::new() else { return };
    let sets = ["train.steps=400", "checkpoint.every=2", "eval.every=400", "ranks.timeout=1"];
    let mut training = place.training(3, "silent", &sets);
    let launcher = training.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place.path("silent", "checkpoints/step-00000002"));
    let last = ranks_of(&launcher)[2];
    assert!(Command::new("kill").args(["-STOP", &last.to_string()]).status().unwrap().success());
    let output = ended_within(launcher, Duration::from_secs(20));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("error: training with other replicas stopped: rank 2 on "), "{told}");
}

/// A program without NCCL says what to build, also where there is one process.
#[cfg(not(feature = "nccl"))]
#[test]
fn nccl_is_refused_where_it_is_not_built_in() {
    let ran = crate::ran::run(&["train", "configs/bert-tiny-sample.toml", "--transport", "nccl"], b"");
    let expected =
        "error: --transport nccl: this program was built without NCCL: build it with `--features nccl`\n";
    assert_eq!((ran.status, ran.err.as_str()), (2, expected));
}

/// Messages that go from GPU to GPU train the same weights. Without GPUs the first rank says so; with one, which two ranks
/// cannot share, this is left out.
#[cfg(feature = "nccl")]
#[test]
fn ranks_with_nccl_end_with_the_bits_of_one_process() {
    let Some(place) = Place::new() else { return };
    let listed = Command::new("nvidia-smi").arg("-L").output();
    let gpus = listed.map_or(0, |output| String::from_utf8_lossy(&output.stdout).lines().count());
    if gpus == 0 {
        let output = place.training(2, "none", &["--transport", "nccl"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        let line = told.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        let expected = "error: training with other replicas cannot use NCCL: rank 0 on ";
        assert!(!output.status.success() && line.starts_with(expected), "{told}");
        return;
    }
    if gpus == 1 {
        eprintln!("left out: there is one NVIDIA GPU, and each rank needs its own");
        return;
    }
    place.train(0, "whole", &["train.steps=3"]);
    place.train(2, "nccl", &["train.steps=3", "--transport", "nccl"]);
    place.assert_same("nccl", "whole", 3);
}

/// The streams of a text are divided, and each goes on where it stood, also after another number of ranks has resumed.
#[test]
fn streams_go_on_by_any_number_of_ranks() {
    let Some(place) = Place::new() else { return };
    let config = r#"
objective = { kind = "left-to-right" }
corpus = { files = ["datasets/sotu.txt.zst"] }
tokenizer = { kind = "train-byte-bpe", vocab_size = 300 }
streams = { seq_len = 8 }
model = { d_embedding = 16, d_hidden = 24, n_layers = 2 }
regularisation = { activation = 2.0, temporal = 1.0 }
train = { steps = 6, batch_size = 8, shards = 4 }
checkpoint = { every = 2 }
eval = { every = 3, max_blocks = 4 }
log = { every = 1 }
average = { kind = "ema", decay = 0.9 }
optimizer = { lr = 1e-2 }
schedule = { kind = "constant" }
"#;
    fs::write(place.0.path().join("streams.toml"), config).unwrap();
    let train = |ranks: usize, out: &str, more: &[&str]| {
        let output =
            place.launched(ranks).args(["train", "streams.toml", "--out", out]).args(more).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{ranks} ranks: {told}");
    };
    train(0, "streams", &[]);
    for ranks in [2, 3] {
        let out = format!("streams-{ranks}");
        train(ranks, &out, &[]);
        place.assert_same(&out, "streams", 6);
        // Where each stream stands is part of it.
        let checkpoint = "checkpoints/step-00000006/model.safetensors";
        assert!(place.file(&out, checkpoint) == place.file("streams", checkpoint), "{ranks} ranks");
    }
    for step in [4, 6] {
        fs::remove_dir_all(place.path("streams-2", &format!("checkpoints/step-{step:08}"))).unwrap();
    }
    fs::remove_dir_all(place.path("streams-2", "model")).unwrap();
    train(4, "streams-2", &["--resume"]);
    place.assert_same("streams-2", "streams", 6);
}

/// What ranks must have in common is checked before the first step, and told by one of them.
#[test]
fn ranks_that_differ_are_told_apart() {
    let Some(place) = Place::new() else { return };
    let mut training = place.training(1, "different", &["train.steps=3"]);
    let program = env!("CARGO_BIN_EXE_cloze");
    training.args([":", "-n", "1", program, "train", "configs/bert-tiny-sample.toml", "--out", "different"]);
    training.args(SETS.iter().chain(&["train.steps=4"]).flat_map(|set| ["--set", *set]));
    let output = training.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let told: Vec<&str> = told.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(
        told,
        ["error: training with other replicas needs one configuration: rank 1 has another than rank 0"]
    );
}
