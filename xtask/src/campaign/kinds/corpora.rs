//! Corpora: plain, JSON lines, Parquet, gzip and Zstandard.

use std::fs;

use anyhow::{Context, Result};
use serde_json::json;

use crate::campaign::case::Case;
use crate::campaign::formats::{self, parquet, zstd};
use crate::campaign::mutate;
use crate::campaign::program::Attempt;
use crate::campaign::world;
use crate::campaign::world::SHORT;
use crate::step;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let text = world::corpus(4);
    let lines = text.lines().map(|line| json!({"text": line}).to_string() + "\n").collect::<String>();
    let rows: Vec<Vec<String>> = text.lines().map(|line| vec![line.to_owned()]).collect();
    let (name, file) = match case.random.below(9) {
        0 => ("c.txt", mutate::text(&mut case.random, &text)),
        1 => ("c.jsonl", mutate::text(&mut case.random, &lines)),
        2 => ("c.parquet", mutate::bytes(&mut case.random, &parquet::file(&["text"], &rows))),
        3 => ("c.txt.gz", mutate::bytes(&mut case.random, &formats::gzip(text.as_bytes()))),
        4 => ("c.txt.zst", mutate::bytes(&mut case.random, &zstd::stored(text.as_bytes()))),
        5 => {
            let path = step::root().join("datasets/sotu.txt.zst");
            let frame = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let block = zstd::first_block(&frame).context("the sample has no first block")?;
            ("c.txt.zst", mutate::bytes(&mut case.random, &block))
        }
        6 => ("c.txt.gz", formats::gzip(&mutate::text(&mut case.random, &text))),
        7 => ("c.jsonl.zst", zstd::stored(&mutate::text(&mut case.random, &lines))),
        // Another ending than what it is.
        _ => {
            let name = *case.random.pick(&["c.parquet", "c.jsonl", "c.txt.gz", "c.txt.zst"]);
            (name, mutate::text(&mut case.random, &text))
        }
    };
    case.write(name, file)?;
    let attempt = match case.random.below(4) {
        0 => {
            case.world.bring_data(case)?;
            let files = format!("corpus.files=[{name:?}]");
            let mut args =
                vec!["train", "seeds/pretrain.toml", "--out", "out", "--set", SHORT.0, "--set", &files];
            if case.random.one_in(2) {
                args.extend(["--set", "corpus.on_error=\"skip\""]);
            }
            Attempt::new(args)
        }
        _ => {
            let model = *case.random.pick(&["wordpiece", "bpe", "byte-bpe"]);
            Attempt::new([
                "tokenizer",
                "train",
                "--model",
                model,
                "--vocab-size",
                "300",
                "--out",
                "out",
                name,
            ])
        }
    };
    case.run(attempt.seconds(30))?;
    Ok(())
}
