//! BERT against transformers' `BertForPreTraining`: `tests/fixtures/bert_pretraining/export.py`.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_model::bert::{BertForPreTraining, BertInput};
use cloze_model::blocks::EncoderTrace;
use cloze_model::{ParamInit, huggingface, ops, weights};
use safetensors::{SafeTensors, tensor::Dtype};
use std::path::{Path, PathBuf};

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-4;

struct Golden(Vec<u8>);

impl Golden {
    fn open(folder: &Path) -> Self {
        Self(std::fs::read(folder.join("golden.safetensors")).unwrap())
    }

    fn data(&self, name: &str) -> TensorData {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let view = file.tensor(name).unwrap_or_else(|_| panic!("no golden tensor `{name}`"));
        let shape = view.shape().to_vec();
        let bytes = view.data();
        match view.dtype() {
            Dtype::F32 => TensorData::new(chunks(bytes, f32::from_le_bytes), shape),
            Dtype::I64 => TensorData::new(chunks(bytes, i64::from_le_bytes), shape),
            Dtype::U8 => TensorData::new(bytes.iter().map(|b| *b != 0).collect(), shape),
            other => panic!("{other:?}"),
        }
    }

    fn int<const D: usize>(&self, name: &str, device: &Device) -> Tensor<D, Int> {
        Tensor::from_data(self.data(name), device)
    }
}

fn chunks<T, const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|chunk| convert(*chunk)).collect()
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/bert_pretraining")
}

/// The largest error relative to the expected tensor's scale.
///
/// The scale has a floor: the keys' biases shift a whole row of scores, which softmax ignores, so
/// their true gradient is zero and both sides hold rounding noise of about 1e-9.
fn relative_error(actual: &TensorData, expected: &TensorData) -> f32 {
    assert_eq!(actual.shape(), expected.shape());
    let scale = expected.iter::<f32>().fold(0f32, |a, v| a.max(v.abs())).max(1e-3);
    let error = actual
        .iter::<f32>()
        .zip(expected.iter::<f32>())
        .fold(0f32, |worst, (a, e)| if (a - e).is_nan() { f32::NAN } else { worst.max((a - e).abs()) });
    error / scale
}

fn assert_close(what: &str, actual: &TensorData, expected: &TensorData) {
    let error = relative_error(actual, expected);
    assert!(error <= TOLERANCE, "{what}: off by {error:e} of its scale, allowed {TOLERANCE:e}");
}

fn load(device: &Device) -> BertForPreTraining {
    let mut init = ParamInit::new(device, 0);
    let (_, model, report) = huggingface::load_bert(&fixture(), &mut init).unwrap();
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
    let golden = Golden::open(&fixture());
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
    assert_close("next-sentence logits", &logits.next_sentence.into_data(), &expected);
}

#[test]
fn losses_and_every_gradient_equal_transformers() {
    let device = Device::flex().autodiff();
    let golden = Golden::open(&fixture());
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
    let nsp = ops::cross_entropy(logits.next_sentence, pairs).mean();
    let scalar = |loss: &Tensor<1>| loss.clone().into_data().iter::<f32>().next().unwrap();
    let golden_scalar = |name: &str| golden.data(name).iter::<f32>().next().unwrap();
    assert!((scalar(&mlm) - golden_scalar("mlm_loss")).abs() < TOLERANCE);
    assert!((scalar(&nsp) - golden_scalar("next_sentence_loss")).abs() < TOLERANCE);

    // The gradients take the parameters' places, so that the saver names and transposes them.
    let grads = GradientsParams::from_grads((mlm + nsp).backward(), &model);
    let inner = model.valid();
    let mut gradients = GradientsOf { grads, path: Vec::new(), found: Default::default() };
    model.visit(&mut gradients);
    let as_model = weights::replace(inner, gradients.found);
    let folder = tempfile::tempdir().unwrap();
    let (config, ..) = huggingface::load_bert(&fixture(), &mut ParamInit::new(&Device::flex(), 0)).unwrap();
    huggingface::save_bert(folder.path(), &config, &as_model).unwrap();
    let found = huggingface::read_tensors(&folder.path().join("model.safetensors")).unwrap();
    assert_eq!(found.len(), 46, "all parameters of the reference model");
    for (name, gradient) in &found {
        assert_close(&format!("gradient of {name}"), gradient, &golden.data(&format!("grad.{name}")));
    }
}

struct GradientsOf {
    grads: GradientsParams,
    path: Vec<String>,
    found: weights::NamedTensors,
}

impl burn::module::ModuleVisitor for GradientsOf {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &burn::module::Param<Tensor<D>>) {
        let gradient = self.grads.get::<D>(param.id).expect("every parameter has a gradient");
        self.found.insert(self.path.join("."), gradient.into_data());
    }
}

#[test]
fn padding_a_batch_changes_no_unpadded_result() {
    let device = Device::flex();
    let golden = Golden::open(&fixture());
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
