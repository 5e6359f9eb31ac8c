//! SentencePiece's `.model`, and Marian's folders of two.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::tokenizers::tokenize;
use crate::campaign::case::{self, Case};
use crate::campaign::mutate;
use crate::step;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    if case.random.one_in(3) {
        return marian(case);
    }
    let name = *case.random.pick(&["unigram", "unigram-bytes", "unigram-plain", "bpe", "bpe-bytes"]);
    let path = step::root().join(format!("crates/tokenizer/tests/data/sentencepiece/{name}.model"));
    let seed = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let damaged = mutate::bytes(&mut case.random, &seed);
    case.write("t/spiece.model", damaged)?;
    tokenize(case, "t")
}

/// One of the files of a Marian folder damaged.
fn marian(case: &mut Case<'_>) -> Result<()> {
    let name = *case.random.pick(&["joint", "separate"]);
    let folder = step::root().join("crates/tokenizer/tests/data/marian").join(name);
    case::copy(&folder, &case.path("t"))?;
    let mut names = vec!["source.spm", "target.spm", "vocab.json", "vocab.json", "tokenizer_config.json"];
    if name == "separate" {
        names.push("target_vocab.json");
    }
    let place = format!("t/{}", case.random.pick(&names));
    let seed = case.read(&place)?;
    let damaged = match serde_json::from_slice::<Value>(&seed) {
        Ok(value) if !case.random.one_in(4) => mutate::json(&mut case.random, &value).into_bytes(),
        _ => mutate::bytes(&mut case.random, &seed),
    };
    case.write(&place, damaged)?;
    tokenize(case, "t")
}
