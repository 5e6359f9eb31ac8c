//! One pretraining step: forward, backward, clipping, AdamW.
//!
//!     cargo bench -p cloze-trainer --bench pretraining_step -- PRESET BATCH LEN VOCAB STEPS f32|bf16 [LAYERS] [recompute]
//!
//! Prints one JSON line: the median, the process's peak memory, the floating-point operations of the
//! step's matrix products and how fast the machine makes such a product alone. 15 % of the positions are
//! masked. LAYERS 0 are the preset's. `cargo xtask bench train` runs it beside its peers.
#![allow(missing_docs)]

mod common;

use burn::optim::GradientsParams;
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use cloze_model::bert::{BertConfig, BertInput};
use cloze_model::{ParamInit, ops};
use cloze_trainer::engine::gradients;
use cloze_trainer::engine::optimizer::{Optimizer, OptimizerConfig};
use common::{median, peak_megabytes};
use std::time::Instant;

fn main() {
    // As the program: otherwise it is page faults that are measured.
    cloze_allocator::keep_freed();
    rayon::ThreadPoolBuilder::new().use_current_thread().build_global().expect("threads");
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let text = |i: usize, default: &'static str| args.get(i).map_or(default, String::as_str).to_string();
    let number = |i: usize, default: &'static str| -> usize {
        text(i, default).parse().unwrap_or_else(|_| panic!("`{}` is not a number", text(i, default)))
    };
    let preset = text(0, "mini");
    let [batch, len, vocab, steps] =
        [(1, "16"), (2, "128"), (3, "30522"), (4, "10")].map(|(i, default)| number(i, default));
    let precision = match text(5, "f32").as_str() {
        "f32" => ops::Precision::Fp32,
        "bf16" => ops::Precision::Bf16,
        other => panic!("`{other}` is not f32 or bf16"),
    };

    let device = Device::flex().autodiff();
    device.seed(0);
    let mut config = BertConfig::preset(&preset, vocab).expect("a preset's name");
    config.n_layers = Some(number(6, "0")).filter(|n| *n > 0).unwrap_or(config.n_layers);
    config.max_positions = config.max_positions.max(len);
    let mut model = config.init(&mut ParamInit::new(&device, 0));
    model.bert.encoder.recompute = args.get(7).is_some_and(|arg| arg == "recompute");
    let mut optimizer = Optimizer::new(OptimizerConfig::default(), &model).expect("no groups");

    let ids: Vec<i32> = (0..batch * len).map(|i| (5 + i * 7919 % (vocab - 5)) as i32).collect();
    let n_masked = batch * len * 15 / 100;
    let positions: Vec<i32> = (0..n_masked).map(|i| (i * batch * len / n_masked) as i32).collect();
    let labels: Vec<i32> = positions.iter().map(|p| ids[*p as usize]).collect();
    let segments: Vec<i32> = (0..batch * len).map(|i| i32::from(i % len >= len / 2)).collect();
    let pairs: Vec<i32> = (0..batch as i32).map(|i| i % 2).collect();
    let int1 = |v: &[i32]| Tensor::<1, Int>::from_data(TensorData::new(v.to_vec(), [v.len()]), &device);
    let int2 = |v: &[i32]| int1(v).reshape([batch, len]);

    let mut times = Vec::new();
    let mut last = 0.0;
    for step in 0..steps + 2 {
        let start = Instant::now();
        let input = BertInput::new(int2(&ids)).with_token_types(int2(&segments));
        // As the program: the other cores look for work throughout the step.
        let (moved, loss) = ops::on_awake_cores(&device, || {
            let loss = ops::with_precision(precision, || {
                let logits = model.forward(input, int1(&positions));
                ops::cross_entropy(logits.mlm, int1(&labels)).mean()
                    + ops::cross_entropy(logits.next_sentence.expect("the config has pairs"), int1(&pairs))
                        .mean()
            });
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            let norm = gradients::global_norm(&model, &grads);
            (optimizer.step(model, grads, 1e-4, (1.0 / norm).min(1.0)), loss)
        });
        model = moved;
        last = loss.into_scalar::<f32>();
        if step >= 2 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    let peak = peak_megabytes();
    let median = median(times);
    println!(
        "{{\"ms\":{median:.2},\"per_s\":{:.1},\"peak_mb\":{peak:.1},\"gflop\":{:.2},\"gflop_per_s\":{:.1},\
         \"loss\":{last}}}",
        (batch * len) as f64 / median * 1e3,
        flop(&config, batch, len, n_masked) / 1e9,
        product_rate() / 1e9,
    );
}

/// Of the step's matrix products: the backward pass makes twice those of the forward pass.
fn flop(config: &BertConfig, batch: usize, len: usize, n_masked: usize) -> f64 {
    let (tokens, d) = (batch * len, config.d_model);
    let attention = config.n_layers * (8 * tokens * d * d + 4 * tokens * len * d);
    // The last layer feeds forward what the heads ask for: the masked tokens and each sequence's first.
    let fed_forward = (config.n_layers - 1) * tokens + n_masked + batch;
    let head = 2 * n_masked * d * (d + config.vocab_size);
    3.0 * (attention + 4 * fed_forward * d * config.d_ff + head) as f64
}

/// The best rate of a product of square matrices of 1,024, in floating-point operations a second.
fn product_rate() -> f64 {
    let device = Device::flex();
    let n = 1024;
    let matrix = || Tensor::<2>::random([n, n], Distribution::Uniform(-1.0, 1.0), &device);
    let (a, b) = (matrix(), matrix());
    let seconds = (0..10).map(|_| {
        let start = Instant::now();
        std::hint::black_box(a.clone().matmul(b.clone()));
        start.elapsed().as_secs_f64()
    });
    2.0 * (n * n * n) as f64 / seconds.fold(f64::INFINITY, f64::min)
}
