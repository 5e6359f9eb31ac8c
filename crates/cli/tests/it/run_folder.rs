//! What lies in the folder that a run is to write to: nothing of a user's is lost, nothing of another run's is used.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Two corpora and a config.
struct Bench {
    folder: TempDir,
}

/// What a run printed, and its exit status.
struct Ran {
    status: i32,
    err: String,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        for (file, words) in [("a.txt", ["senate", "harvest", "road"]), ("b.txt", ["ocean", "whale", "ship"])]
        {
            let mut text = String::new();
            for i in 0..120 {
                text += &format!("The {} of {} met a {}.\n\n", words[i % 3], 1800 + i, words[i * 7 % 3]);
            }
            fs::write(bench.path(file), text).unwrap();
        }
        let config = r#"
            corpus.files = ["a.txt"]
            tokenizer = { kind = "train-wordpiece", vocab_size = 120 }
            examples = { seq_len = 16, pairs.kind = "full-sentences" }
            train = { steps = 2, batch_size = 2 }
            optimizer.lr = 1e-3
            schedule = { kind = "constant" }
            eval = { heldout_fraction = 0.2, max_examples = 4 }
            model = { n_layers = 1, d_model = 8, n_heads = 2, d_ff = 16, max_positions = 16 }
        "#;
        fs::write(bench.path("run.toml"), config).unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn train(&self, more: &[&str]) -> Ran {
        self.train_to("run", more)
    }

    fn train_to(&self, out: &str, more: &[&str]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_cloze"))
            .current_dir(self.folder.path())
            .args(["train", "run.toml", "--out", out])
            .args(more)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Ran { status: output.status.code().unwrap(), err: String::from_utf8(output.stderr).unwrap() }
    }

    /// A run that ends after its tokenizer is trained and before its first step: its corpus cannot be prepared.
    #[track_caller]
    fn train_until_the_corpus(&self, more: &[&str]) {
        fs::write(self.path("cache"), "no folder").unwrap();
        let ran = self.train(more);
        assert_eq!(ran.status, 1, "{}", ran.err);
        assert!(ran.err.contains("tokenizer: ") && ran.err.contains("error: "), "{}", ran.err);
        assert!(!self.path("run/metrics.jsonl").exists());
        fs::remove_file(self.path("cache")).unwrap();
    }

    fn tokenizer(&self) -> String {
        fs::read_to_string(self.path("run/tokenizer.json")).unwrap()
    }
}

#[test]
fn a_tokenizer_is_used_again_only_with_the_settings_and_texts_it_was_trained_with() {
    let trained = "training the tokenizer";
    for other in [&["--set", "tokenizer.vocab_size=60"][..], &["--set", "corpus.files=[\"b.txt\"]"]] {
        let bench = Bench::new();
        bench.train_until_the_corpus(&[]);
        let first = bench.tokenizer();
        let ran = bench.train(other);
        assert_eq!(ran.status, 0, "{}", ran.err);
        assert!(ran.err.contains(trained), "{}", ran.err);
        let expected = Bench::new();
        assert_eq!(expected.train(other).status, 0);
        assert!(bench.tokenizer() == expected.tokenizer());
        assert!(bench.tokenizer() != first);
    }

    let bench = Bench::new();
    bench.train_until_the_corpus(&[]);
    let ran = bench.train(&["--set", "train.steps=3"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(!ran.err.contains(trained), "{}", ran.err);

    // The same file name, other texts; and a tokenizer that somebody has edited.
    for edit in ["a.txt", "run/tokenizer.json"] {
        let bench = Bench::new();
        bench.train_until_the_corpus(&[]);
        let text = fs::read_to_string(bench.path(edit)).unwrap();
        fs::write(bench.path(edit), text.replace("senate", "sonate")).unwrap();
        let ran = bench.train(&["--resume"]);
        assert_eq!(ran.status, 0, "{}", ran.err);
        assert!(ran.err.contains(trained), "{edit}: {}", ran.err);
        assert_eq!(bench.tokenizer().contains("sonate"), edit == "a.txt");
    }
}

#[test]
fn a_folder_that_no_run_has_made_is_refused_and_stays_as_it_is() {
    for file in ["model/weights.bin", "config.toml", "curve.svg", "tokenizer.json", "run.json", ".hidden"] {
        let bench = Bench::new();
        let path = bench.path("run").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "the user's own").unwrap();
        for more in [&[][..], &["--resume"]] {
            let ran = bench.train(more);
            let top = file.split('/').next().unwrap();
            let resumes = !more.is_empty();
            let expected = match resumes && file != "config.toml" {
                true => {
                    "error: run holds no run to resume: leave out --resume to start one there\n".to_owned()
                }
                false => format!(
                    "error: run holds files that are not from a run of cloze ({top}): choose a new or \
                     empty folder with --out\n"
                ),
            };
            assert_eq!(ran.err, expected, "{file}");
            assert_ne!(ran.status, 0);
            assert_eq!(fs::read_to_string(&path).unwrap(), "the user's own");
            assert_eq!(fs::read_dir(bench.path("run")).unwrap().count(), 1, "{file}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_link_to_a_user_s_model_is_no_model_of_a_run() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("mine")).unwrap();
    fs::write(bench.path("mine/weights.bin"), "the user's own").unwrap();
    fs::create_dir(bench.path("run")).unwrap();
    std::os::unix::fs::symlink(bench.path("mine"), bench.path("run/model")).unwrap();
    assert_eq!(bench.train(&[]).status, 2);
    assert_eq!(fs::read_to_string(bench.path("run/model/weights.bin")).unwrap(), "the user's own");

    // A file in the folder's place.
    fs::write(bench.path("file"), "the user's own").unwrap();
    let ran = bench.train_to("file", &[]);
    assert!(ran.status != 0 && ran.err.starts_with("error: cannot make file: "), "{}", ran.err);
}

#[test]
fn an_empty_folder_and_one_of_a_failed_run_are_taken() {
    let bench = Bench::new();
    fs::create_dir(bench.path("run")).unwrap();
    let ran = bench.train(&["--set", "corpus.files=[\"nothing.txt\"]"]);
    assert!(ran.err.contains("nothing.txt"), "{}", ran.err);
    let ran = bench.train(&[]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let ran = bench.train(&[]);
    assert!(ran.err.contains("already holds a run"), "{}", ran.err);
}

#[test]
fn what_a_killed_run_left_half_written_is_removed() {
    let bench = Bench::new();
    bench.train_until_the_corpus(&[]);
    fs::create_dir_all(bench.path("run/model.partial")).unwrap();
    fs::write(bench.path("run/model.partial/model.safetensors"), "half").unwrap();
    fs::write(bench.path("run/run.partial"), "half").unwrap();
    fs::create_dir_all(bench.path("run/report/dev")).unwrap();
    fs::write(bench.path("run/report/dev/figures.partial"), "half").unwrap();
    let ran = bench.train(&["--resume"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let entries = fs::read_dir(bench.path("run")).unwrap().map(|entry| entry.unwrap().path());
    assert!(entries.into_iter().all(|path| path.extension().is_none_or(|extension| extension != "partial")));
    assert!(!bench.path("run/report/dev/figures.partial").exists());
}

#[test]
fn runs_are_compared_on_one_page() {
    let bench = Bench::new();
    let page = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
        let output = command.current_dir(bench.folder.path()).arg("runs").args(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(bench.train_to("all/first", &[]).status, 0);
    assert_eq!(bench.train_to("all/second", &["--set", "optimizer.lr=2e-3"]).status, 0);
    let (status, html, err) = page(&["all"]);
    assert_eq!(status, 0, "{err}");
    for shown in ["first", "second", "optimizer.lr", "0.002", "finished after 2 steps", "train/loss"] {
        assert!(html.contains(shown), "{shown}");
    }
    assert!(!html.contains("train.batch_size"), "what is the same in both is not shown");
    let (status, _, err) = page(&["all", "--output", "runs.html"]);
    assert_eq!(status, 0, "{err}");
    let html = fs::read_to_string(bench.path("runs.html")).unwrap();
    assert!(html.contains("all/first/index.html"), "reports are linked");
    // A run whose last line is being written.
    let metrics = bench.path("all/first/metrics.jsonl");
    let whole = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, format!("{whole}{{\"event\":\"tra")).unwrap();
    assert_eq!(page(&["all"]).0, 0);
    fs::create_dir(bench.path("empty")).unwrap();
    let (status, _, err) = page(&["empty"]);
    assert!(status == 1 && err.contains("empty: no run in it"), "{err}");
    let (status, _, err) = page(&["nowhere"]);
    assert!(status == 2 && err.contains("nowhere: no folder"), "{err}");
    let (status, _, err) = page(&["all", "--watch"]);
    assert!(status == 2 && err.contains("--output"), "{err}");
}
