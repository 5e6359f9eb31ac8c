//! The attention of every family against transformers' eager classes, and what an observer may do with it.

use crate::families::Case;
use crate::golden::{Golden, fixture};
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::bert::BertInput;
use cloze_model::blocks::{SeenAttention, observe_attention, record_pass, replace_embeddings};
use cloze_model::generate::NextToken;
use cloze_model::gpt::{Gpt, GptConfig};
use cloze_model::huggingface::load_published;
use cloze_model::ops::as_inference;
use cloze_model::seq2seq::{
    AnyEncoderDecoder, AnyEncoderDecoderConfig, ConvolutionalEncoderDecoderConfig, DecodeOptions,
    EncoderDecoder, RecurrentEncoderDecoderConfig, Transformer, TransformerConfig, Wiring,
};
use cloze_model::{ParamInit, Sequences};
use std::cell::RefCell;
use std::rc::Rc;

const SEQ2SEQ: [&str; 9] = [
    "marian",
    "marian_separate",
    "marian_untied",
    "bart",
    "bart_scaled",
    "t5",
    "t5_gated",
    "mt5",
    "bart_uneven",
];

/// What is seen while something runs, and its result.
fn seen<R>(run: impl FnOnce() -> R) -> (R, Vec<SeenAttention>) {
    let all = Rc::new(RefCell::new(Vec::new()));
    let observer = {
        let all = all.clone();
        move |attention| {
            all.borrow_mut().push(attention);
            None
        }
    };
    let result = observe_attention(observer, run);
    (result, all.take())
}

fn golden() -> Golden {
    Golden::read(&fixture("inspection").join("attention.safetensors"))
}

/// Layers of one kind against the golden ones, `[heads, queries, keys]`, within 1e-5.
fn check(golden: &Golden, name: &str, layers: &[&SeenAttention]) {
    let expected = (0..).take_while(|layer| golden.has(&format!("{name}.{layer}"))).count();
    assert!(expected > 0 && layers.len() == expected, "{name}: {} layers, expected {expected}", layers.len());
    for (number, layer) in layers.iter().enumerate() {
        let found = layer.probabilities.clone().expect("probabilities").squeeze_dim::<3>(0).into_data();
        let expected = golden.data(&format!("{name}.{number}"));
        assert_eq!(found.shape(), expected.shape(), "{name}.{number}");
        let pairs = found.iter::<f32>().zip(expected.iter::<f32>());
        let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart <= 1e-5, "{name}.{number}: {apart:e}");
        check_rows(name, layer);
        check_scores(name, layer);
    }
}

/// Rows sum to 1.
fn check_rows(name: &str, layer: &SeenAttention) {
    let sums = layer.probabilities.clone().expect("probabilities").sum_dim(3).into_data();
    assert!(sums.iter::<f32>().all(|sum| (sum - 1.0).abs() < 1e-5), "{name}: {sums}");
}

/// Queries, keys and positions make the probabilities, among the keys that are seen.
fn check_scores(name: &str, layer: &SeenAttention) {
    let (Some(parts), Some(probabilities)) = (&layer.scores, &layer.probabilities) else { return };
    let [_, n_heads, q_len, k_len] = probabilities.dims();
    let [_, n_kv_heads, _, width] = parts.keys.dims();
    let keys = parts.keys.clone().unsqueeze_dim::<5>(2);
    let keys = keys.expand([1, n_kv_heads, n_heads / n_kv_heads, k_len, width]);
    let keys = keys.reshape([1, n_heads, k_len, width]);
    let scores = parts.queries.clone().matmul(keys.swap_dims(2, 3)).div_scalar(parts.scale);
    let scores = match &parts.positions {
        Some(positions) => scores + positions.clone().expand([1, n_heads, q_len, k_len]),
        None => scores,
    };
    let [scores, shares] =
        [scores, probabilities.clone()].map(|x| x.into_data().iter::<f32>().collect::<Vec<_>>());
    for (scores, shares) in scores.chunks(k_len).zip(shares.chunks(k_len)) {
        let exponential = |(score, share): (&f32, &f32)| if *share > 0.0 { score.exp() } else { 0.0 };
        let all: Vec<f32> = scores.iter().zip(shares).map(exponential).collect();
        let sum: f32 = all.iter().sum();
        let apart = all.iter().zip(shares).map(|(a, b)| (a / sum - b).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-4, "{name}: {apart:e}");
    }
}

fn close(name: &str, found: &TensorData, expected: &TensorData) {
    let pairs = found.iter::<f32>().zip(expected.iter::<f32>());
    let apart = pairs.map(|(a, b)| (a - b).abs() / (1.0 + b.abs())).fold(0.0, f32::max);
    assert!(apart < 1e-5, "{name}: {apart:e}");
}

/// The first head's model of each family.
fn families() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for case in Case::all() {
        if !cases.iter().any(|known| known.family() == case.family()) {
            cases.push(case);
        }
    }
    cases
}

/// The second sequence of a case, by itself or at the beginning of a padded row.
fn input(case: &Case, padded: bool, device: &Device) -> BertInput {
    let ignored: Vec<bool> = case.golden.data("pad_mask").iter::<bool>().collect();
    let len = case.golden.data("input_ids").shape()[1];
    let n = ignored[len..2 * len].iter().filter(|ignored| !**ignored).count();
    let row = |name| {
        let all: Vec<i32> = case.golden.data(name).iter::<i32>().collect();
        let row = if padded { &all[len..2 * len] } else { &all[len..len + n] };
        Tensor::<2, Int>::from_data(TensorData::new(row.to_vec(), [1, row.len()]), device)
    };
    let input = BertInput::new(row("input_ids")).with_token_types(row("token_type_ids"));
    match padded {
        true => {
            let ignored = TensorData::new(ignored[len..2 * len].to_vec(), [1, len]);
            input.with_pad_mask(Tensor::from_data(ignored, device))
        }
        false => input,
    }
}

#[test]
fn attention_of_encoders_equals_transformers() {
    let (golden, device) = (golden(), Device::flex());
    let mut compared = 0;
    for case in families() {
        let (_, model, _) = case.open().load_encoder(&mut ParamInit::new(&device, 0)).unwrap();
        let (output, layers) = seen(|| model.forward(input(&case, false, &device)).last_hidden_state);
        let plain = model.forward(input(&case, false, &device)).last_hidden_state;
        close(&case.name, &output.into_data(), &plain.into_data());
        assert!(layers.iter().all(|layer| !layer.is_cross));
        // Those of the authors' own classes have no counterpart there.
        if !["nomic-published", "gte-new"].contains(&case.family()) {
            check(&golden, case.family(), &layers.iter().collect::<Vec<_>>());
            compared += 1;
        }
        // Padding is seen by nobody.
        let (_, padded) = seen(|| model.forward(input(&case, true, &device)));
        for (padded, layer) in padded.iter().zip(&layers) {
            let (padded, layer) =
                (padded.probabilities.clone().unwrap(), layer.probabilities.clone().unwrap());
            let [_, heads, n, _] = layer.dims();
            let len = padded.dims()[3];
            let rows = padded.narrow(2, 0, n);
            assert_eq!(rows.clone().narrow(3, n, len - n).abs().max().into_scalar::<f32>(), 0.0);
            let rows = rows.narrow(3, 0, n).reshape([1, heads, n, n]);
            assert!((rows - layer).abs().max().into_scalar::<f32>() < 1e-5, "{}", case.name);
        }
    }
    assert_eq!(compared, 25);
}

#[test]
fn attention_of_left_to_right_models_equals_transformers() {
    let (golden, device) = (golden(), Device::flex());
    for name in ["gpt2", "llama", "llama_linear", "mistral", "qwen2"] {
        let folder = fixture("decoders").join(name);
        let (_, model, _): (GptConfig, Gpt, _) =
            load_published(&folder, &mut ParamInit::new(&device, 1)).unwrap();
        let ids: Vec<i32> = Golden::open(&folder).data("input_ids").iter::<i32>().take(13).collect();
        let sequences: Sequences = [&ids[..]].into_iter().collect();
        let (logits, layers) = seen(|| model.logits(&sequences, &device).into_data());
        close(name, &logits, &model.logits(&sequences, &device).into_data());
        check(&golden, &format!("decoders.{name}"), &layers.iter().collect::<Vec<_>>());
        // No later token is seen.
        for layer in &layers {
            let above = layer.probabilities.clone().unwrap().triu(1);
            assert_eq!(above.abs().max().into_scalar::<f32>(), 0.0, "{name}");
        }
    }
}

/// One source and its target.
fn sentence(golden: &Golden, side: &str) -> Sequences {
    let n = golden.data(&format!("{side}_lengths")).iter::<i64>().next().unwrap() as usize;
    let ids: Vec<i32> = golden.data(side).iter::<i32>().take(n).collect();
    [&ids[..]].into_iter().collect()
}

#[test]
fn attention_of_encoder_decoders_equals_transformers() {
    let (golden, device) = (golden(), Device::flex());
    for name in SEQ2SEQ {
        let folder = fixture("seq2seq_families").join(name);
        let (_, model, _): (TransformerConfig, Transformer, _) =
            load_published(&folder, &mut ParamInit::new(&device, 0)).unwrap();
        let file = Golden::open(&folder);
        let (source, target) = (sentence(&file, "source"), sentence(&file, "target"));
        let (logits, layers) = seen(|| model.logits(&source, &target, &device).into_data());
        close(name, &logits, &model.logits(&source, &target, &device).into_data());
        let n_encoder = model.encoder.order.len();
        let (encoder, rest) = layers.split_at(n_encoder);
        let (cross, own): (Vec<_>, Vec<_>) = rest.iter().partition(|layer| layer.is_cross);
        check(&golden, &format!("{name}.encoder"), &encoder.iter().collect::<Vec<_>>());
        check(&golden, &format!("{name}.decoder"), &own);
        check(&golden, &format!("{name}.cross"), &cross);
        // The states of the decoder are recorded, the last ones normalised.
        let (logits_again, pass) = record_pass(|| model.logits(&source, &target, &device).into_data());
        close(name, &logits_again, &logits);
        assert_eq!(pass.states.len(), own.len() + 1, "{name}");
        close(name, &model.project(pass.states.last().unwrap().clone()).into_data(), &logits);
    }
}

#[test]
fn alignments_of_recurrent_and_convolutional_models_are_those_of_decoding() {
    let device = Device::flex();
    let recurrent =
        |wiring| RecurrentEncoderDecoderConfig { wiring, ..RecurrentEncoderDecoderConfig::new(20, 8, 8) };
    let configs: [AnyEncoderDecoderConfig; 4] = [
        recurrent(Wiring::Bahdanau).into(),
        recurrent(Wiring::Luong).into(),
        recurrent(Wiring::LuongInputFeeding).into(),
        ConvolutionalEncoderDecoderConfig::new(20, 6, 8).into(),
    ];
    for config in configs {
        let model = config.init(&mut ParamInit::new(&device, 3).with_std(0.4));
        let (source, target) = ([5, 6, 9, 4, 2], [2, 9, 7, 8]);
        let source: Sequences = [&source[..]].into_iter().collect();
        let targets: Sequences = [&target[..]].into_iter().collect();
        let (logits, layers) = seen(|| model.logits(&source, &targets, &device).into_data());
        close("alignments", &logits, &model.logits(&source, &targets, &device).into_data());
        assert!(layers.iter().all(|layer| layer.is_cross));
        layers.iter().for_each(|layer| check_rows("alignments", layer));
        // `[layers · queries, keys]`: a convolutional model's layers one after another, of a recurrent one the steps.
        let rows =
            layers.iter().map(|layer| layer.probabilities.clone().unwrap().flatten::<2>(0, 2)).collect();
        let rows = Tensor::<2>::cat(rows, 0);
        assert_eq!(rows.dims()[1], 5);
        let n_layers = rows.dims()[0] / target.len();
        let mean = rows.reshape([n_layers, target.len(), 5]).mean_dim(0).squeeze_dim::<2>(0);
        let mut state = model.begin(&source, DecodeOptions::default().with_alignment(), &device);
        let steps = target.iter().map(|token| model.step(&[*token], &mut state).alignment.unwrap());
        let steps = Tensor::cat(steps.collect(), 0);
        assert!((mean - steps).abs().max().into_scalar::<f32>() < 1e-5);
        let expected = match &model {
            AnyEncoderDecoder::Convolutional(model) => model.decoder.len(),
            _ => 1,
        };
        assert_eq!(n_layers, expected);
    }
}

#[test]
fn probabilities_may_be_replaced_and_have_gradients() {
    let device = Device::flex().autodiff();
    let case = families().remove(0);
    let (_, model, _) = case.open().load_encoder(&mut ParamInit::new(&device, 0)).unwrap();
    let score = |shift: f32| {
        let leaves = Rc::new(RefCell::new(Vec::new()));
        let observer = {
            let leaves = leaves.clone();
            move |attention: SeenAttention| {
                let probabilities = attention.probabilities?;
                // The first head's share of its second query to its third key, in the first layer.
                let is_first = leaves.borrow().is_empty();
                let change = if is_first { shift } else { 0.0 };
                let leaf = probabilities.zeros_like().slice_assign(
                    [0..1, 0..1, 1..2, 2..3],
                    Tensor::full([1, 1, 1, 1], change, &probabilities.device()),
                );
                let leaf = leaf.detach().require_grad();
                leaves.borrow_mut().push(leaf.clone());
                Some(probabilities + leaf)
            }
        };
        let states = as_inference(|| {
            observe_attention(observer, || model.forward(input(&case, false, &device)).last_hidden_state)
        });
        let n = states.shape().num_elements() as i64;
        let weights = Tensor::<1, Int>::arange(0..n, &device).float().sin();
        let score = (states.reshape([n as i32]) * weights).sum();
        let leaf = leaves.borrow()[0].clone();
        (score, leaf)
    };
    let (middle, leaf) = score(0.0);
    let gradient =
        leaf.grad(&middle.backward()).unwrap().slice([0..1, 0..1, 1..2, 2..3]).into_scalar::<f32>();
    let [more, less] = [0.02, -0.02].map(|shift| score(shift).0.into_scalar::<f32>());
    let slope = (more - less) / 0.04;
    assert!((slope - gradient).abs() < 0.02 * slope.abs().max(0.05), "{slope}, {gradient}");
}

#[test]
fn embeddings_may_be_replaced() {
    let device = Device::flex();
    for case in families().into_iter().take(4) {
        let (_, model, _) = case.open().load_encoder(&mut ParamInit::new(&device, 0)).unwrap();
        let tables = vec![model.embeddings.tokens.weight.id];
        let states = |replace: fn(Tensor<3>) -> Tensor<3>| {
            replace_embeddings(tables.clone(), replace, || {
                model.forward(input(&case, false, &device)).last_hidden_state.into_data()
            })
        };
        let plain = model.forward(input(&case, false, &device)).last_hidden_state.into_data();
        assert_eq!(states(|x| x), plain);
        assert_ne!(states(|x| x.zeros_like()), plain);
    }
}
