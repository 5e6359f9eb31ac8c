//! Training 30,000 pieces beside the `tokenizers` crate, on all threads, on the files given after `--` or on
//! the corpora found in `shared/`: `cargo bench -p cloze-tokenizer --bench training [-- FILE...]`. Medians
//! of five runs of ours and three of theirs.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use cloze_tokenizer::{
    Tokenizer,
    train::{BpeTrainer, TrainProgress, WordPieceScore, WordPieceTrainer},
};
use tokenizers::models::{TrainerWrapper, bpe, wordpiece};

/// The median of an odd number of times.
fn median(runs: usize, mut work: impl FnMut() -> Duration) -> f64 {
    let mut times: Vec<_> = (0..runs).map(|_| work()).collect();
    times.sort_unstable();
    times[runs / 2].as_secs_f64()
}

/// Counting, and all of it.
fn ours(train: impl Fn(&mut dyn FnMut(TrainProgress)) -> cloze_tokenizer::Result<Tokenizer>) -> (f64, f64) {
    let mut counting = Vec::new();
    let whole = median(5, || {
        let start = Instant::now();
        let mut counted = Duration::ZERO;
        let trained = train(&mut |progress| {
            if let TrainProgress::Counting { .. } = progress {
                counted = start.elapsed();
            }
        });
        assert!(trained.is_ok_and(|tokenizer| tokenizer.vocab_size() == PIECES), "a full vocabulary");
        counting.push(counted);
        start.elapsed()
    });
    counting.sort_unstable();
    (counting[2].as_secs_f64(), whole)
}

/// The same stages as those of `like`, trained by the reference.
fn theirs(like: &Tokenizer, trainer: &TrainerWrapper, lines: &[&str]) -> f64 {
    median(3, || {
        let mut reference: tokenizers::Tokenizer = like.to_json().parse().expect("a file of ours");
        let mut trainer = trainer.clone();
        let start = Instant::now();
        reference.train(&mut trainer, lines.iter()).expect("a vocabulary");
        start.elapsed()
    })
}

const PIECES: usize = 30_000;

fn main() {
    let mut files: Vec<PathBuf> =
        std::env::args().skip(1).filter(|a| !a.starts_with("--")).map(Into::into).collect();
    if files.is_empty() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/corpus");
        let found = fs::read_dir(folder).into_iter().flatten().flatten();
        files = found.map(|file| file.path()).collect();
        files.sort();
    }
    let texts: Result<Vec<String>, _> = files.iter().map(fs::read_to_string).collect();
    let text = match texts {
        Ok(texts) if !texts.is_empty() => texts.join("\n"),
        Ok(_) => return println!("skipped: no shared/data/corpus beside the repository"),
        Err(error) => return println!("skipped: {error}"),
    };
    let lines: Vec<&str> = text.lines().collect();
    println!(
        "{PIECES} pieces of {:.1} MB of text, {} threads",
        text.len() as f64 / 1e6,
        rayon::current_num_threads()
    );
    println!("{:<24} {:>10} {:>10} {:>10} {:>8}", "", "counting", "in all", "tokenizers", "");
    let report = |what: &str, (counting, whole): (f64, f64), theirs: Option<f64>| {
        let theirs = theirs.map_or(String::new(), |t| format!("{t:>8.2} s {:>7.1}x", t / whole));
        println!("{what:<24} {counting:>8.2} s {whole:>8.2} s {theirs}");
    };

    // Small ones, for their stages; what they would cut out of the text goes.
    let stages = |tokenizer: cloze_tokenizer::Result<Tokenizer>| {
        let tokenizer = tokenizer.expect("a vocabulary");
        let mut bare = Tokenizer::new(tokenizer.model().clone());
        if let Some(normalizer) = tokenizer.normalizer() {
            bare = bare.with_normalizer(normalizer.clone()).expect("no added tokens");
        }
        bare.with_pre_tokenizer(tokenizer.pre_tokenizer().expect("one of its own").clone())
    };
    let special =
        |names: &[String]| names.iter().map(|n| tokenizers::AddedToken::from(n.as_str(), true)).collect();

    let wordpiece = WordPieceTrainer { vocab_size: PIECES, ..Default::default() };
    let like = stages(WordPieceTrainer { vocab_size: 100, ..wordpiece.clone() }.train(["a"]));
    let trainer = wordpiece::WordPieceTrainer::builder()
        .vocab_size(PIECES)
        .show_progress(false)
        .special_tokens(special(&wordpiece.special_tokens))
        .build();
    report(
        "WordPiece",
        ours(|progress| wordpiece.train_with(lines.iter().copied(), progress)),
        Some(theirs(&like, &trainer.into(), &lines)),
    );
    let likelihood = WordPieceTrainer { score: WordPieceScore::Likelihood, ..wordpiece };
    report(
        "WordPiece by likelihood",
        ours(|progress| likelihood.train_with(lines.iter().copied(), progress)),
        None,
    );

    let bytes = BpeTrainer { vocab_size: PIECES, ..Default::default() };
    let like = stages(BpeTrainer { vocab_size: 300, ..bytes.clone() }.train(["a"]));
    let trainer = bpe::BpeTrainer::builder()
        .vocab_size(PIECES)
        .show_progress(false)
        .special_tokens(special(&bytes.special_tokens))
        .initial_alphabet(tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet().into_iter().collect())
        .build();
    report(
        "byte-level BPE",
        ours(|progress| bytes.train_with(lines.iter().copied(), progress)),
        Some(theirs(&like, &trainer.into(), &lines)),
    );
}
