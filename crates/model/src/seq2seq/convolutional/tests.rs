//! The model equals plain loops, decoding equals teacher forcing, and user settings are checked.

use super::reference::Reference;
use super::*;
use crate::blocks::{pack_weights, quantize_int8};
use crate::generate::NextToken;
use crate::seq2seq::{DecodeOptions, EncoderDecoder, SpecialTokens, TiedEmbeddings};
use crate::weights::{self, NamedTensors};
use crate::{ParamInit, Sequences};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData, Tolerance};
use std::collections::BTreeMap;

const SOURCES: [&[i32]; 3] = [&[5, 6, 7, 2], &[8, 2], &[9, 10, 4, 3, 2]];
const TARGETS: [&[i32]; 3] = [&[2, 9], &[2, 10, 3, 4], &[2, 7, 6]];

fn of(sequences: &[&[i32]]) -> Sequences {
    sequences.iter().copied().collect()
}

/// Configurations that together use every switch.
fn configs() -> Vec<ConvolutionalEncoderDecoderConfig> {
    let base = ConvolutionalEncoderDecoderConfig::new(11, 4, 6).with_max_positions(7).with_layers(2, 2);
    vec![
        base.clone(),
        base.clone().with_source_vocab(13).with_kernels(2, 4).with_layers(1, 3),
        base.with_tied(TiedEmbeddings::SourceTarget).with_kernels(1, 1),
        ConvolutionalEncoderDecoderConfig::new(11, 6, 5)
            .with_tied(TiedEmbeddings::None)
            .with_max_positions(7)
            .with_kernels(5, 2)
            .with_layers(2, 1),
    ]
}

/// A model with parameters large enough for every part to matter.
fn model(config: &ConvolutionalEncoderDecoderConfig, device: &Device) -> ConvolutionalEncoderDecoder {
    let model = config.clone().with_dropout(0.0).init(&mut ParamInit::new(device, 4));
    let scrambled = |(number, (path, shape)): (usize, (String, Vec<usize>))| {
        let n: usize = shape.iter().product();
        let values: Vec<f32> =
            (0..n).map(|i| ((i as f32 + 1.0) * (0.917 + number as f32 * 0.013)).sin() * 0.9).collect();
        (path, TensorData::new(values, shape))
    };
    let parameters = weights::shapes(&model).into_iter().enumerate().map(scrambled).collect();
    weights::replace(model, parameters)
}

fn close(found: Tensor<2>, expected: Tensor<2>) {
    found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
}

/// The gradient of every parameter by its path.
struct Collected {
    grads: Gradients,
    path: Vec<String>,
    found: NamedTensors,
}

impl ModuleVisitor for Collected {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.join(".");
        let gradient = param.val().grad(&self.grads).unwrap_or_else(|| panic!("no gradient of `{path}`"));
        self.found.insert(path, gradient.into_data());
    }
}

/// Weights for the logits, so that each has a different gradient.
fn weighing(n: usize) -> Vec<f64> {
    (0..n).map(|i| ((i as f64 + 1.0) * 1.37).sin()).collect()
}

/// The logits, and the gradients of their weighted sum.
fn run(config: &ConvolutionalEncoderDecoderConfig, device: &Device) -> (TensorData, NamedTensors) {
    let model = model(config, device);
    let logits = model.logits(&of(&SOURCES), &of(&TARGETS), device);
    let weights: Vec<f32> = weighing(9 * 11).into_iter().map(|weight| weight as f32).collect();
    let weights = Tensor::<2>::from_data(TensorData::new(weights, [9, 11]), device);
    let grads = (logits.clone() * weights).sum().backward();
    let mut visitor = Collected { grads, path: Vec::new(), found: BTreeMap::new() };
    model.visit(&mut visitor);
    (logits.into_data(), visitor.found)
}

#[test]
fn logits_and_gradients_are_those_of_plain_loops() {
    let fused = Device::flex().autodiff();
    for config in configs() {
        let (logits, gradients) = run(&config, &fused);
        let parameters = weights::collect(&model(&config, &Device::flex()));
        let mut reference = Reference::new(&config, &parameters);
        let bases: Vec<Vec<Vec<f64>>> = SOURCES.iter().map(|source| reference.outputs(source)).collect();
        let all = |reference: &Reference, scaled: bool| -> Vec<f64> {
            let of_pair = |i: usize| {
                let base = scaled.then_some(bases[i].as_slice());
                reference.logits(SOURCES[i], TARGETS[i], base).concat()
            };
            (0..SOURCES.len()).flat_map(of_pair).collect()
        };
        let expected = all(&reference, false);
        assert_eq!(logits.num_elements(), expected.len());
        for (found, expected) in logits.iter::<f64>().zip(&expected) {
            assert!((found - expected).abs() <= 1e-4, "a logit is {found}, by hand {expected}");
        }

        let weights = weighing(expected.len());
        let loss = |reference: &Reference| -> f64 {
            all(reference, true).iter().zip(&weights).map(|(logit, weight)| logit * weight).sum()
        };
        assert_eq!(gradients.keys().collect::<Vec<_>>(), reference.parameters.keys().collect::<Vec<_>>());
        for (path, gradient) in &gradients {
            let n = gradient.num_elements();
            // Of a matrix some numbers, of a vector all.
            for (i, found) in gradient.iter::<f64>().enumerate().step_by(1 + n / 40) {
                let mut at = |step: f64| {
                    let number = &mut reference.parameters.get_mut(path).unwrap().1[i];
                    let before = *number;
                    *number += step;
                    let loss = loss(&reference);
                    reference.parameters.get_mut(path).unwrap().1[i] = before;
                    loss
                };
                let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
                let near = (found - slope).abs() <= 1e-4 * slope.abs().max(1.0);
                assert!(near, "`{path}`, number {i}: the gradient is {found}, the slope {slope}");
            }
        }
    }
}

#[test]
fn fused_and_composed_agree() {
    let fused = Device::flex().autodiff();
    let composed = fused.clone().gradient_checkpointing();
    for config in configs() {
        let ((logits, fused), (other, composed)) = (run(&config, &fused), run(&config, &composed));
        logits.assert_approx_eq::<f32>(&other, Tolerance::absolute(1e-4));
        assert_eq!(fused.len(), composed.len());
        for ((path, fused), (other, composed)) in fused.iter().zip(&composed) {
            assert_eq!(path, other);
            fused.assert_approx_eq::<f32>(composed, Tolerance::rel_abs(1e-3, 1e-4));
        }
    }
}

#[test]
fn a_step_gives_what_teacher_forcing_gives() {
    let device = Device::flex();
    for config in configs() {
        let model = model(&config, &device);
        let all = model.logits(&of(&SOURCES), &of(&TARGETS), &device);
        assert_eq!(all.dims(), [9, 11]);
        let mut state = model.begin(&of(&SOURCES), DecodeOptions::default().with_alignment(), &device);
        for step in 0..4 {
            let tokens: Vec<i32> =
                TARGETS.iter().map(|target| target.get(step).copied().unwrap_or(2)).collect();
            let output = model.step(&tokens, &mut state);
            let mut token = 0;
            for (row, target) in TARGETS.iter().enumerate() {
                if step < target.len() {
                    close(output.logits.clone().narrow(0, row, 1), all.clone().narrow(0, token + step, 1));
                }
                token += target.len();
            }
            let alignment = output.alignment.expect("it was asked for");
            assert_eq!(alignment.dims(), [3, 5]);
            let sums: Vec<f32> = alignment.clone().sum_dim(1).into_data().iter().collect();
            assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5));
            let beyond: Vec<f32> = alignment.slice([1..2, 2..5]).into_data().iter().collect();
            assert_eq!(beyond, [0.0; 3]);
        }
        let mut state = model.begin(&of(&SOURCES), DecodeOptions::default(), &device);
        assert!(model.step(&[2, 2, 2], &mut state).alignment.is_none());
        assert_eq!((model.max_source_tokens(), model.max_tokens()), (Some(7), Some(7)));
    }
}

#[test]
fn a_sentence_does_not_depend_on_the_others() {
    let device = Device::flex();
    for config in configs() {
        let model = model(&config, &device);
        let all = model.logits(&of(&SOURCES), &of(&TARGETS), &device);
        let mut start = 0;
        for (source, target) in SOURCES.iter().zip(TARGETS) {
            let alone = model.logits(&of(&[source]), &of(&[target]), &device);
            close(alone, all.clone().narrow(0, start, target.len()));
            start += target.len();
        }
    }
}

#[test]
fn no_position_sees_a_later_one() {
    let device = Device::flex();
    let target = [2, 10, 3, 4, 6];
    for config in configs() {
        let model = model(&config, &device);
        let logits = |target: &[i32]| {
            let logits = model.logits(&of(&[SOURCES[0]]), &of(&[target]), &device);
            logits.into_data().iter::<f32>().collect::<Vec<_>>()
        };
        let before = logits(&target);
        for changed in 0..target.len() {
            let mut other = target;
            other[changed] = 8;
            let after = logits(&other);
            assert_eq!(before[..changed * 11], after[..changed * 11], "bit for bit");
            assert_ne!(before[changed * 11..], after[changed * 11..]);
        }
    }
}

#[test]
fn rows_are_chosen_and_joined() {
    let device = Device::flex();
    for config in configs() {
        let model = model(&config, &device);
        let begin = |sources: &[&[i32]]| model.begin(&of(sources), DecodeOptions::default(), &device);
        let mut all = begin(&SOURCES);
        model.step(&[2, 2, 2], &mut all);
        let expected = model.step(&[9, 10, 7], &mut all.clone()).logits;
        let mut chosen = all.clone();
        model.select(&mut chosen, &[2, 0, 2]);
        let found = model.step(&[7, 9, 7], &mut chosen).logits;
        for (row, of) in [2, 0, 2].into_iter().enumerate() {
            close(found.clone().narrow(0, row, 1), expected.clone().narrow(0, of, 1));
        }
        // The second sentence begins a token later than the first.
        let mut joined = begin(&SOURCES[1..2]);
        model.step(&[2], &mut joined);
        let first = model.step(&[10], &mut joined.clone()).logits;
        model.join(&mut joined, begin(&SOURCES[2..]));
        let both = model.step(&[10, 2], &mut joined).logits;
        close(both.clone().narrow(0, 0, 1), first);
        close(both.narrow(0, 1, 1), model.step(&[2], &mut begin(&SOURCES[2..])).logits);
    }
}

#[test]
fn weights_for_inference_are_the_same() {
    let device = Device::flex();
    for config in configs() {
        let mut model = model(&config, &device);
        let logits =
            |model: &ConvolutionalEncoderDecoder| model.logits(&of(&SOURCES), &of(&TARGETS), &device);
        let expected = logits(&model);
        pack_weights(&mut model);
        // Weights are laid out when they are used once more.
        for _ in 0..2 {
            close(logits(&model), expected.clone());
        }
        quantize_int8(&mut model);
        let error = (logits(&model) - expected.clone()).abs().mean().into_scalar::<f32>();
        let size = expected.abs().mean().into_scalar::<f32>();
        assert!(error > 0.0 && error < 0.15 * size, "{error} of {size}");
    }
}

#[test]
fn dropout_is_for_training_alone() {
    let config = ConvolutionalEncoderDecoderConfig::new(11, 4, 6).with_dropout(0.5);
    let logits = |device: &Device| {
        let model = config.init(&mut ParamInit::new(device, 4));
        let run = || model.logits(&of(&SOURCES), &of(&TARGETS), device).into_data();
        run() == run()
    };
    assert!(logits(&Device::flex()) && !logits(&Device::flex().autodiff()));
}

#[test]
fn a_new_model_keeps_the_variance() {
    let device = Device::flex();
    let config = ConvolutionalEncoderDecoderConfig::new(50, 64, 64).with_layers(6, 6).with_dropout(0.0);
    let model = config.init(&mut ParamInit::new(&device, 4));
    let ids: Vec<i32> = (0..40).map(|i| i * 7 % 50).collect();
    let outputs = model.encode(&of(&[&ids]), &device).keys.into_data();
    let variance = outputs.iter::<f64>().map(|x| x * x).sum::<f64>() / outputs.num_elements() as f64;
    // Embeddings and positions have 0.01 each.
    assert!((0.002..0.2).contains(&variance), "{variance}");
}

#[test]
fn what_does_not_fit_is_named() {
    let base = ConvolutionalEncoderDecoderConfig::new(23, 6, 8);
    base.validate().unwrap();
    let refused = |config: ConvolutionalEncoderDecoderConfig| config.validate().unwrap_err().to_string();
    for (config, expected) in [
        (base.clone().with_layers(0, 1), "`n_encoder_layers` is 0, expected at least 1"),
        (base.clone().with_layers(1, 10_001), "`n_decoder_layers` is 10001, expected at most 10000"),
        (base.clone().with_kernels(3, 0), "`decoder_kernel` is 0, expected at least 1"),
        (base.clone().with_max_positions(0), "`max_positions` is 0, expected at least 1"),
        (base.clone().with_dropout(1.0), "`dropout` is 1, expected 0 or more and below 1"),
        (
            base.clone().with_source_vocab(40).with_tied(TiedEmbeddings::All),
            "`tied` is All, expected `target-output` or `none`: source and target have a vocabulary each",
        ),
        (
            base.clone().with_tokens(SpecialTokens::new(1, 23)),
            "`tokens.eos` is 23, expected below `vocab_size`, which is 23",
        ),
    ] {
        assert_eq!(refused(config), format!("model configuration: {expected}"));
    }
    let mut json = serde_json::to_value(&base).unwrap();
    assert_eq!(serde_json::from_value::<ConvolutionalEncoderDecoderConfig>(json.clone()).unwrap(), base);
    json["kernel"] = 3.into();
    assert!(serde_json::from_value::<ConvolutionalEncoderDecoderConfig>(json).is_err());
}

#[test]
fn tied_parameters_are_there_once() {
    let device = Device::flex();
    let paths = |config: &ConvolutionalEncoderDecoderConfig| -> Vec<String> {
        weights::shapes(&config.init(&mut ParamInit::new(&device, 0).deferred()))
            .into_iter()
            .map(|(path, _)| path)
            .collect()
    };
    let base = ConvolutionalEncoderDecoderConfig::new(23, 6, 8);
    let tied = paths(&base);
    assert!(!tied.iter().any(|path| path.starts_with("source_embedding") || path.starts_with("output.")));
    let untied = paths(&base.with_tied(TiedEmbeddings::None));
    for path in ["source_embedding.weight", "output.v", "decoder.0.convolution.map.g", "encoder.3.map.bias"] {
        assert!(untied.contains(&path.to_string()), "{path}");
    }
}
