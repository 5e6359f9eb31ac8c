//! Linear maps in FP32, bf16, and 8 and 4 bits, at the shapes of BERT-mini, BERT-base and MiniLM-L6.
//!
//!     cargo bench -p cloze-ops --features flex --bench products -- [THREADS] [ROUNDS]
//!
//! Prints thousands of millions of operations a second (an addition and a multiplication are two), the best of
//! the rounds, in which the precisions take turns: of the forward pass, and of a forward and a backward pass,
//! three products. `int8` is rounded for the machine's fastest kernel, as `--int8` does; `8 bits`, `Q8_0` and `Q4_0` are
//! what files hold: a scale for each column, and one for blocks of 32. `tied` multiplies by a transposed matrix, as the masked-LM head does.
#![allow(missing_docs)]

use burn::tensor::{Device, Distribution, Tensor};
use cloze_ops::{
    IntegerMatrix, IntegerWeight, Precision, TokenRounding, linear, linear_integer, with_precision,
};
use std::hint::black_box;
use std::time::Instant;

const SHAPES: [(&str, usize, usize, usize); 23] = [
    ("mini", 512, 256, 256),
    ("mini", 512, 256, 1024),
    ("mini", 512, 1024, 256),
    ("mini", 2048, 256, 256),
    ("mini", 2048, 256, 768),
    ("mini", 2048, 256, 1024),
    ("mini", 2048, 1024, 256),
    ("mini", 8192, 256, 1024),
    ("tied", 307, 256, 8192),
    ("tied", 307, 256, 30_522),
    ("base", 1, 768, 768),
    ("base", 1, 768, 3072),
    ("base", 512, 768, 768),
    ("base", 512, 768, 3072),
    ("base", 512, 3072, 768),
    ("tied", 77, 768, 30_522),
    ("minilm", 16, 384, 384),
    ("minilm", 16, 384, 1536),
    ("minilm", 32, 384, 1536),
    ("minilm", 32, 1536, 384),
    ("minilm", 800, 384, 384),
    ("minilm", 800, 384, 1536),
    ("minilm", 800, 1536, 384),
];

/// The best time of `work` for each of `variants`, which take turns.
fn best<const N: usize>(rounds: usize, repeats: usize, mut work: impl FnMut(usize)) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    for round in 0..=rounds {
        for (variant, best) in best.iter_mut().enumerate() {
            let start = Instant::now();
            (0..repeats).for_each(|_| work(variant));
            let seconds = start.elapsed().as_secs_f64() / repeats as f64;
            // The first round warms up.
            *best = if round == 0 { f64::INFINITY } else { best.min(seconds) };
        }
    }
    best
}

fn main() {
    // As the program: otherwise it is page faults that are measured.
    cloze_allocator::keep_freed();
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |i: usize, default: usize| {
        args.get(i).map_or(default, |a| a.parse().unwrap_or_else(|_| panic!("`{a}` is not a number")))
    };
    let (threads, rounds) = (number(0, 2), number(1, 7));
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("the first pool");

    println!(
        "{threads} thread(s), GFLOP/s          forward                                      forward and backward"
    );
    println!("model   tokens  d_in  d_out    FP32   bf16   int8  8 bits  Q8_0   Q4_0        FP32   bf16");
    let precision = |variant: usize| if variant == 0 { Precision::Fp32 } else { Precision::Bf16 };
    for (model, n_tokens, d_in, d_out) in SHAPES {
        let operations = 2.0 * (n_tokens * d_in * d_out) as f64;
        let repeats = (3e8 / operations).ceil() as usize;
        let uniform = Distribution::Uniform(-1.0, 1.0);
        let draw = |device: &Device| {
            let weight = match model {
                "tied" => Tensor::<2>::random([d_out, d_in], uniform, device).transpose(),
                _ => Tensor::<2>::random([d_in, d_out], uniform, device),
            };
            let x = Tensor::<2>::random([n_tokens, d_in], uniform, device);
            (x, weight, Tensor::<1>::random([d_out], uniform, device))
        };
        let (x, weight, bias) = draw(&Device::flex());
        let numbers: Vec<f32> = weight.clone().transpose().into_data().try_to_vec().expect("floats");
        let saved = [
            IntegerMatrix::int8(&numbers, [d_out, d_in], 127),
            IntegerMatrix::q8_0(&numbers, [d_out, d_in]),
            IntegerMatrix::q4_0(&numbers, [d_out, d_in]),
        ];
        let rounded = |matrix: Result<IntegerMatrix, String>| {
            IntegerWeight::new(&matrix.expect("finite numbers"), TokenRounding::default(), &Device::flex())
        };
        let integers: Vec<IntegerWeight> =
            std::iter::once(IntegerWeight::quantize(weight.clone())).chain(saved.map(rounded)).collect();
        let forward: [f64; 6] = best(rounds, repeats, |variant| {
            let (x, bias) = (x.clone(), Some(bias.clone()));
            black_box(match variant {
                2.. => linear_integer(x, &integers[variant - 2], bias),
                _ => with_precision(precision(variant), || linear(x, weight.clone(), bias)),
            });
        });
        let (x, weight, bias) = draw(&Device::flex().autodiff());
        let (x, weight, bias) = (x.require_grad(), weight.detach().require_grad(), bias.require_grad());
        let gradient = Tensor::random([n_tokens, d_out], uniform, &Device::flex().autodiff());
        let training: [f64; 2] = best(rounds, repeats, |variant| {
            let (x, weight, bias) = (x.clone(), weight.clone(), Some(bias.clone()));
            let y = with_precision(precision(variant), || linear(x, weight, bias));
            black_box((y * gradient.clone()).sum().backward());
        });
        let [fp32, bf16, int8, eight, q8_0, q4_0] = forward.map(|seconds| operations / seconds / 1e9);
        let [fp32_training, bf16_training] = training.map(|seconds| 3.0 * operations / seconds / 1e9);
        println!(
            "{model:<7} {n_tokens:>6} {d_in:>5} {d_out:>6}   {fp32:>5.0}  {bf16:>5.0}  {int8:>5.0}  {eight:>6.0} {q8_0:>5.0}  {q4_0:>5.0}       {fp32_training:>5.0}  {bf16_training:>5.0}"
        );
    }
}
