//! Requests of 64 threads, each with one sentence, beside the same sentences embedded at once.
//!
//!     cargo bench -p cloze-trainer --bench requests --features flex -- MODEL FILE ROUNDS
//!
//! Embeds the lines of FILE in both ways by turns, and prints the median rates and their ratio. A rate is of sentences a second.
#![allow(missing_docs)]

use burn::tensor::Device;
use cloze_trainer::embed::{EmbedConfig, EmbedRequest, Embedder};
use cloze_trainer::requests::Queue;
use std::path::Path;
use std::thread;
use std::time::Instant;

/// Threads that ask.
const THREADS: usize = 64;
/// Tokens that are computed at a time.
const BUDGET: usize = 1_024;

fn main() {
    cloze_allocator::keep_freed();
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [model, file, rounds] = &args[..] else {
        // A bare `cargo bench` runs every benchmark.
        return println!("requests: MODEL FILE ROUNDS");
    };
    let text = std::fs::read_to_string(file).expect("a file of sentences");
    let sentences: Vec<&str> = text.lines().collect();
    let folder: &Path = model.as_ref();
    let embedder = || Embedder::load(folder, EmbedConfig::default(), &Device::flex()).expect("a model");
    let (whole, queue) = (embedder(), Queue::new(embedder(), BUDGET));
    let rate = |work: &dyn Fn()| {
        let start = Instant::now();
        work();
        sentences.len() as f64 / start.elapsed().as_secs_f64()
    };
    let at_once = || drop(whole.embed(&sentences).expect("embeddings"));
    let asked = || {
        thread::scope(|scope| {
            for part in sentences.chunks(sentences.len().div_ceil(THREADS)) {
                let queue = &queue;
                let ask = |text: &&str| drop(queue.ask(EmbedRequest::of(*text)).expect("an embedding"));
                scope.spawn(move || part.iter().for_each(ask));
            }
        });
    };
    let rounds: usize = rounds.parse().expect("a number of rounds");
    let (mut together, mut apart) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        together.push(rate(&at_once));
        apart.push(rate(&asked));
    }
    let [together, apart] = [together, apart].map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    println!("at once {together:.0}/s, {THREADS} threads {apart:.0}/s, ratio {:.3}", apart / together);
}
