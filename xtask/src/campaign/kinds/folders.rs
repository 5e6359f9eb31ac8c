//! Folders with something of the user's in them, or of another run's.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use anyhow::Result;

use crate::campaign::case::{self, Case};
use crate::campaign::program::{Attempt, Signal, When};
use crate::campaign::world::RUNS;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.world.bring_data(case)?;
    match case.random.below(6) {
        0 | 1 => users_files(case),
        2 => foreign_tokenizer(case),
        3 => an_earlier_run(case),
        4 => a_link(case),
        _ => results(case),
    }
}

/// All files below a folder with their bytes.
fn contents(case: &Case<'_>, folder: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let root = case.path(folder);
    let files = case::files(&root).into_iter().filter(|path| root.join(path).is_file());
    files.map(|path| (path.clone(), fs::read(root.join(&path)).unwrap_or_default())).collect()
}

fn expect_survival(case: &mut Case<'_>, folder: &str, before: &BTreeMap<PathBuf, Vec<u8>>) {
    let after = contents(case, folder);
    for (path, bytes) in before {
        let found = after.get(path);
        let what = if found.is_none() { "gone" } else { "overwritten" };
        case.expect(found == Some(bytes), format!("the user's own {} is {what}", path.display()));
    }
}

/// A folder of the user's own, given as `--out`.
fn users_files(case: &mut Case<'_>) -> Result<()> {
    let names = [
        "model/notes.txt",
        "model/model.safetensors",
        "config.toml",
        "curve.svg",
        "checkpoints/step-00000001/x",
        "result.json",
        "held-out.json",
        "tensorboard/mine",
        "notes.txt",
        "report/dev/mine.txt",
        "seeds.json",
        "seed-1/mine",
    ];
    for _ in 0..1 + case.random.below(3) {
        let name = *case.random.pick(&names);
        case.write(format!("mine/{name}"), "the user's own\n")?;
    }
    let before = contents(case, "mine");
    let run = &RUNS[case.random.below(RUNS.len())];
    let attempt = match case.random.below(5) {
        0 => Attempt::new(["convert", "--model", "seeds/mlm", "--out", "mine"]),
        1 => Attempt::new([
            "train",
            "seeds/classification.toml",
            "--out",
            "mine",
            "--set",
            "train.epochs=1",
            "--seeds",
            "1",
        ]),
        2 => run.attempt("mine").arg("--resume"),
        _ => run.attempt("mine"),
    };
    case.run(attempt)?;
    expect_survival(case, "mine", &before);
    Ok(())
}

/// Another corpus's tokenizer lies in a run's folder: a run of the folder's own gives what it gives elsewhere.
fn foreign_tokenizer(case: &mut Case<'_>) -> Result<()> {
    let run = &RUNS[case.random.below(4)];
    let (whole, _) = case.world.whole(run)?;
    let foreign = case.world.read("seeds/tokenizers/byte-bpe/tokenizer.json")?;
    case.write("out/tokenizer.json", foreign)?;
    let ran = case.run(run.attempt("out"))?;
    if ran.succeeded() {
        case.expect_same(
            &whole.join("model"),
            &case.path("out/model"),
            "a foreign tokenizer.json was used without a word",
        );
    }
    Ok(())
}

/// A run of another corpus or of other keys that ended before its first step.
fn an_earlier_run(case: &mut Case<'_>) -> Result<()> {
    let run = &RUNS[0];
    let (whole, _) = case.world.whole(run)?;
    let other = *case.random.pick(&[
        "corpus.files=[\"seeds/other.txt\"]",
        "tokenizer.vocab_size=60",
        "tokenizer.lowercase=false",
    ]);
    let earlier = run.attempt("out").arg("--set").arg(other);
    let earlier = match case.random.below(2) {
        0 => earlier.ending(When::Exists("out/tokenizer.json".into()), Signal::Kill),
        // It ends by itself, over its corpus.
        _ => earlier.arg("--set").arg("eval.heldout_fraction=0.9999"),
    };
    case.unjudged(earlier)?;
    if case.path("out/metrics.jsonl").exists() {
        return Ok(());
    }
    let ran = case.run(run.attempt("out"))?;
    if ran.succeeded() {
        case.expect_same(
            &whole.join("model"),
            &case.path("out/model"),
            format!("what an earlier run of {other} left was used without a word"),
        );
    }
    Ok(())
}

/// A link of the user's where a run puts its result.
fn a_link(case: &mut Case<'_>) -> Result<()> {
    case.write("precious/notes.txt", "the user's own\n")?;
    fs::create_dir_all(case.path("out"))?;
    let name = *case.random.pick(&["model", "checkpoints", "tensorboard", "config.toml", "metrics.jsonl"]);
    let target = if name.contains('.') { "../precious/notes.txt" } else { "../precious" };
    symlink(target, case.path("out").join(name))?;
    let before = contents(case, "precious");
    let run = &RUNS[case.random.below(RUNS.len())];
    case.run(run.attempt("out"))?;
    expect_survival(case, "precious", &before);
    let link = fs::symlink_metadata(case.path("out").join(name));
    case.expect(link.is_ok_and(|found| found.is_symlink()), format!("the user's own link {name} is gone"));
    Ok(())
}

/// Results that are asked for where they cannot be.
fn results(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/classification", "model")?;
    case.write("mine.txt", "the user's own\n")?;
    let out = *case.random.pick(&["mine.txt", "mine.txt/below", "no/such/folder/out", ".", ""]);
    let attempt = match case.random.below(6) {
        0 => Attempt::new(["predict", "--model", "model", "--output", out]).input("\"a\"\n"),
        1 => Attempt::new(["eval", "--model", "model", "seeds/classification.toml", "--out", out]),
        2 => Attempt::new([
            "tokenizer",
            "train",
            "--model",
            "bpe",
            "--vocab-size",
            "50",
            "seeds/corpus.txt",
            "--out",
            out,
        ]),
        3 => Attempt::new(["convert", "--model", "model", "--out", out]),
        4 => Attempt::new(["train", "seeds/classification.toml", "--set", "train.epochs=1", "--out", out]),
        _ => Attempt::new(["pull", "no/model", "--out", out])
            .environment("HF_HOME", "hf")
            .environment("HF_HUB_OFFLINE", "1"),
    };
    let replaces = attempt.args[0] == "predict";
    case.run(attempt)?;
    let kept = fs::read(case.path("mine.txt")).ok();
    case.expect(
        replaces || kept.as_deref() == Some(b"the user's own\n"),
        "the user's own mine.txt is overwritten",
    );
    Ok(())
}
