//! Fused attention on sequences of one length.
//!
//!     cargo bench -p cloze-ops --features flex --bench attention -- [THREADS] [ROUNDS]
//!     cargo bench -p cloze-ops --features flex --bench attention -- step LEN f32|bf16 WINDOW|all [ROUNDS]
//!
//! The first form has the shapes of BERT-mini, BERT-base and MiniLM-L6, in FP32. It prints milliseconds, the best of the rounds, in which all lengths take turns: of the forward pass without
//! gradients, and of the forward and the backward pass without and with dropout; and for each the thousands of
//! millions of operations a second of its matrix products (two in the forward pass, four in the backward pass; an
//! addition and a multiplication are two operations).
//!
//! The second form is what `cargo xtask bench attention` runs beside PyTorch: forward and backward pass over 8,192
//! tokens in sequences of a length, 4 heads of 64 features, without dropout. It prints one JSON line, with the best of
//! the rounds and by how much the process grew for inputs, results and all between. `RAYON_NUM_THREADS` sets the
//! threads.
#![allow(missing_docs)]

use burn::tensor::{Device, Distribution, Tensor};
use cloze_ops::{AttentionMask, Precision, attention, with_precision};
use std::hint::black_box;
use std::time::Instant;

/// Model, sequences, heads, length, size of a head.
const SHAPES: [(&str, [usize; 4]); 8] = [
    ("mini", [32, 4, 64, 64]),
    ("mini", [16, 4, 128, 64]),
    ("minilm", [64, 12, 25, 32]),
    ("minilm", [16, 12, 100, 32]),
    ("minilm", [16, 12, 172, 32]),
    ("minilm", [16, 12, 384, 32]),
    ("base", [8, 12, 128, 64]),
    ("base", [4, 12, 512, 64]),
];

fn main() {
    // As the program: otherwise it is page faults that are measured.
    cloze_allocator::keep_freed();
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |i: usize, default: usize| args.get(i).map_or(default, |a| parse(a));
    if args.first().is_some_and(|form| form == "step") {
        let [_, len, precision, window, ..] = &args[..] else {
            panic!("usage: step LEN f32|bf16 WINDOW|all [ROUNDS]");
        };
        let precision = match precision.as_str() {
            "f32" => Precision::Fp32,
            "bf16" => Precision::Bf16,
            other => panic!("`{other}` is neither f32 nor bf16"),
        };
        let window = (window != "all").then(|| parse(window));
        return step(parse(len), precision, window, number(4, 5));
    }
    let (threads, rounds) = (number(0, 2), number(1, 15));
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("the first pool");

    let inputs = SHAPES.map(|(_, [batch, n_heads, len, d])| {
        [Device::flex(), Device::flex().autodiff()].map(|device| {
            let uniform = Distribution::Uniform(-1.0, 1.0);
            // Queries, keys, values, and the gradient of what comes of them.
            [(); 4].map(|()| Tensor::<4>::random([batch, len, n_heads, d], uniform, &device))
        })
    });
    // As a model has them: heads inside positions.
    let heads = |x: &Tensor<4>| x.clone().swap_dims(1, 2);
    let mut best = [[f64::INFINITY; 3]; SHAPES.len()];
    for round in 0..=rounds {
        for ([plain, tracked], best) in inputs.iter().zip(&mut best) {
            let mask = AttentionMask::default();
            for (variant, best) in best.iter_mut().enumerate() {
                let start = Instant::now();
                if variant == 0 {
                    let [q, k, v, _] = plain.each_ref().map(heads);
                    black_box(attention(q, k, v, &mask, 0.0));
                } else {
                    let dropout = if variant == 1 { 0.0 } else { 0.1 };
                    let [q, k, v, gradient] = tracked;
                    let [q, k, v] = [q, k, v].map(|x| heads(&x.clone().require_grad()));
                    let y = attention(q, k, v, &mask, dropout);
                    black_box((y * heads(gradient)).sum().backward());
                }
                let seconds = start.elapsed().as_secs_f64();
                // The first round warms up.
                *best = if round == 0 { f64::INFINITY } else { best.min(seconds) };
            }
        }
    }

    println!("{threads} thread(s)                  forward         and backward    with dropout");
    println!("model   batch heads  len   d     ms  GFLOP/s      ms  GFLOP/s      ms  GFLOP/s");
    for ((model, [batch, n_heads, len, d]), best) in SHAPES.into_iter().zip(best) {
        let product = 2.0 * (batch * n_heads * len * len * d) as f64;
        print!("{model:<7} {batch:>5} {n_heads:>5} {len:>4} {d:>3}");
        for (seconds, products) in best.into_iter().zip([2.0, 6.0, 6.0]) {
            print!(" {:>7.2} {:>8.0}", seconds * 1e3, products * product / seconds / 1e9);
        }
        println!();
    }
}

fn parse(number: &str) -> usize {
    number.parse().unwrap_or_else(|_| panic!("`{number}` is not a number"))
}

/// Forward and backward over this many tokens.
const TOKENS: usize = 8192;

fn step(len: usize, precision: Precision, window: Option<usize>, rounds: usize) {
    let device = Device::flex().autodiff();
    let before = memory("VmRSS:");
    let uniform = Distribution::Uniform(-1.0, 1.0);
    let shape = [TOKENS / len, len, 4, 64];
    let inputs = [(); 3].map(|()| Tensor::<4>::random(shape, uniform, &device));
    let mut mask = AttentionMask::default();
    mask.window = window;
    let mut best = f64::INFINITY;
    for round in 0..=rounds {
        let start = Instant::now();
        let [q, k, v] = inputs.each_ref().map(|x| x.clone().require_grad());
        let heads = |x: &Tensor<4>| x.clone().swap_dims(1, 2);
        let y = with_precision(precision, || attention(heads(&q), heads(&k), heads(&v), &mask, 0.0));
        black_box(y.backward());
        let seconds = start.elapsed().as_secs_f64();
        // The first round warms up.
        best = if round == 0 { f64::INFINITY } else { best.min(seconds) };
    }
    println!(
        "{{\"ms\":{:.3},\"per_s\":{:.1},\"peak_mb\":{:.1}}}",
        best * 1e3,
        TOKENS as f64 / best,
        memory("VmHWM:") - before
    );
}

/// A line of the kernel's account of the process, in megabytes; 0 where there is none.
fn memory(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0 / 1e6
}
