//! SentencePiece's `.model`.

use std::fs;

use anyhow::{Context, Result};

use super::tokenizers::tokenize;
use crate::campaign::case::Case;
use crate::campaign::mutate;
use crate::step;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let name = *case.random.pick(&["unigram", "unigram-bytes", "unigram-plain", "bpe", "bpe-bytes"]);
    let path = step::root().join(format!("crates/tokenizer/tests/data/sentencepiece/{name}.model"));
    let seed = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let damaged = mutate::bytes(&mut case.random, &seed);
    case.write("t/spiece.model", damaged)?;
    tokenize(case, "t")
}
