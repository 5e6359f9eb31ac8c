//! A long text is read as far as it matters. Alone in its file: it measures the whole process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::fs;

use cloze_tokenizer::{Sequence, Tokenizer, Truncation, train::WordPieceTrainer};

/// The most memory this process ever had, in kB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn tokenizer() -> Tokenizer {
    let trainer = WordPieceTrainer { vocab_size: 60, ..Default::default() };
    let mut tokenizer = trainer.train(["the old sailor sails the old sea"]).unwrap();
    tokenizer.set_truncation(Some(Truncation::to(512))).unwrap();
    tokenizer.set_keep_overflow(false);
    tokenizer
}

#[test]
fn memory_does_not_grow_with_a_text() {
    let tokenizer = tokenizer();
    let text = "the old sea, 中文 é ".repeat(1 << 21);
    let short = tokenizer.encode(&text[..text.floor_char_boundary(20_000)], true).unwrap();
    let before = peak();
    assert_eq!(tokenizer.encode(&text, true).unwrap(), short);
    assert_eq!(tokenizer.encode_ids(&text, true).unwrap(), short.ids);
    assert_eq!(tokenizer.encode_batch(&[&text, &text], true).unwrap()[1], short);
    let beginning = Sequence::Beginning(&text);
    assert_eq!(tokenizer.encode_input(beginning, true, Default::default()).unwrap(), short);
    let grown = peak() - before;
    assert!(grown < 8_000, "{grown} kB more than {before} kB for {} bytes", text.len());
}
