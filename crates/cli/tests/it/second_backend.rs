//! Attention and convolutions on the second backend, which composes what flex fuses.

#![allow(
    deprecated,
    reason = "burn calls ndarray deprecated; it is what the fused operations are held against"
)]

use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::blocks::{Attention, AttentionInput, KeyValueCache, MultiHeadAttentionConfig};
use cloze_model::ops::AttentionMask;
use cloze_model::seq2seq::{
    ConvolutionalEncoderDecoder, ConvolutionalEncoderDecoderConfig, DecodeOptions, EncoderDecoder,
    InitialWeights, PositionsConfig, TiedEmbeddings, Transformer, TransformerConfig,
};
use cloze_model::vision::{ImageEncoder, ResNetConfig};
use cloze_model::{ParamInit, Sequences};

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

/// Transformers with each kind of positions.
fn transformers(device: &Device) -> Vec<Transformer> {
    let kinds = [
        PositionsConfig::Learned { offset: 2 },
        PositionsConfig::Relative { max_distance: 2, values: true },
        PositionsConfig::Alibi,
        PositionsConfig::Rotary { theta: 20.0 },
    ];
    let config = TransformerConfig::new(29, 2, 16)
        .with_heads(4)
        .with_d_ff(24)
        .with_initial(InitialWeights::Normal { std: 0.3 });
    let configs = kinds.map(|positions| config.clone().with_positions(positions));
    let t5 = TransformerConfig::t5(29, 2, 16)
        .with_d_head(6)
        .with_d_ff(24)
        .with_gate()
        .with_positions(PositionsConfig::RelativeBias { n_buckets: 8, max_distance: 5 });
    let configs = [config.clone(), t5].into_iter().chain(configs);
    configs.map(|config| config.init(&mut ParamInit::new(device, 3))).collect()
}

fn values(logits: Tensor<2>) -> Vec<f32> {
    logits.into_data().iter::<f32>().collect()
}

/// The logits of sentences of several lengths at once, of each by itself, of each token by itself, and of targets that
/// differ in their last token.
fn logits<M: EncoderDecoder>(model: &M, device: &Device) -> [Vec<f32>; 4] {
    let sources: [&[i32]; 3] = [&[5, 6, 7, 8, 2], &[9, 2], &[10, 11, 12, 13, 14, 15, 2]];
    let targets: [&[i32]; 3] = [&[2, 20, 21], &[2, 22, 23, 24, 25, 26], &[2]];
    let of = |all: &[&[i32]]| -> Sequences { all.iter().copied().collect() };
    let all = model.logits(&of(&sources), &of(&targets), device);
    let (mut alone, mut steps, mut perturbed) = (Vec::new(), Vec::new(), Vec::new());
    for (source, target) in sources.iter().zip(targets) {
        let source = of(&[source]);
        alone.push(model.logits(&source, &of(&[target]), device));
        let mut state = model.begin(&source, DecodeOptions::default(), device);
        steps.extend(target.iter().map(|token| model.step(&[*token], &mut state).logits));
        // Whatever comes last, the logits before are the same.
        let other = [target, &[27]].concat();
        perturbed.push(model.logits(&source, &of(&[&other]), device).narrow(0, 0, target.len()));
    }
    let joined = |parts: Vec<Tensor<2>>| values(Tensor::cat(parts, 0));
    [values(all), joined(alone), joined(steps), joined(perturbed)]
}

/// All forms of logits on both devices are within `most` of each other.
fn assert_same<M: EncoderDecoder>(models: fn(&Device) -> Vec<M>, most: f32) {
    let [flex, ndarray] = [Device::flex(), Device::ndarray()];
    for (number, (ours, other)) in models(&flex).iter().zip(&models(&ndarray)).enumerate() {
        let (ours, other) = (logits(ours, &flex), logits(other, &ndarray));
        for (form, found) in ours[1..].iter().chain(&other).enumerate() {
            let pairs = found.iter().zip(&ours[0]);
            let largest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(found.len() == ours[0].len() && largest <= most, "{number}, {form}: apart by {largest}");
        }
    }
}

#[test]
fn a_transformer_is_the_same_on_both() {
    assert_same(transformers, 1e-4);
}

/// Convolutional models with windows of several widths.
fn convolutional(device: &Device) -> Vec<ConvolutionalEncoderDecoder> {
    let config = ConvolutionalEncoderDecoderConfig::new(29, 16, 12).with_max_positions(8);
    let configs = [
        config.clone(),
        config.with_kernels(4, 2).with_tied(TiedEmbeddings::None).with_layers(2, 1).with_dropout(0.3),
    ];
    configs.map(|config| config.init(&mut ParamInit::new(device, 3))).into()
}

#[test]
fn a_convolutional_model_is_the_same_on_both() {
    assert_same(convolutional, 1e-5);
}

/// The states and a convolution's gradient.
#[test]
fn a_residual_network_is_the_same_on_both() {
    let config = ResNetConfig::new(9, 2).with_widths(vec![4, 6]).with_group_width(2);
    let [flex, ndarray] = [Device::flex(), Device::ndarray()].map(|device| {
        let device = device.autodiff();
        let model = config.init(&mut ParamInit::new(&device, 2));
        let pixels: Vec<f32> = (0..2 * 3 * 9 * 7).map(|i| (i as f32 * 0.53).sin()).collect();
        let states = model.forward(Tensor::from_data(TensorData::new(pixels, [2, 3, 9, 7]), &device)).states;
        let loss = states.clone().powi_scalar(2).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let weight = model.blocks[2].first.map.weight.id;
        let gradient = gradients.get::<2>(weight).unwrap();
        [values(states.reshape([-1, 6])), values(gradient)]
    });
    for (found, expected) in flex.iter().zip(&ndarray) {
        let scale = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let largest = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(found.len() == expected.len() && largest <= 1e-5 * scale, "apart by {largest} of {scale}");
    }
}
