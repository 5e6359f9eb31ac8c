//! UniLM's attention masks against transformers' `BertForPreTraining`, given a mask of each query and key:
//! `tests/fixtures/unilm/export.py`.

use crate::bert_parity::{TOLERANCE, assert_close, load};
use crate::golden::{Golden, fixture, gradients_of};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_model::bert::BertInput;
use cloze_model::blocks::EncoderTrace;
use cloze_model::huggingface::{Architecture, PretrainedFolder, SaveConfig, read_tensors, save_pretrained};
use cloze_model::ops::Sight;
use cloze_model::{ops, weights};

const LENGTHS: [usize; 4] = [9, 11, 7, 12];
/// What the sequences' tokens see; the last one's first segment has seven.
const SIGHTS: [Sight; 4] = [Sight::All, Sight::LEFT_TO_RIGHT, Sight::RightToLeft, Sight::Prefix(7)];

/// Where the batch's tokens are: in rows of this many, or packed.
struct Layout {
    places: Vec<i64>,
    input: BertInput,
}

fn rows(golden: &Golden, device: &Device) -> Layout {
    let input = BertInput::new(golden.int("input_ids", device))
        .with_token_types(golden.int("token_type_ids", device))
        .with_pad_mask(Tensor::<2, Bool>::from_data(golden.data("pad_mask"), device))
        .with_sights(SIGHTS);
    let longest = LENGTHS.into_iter().max().unwrap();
    let places = LENGTHS.into_iter().enumerate().flat_map(|(row, len)| row * longest..row * longest + len);
    Layout { places: places.map(|place| place as i64).collect(), input }
}

fn packed(golden: &Golden, device: &Device) -> Layout {
    let places = rows(golden, device).places;
    let pack = |name: &str| {
        let all: Vec<i32> = golden.data(name).iter::<i32>().collect();
        places.iter().map(|place| all[*place as usize]).collect::<Vec<_>>()
    };
    let types = pack("token_type_ids");
    let types = Tensor::from_data(TensorData::new(types.clone(), [1, types.len()]), device);
    let input = BertInput::packed(&pack("input_ids"), &LENGTHS, device);
    let input = input.with_token_types(types).with_sights(SIGHTS);
    Layout { places: (0..places.len() as i64).collect(), input }
}

fn vector(values: Vec<i64>, device: &Device) -> Tensor<1, Int> {
    let n = values.len();
    Tensor::from_data(TensorData::new(values, [n]), device)
}

#[test]
fn states_of_each_mask_equal_transformers() {
    // Where activations are checkpointed, operations are composed.
    for device in [Device::flex(), Device::flex().autodiff().gradient_checkpointing()] {
        let golden = Golden::open(&fixture("unilm"));
        let model = load(&device);
        for layout in [rows(&golden, &device), packed(&golden, &device)] {
            let trace = EncoderTrace { hidden_states: true, attentions: false };
            let output = model.bert.forward(layout.input.with_trace(trace));
            assert_eq!(output.hidden_states.len(), 3);
            for (i, states) in output.hidden_states.into_iter().enumerate() {
                let [batch, len, d_model] = states.dims();
                let states = states.reshape([batch * len, d_model]);
                let states = states.select(0, vector(layout.places.clone(), &device)).into_data();
                let expected = golden.data(&format!("hidden_states.{i}"));
                assert_close(&format!("hidden state {i}"), &states, &expected);
            }
        }
    }
}

#[test]
fn losses_and_every_gradient_of_the_masks_equal_transformers() {
    let device = Device::flex().autodiff();
    let golden = Golden::open(&fixture("unilm"));
    let model = load(&device);
    let all: Vec<i64> = golden.data("labels").iter::<i64>().collect();
    let in_rows = rows(&golden, &device).places;
    for layout in [rows(&golden, &device), packed(&golden, &device)] {
        let labelled = in_rows.iter().zip(&layout.places).filter(|(row, _)| all[**row as usize] >= 0);
        let (labels, positions): (Vec<i64>, Vec<i64>) =
            labelled.map(|(row, place)| (all[*row as usize], *place)).unzip();
        let logits = model.forward(layout.input, vector(positions, &device));
        assert_close("masked-LM logits", &logits.mlm.to_data(), &golden.data("mlm_logits"));
        let mlm = ops::cross_entropy(logits.mlm, vector(labels, &device)).mean();
        // The bidirectional one's.
        let pair = logits.next_sentence.unwrap().narrow(0, 0, 1);
        let nsp = ops::cross_entropy(pair, vector(vec![1], &device)).mean();
        for (name, loss) in [("mlm_loss", &mlm), ("next_sentence_loss", &nsp)] {
            let expected = golden.data(name).iter::<f32>().next().unwrap();
            let found = loss.to_data().iter::<f32>().next().unwrap();
            assert!((found - expected).abs() < TOLERANCE, "{name}: {found}, expected {expected}");
        }
        // The gradients take the parameters' places, so that the saver names and transposes them.
        let grads = GradientsParams::from_grads((mlm + nsp).backward(), &model);
        let as_model = weights::replace(model.valid(), gradients_of(&model, grads));
        let folder = tempfile::tempdir().unwrap();
        let config = PretrainedFolder::open(&fixture("bert_pretraining")).unwrap().config.encoder;
        save_pretrained(folder.path(), &as_model, &config, &SaveConfig::new(Architecture::PreTraining))
            .unwrap();
        let found = read_tensors(&folder.path().join("model.safetensors")).unwrap();
        assert_eq!(found.len(), 46, "all parameters of the reference model");
        for (name, gradient) in &found {
            assert_close(&format!("gradient of {name}"), gradient, &golden.data(&format!("grad.{name}")));
        }
    }
}
