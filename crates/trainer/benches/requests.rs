//! Requests of many threads beside the same texts as one batch.
//!
//!     cargo bench -p cloze-trainer --bench requests -- embed|fill MODEL TEXTS THREADS ROUNDS
//!     cargo bench -p cloze-trainer --bench requests -- generate MODEL TEXTS THREADS ROUNDS NEW
//!
//! TEXTS is a file with a text a line; for `fill` each has a mask. Prints one JSON line: texts a second as one batch and from
//! THREADS threads through a queue, and the share that the latter is of the former. Rounds alternate.
#![allow(missing_docs)]

use burn::tensor::Device;
use cloze_trainer::embed::{EmbedConfig, EmbedRequest, Embedder};
use cloze_trainer::fill_mask::{FillMask, FillRequest};
use cloze_trainer::generate::{GenerateConfig, GenerateSettings, Generator};
use cloze_trainer::requests::{GenerateRequest, Queue, Respond};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Tokens that a queue computes together.
const BUDGET: usize = 2048;

fn main() {
    // As the program: otherwise it is page faults that are measured.
    cloze_allocator::keep_freed();
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [what, model, texts, threads, rounds, rest @ ..] = &args[..] else {
        // A bare `cargo bench` runs every benchmark.
        return println!("requests: embed|fill|generate MODEL TEXTS THREADS ROUNDS [NEW]");
    };
    let [threads, rounds] = [threads, rounds].map(|n| n.parse().expect("a number"));
    let texts = std::fs::read_to_string(texts).expect("a file of texts");
    let texts: Vec<String> = texts.lines().map(str::to_owned).collect();
    let (model, device): (&Path, _) = (model.as_ref(), Device::flex());
    match what.as_str() {
        "embed" => {
            let embedder = Embedder::load(model, EmbedConfig::default(), &device).expect("a model");
            measure(embedder, texts.into_iter().map(EmbedRequest::of).collect(), threads, rounds);
        }
        "fill" => {
            let filler = FillMask::load(model, &device).expect("a model");
            let request = |text| FillRequest::of(text, 5);
            measure(filler, texts.into_iter().map(request).collect(), threads, rounds);
        }
        "generate" => {
            let generator = Generator::load(model, GenerateConfig::default(), &device).expect("a model");
            let mut settings = GenerateSettings::default();
            settings.decoding.max_new = rest.first().map(|n| n.parse().expect("a number"));
            let request = |text| GenerateRequest { text, settings: settings.clone(), listener: None };
            measure(generator, texts.into_iter().map(request).collect(), threads, rounds);
        }
        other => panic!("`{other}` is not embed, fill or generate"),
    }
}

/// Prints the rates of both ways, the medians of their rounds.
fn measure<R: Respond<Request: Clone + Sync>>(
    model: R,
    requests: Vec<R::Request>,
    threads: usize,
    rounds: usize,
) {
    let queue = Queue::new(model, BUDGET);
    let batch = || {
        let model = queue.model();
        let units: Vec<R::Unit> =
            requests.iter().map(|request| model.encode(request.clone()).expect("a unit")).collect();
        let answers = batches(model, &units).into_iter().flat_map(|units| model.answer(&units));
        answers.for_each(|answer| drop(answer.expect("an answer")));
    };
    let asked = || {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                        drop(queue.ask(request.clone()).expect("an answer"));
                    }
                });
            }
        });
    };
    let mut rates = [Vec::new(), Vec::new()];
    // The first round is not measured.
    for round in 0..=rounds {
        for (work, rates) in [&batch as &dyn Fn(), &asked].into_iter().zip(&mut rates) {
            let begin = Instant::now();
            work();
            if round > 0 {
                rates.push(requests.len() as f64 / begin.elapsed().as_secs_f64());
            }
        }
    }
    let [batch, asked] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    println!("{{\"batch_per_s\":{batch:.1},\"queue_per_s\":{asked:.1},\"share\":{:.3}}}", asked / batch);
}

/// Units in batches of the queue's budget, in their order.
fn batches<'u, R: Respond>(model: &R, units: &'u [R::Unit]) -> Vec<Vec<&'u R::Unit>> {
    let (mut batches, mut taken) = (vec![Vec::new()], 0);
    for unit in units {
        let cost = model.cost(unit);
        if taken > 0 && taken + cost > BUDGET {
            batches.push(Vec::new());
            taken = 0;
        }
        taken += cost;
        batches.last_mut().expect("there is one").push(unit);
    }
    batches
}
