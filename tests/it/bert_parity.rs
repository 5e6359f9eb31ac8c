//! BERT against transformers' `BertForPreTraining`: `tests/fixtures/bert_pretraining/export.py`.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_model::bert::{BertForPreTraining, BertInput};
use cloze_model::blocks::EncoderTrace;
use cloze_model::huggingface::{Architecture, PretrainedFolder, SaveConfig, read_tensors, save_pretrained};
use cloze_model::{ParamInit, ops, weights};

/// Largest error allowed, relative to the largest absolute value of the tensor.
pub const TOLERANCE: f32 = 1e-4;

pub fn assert_close(what: &str, actual: &TensorData, expected: &TensorData) {
    let error = relative_error(actual, expected);
    assert!(error <= TOLERANCE, "{what}: off by {error:e} of its scale, allowed {TOLERANCE:e}");
}

pub fn load(device: &Device) -> BertForPreTraining {
    let pretrained = PretrainedFolder::open(&fixture("bert_pretraining")).unwrap();
    let encoder = pretrained.encoder(Architecture::PreTraining);
    let model = encoder.init(&mut ParamInit::new(device, 0).deferred());
    let (model, report) = pretrained.load_into(model, Architecture::PreTraining, &[]).unwrap();
    assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{report:?}");
    model
}

fn input(golden: &Golden, device: &Device) -> BertInput {
    BertInput::new(golden.int("input_ids", device))
        .with_token_types(golden.int("token_type_ids", device))
        .with_pad_mask(Tensor::<2, Bool>::from_data(golden.data("pad_mask"), device))
}

#[test]
fn logits_states_and_attention_equal_transformers() {
    let device = Device::flex();
    let golden = Golden::open(&fixture("bert_pretraining"));
    let model = load(&device);
    let trace = EncoderTrace { hidden_states: true, attentions: true };
    let output = model.bert.forward(input(&golden, &device).with_trace(trace));
    assert_eq!((output.hidden_states.len(), output.attentions.len()), (3, 2));
    for (i, states) in output.hidden_states.into_iter().enumerate() {
        let expected = golden.data(&format!("hidden_states.{i}"));
        assert_close(&format!("hidden state {i}"), &states.into_data(), &expected);
    }
    for (i, weights) in output.attentions.into_iter().enumerate() {
        let expected = golden.data(&format!("attentions.{i}"));
        assert_close(&format!("attention {i}"), &weights.into_data(), &expected);
    }
    let [batch, len, _] = output.last_hidden_state.dims();
    let every = Tensor::<1, Int>::arange(0..(batch * len) as i64, &device);
    let logits = model.forward(input(&golden, &device), every);
    let mlm = logits.mlm.reshape([batch as i32, len as i32, -1]).into_data();
    assert_close("masked-LM logits", &mlm, &golden.data("mlm_logits"));
    let expected = golden.data("next_sentence_logits");
    assert_close("next-sentence logits", &logits.next_sentence.unwrap().into_data(), &expected);
}

#[test]
fn losses_and_every_gradient_equal_transformers() {
    let device = Device::flex().autodiff();
    let golden = Golden::open(&fixture("bert_pretraining"));
    let model = load(&device);

    let labels: Vec<i64> = golden.data("labels").iter::<i64>().collect();
    let positions: Vec<i64> = (0..labels.len() as i64).filter(|i| labels[*i as usize] >= 0).collect();
    let labels: Vec<i64> = labels.into_iter().filter(|label| *label >= 0).collect();
    let n = labels.len();
    let positions = Tensor::from_data(TensorData::new(positions, [n]), &device);
    let labels = Tensor::from_data(TensorData::new(labels, [n]), &device);

    let logits = model.forward(input(&golden, &device), positions);
    let mlm = ops::cross_entropy(logits.mlm, labels).mean();
    let pairs = golden.int("next_sentence_label", &device);
    let nsp = ops::cross_entropy(logits.next_sentence.unwrap(), pairs).mean();
    let scalar = |loss: &Tensor<1>| loss.clone().into_data().iter::<f32>().next().unwrap();
    let golden_scalar = |name: &str| golden.data(name).iter::<f32>().next().unwrap();
    assert!((scalar(&mlm) - golden_scalar("mlm_loss")).abs() < TOLERANCE);
    assert!((scalar(&nsp) - golden_scalar("next_sentence_loss")).abs() < TOLERANCE);

    // The gradients take the parameters' places, so that the saver names and transposes them.
    let grads = GradientsParams::from_grads((mlm + nsp).backward(), &model);
    let inner = model.valid();
    let as_model = weights::replace(inner, gradients_of(&model, grads));
    let folder = tempfile::tempdir().unwrap();
    let config = PretrainedFolder::open(&fixture("bert_pretraining")).unwrap().config.encoder;
    let save = SaveConfig::new(Architecture::PreTraining);
    save_pretrained(folder.path(), &as_model, &config, &save).unwrap();
    let found = read_tensors(&folder.path().join("model.safetensors")).unwrap();
    assert_eq!(found.len(), 46, "all parameters of the reference model");
    for (name, gradient) in &found {
        assert_close(&format!("gradient of {name}"), gradient, &golden.data(&format!("grad.{name}")));
    }
}

#[test]
fn padding_a_batch_changes_no_unpadded_result() {
    let device = Device::flex();
    let golden = Golden::open(&fixture("bert_pretraining"));
    let model = load(&device);
    let padded = model.bert.forward(input(&golden, &device)).last_hidden_state;
    for (row, len) in [13, 9, 5].into_iter().enumerate() {
        let cut = |name| golden.int::<2>(name, &device).slice([row..row + 1, 0..len]);
        let alone = BertInput::new(cut("input_ids")).with_token_types(cut("token_type_ids"));
        let alone = model.bert.forward(alone).last_hidden_state.into_data();
        let padded = padded.clone().slice([row..row + 1, 0..len, 0..24]).into_data();
        let error = relative_error(&padded, &alone);
        assert!(error <= 1e-5, "row {row}: padding changes the result by {error:e}");
    }
}
