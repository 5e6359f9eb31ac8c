//! One pretraining step: forward, backward, clipping, AdamW.
//!
//!     cargo bench -p cloze-trainer --bench pretraining_step -- [PRESET] [BATCH] [LEN] [VOCAB] [STEPS]
//!
//! Prints one JSON line with the median; defaults are BERT-mini, 16 × 128, vocabulary 30,522, with 15 % of
//! the positions masked. `pretraining_step_transformers.py`
//! beside this file runs the same step in PyTorch.
#![allow(missing_docs)]

use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::bert::{BertConfig, BertInput};
use cloze_model::{ParamInit, ops};
use cloze_trainer::gradients;
use cloze_trainer::optimizer::{Optimizer, OptimizerConfig};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |i: usize, default: usize| {
        args.get(i).map_or(default, |a| a.parse().unwrap_or_else(|_| panic!("`{a}` is not a number")))
    };
    let preset = args.first().map_or("mini", String::as_str);
    let (batch, len, vocab, steps) = (number(1, 16), number(2, 128), number(3, 30_522), number(4, 10));

    let device = Device::flex().autodiff();
    device.seed(0);
    let config = BertConfig::preset(preset, vocab).expect("a preset's name");
    let mut model = config.init(&mut ParamInit::new(&device, 0));
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
        let logits = model.forward(input, int1(&positions));
        let loss = ops::cross_entropy(logits.mlm, int1(&labels)).mean()
            + ops::cross_entropy(logits.next_sentence, int1(&pairs)).mean();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let norm = gradients::global_norm(&model, &grads);
        model = optimizer.step(model, grads, 1e-4, (1.0 / norm).min(1.0));
        last = loss.into_scalar::<f32>();
        if step >= 2 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!(
        "{{\"work\":\"pretraining step\",\"model\":\"{preset}\",\"batch\":{batch},\"len\":{len},\"vocab\":{vocab},\
         \"ms\":{median:.1},\"tokens_per_s\":{:.0},\"loss\":{last}}}",
        (batch * len) as f64 / median * 1e3
    );
}
