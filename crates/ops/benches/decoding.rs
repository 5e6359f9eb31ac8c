//! What a step of decoding is made of: linear maps of few rows, attention to cached keys, the best of the logits.
//!
//!     cargo bench -p cloze-ops --features flex --bench decoding -- [THREADS] [ROUNDS]
//!
//! Prints microseconds, the best of the rounds, and for FP32 with packed weights how many gigabytes of weights a second that
//! is: of one row memory is the limit, of many arithmetic.
#![allow(missing_docs)]

use burn::tensor::{Device, Distribution, Tensor};
use cloze_ops::{
    IntegerWeight, KeyValueStore, PackedWeight, Precision, attention_at, best, linear, linear_integer,
    linear_packed, with_precision,
};
use std::hint::black_box;
use std::time::Instant;

/// Of a Transformer of 512 features with a small vocabulary, and of GPT-2.
const MAPS: [(usize, usize); 7] =
    [(512, 512), (512, 2048), (2048, 512), (512, 8000), (768, 768), (768, 3072), (768, 50_257)];

/// The best time of `work`, in microseconds.
fn time(rounds: usize, repeats: usize, mut work: impl FnMut()) -> f64 {
    let round = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..repeats).for_each(|_| work());
        start.elapsed().as_secs_f64() / repeats as f64 * 1e6
    };
    // The first rounds warm up, and pack.
    (0..3).for_each(|_| work());
    (0..rounds).map(|_| round(&mut work)).fold(f64::INFINITY, f64::min)
}

fn main() {
    cloze_allocator::keep_freed();
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |i: usize, default: usize| {
        args.get(i).map_or(default, |a| a.parse().unwrap_or_else(|_| panic!("`{a}` is not a number")))
    };
    let (threads, rounds) = (number(0, 2), number(1, 7));
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .use_current_thread()
        .build_global()
        .expect("the first pool");
    let device = Device::flex();
    let uniform = Distribution::Uniform(-1.0, 1.0);

    println!("{threads} thread(s), microseconds");
    println!(" rows  d_in  d_out     plain    packed    GB/s      bf16      int8");
    for (d_in, d_out) in MAPS {
        let weight = Tensor::<2>::random([d_in, d_out], uniform, &device);
        let (packed, int8) = (PackedWeight::new(weight.clone()), IntegerWeight::quantize(weight.clone()));
        for rows in [1, 5, 32, 160, 1024] {
            let x = Tensor::<2>::random([rows, d_in], uniform, &device);
            let repeats = (100_000_000 / (rows * d_in * d_out)).clamp(2, 100);
            let plain = time(rounds, repeats, || drop(black_box(linear(x.clone(), weight.clone(), None))));
            let fp32 = time(rounds, repeats, || drop(black_box(linear_packed(x.clone(), &packed, None))));
            let bf16 = time(rounds, repeats, || {
                drop(black_box(with_precision(Precision::Bf16, || linear_packed(x.clone(), &packed, None))))
            });
            let int8 = time(rounds, repeats, || drop(black_box(linear_integer(x.clone(), &int8, None))));
            let rate = (4 * d_in * d_out) as f64 / fp32 / 1e3;
            println!(
                "{rows:>5} {d_in:>5} {d_out:>6} {plain:>9.0} {fp32:>9.0} {rate:>7.1} {bf16:>9.0} {int8:>9.0}"
            );
        }
    }

    println!("attention: rows  heads  d  keys     micros");
    for (rows, n_heads, d, len) in
        [(160, 8, 64, 25), (5, 8, 64, 25), (1, 12, 64, 100), (1, 12, 64, 1000), (16, 12, 64, 500)]
    {
        let tokens = || Tensor::<4>::random([rows, n_heads, len, d], uniform, &device);
        let store = KeyValueStore::new([tokens(), tokens()]);
        let lists: Vec<Vec<u32>> =
            (0..rows).map(|row| ((row * len) as u32..((row + 1) * len) as u32).collect()).collect();
        let seen: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
        let query = Tensor::<4>::random([1, n_heads, rows, d], uniform, &device);
        let micros = time(rounds, 20, || drop(black_box(attention_at(query.clone(), &store, &seen, false))));
        println!("{rows:>15} {n_heads:>6} {d:>3} {len:>5} {micros:>10.0}");
    }

    println!("best 10 of so many logits, one row");
    for n in [8000, 50_257] {
        let logits: Vec<f32> = Tensor::<1>::random([n], uniform, &device).into_data().iter::<f32>().collect();
        println!("{n:>15} {:>10.1}", time(rounds, 50, || drop(black_box(best(&logits, 10)))));
    }
}
