//! Small files that become huge, names that lead elsewhere, links.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::Result;

use crate::campaign::case::Case;
use crate::campaign::formats::{self, zip, zstd};
use crate::campaign::program::Attempt;
use crate::campaign::world::SHORT;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    match case.random.below(4) {
        0 | 1 => bomb(case),
        2 => links(case),
        _ => members(case),
    }
}

/// A corpus or labelled data of a gigabyte in a few kilobytes.
fn bomb(case: &mut Case<'_>) -> Result<()> {
    let unit = case.random.pick(&["\0", "x", "\n", "a\n", "{\"text\": \"a\"}\n", "word "]).to_string();
    let size = if case.random.one_in(8) { 256 << 20 } else { 16 << 20 };
    let (name, bytes) = match case.random.below(3) {
        0 => ("c.txt.zst", zstd::bomb(unit.as_bytes()[0], 4 * size)),
        1 => ("c.jsonl.gz", formats::gzip_bomb(unit.as_bytes(), size)),
        _ => ("c.txt.gz", formats::gzip_bomb(unit.as_bytes(), size)),
    };
    let bytes = if case.random.one_in(4) { formats::gzip(&bytes) } else { bytes };
    case.write(name, bytes)?;
    let attempt = match case.random.below(3) {
        0 => {
            case.world.bring_data(case)?;
            let files = format!("corpus.files=[{name:?}]");
            Attempt::new(["train", "seeds/pretrain.toml", "--out", "out", "--set", SHORT.0, "--set", &files])
        }
        _ => Attempt::new([
            "tokenizer",
            "train",
            "--model",
            "wordpiece",
            "--vocab-size",
            "100",
            "--out",
            "out",
            name,
        ]),
    };
    case.run(attempt.megabytes(700).seconds(120))?;
    Ok(())
}

/// A model's folder with links and folders in the place of files.
fn links(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/mlm", "model")?;
    let name = *case.random.pick(&["config.json", "model.safetensors", "tokenizer.json"]);
    let path = case.path("model").join(name);
    fs::remove_file(&path)?;
    match case.random.below(6) {
        0 => symlink(name, &path)?,
        1 => symlink("/dev/null", &path)?,
        2 => symlink("nowhere", &path)?,
        3 => fs::create_dir(&path)?,
        4 => symlink("..", &path)?,
        _ => fs::write(&path, "")?,
    }
    let attempt = match case.random.below(3) {
        0 => Attempt::new(["convert", "--model", "model", "--out", "out"]),
        1 => Attempt::new(["fill-mask", "--model", "model", "the [MASK]"]),
        _ => Attempt::new(["embed", "--model", "model"]).input("the law\n"),
    };
    let ran = case.run(attempt.seconds(20))?;
    case.expect(!ran.succeeded(), format!("exit status 0 without a {name}"));
    Ok(())
}

/// Weights in an archive whose members have names that lead out of it.
fn members(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/mlm", "model")?;
    fs::remove_file(case.path("model/model.safetensors"))?;
    let name = *case.random.pick(&[
        "../../escaped",
        "/tmp/cloze-campaign-escaped",
        "a/../../escaped",
        "..\\escaped",
        "a\0b",
    ]);
    let mut list =
        vec![(format!("{name}/data.pkl"), b"\x80\x02}q\x00.".to_vec()), (name.to_owned(), vec![0; 64])];
    let many = *case.random.pick(&[0, 10, 60_000]);
    list.extend((0..many).map(|i| (format!("a/data/{i}"), Vec::new())));
    case.write("model/pytorch_model.bin", zip::archive(&list))?;
    case.run(Attempt::new(["convert", "--model", "model", "--out", "out"]).seconds(20))?;
    let escaped = ["../escaped", "../../escaped", "escaped", "/tmp/cloze-campaign-escaped"];
    for path in escaped {
        case.expect(!case.path(path).exists(), format!("a member was written to {path}"));
    }
    Ok(())
}
