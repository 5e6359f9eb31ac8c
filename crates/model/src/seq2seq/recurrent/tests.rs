//! Decoding step by step equals teacher forcing for every wiring, and user settings are checked.

use super::*;
use crate::generate::NextToken;
use crate::recurrent::{Cell, Reading};
use crate::scores::ScoreKind;
use crate::seq2seq::{DecodeOptions, EncoderDecoder, TiedEmbeddings};
use crate::{ParamInit, Sequences};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData, Tolerance};

const WIRINGS: [Wiring; 4] = [Wiring::None, Wiring::Bahdanau, Wiring::Luong, Wiring::LuongInputFeeding];

/// Configurations that together use every switch.
fn configs() -> Vec<RecurrentEncoderDecoderConfig> {
    let base = RecurrentEncoderDecoderConfig::new(23, 6, 8);
    let mut all = Vec::new();
    for wiring in WIRINGS {
        let plain = RecurrentEncoderDecoderConfig { wiring, ..base.clone() };
        all.push(plain.clone());
        all.push(RecurrentEncoderDecoderConfig {
            cell: Cell::Gru,
            n_encoder_layers: 2,
            n_decoder_layers: 2,
            bridge: BridgeKind::Copy,
            reading: Reading::Reverse,
            score: ScoreKind::General,
            tied: TiedEmbeddings::None,
            source_vocab_size: Some(31),
            ..plain.clone()
        });
        all.push(RecurrentEncoderDecoderConfig {
            n_decoder_layers: 3,
            n_encoder_layers: 2,
            score: ScoreKind::Location,
            max_source_tokens: (wiring != Wiring::None).then_some(9),
            tied: TiedEmbeddings::SourceTarget,
            ..plain
        });
    }
    all
}

fn sources() -> Sequences {
    [&[5, 6, 7, 2][..], &[8, 2], &[9, 10, 11, 12, 2]].into_iter().collect()
}

fn targets() -> Sequences {
    [&[2, 9][..], &[2, 10, 11, 12], &[2, 13, 14]].into_iter().collect()
}

fn model(config: &RecurrentEncoderDecoderConfig, device: &Device) -> RecurrentEncoderDecoder {
    config.init(&mut ParamInit::new(device, 4))
}

fn close(found: Tensor<2>, expected: Tensor<2>) {
    found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
}

#[test]
fn a_step_gives_what_teacher_forcing_gives() {
    let device = Device::flex();
    for config in configs() {
        let model = model(&config, &device);
        let all = model.logits(&sources(), &targets(), &device);
        assert_eq!(all.dims(), [9, 23]);
        let mut state = model.begin(&sources(), DecodeOptions::default().with_alignment(), &device);
        let targets: Vec<Vec<i32>> = targets().iter().map(<[i32]>::to_vec).collect();
        for step in 0..4 {
            let tokens: Vec<i32> =
                targets.iter().map(|target| target.get(step).copied().unwrap_or(2)).collect();
            let output = model.step(&tokens, &mut state);
            let mut token = 0;
            for (row, target) in targets.iter().enumerate() {
                if step < target.len() {
                    close(output.logits.clone().narrow(0, row, 1), all.clone().narrow(0, token + step, 1));
                }
                token += target.len();
            }
            assert_eq!(output.alignment.is_some(), config.wiring != Wiring::None);
            if let Some(alignment) = output.alignment {
                assert_eq!(alignment.dims(), [3, 5]);
                let sums: Vec<f32> = alignment.clone().sum_dim(1).into_data().iter().collect();
                assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5));
                let beyond: Vec<f32> = alignment.slice([1..2, 2..5]).into_data().iter().collect();
                assert_eq!(beyond, [0.0; 3]);
            }
        }
    }
}

#[test]
fn a_sentence_does_not_depend_on_the_others() {
    let device = Device::flex();
    for config in configs() {
        let model = model(&config, &device);
        let all = model.logits(&sources(), &targets(), &device);
        let mut start = 0;
        for (source, target) in sources().iter().zip(targets().iter()) {
            let [source, target] = [source, target].map(|ids| [ids].into_iter().collect::<Sequences>());
            let alone = model.logits(&source, &target, &device);
            close(alone, all.clone().narrow(0, start, target.n_tokens()));
            start += target.n_tokens();
        }
    }
}

#[test]
fn rows_are_chosen_and_joined() {
    let device = Device::flex();
    for config in configs() {
        let model = model(&config, &device);
        let begin = |sources: &Sequences| model.begin(sources, DecodeOptions::default(), &device);
        let mut all = begin(&sources());
        model.step(&[2, 2, 2], &mut all);
        let expected = model.step(&[9, 10, 13], &mut all.clone()).logits;
        let mut chosen = all.clone();
        model.select(&mut chosen, &[2, 0, 2]);
        let found = model.step(&[13, 9, 13], &mut chosen).logits;
        for (row, of) in [2, 0, 2].into_iter().enumerate() {
            close(found.clone().narrow(0, row, 1), expected.clone().narrow(0, of, 1));
        }
        // The second sentence begins one token later than the first.
        let alone = |row: usize| [sources().iter().nth(row).unwrap()].into_iter().collect::<Sequences>();
        let mut joined = begin(&alone(1));
        model.step(&[2], &mut joined);
        let first = model.step(&[10], &mut joined.clone()).logits;
        model.join(&mut joined, begin(&alone(2)));
        let both = model.step(&[10, 2], &mut joined).logits;
        close(both.clone().narrow(0, 0, 1), first);
        close(both.narrow(0, 1, 1), model.step(&[2], &mut begin(&alone(2))).logits);
    }
}

/// The gradient of every parameter by its path.
struct Collected {
    grads: Gradients,
    path: Vec<String>,
    found: Vec<(String, TensorData)>,
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
        self.found.push((path, gradient.into_data()));
    }
}

#[test]
fn fused_and_composed_agree() {
    let fused = Device::flex().autodiff();
    let composed = fused.clone().gradient_checkpointing();
    for config in configs() {
        let config = RecurrentEncoderDecoderConfig { dropout: 0.0, ..config };
        let run = |device: &Device| -> Vec<(String, TensorData)> {
            let model = model(&config, device);
            let logits = model.logits(&sources(), &targets(), device);
            let weights = ParamInit::new(device, 9).uniform([9, 23], 1.0).val().detach();
            let grads = (logits.clone() * weights).sum().backward();
            let mut visitor = Collected { grads, path: Vec::new(), found: Vec::new() };
            model.visit(&mut visitor);
            visitor.found.push(("logits".into(), logits.into_data()));
            visitor.found
        };
        let (fused, composed) = (run(&fused), run(&composed));
        assert_eq!(fused.len(), composed.len());
        for ((path, fused), (other, composed)) in fused.iter().zip(&composed) {
            assert_eq!(path, other);
            fused.assert_approx_eq::<f32>(composed, Tolerance::rel_abs(1e-3, 1e-4));
        }
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let base = RecurrentEncoderDecoderConfig::new(23, 6, 8);
    let refused = |config: RecurrentEncoderDecoderConfig| config.validate().unwrap_err().to_string();
    let odd = RecurrentEncoderDecoderConfig { d_model: 7, ..base.clone() };
    assert_eq!(
        refused(odd),
        "model configuration: `d_model` is 7, expected an even number, half of it for each direction"
    );
    let copied =
        RecurrentEncoderDecoderConfig { bridge: BridgeKind::Copy, n_decoder_layers: 2, ..base.clone() };
    assert!(refused(copied).contains("`n_decoder_layers` is 2"));
    let joint = RecurrentEncoderDecoderConfig { source_vocab_size: Some(40), ..base.clone() };
    assert!(refused(joint).contains("`tied` is All"));
    let location = RecurrentEncoderDecoderConfig { score: ScoreKind::Location, ..base.clone() };
    assert!(refused(location).contains("`max_source_tokens` is missing"));
    let unread = RecurrentEncoderDecoderConfig { max_source_tokens: Some(4), ..base.clone() };
    assert!(refused(unread).contains("`max_source_tokens` is 4"));
    let empty = RecurrentEncoderDecoderConfig { n_encoder_layers: 0, ..base };
    assert!(refused(empty).contains("`n_encoder_layers` is 0, expected at least 1"));
}

#[test]
fn tied_parameters_are_there_once() {
    let device = Device::flex();
    let paths = |config: &RecurrentEncoderDecoderConfig| -> Vec<String> {
        crate::weights::shapes(&model(config, &device)).into_iter().map(|(path, _)| path).collect()
    };
    let base = RecurrentEncoderDecoderConfig::new(23, 6, 8);
    let tied = paths(&base);
    assert!(!tied.iter().any(|path| path.starts_with("source_embedding") || path.starts_with("output.")));
    let untied = paths(&RecurrentEncoderDecoderConfig { tied: TiedEmbeddings::None, ..base });
    assert!(
        untied.contains(&"source_embedding.weight".to_string())
            && untied.contains(&"output.weight".to_string())
    );
    assert!(untied.contains(&"decoder.0.recurrent".to_string()));
    assert!(untied.contains(&"attention.additive.v".to_string()));
}
