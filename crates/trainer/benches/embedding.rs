//! Sentence embeddings.
//!
//!     cargo bench -p cloze-trainer --bench embedding -- WORK MODEL WHAT ROUNDS f32|bf16|int8
//!
//! `sentences` embeds the lines of the file WHAT, and `each` one line at a time; `latency` makes one forward pass over WHAT tokens;
//! `start` loads the model and embeds one sentence, in a process of its own; `similarity` embeds pairs of
//! sentences with a score (WHAT is tab-separated: score, sentence, sentence) and prints Spearman's
//! coefficient of the scores and the cosines. Prints one JSON line. `cargo xtask bench infer` runs it
//! beside its peers.
#![allow(missing_docs)]

mod common;

use burn::tensor::Device;
use cloze_evaluation::correlation::spearman;
use cloze_model::ParamInit;
use cloze_model::bert::BertInput;
use cloze_model::blocks::{pack_weights, quantize_int8};
use cloze_model::huggingface::PretrainedFolder;
use cloze_model::ops::{Precision, on_awake_cores, with_precision};
use cloze_trainer::embed::{EmbedConfig, Embedder};
use std::path::Path;
use std::time::Instant;

fn main() {
    // As the program: otherwise it is page faults that are measured.
    cloze_allocator::keep_freed();
    rayon::ThreadPoolBuilder::new().use_current_thread().build_global().expect("threads");
    let begin = Instant::now();
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [work, model, what, rounds, precision] = &args[..] else {
        // A bare `cargo bench` runs every benchmark.
        return println!("embedding: WORK MODEL WHAT ROUNDS f32|bf16|int8");
    };
    let (folder, rounds): (&Path, usize) = (model.as_ref(), rounds.parse().expect("a number of rounds"));
    let (precision, int8) = match precision.as_str() {
        "f32" => (Precision::Fp32, false),
        "bf16" => (Precision::Bf16, false),
        "int8" => (Precision::Fp32, true),
        other => panic!("`{other}` is not f32, bf16 or int8"),
    };
    with_precision(precision, || measure(work, folder, what, rounds, int8, begin));
}

/// Does the work and prints how long it took, `begin` being when the process began.
fn measure(work: &str, folder: &Path, what: &str, rounds: usize, int8: bool, begin: Instant) {
    let device = Device::flex();
    let embedder = || {
        let config = EmbedConfig { int8, normalize: Some(true), ..EmbedConfig::default() };
        Embedder::load(folder, config, &device).expect("a model")
    };
    match work {
        "sentences" => {
            let text = std::fs::read_to_string(what).expect("a file of sentences");
            let sentences: Vec<&str> = text.lines().collect();
            let embedder = embedder();
            report(timed(rounds, || drop(embedder.embed(&sentences).expect("embeddings"))), sentences.len());
        }
        "each" => {
            let text = std::fs::read_to_string(what).expect("a file of sentences");
            let (mut next, embedder) = (text.lines().cycle(), embedder());
            let mut one = || drop(embedder.embed(next.next().as_slice()).expect("an embedding"));
            report(timed(rounds * text.lines().count(), &mut one), 1);
        }
        "latency" => {
            let pretrained = PretrainedFolder::open(folder).expect("a model");
            let (_, mut model, _) =
                pretrained.load_encoder(&mut ParamInit::new(&device, 0)).expect("an encoder");
            if int8 {
                quantize_int8(&mut model);
            } else {
                pack_weights(&mut model);
            }
            let n: i32 = what.parse().expect("a number of tokens");
            let ids: Vec<i32> = (1000..1000 + n).collect();
            let pass = || {
                let input = BertInput::packed(&ids, &[ids.len()], &device);
                drop(model.forward(input).last_hidden_state.into_data());
            };
            // As an `Embedder` does: the other cores look for work throughout the pass.
            report(timed(rounds, || on_awake_cores(&device, pass)), 1);
        }
        "start" => {
            embedder().embed(&[what]).expect("embeddings");
            report(vec![begin.elapsed().as_secs_f64()], 1);
        }
        "similarity" => {
            let text = std::fs::read_to_string(what).expect("a file of pairs");
            let rows = text.lines().filter_map(|line| {
                let mut fields = line.split('\t');
                Some((fields.next()?.parse::<f64>().ok()?, fields.next()?, fields.next()?))
            });
            let rows: Vec<_> = rows.collect();
            let embedder = embedder();
            let [a, b] = [|row: &(f64, _, _)| row.1, |row: &(f64, _, _)| row.2].map(|side| {
                embedder.embed(&rows.iter().map(side).collect::<Vec<&str>>()).expect("embeddings").values
            });
            let width = embedder.width();
            let cosine = |(a, b): (&[f32], &[f32])| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum();
            let cosines: Vec<f64> = a.chunks_exact(width).zip(b.chunks_exact(width)).map(cosine).collect();
            let scores: Vec<f64> = rows.iter().map(|row| row.0).collect();
            println!(
                "{{\"ms\":0,\"per_s\":0,\"peak_mb\":0,\"pairs\":{},\"spearman\":{:.5}}}",
                rows.len(),
                spearman(&scores, &cosines)
            );
        }
        other => panic!("`{other}` is not sentences, each, latency, start or similarity"),
    }
}

/// Seconds of each round, after one that is not measured.
fn timed(rounds: usize, mut work: impl FnMut()) -> Vec<f64> {
    work();
    let round = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..rounds).map(round).collect()
}

fn report(times: Vec<f64>, units: usize) {
    let median = common::median(times);
    println!(
        "{{\"ms\":{:.3},\"per_s\":{:.1},\"peak_mb\":{:.1}}}",
        median * 1e3,
        units as f64 / median,
        common::peak_megabytes()
    );
}
