//! Odd values of every flag, and of the environment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use anyhow::Result;

use super::question;
use crate::campaign::case::Case;
use crate::campaign::mutate::{self, ODD};
use crate::campaign::program::Attempt;

/// Commands with a flag, whose value comes last.
const FLAGS: [&[&str]; 31] = [
    &["fill-mask", "--model", "mlm", "the [MASK]", "--top-k"],
    &["embed", "--model", "mlm", "--batch-tokens"],
    &["embed", "--model", "mlm", "--pooling"],
    &["embed", "--model", "mlm", "--format"],
    &["embed", "--device"],
    &["embed", "--model"],
    &["predict", "--model", "answers", "--n-best"],
    &["predict", "--model", "answers", "--input"],
    &["predict", "--model", "answers", "--output"],
    &["tokenizer", "train", "--model", "wordpiece", "--out", "t", "seeds/corpus.txt", "--vocab-size"],
    &["tokenizer", "train", "--model", "bpe", "--out", "t", "seeds/corpus.txt", "--vocab-size"],
    &["tokenizer", "train", "--model", "byte-bpe", "--out", "t", "seeds/corpus.txt", "--vocab-size"],
    &[
        "tokenizer",
        "train",
        "--model",
        "wordpiece",
        "--vocab-size",
        "100",
        "--out",
        "t",
        "seeds/corpus.txt",
        "--min-frequency",
    ],
    &[
        "tokenizer",
        "train",
        "--model",
        "bpe",
        "--vocab-size",
        "100",
        "--out",
        "t",
        "seeds/corpus.txt",
        "--limit-alphabet",
    ],
    &[
        "tokenizer",
        "train",
        "--model",
        "wordpiece",
        "--vocab-size",
        "100",
        "--out",
        "t",
        "seeds/corpus.txt",
        "--max-token-chars",
    ],
    &["tokenizer", "encode", "--tokenizer"],
    &["convert", "--model", "mlm", "--out", "c", "--max-shard-size"],
    &["convert", "--model", "mlm", "--dtype", "bf16", "--out"],
    &["train", "seeds/classification.toml", "--set", "train.epochs=1", "--out", "o", "--profile"],
    &["train", "seeds/classification.toml", "--set", "train.epochs=1", "--out", "o", "--seeds"],
    &["train", "seeds/classification.toml", "--set"],
    &["train"],
    &["eval", "--model", "classification", "seeds/classification.toml", "--split"],
    &["pull"],
    &["completions"],
    &["devices"],
    &["embed", "--model", "mlm", "--max-line-bytes"],
    &["predict", "--model", "answers", "--max-line-bytes"],
    &["fill-mask", "--model", "mlm", "--max-line-bytes"],
    &["tokenizer", "encode", "--tokenizer", "mlm", "--max-line-bytes"],
    &["tokenizer", "decode", "--tokenizer", "mlm", "--max-line-bytes"],
];

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.world.bring_data(case)?;
    for model in ["mlm", "answers", "classification"] {
        case.bring(&format!("models/{model}"), model)?;
    }
    let input = question("answers", "the law of Rome");
    let offline = |attempt: Attempt| {
        attempt.environment("HF_HOME", "hf").environment("HF_HUB_OFFLINE", "1").seconds(20)
    };
    if case.random.one_in(10) {
        let threads = *case.random.pick(&[
            "0",
            "1",
            "-1",
            "x",
            "3",
            "500",
            "60000",
            "1000000000",
            "99999999999999999999",
        ]);
        let attempt = Attempt::new(["embed", "--model", "mlm"])
            .input("the law\n")
            .environment("RAYON_NUM_THREADS", threads);
        case.run(offline(attempt))?;
        return Ok(());
    }
    let flag = *case.random.pick(&FLAGS);
    let value: OsString = match case.random.below(8) {
        0 => OsString::from_vec(b"bad\xff\xfename".to_vec()),
        1 | 2 => ODD[case.random.below(ODD.len())].replace('\0', "\u{1}").into(),
        3 => "x".repeat(100_000).into(),
        _ => mutate::extreme(&mut case.random).into(),
    };
    let attempt = Attempt::new(flag.iter().copied()).arg(value).input(input);
    case.run(offline(attempt))?;
    Ok(())
}
