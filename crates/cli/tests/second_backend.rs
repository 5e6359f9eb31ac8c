//! Attention on the second backend, which composes what flex fuses.

#![cfg(all(feature = "flex", feature = "ndarray"))]
#![allow(
    deprecated,
    reason = "burn calls ndarray deprecated; it is what the fused operations are held against"
)]

use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::ParamInit;
use cloze_model::blocks::{Attention, AttentionInput, KeyValueCache, MultiHeadAttentionConfig};
use cloze_model::ops::AttentionMask;

/// The contexts of causal attention with a bias, of all tokens at once and one by one.
fn contexts(device: &Device, biased: bool) -> [Vec<f32>; 2] {
    let block = MultiHeadAttentionConfig::new(12, 3).init(&mut ParamInit::new(device, 1).with_std(0.4));
    let values = |shape: [usize; 4], phase: f32| {
        let n = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.53 + phase).sin() * 1.5).collect();
        Tensor::<4>::from_data(TensorData::new(values, shape), device)
    };
    let hidden = values([1, 2, 7, 12], 0.1).squeeze_dim::<3>(0);
    let bias = values([1, 3, 7, 7], 1.2);
    let mask = |start: usize, n: usize| {
        let causal = AttentionMask::default().with_causal();
        match biased {
            true => causal.with_bias(bias.clone().narrow(2, start, n).narrow(3, 0, start + n)),
            false => causal,
        }
    };
    let whole = block.forward(AttentionInput::new(hidden.clone(), &mask(0, 7))).context;
    let mut cache = KeyValueCache::new();
    let steps = (0..7).map(|token| {
        let mask = mask(token, 1);
        let input = AttentionInput::new(hidden.clone().narrow(1, token, 1), &mask);
        block.forward(input.with_cache(&mut cache)).context
    });
    let cached = Tensor::cat(steps.collect(), 1);
    [whole, cached].map(|context| context.into_data().iter::<f32>().collect())
}

#[test]
fn cached_decoding_is_uncached_and_the_same_on_both() {
    for biased in [false, true] {
        let [flex, ndarray] = [Device::flex(), Device::ndarray()].map(|device| contexts(&device, biased));
        let expected = &flex[0];
        for found in [&flex[1], &ndarray[0], &ndarray[1]] {
            let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(found.len() == expected.len() && largest <= 1e-5, "apart by {largest}");
        }
    }
}
