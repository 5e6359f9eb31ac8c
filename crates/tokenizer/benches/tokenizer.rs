//! Speed beside the `tokenizers` crate, on one thread, on a text given after `--` or found in `shared/`:
//! `cargo bench -p cloze-tokenizer [-- FILE]`. Lines in, ids out; the best of three.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use cloze_tokenizer::{
    Tokenizer,
    train::{BpeTrainer, WordPieceTrainer},
};

fn best(mut work: impl FnMut()) -> Duration {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..3).map(time).min().unwrap_or_default()
}

fn main() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let file = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let file = file.map_or(shared.join("data/corpus/sotu.txt"), Into::into);
    let Ok(text) = fs::read_to_string(&file) else {
        println!("skipped: cannot read {}", file.display());
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    let report = |what: &str, time: Duration| {
        let seconds = time.as_secs_f64();
        println!("{what:<44} {seconds:7.3} s {:8.1} MB/s", text.len() as f64 / 1e6 / seconds);
    };

    report(
        "train WordPiece, 4,096 pieces",
        best(|| {
            let trainer = WordPieceTrainer { vocab_size: 4096, ..Default::default() };
            trainer.train(lines.iter().copied()).expect("a vocabulary");
        }),
    );
    report(
        "train byte-level BPE, 4,096 pieces",
        best(|| {
            let trainer = BpeTrainer { vocab_size: 4096, ..Default::default() };
            trainer.train(lines.iter().copied()).expect("a vocabulary");
        }),
    );

    for path in ["models/all-MiniLM-L6-v2", "tokenizers/gpt2"] {
        let Ok(mut ours) = Tokenizer::load(shared.join(path)) else {
            println!("skipped: no shared/{path} beside the repository");
            continue;
        };
        ours.set_truncation(None).expect("no truncation");
        ours.set_padding(None).expect("no padding");
        report(
            &format!("{path}: encode_into"),
            best(|| {
                let (mut ids, mut starts) = (Vec::new(), Vec::new());
                for line in &lines {
                    ids.clear();
                    starts.clear();
                    ours.encode_into(line, &mut ids, &mut starts);
                }
            }),
        );
        report(
            &format!("{path}: encode"),
            best(|| {
                for line in &lines {
                    std::hint::black_box(ours.encode(line, true));
                }
            }),
        );
        for (what, unit) in [("one word", "ab"), ("spaces", "  "), ("one emoji", "🙂")] {
            let megabytes = [1, 10].map(|n| unit.repeat((n << 20) / unit.len()));
            let times = megabytes.map(|text| {
                let start = Instant::now();
                ours.encode_into(&text, &mut Vec::new(), &mut Vec::new());
                start.elapsed().as_secs_f64()
            });
            println!("    1 and 10 MB of {what}: {:.3} and {:.3} s", times[0], times[1]);
        }
        let reference: tokenizers::Tokenizer = ours.to_json().parse().expect("a file of ours");
        report(
            &format!("{path}: tokenizers encode_fast"),
            best(|| {
                for line in &lines {
                    std::hint::black_box(reference.encode_fast(*line, true).expect("an encoding"));
                }
            }),
        );
    }
    let json = shared.join("models/all-MiniLM-L6-v2/tokenizer.json");
    if json.exists() {
        let time = best(|| {
            std::hint::black_box(Tokenizer::load(&json).expect("a tokenizer"));
        });
        println!("load tokenizer.json of 30,522 pieces: {:.1} ms", time.as_secs_f64() * 1e3);
    }
}
