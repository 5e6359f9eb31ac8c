//! Prepares a corpus and shows that memory does not grow with it.
//!
//! ```text
//! cargo run --release -p cloze-data --example prepare_memory -- TOKENIZER CACHE FILE...
//! ```
//!
//! The peak is the kernel's high-water mark of resident memory (`VmHWM`, Linux only). It counts mapped
//! pages too: the finished corpus is mapped, and opening it touches the last page of each boundary file.

use cloze_data::{CorpusConfig, OnError, PreparedCorpus, Progress};
use cloze_tokenizer::Tokenizer;
use std::error::Error;
use std::path::Path;

struct Percent;

impl Progress for Percent {
    fn prepared(&self, read: u64, total: u64, tokens: u64) {
        eprint!("\r{:5.1} %  {tokens} tokens ", 100.0 * read as f64 / total.max(1) as f64);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [tokenizer, cache, files @ ..] = args.as_slice() else {
        return Err("usage: prepare_memory TOKENIZER CACHE FILE...".into());
    };
    let config = CorpusConfig { files: files.to_vec(), on_error: OnError::Skip, ..Default::default() };
    let tokenizer = Tokenizer::load(tokenizer)?;
    let before = peak_memory();
    let (_, report) =
        PreparedCorpus::prepare(&config, Path::new(""), &tokenizer, Path::new(cache), &Percent)?;
    eprintln!();
    println!("documents     {}", report.documents);
    println!("sentences     {}", report.sentences);
    println!("tokens        {}", report.tokens);
    println!(
        "left out      {}",
        if report.skipped.is_empty() { "nothing".into() } else { report.skipped.to_string() }
    );
    println!("reused        {}", report.reused);
    println!("seconds       {:.1}", report.seconds);
    println!("peak memory   {} (with the tokenizer alone: {before})", peak_memory());
    Ok(())
}

/// The most memory that was ever resident, as the kernel words it.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or("unknown".into(), |line| line.trim().into())
}
