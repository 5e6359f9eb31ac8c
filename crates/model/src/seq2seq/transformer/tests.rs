//! Properties of every configuration, with fused and with composed operations.

use super::*;
use crate::blocks::{
    Activation, LinearMaps, NormPlacement, PositionsConfig, SinusoidOrder, pack_weights, quantize_int8,
};
use crate::generate::NextToken;
use crate::seq2seq::{DecodeOptions, EncoderDecoder, SpecialTokens, TiedEmbeddings};
use crate::{ParamInit, Sequences, weights};
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData, Tolerance};

const VOCABULARY: usize = 29;

/// Fused and packed; composed and padded.
fn devices() -> [Device; 2] {
    [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()]
}

fn small() -> TransformerConfig {
    TransformerConfig::new(VOCABULARY, 2, 16)
        .with_heads(4)
        .with_d_ff(24)
        .with_dropout(0.0)
        .with_max_positions(12)
        .with_initial(InitialWeights::Normal { std: 0.3 })
}

/// A T5 whose heads' widths do not add up to the model's, and whose last bucket begins at a distance of 5.
fn t5() -> TransformerConfig {
    TransformerConfig::t5(VOCABULARY, 2, 16)
        .with_heads(3)
        .with_d_head(4)
        .with_d_ff(24)
        .with_dropout(0.0)
        .with_inner_dropouts(0.0, 0.0)
        .with_max_positions(12)
        .with_positions(PositionsConfig::RelativeBias { n_buckets: 6, max_distance: 5 })
        .with_tokens(SpecialTokens::new(1, 2))
}

/// A configuration for each kind of positions and each switch.
pub(super) fn configs() -> Vec<(&'static str, TransformerConfig)> {
    let sinusoidal = |order| PositionsConfig::Sinusoidal { order };
    let mut bart = small()
        .with_positions(PositionsConfig::Learned { offset: 2 })
        .with_activation(Activation::Gelu)
        .with_output_bias(OutputBias::Fixed);
    (bart.embedding_norm, bart.scaled_embeddings) = (true, false);
    vec![
        ("paper", small().with_positions(sinusoidal(SinusoidOrder::Interleaved))),
        ("pre-norm", small().with_norm(NormPlacement::Pre).with_layers(1, 3)),
        ("marian", small().with_activation(Activation::Silu).with_output_bias(OutputBias::Learned)),
        ("bart", bart),
        ("two vocabularies", small().with_source_vocab(37).with_layers(3, 1)),
        ("own output", small().with_tied(TiedEmbeddings::SourceTarget).with_output_bias(OutputBias::Learned)),
        ("shaw", small().with_positions(PositionsConfig::Relative { max_distance: 2, values: true })),
        ("alibi", small().with_positions(PositionsConfig::Alibi)),
        (
            "rotary",
            small().with_positions(PositionsConfig::Rotary { theta: 20.0 }).with_norm(NormPlacement::Pre),
        ),
        ("nothing tied", small().with_tied(TiedEmbeddings::None)),
        ("t5", t5()),
        (
            "t5 1.1",
            TransformerConfig { scaled_output: false, ..t5() }
                .with_gate()
                .with_activation(Activation::GeluTanh)
                .with_tied(TiedEmbeddings::SourceTarget),
        ),
    ]
}

fn model(config: &TransformerConfig, device: &Device) -> Transformer {
    config.init(&mut ParamInit::new(device, 3))
}

fn sources() -> Sequences {
    [&[5, 6, 7, 8, 2][..], &[9, 2], &[10, 11, 12, 13, 14, 15, 2]].into_iter().collect()
}

fn targets() -> Sequences {
    [&[2, 20, 21][..], &[2, 22, 23, 24, 25, 26], &[2]].into_iter().collect()
}

fn close(what: &str, found: &TensorData, expected: &TensorData, tolerance: f32) {
    // The keys' biases shift whole rows of scores: their gradients are rounding noise.
    let scale = expected.iter::<f32>().fold(1e-1, |most: f32, x| most.max(x.abs()));
    assert_eq!(found.shape(), expected.shape(), "{what}");
    for (found, expected) in found.iter::<f32>().zip(expected.iter::<f32>()) {
        assert!((found - expected).abs() <= tolerance * scale, "{what}: {found} is not {expected}");
    }
}

struct Gradients {
    all: GradientsParams,
    found: Vec<Option<TensorData>>,
}

impl ModuleVisitor for Gradients {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push(self.all.remove::<D>(param.id).map(Tensor::into_data));
    }
}

/// The logits, and the gradients of all parameters of a loss that weights each logit.
fn results(
    model: &Transformer,
    source: &Sequences,
    target: &Sequences,
    device: &Device,
) -> (TensorData, Vec<Option<TensorData>>) {
    let logits = model.logits(source, target, device);
    let n = logits.shape().num_elements() as i64;
    let weights = Tensor::<1, Int>::arange(0..n, device).float().sin();
    let loss = (logits.clone().reshape([n as i32]) * weights).sum();
    let all = GradientsParams::from_grads(loss.backward(), model);
    let mut gradients = Gradients { all, found: Vec::new() };
    model.visit(&mut gradients);
    (logits.into_data(), gradients.found)
}

#[test]
fn packed_and_fused_is_padded_and_composed() {
    for (name, config) in configs() {
        let [fused, composed] = devices().map(|device| {
            let model = model(&config, &device);
            let is_biased = matches!(name, "shaw" | "alibi" | "t5" | "t5 1.1");
            assert_eq!(model.takes_packed(), crate::ops::is_fused(&device) && !is_biased, "{name}");
            results(&model, &sources(), &targets(), &device)
        });
        assert_eq!(fused.0.shape().as_slice(), [targets().n_tokens(), VOCABULARY]);
        close(name, &fused.0, &composed.0, 1e-5);
        let paths = weights::shapes(&model(&config, &Device::flex()));
        assert_eq!(paths.len(), fused.1.len());
        for (((path, _), fused), composed) in paths.iter().zip(&fused.1).zip(&composed.1) {
            let what = format!("{name}, gradient of {path}");
            let is_frozen = path == "output_bias" && config.output_bias == OutputBias::Fixed;
            assert_eq!((fused.is_none(), composed.is_none()), (is_frozen, is_frozen), "{what}");
            let (Some(fused), Some(composed)) = (fused, composed) else { continue };
            close(&what, fused, composed, 2e-5);
        }
    }
}

#[test]
fn a_sequence_does_not_depend_on_the_others() {
    for device in devices().map(Device::inner) {
        for (name, config) in configs() {
            let model = model(&config, &device);
            let all = model.logits(&sources(), &targets(), &device);
            let mut start = 0;
            for (source, target) in sources().iter().zip(targets().iter()) {
                let [source, target] = [source, target].map(|ids| [ids].into_iter().collect::<Sequences>());
                let alone = model.logits(&source, &target, &device);
                let expected = all.clone().narrow(0, start, target.n_tokens());
                close(name, &alone.into_data(), &expected.into_data(), 1e-5);
                start += target.n_tokens();
            }
        }
    }
}

#[test]
fn no_target_token_sees_a_later_one() {
    for device in devices() {
        for (name, config) in configs() {
            let model = model(&config, &device);
            let logits = |target: &[i32]| {
                let (source, target) = ([5, 6, 7, 2], [target].into_iter().collect::<Sequences>());
                let source = [&source[..]].into_iter().collect::<Sequences>();
                model.logits(&source, &target, &device)
            };
            let ids = [2, 20, 21, 22, 23];
            let whole = logits(&ids);
            for place in 1..ids.len() {
                let mut other = ids;
                other[place] = 27;
                let other = logits(&other);
                let before = |x: &Tensor<2>| x.clone().narrow(0, 0, place).into_data();
                assert_eq!(before(&other), before(&whole), "{name}");
                let at = |x: &Tensor<2>| x.clone().narrow(0, place, 1).into_data();
                assert_ne!(at(&other), at(&whole), "{name}");
            }
        }
    }
}

#[test]
fn every_target_token_sees_the_whole_source() {
    for device in devices() {
        let model = model(&small(), &device);
        let logits = |source: [i32; 4]| {
            let source = [&source[..]].into_iter().collect::<Sequences>();
            let target = [&[2, 20][..]].into_iter().collect::<Sequences>();
            model.logits(&source, &target, &device)
        };
        let whole = logits([5, 6, 7, 2]);
        for place in 0..4 {
            let mut other = [5, 6, 7, 2];
            other[place] = 27;
            let moved = (logits(other) - whole.clone()).abs().max_dim(1).into_data();
            assert!(moved.iter::<f32>().all(|moved| moved > 1e-4), "{place}");
        }
    }
}

#[test]
fn cached_decoding_is_uncached() {
    for device in devices().map(Device::inner) {
        for (name, config) in configs() {
            let model = model(&config, &device);
            let mut state = model.begin(&sources(), DecodeOptions::default(), &device);
            let rows = [[2, 20, 21, 22], [2, 23, 24, 25], [2, 26, 27, 28]];
            for step in 0..4 {
                let tokens = rows.map(|row| row[step]);
                let output = model.step(&tokens, &mut state);
                assert!(output.alignment.is_none());
                let so_far: Sequences = rows.iter().map(|row| &row[..=step]).collect();
                let all = model.logits(&sources(), &so_far, &device).reshape([3, step + 1, VOCABULARY]);
                let expected = all.narrow(1, step, 1).squeeze_dim::<2>(1);
                close(name, &output.logits.into_data(), &expected.into_data(), 1e-5);
            }
        }
    }
}

#[test]
fn rows_are_reordered_repeated_and_left_out() {
    for device in devices().map(Device::inner) {
        let model = model(&small(), &device);
        for first in [0, 2] {
            // Rows are selected before the first step and after some steps.
            let mut state = model.begin(&sources(), DecodeOptions::default().with_alignment(), &device);
            let written = [[2, 20], [2, 21], [2, 22]];
            for step in 0..first {
                model.step(&written.map(|row| row[step]), &mut state);
            }
            let rows = [2, 0, 0, 2];
            model.select(&mut state, &rows);
            let next = [23, 24, 25, 26];
            let mut output = None;
            for step in first..3 {
                let token = |i: usize| match step {
                    2 => next[i],
                    step => written[rows[i]][step],
                };
                output = Some(model.step(&[0, 1, 2, 3].map(token), &mut state));
            }
            let output = output.unwrap();
            let alignment = output.alignment.unwrap();
            assert_eq!(alignment.dims(), [4, 7]);
            for sum in alignment.clone().sum_dim(1).into_data().iter::<f32>() {
                assert!((sum - 1.0).abs() < 1e-5);
            }
            // Nothing beyond the end of the second source's row.
            let beyond = alignment.slice([1..3, 5..7]).abs().max().into_scalar::<f32>();
            assert!(beyond < 1e-6, "{beyond}");
            let all: Vec<&[i32]> = sources_of(&rows);
            let from: Sequences = all.into_iter().collect();
            let to: Vec<Vec<i32>> =
                rows.iter().zip(next).map(|(row, next)| [&written[*row][..], &[next]].concat()).collect();
            let to: Sequences = to.iter().map(Vec::as_slice).collect();
            let expected = model.logits(&from, &to, &device).reshape([4, 3, VOCABULARY]).narrow(1, 2, 1);
            close("rows", &output.logits.into_data(), &expected.squeeze_dim::<2>(1).into_data(), 1e-5);
        }
    }
}

fn sources_of(rows: &[usize]) -> Vec<&'static [i32]> {
    let all: [&'static [i32]; 3] = [&[5, 6, 7, 8, 2], &[9, 2], &[10, 11, 12, 13, 14, 15, 2]];
    rows.iter().map(|row| all[*row]).collect()
}

#[test]
fn rows_join_others_at_any_time() {
    for device in devices().map(Device::inner) {
        for (name, config) in configs() {
            let model = model(&config, &device);
            let begin = |rows: &[usize]| {
                let sources: Sequences = sources_of(rows).into_iter().collect();
                model.begin(&sources, DecodeOptions::default(), &device)
            };
            // Two rows have three tokens when another joins; then one of them leaves.
            let mut state = begin(&[1, 0]);
            for token in [2, 20, 21] {
                model.step(&[token, token + 1], &mut state);
            }
            model.join(&mut state, begin(&[2]));
            model.step(&[22, 23, 2], &mut state);
            let mut later = begin(&[1]);
            model.step(&[2], &mut later);
            model.join(&mut later, state);
            model.select(&mut later, &[3, 1, 0]);
            let output = model.step(&[24, 25, 26], &mut later);
            let targets = [&[2, 24][..], &[2, 20, 21, 22, 25], &[2, 26]];
            for (row, (source, target)) in sources_of(&[2, 1, 1]).into_iter().zip(targets).enumerate() {
                let [from, to] = [source, target].map(|ids| [ids].into_iter().collect::<Sequences>());
                let expected = model.logits(&from, &to, &device).narrow(0, target.len() - 1, 1);
                let found = output.logits.clone().narrow(0, row, 1);
                close(name, &found.into_data(), &expected.into_data(), 1e-5);
            }
            // The remaining rows are shorter than the removed ones.
            model.select(&mut later, &[2, 0]);
            let output = model.step(&[27, 28], &mut later);
            let to: Sequences = [&[2, 26, 27][..], &[2, 24, 28]].into_iter().collect();
            let from: Sequences = sources_of(&[1, 2]).into_iter().collect();
            let expected = model.logits(&from, &to, &device).reshape([2, 3, VOCABULARY]).narrow(1, 2, 1);
            close(name, &output.logits.into_data(), &expected.squeeze_dim::<2>(1).into_data(), 1e-5);
        }
    }
}

#[test]
fn a_looked_up_padding_piece_is_not_trained() {
    for device in devices() {
        let mut config = small().with_tied(TiedEmbeddings::None);
        config.tokens = SpecialTokens::new(1, 2).with_decoder_start(1);
        let model = model(&config, &device);
        let targets: Sequences = [&[1, 20, 21][..], &[1, 22]].into_iter().collect();
        let sources: Sequences = [&[5, 2][..], &[9, 8, 2]].into_iter().collect();
        let loss = model.logits(&sources, &targets, &device).powi_scalar(2).sum();
        let mut grads = GradientsParams::from_grads(loss.backward(), &model);
        let gradient = grads.remove::<2>(model.target_embeddings.weight.id).unwrap();
        let sums: Vec<f32> = gradient.abs().sum_dim(1).into_data().iter().collect();
        assert_eq!(sums[1], 0.0);
        assert!(sums[20] > 0.0 && sums[22] > 0.0);
    }
}

/// The piece that begins targets in T5 is the padding piece.
#[test]
fn t5_trains_its_padding_piece() {
    for device in devices() {
        let model = model(&t5().with_tokens(SpecialTokens::new(0, 1).with_decoder_start(0)), &device);
        let targets: Sequences = [&[0, 20, 21][..], &[0, 22]].into_iter().collect();
        let sources: Sequences = [&[5, 1][..], &[9, 8, 1]].into_iter().collect();
        // Of the tied table, the logits of a later piece alone reach only what was looked up, and that piece.
        let loss = model.logits(&sources, &targets, &device).narrow(1, 27, 1).sum();
        let mut grads = GradientsParams::from_grads(loss.backward(), &model);
        let gradient = grads.remove::<2>(model.target_embeddings.weight.id).unwrap();
        let sums: Vec<f32> = gradient.abs().sum_dim(1).into_data().iter().collect();
        assert!(sums[0] > 0.0 && sums[20] > 0.0 && sums[11] == 0.0, "{sums:?}");
    }
}

#[test]
fn dropout_acts_on_the_last_states_of_a_t5() {
    let device = Device::flex().autodiff();
    let of = |config: &TransformerConfig| {
        let model = model(config, &device);
        [model.encoder.output_dropout, model.decoder.output_dropout]
    };
    assert_eq!(of(&t5().with_dropout(0.3)), [0.3; 2]);
    assert_eq!(of(&TransformerConfig { output_dropout: false, ..t5().with_dropout(0.3) }), [0.0; 2]);
    let run = |model: &Transformer| model.logits(&sources(), &targets(), &device).into_data();
    let mut model = model(&t5(), &device);
    assert_eq!(run(&model), run(&model));
    model.encoder.output_dropout = 0.5;
    assert_ne!(run(&model), run(&model));
    (model.encoder.output_dropout, model.decoder.output_dropout) = (0.0, 0.5);
    assert_ne!(run(&model), run(&model));
}

#[test]
fn dropout_acts_in_training_only_and_is_seeded() {
    for device in devices() {
        let config = small().with_dropout(0.1).with_inner_dropouts(0.1, 0.1);
        let model = model(&config, &device);
        let run = |seed| {
            device.seed(seed);
            results(&model, &sources(), &targets(), &device)
        };
        assert!(run(1) == run(1) && run(1).0 != run(2).0);
        let (valid, device) = (model.valid(), device.clone().inner());
        let run = || valid.logits(&sources(), &targets(), &device).into_data();
        assert_eq!(run(), run());
    }
}

#[test]
fn weights_may_be_laid_out_for_inference() {
    let device = Device::flex();
    let mut model = model(&small(), &device);
    let run = |model: &Transformer| model.logits(&sources(), &targets(), &device).into_data();
    let plain = run(&model);
    assert_eq!(model.linear_maps_mut().len(), 2 * 6 + 2 * 10 + 1);
    pack_weights(&mut model);
    run(&model).assert_approx_eq::<f32>(&plain, Tolerance::rel_abs(1e-4, 1e-4));
    quantize_int8(&mut model);
    close("8 bits", &run(&model), &plain, 0.1);
}

#[test]
#[should_panic(expected = "a source of 13 tokens, but the model has 12 positions")]
fn a_source_may_be_too_long() {
    let device = Device::flex();
    let source: Sequences = [&[5; 13][..]].into_iter().collect();
    model(&small(), &device).encode(&source, &device);
}

#[test]
#[should_panic(expected = "a row has 12 tokens, as many as the model has positions")]
fn a_target_ends_with_the_positions() {
    let device = Device::flex();
    let model = model(&small(), &device);
    let mut state = model.begin(&sources(), DecodeOptions::default(), &device);
    for _ in 0..13 {
        model.step(&[3, 3, 3], &mut state);
    }
}
