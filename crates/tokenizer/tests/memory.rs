//! Training keeps the distinct words, not the text. Alone in its file: it measures the whole process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::fs;

use cloze_tokenizer::train::WordPieceTrainer;

/// The most memory this process ever had, in kB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Trains on about so many megabytes of lines made on the way, of 5,000 distinct words.
fn train(megabytes: usize) {
    let lines = (0..megabytes * 10_000usize).map(|i| {
        let words = (0..14).map(|j| format!("w{:x}", (i * 31 + j * j * 977) % 5000 + 0x10000));
        words.collect::<Vec<_>>().join(" ")
    });
    let trainer = WordPieceTrainer { vocab_size: 1000, ..Default::default() };
    assert_eq!(trainer.train(lines).unwrap().vocab_size(), 1000);
}

#[test]
fn memory_does_not_grow_with_the_text() {
    train(40);
    let before = peak();
    train(120);
    let grown = peak() - before;
    println!("peak {before} kB after 40 MB of text, {grown} kB more after 120 MB");
    assert!(grown < 24_000, "{grown} kB more than {before} kB");

    // Sixteen million texts of one byte would be a batch of 16 MB, and half a gigabyte of strings.
    let trainer = WordPieceTrainer { vocab_size: 100, ..Default::default() };
    trainer.train((0..16_000_000).map(|_| "a".to_string())).unwrap();
    let grown = peak() - before;
    println!("{grown} kB more after many short texts");
    assert!(grown < 64_000, "{grown} kB more than {before} kB for many short texts");
}
