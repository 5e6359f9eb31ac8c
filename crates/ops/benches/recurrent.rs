//! A recurrent layer over packed sequences, forward and backward: its inputs' product, its time steps, and the loss's sum.
//!
//!     cargo bench -p cloze-ops --features flex --bench recurrent -- [THREADS] [ROUNDS]
//!
//! 64 sequences of 10 to 29 tokens. Prints tokens a second, the best of the rounds; `benches/peers/recurrent.py` prints
//! PyTorch's of the same work, and so are the numbers of a decoder layer that attends at every step.
#![allow(missing_docs)]

use burn::tensor::{Device, Distribution, Tensor};
use cloze_ops::{
    AttentiveInput, AttentiveState, Direction, Packing, Precision, attentive, gru, linear, lstm,
    with_precision,
};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    // As the program: otherwise it is page faults that are measured.
    cloze_allocator::keep_freed();
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |i: usize, default: usize| {
        args.get(i).map_or(default, |a| a.parse().unwrap_or_else(|_| panic!("`{a}` is not a number")))
    };
    let (threads, rounds) = (number(0, 0), number(1, 10));
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("the pool is not there yet");
    let device = Device::flex().autodiff();
    let lengths: Vec<usize> = (0..64).map(|i| 10 + i * 7 % 20).collect();
    let packing = Packing::new(lengths);
    let n = packing.n_tokens();
    let leaf = |rows: usize, columns: usize| {
        let uniform = Distribution::Uniform(-0.05, 0.05);
        Tensor::<2>::random([rows, columns], uniform, &device).require_grad()
    };
    for d in [128, 256, 512, 1024] {
        let x = leaf(n, d);
        for (name, gates) in [("lstm", 4), ("gru", 3), ("attentive lstm", 4)] {
            let width = gates * d;
            let (input, weight) = (leaf(d, width), leaf(d, width));
            let (context, query, keys) = (leaf(d, width), leaf(d, d), leaf(n, d));
            let bias = leaf(1, d).reshape([d]);
            let zeros = Tensor::<2>::zeros([64, d], &device);
            for precision in [Precision::Fp32, Precision::Bf16] {
                let step = || {
                    let inputs = linear(x.clone(), input.clone(), None);
                    let y = match name {
                        "lstm" => lstm(inputs, weight.clone(), None, &packing, Direction::Forward).states,
                        "gru" => {
                            let bias = bias.clone();
                            gru(inputs, weight.clone(), bias, None, &packing, Direction::Forward).states
                        }
                        _ => {
                            let input = AttentiveInput {
                                inputs,
                                memory: x.clone(),
                                keys: keys.clone(),
                                query: query.clone(),
                                v: bias.clone(),
                                context: context.clone(),
                                recurrent: weight.clone(),
                                bias: None,
                                initial: AttentiveState { hidden: zeros.clone(), cell: Some(zeros.clone()) },
                            };
                            attentive(input, &packing, &packing)
                        }
                    };
                    black_box(y.sum().backward());
                };
                let mut best = f64::INFINITY;
                for round in 0..=rounds {
                    let start = Instant::now();
                    with_precision(precision, || cloze_ops::on_awake_cores(&device, step));
                    let seconds = start.elapsed().as_secs_f64();
                    // The first round warms up.
                    best = if round == 0 { best } else { best.min(seconds) };
                }
                println!("{name:14} d = {d:4}, {precision:?}: {:9.0} tokens/s", n as f64 / best);
            }
        }
    }
}
