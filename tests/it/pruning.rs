//! Pruning against transformers 4 and PyTorch: `tests/fixtures/pruning/export.py`.

use crate::golden::fixture;
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_data::labelled::{LabelSet, Target as Label, TextFeatures, TokenSequence};
use cloze_model::bert::Removal;
use cloze_model::blocks::Linear;
use cloze_model::huggingface::PretrainedFolder;
use cloze_model::tasks::{BertForSequenceClassification, DropoutOverrides};
use cloze_model::{HasBackbone, ParamInit, weights};
use cloze_trainer::engine::Extension;
use cloze_trainer::finetune::{PretrainedTask, Task, TextInput, TextTask, importance};
use cloze_trainer::pruning::{HardConcrete, Movement, MovementSection, Target};
use serde_json::{Value, json};
use std::fs;

const TOLERANCE: f64 = 2e-5;

fn golden() -> Value {
    serde_json::from_str(&fs::read_to_string(fixture("pruning").join("golden.json")).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        value => vec![value.as_f64().unwrap()],
    }
}

#[track_caller]
fn assert_close(found: &[f64], expected: &Value, what: &str) {
    let expected = numbers(expected);
    assert_eq!(found.len(), expected.len(), "{what}");
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < TOLERANCE, "{what}, {place}: {found} is not {expected}");
    }
}

fn task() -> TextTask {
    TextTask::new(Some(LabelSet::given(["LABEL_0", "LABEL_1", "LABEL_2"]).unwrap()), None)
}

/// A folder's model, without dropout.
fn load(name: &str, device: &Device) -> BertForSequenceClassification {
    let pretrained = PretrainedFolder::open(&fixture("pruning").join(name)).unwrap();
    let mut dropout = DropoutOverrides::default();
    (dropout.hidden, dropout.attention, dropout.head) = (Some(0.0), Some(0.0), Some(0.0));
    let (_, model, report) = task().model(pretrained, &dropout, &mut ParamInit::new(device, 0)).unwrap();
    assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{report:?}");
    model
}

fn inputs(golden: &Value) -> Vec<TextInput> {
    let rows = golden["rows"].as_array().unwrap().iter();
    let input = |(row, label): (&Value, &Value)| {
        let ids: Vec<i32> = serde_json::from_value(row.clone()).unwrap();
        let sequence = TokenSequence { token_type_ids: vec![0; ids.len()], input_ids: ids };
        let target = Label::Class(label.as_u64().unwrap() as usize);
        TextInput::from(TextFeatures { sequence, target, truncated: false })
    };
    rows.zip(golden["labels"].as_array().unwrap()).map(input).collect()
}

fn logits(model: &BertForSequenceClassification, inputs: &[TextInput], device: &Device) -> Vec<f64> {
    let batch: Vec<&TextInput> = inputs.iter().collect();
    task().scores(model, &batch, device).into_data().iter::<f64>().collect()
}

#[test]
fn folders_of_transformers_with_pruned_heads_are_read() {
    let (device, golden) = (Device::flex(), golden());
    let inputs = inputs(&golden);
    let whole = load("model", &device);
    assert_close(&logits(&whole, &inputs, &device), &golden["logits"], "whole");
    let pruned = load("pruned", &device);
    assert_close(&logits(&pruned, &inputs, &device), &golden["pruned_logits"], "pruned");

    // We prune it to the same.
    let heads = (0..3).map(|layer| {
        let heads = &golden["pruned_heads"][layer.to_string()];
        serde_json::from_value::<Option<Vec<usize>>>(heads.clone()).unwrap().unwrap_or_default()
    });
    let neurons: Vec<usize> = serde_json::from_value(golden["removed_neurons"].clone()).unwrap();
    let removal = Removal { heads: heads.collect(), neurons: vec![neurons; 3] };
    let changed = |change: &dyn Fn(cloze_model::bert::Bert) -> cloze_model::bert::Bert| {
        task().map_encoder(whole.clone(), |bert| Ok(change(bert))).unwrap()
    };
    let smaller = changed(&|bert| bert.without(&removal));
    assert_eq!(smaller.num_params(), pruned.num_params());
    assert_close(&logits(&smaller, &inputs, &device), &golden["pruned_logits"], "made smaller");
    let zeros = changed(&|bert| bert.with_zeros(&removal));
    assert_eq!(zeros.num_params(), whole.num_params());
    assert_close(&logits(&zeros, &inputs, &device), &golden["pruned_logits"], "zeros");
}

#[test]
fn the_importance_of_heads_and_neurons_is_pytorchs() {
    let (device, golden) = (Device::flex().autodiff(), golden());
    let (model, inputs) = (load("model", &device), inputs(&golden));
    let features: Vec<&TextInput> = inputs.iter().collect();
    let found = importance(&task(), &model, &features, 1, &device, &mut |_| {});
    assert_close(&found.heads.concat(), &golden["importance"]["heads"], "heads");
    assert_close(&found.neurons.concat(), &golden["importance"]["neurons"], "neurons");
    let normed = found.normed();
    for layer in normed.heads.iter().chain(&normed.neurons) {
        assert!((layer.iter().map(|value| value * value).sum::<f64>() - 1.0).abs() < 1e-9);
    }
    // What is 0 changes nothing, and is of no importance.
    let removal = Removal { heads: vec![vec![1], vec![], vec![0, 3]], neurons: vec![vec![5]; 3] };
    let zeros = task().map_encoder(model.clone(), |bert| Ok(bert.with_zeros(&removal))).unwrap();
    let found = importance(&task(), &zeros, &features, 1, &device, &mut |_| {});
    assert_eq!((found.heads[0][1], found.heads[2][3], found.neurons[1][5]), (0.0, 0.0, 0.0));
    assert!(model.backbone().encoder.layers[0].attention.n_heads() == 4);
}

/// A matrix of the golden file.
fn matrix(value: &Value, device: &Device) -> Tensor<2> {
    let rows: Vec<Vec<f64>> = serde_json::from_value(value.clone()).unwrap();
    let shape = [rows.len(), rows[0].len()];
    Tensor::from_data(TensorData::new(rows.concat(), shape).convert::<f32>(), device)
}

#[test]
fn scores_and_weights_move_as_in_pytorch() {
    let device = Device::flex().autodiff();
    for case in golden()["movement"].as_array().unwrap() {
        let rows = case["group"].as_u64().map(|rows| rows as usize);
        let target = Target { path: "weight".into(), shape: [6, 4], rows };
        let mut section = json!({ "left": 0.25, "warmup": 0.0, "cooldown": 0.0, "score_lr": 0.02 });
        if case["soft"].as_bool() == Some(true) {
            section["threshold"] = 0.45.into();
            section["penalty"] = 30.0.into();
        }
        let section: MovementSection = serde_json::from_value(section).unwrap();
        let mut movement = Movement::new(section, vec![target], 4);
        let model = Linear::without_bias(6, 4, &mut ParamInit::new(&device, 0));
        let start = [("weight".to_owned(), matrix(&case["weight"], &device.clone().inner()).into_data())];
        let mut model = movement.prepare(weights::replace(model, start.into())).unwrap();
        for (step, (batch, expected)) in
            (1..).zip(case["batches"].as_array().unwrap().iter().zip(case["steps"].as_array().unwrap()))
        {
            model = movement.before_step(model, step);
            let (x, y) = (matrix(&batch[0], &device), matrix(&batch[1], &device));
            let loss = (x.matmul(model.weight.val()) - y).powi_scalar(2).sum();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            let gradients = movement.on_gradients(&model, gradients, step);
            model = movement.before_update(model, step);
            let gradient = gradients.get::<2>(model.weight.id).unwrap();
            let updated = (model.weight.val().inner() - gradient * 0.01).into_data();
            model = weights::replace(model, [("weight".to_owned(), updated)].into());
            model = movement.after_update(model, step);
            let kept = Extension::<Linear>::tensors(&movement);
            let values = |name: &str| kept[name].to_data().iter::<f64>().collect::<Vec<_>>();
            let what = format!("{rows:?}, step {step}");
            assert_close(&values("weight"), &expected["weight"], &format!("weights of {what}"));
            assert_close(&values("weight.score"), &expected["scores"], &format!("scores of {what}"));
            // The model holds the weights with the mask of the next step.
            let masked: Vec<f64> = model.weight.val().into_data().iter::<f64>().collect();
            let next =
                case["steps"].as_array().unwrap().get(step as usize).map(|next| numbers(&next["mask"]));
            for (place, value) in masked.iter().enumerate() {
                let Some(mask) = &next else { continue };
                let entry = rows.map_or(place, |rows| place / (rows * 4));
                let expected = values("weight")[place] * mask[entry];
                assert!((value - expected).abs() < 1e-6, "{what}, {place}: {value} {expected}");
            }
        }
    }
}

#[test]
fn gates_are_hard_concrete() {
    let golden = &golden()["gates"];
    let of = |name: &str| numbers(&golden[name]);
    let (gate, alpha, uniform, gradient) =
        (HardConcrete::default(), of("alpha"), of("uniform"), of("gradient"));
    let each = |value: &dyn Fn(usize) -> f64| (0..alpha.len()).map(value).collect::<Vec<f64>>();
    let penalty = golden["penalty"].as_f64().unwrap();
    assert_close(&each(&|i| gate.sample(alpha[i], uniform[i])), &golden["gates"], "gates");
    assert_close(&each(&|i| gate.open(alpha[i])), &golden["open"], "open");
    assert_close(&each(&|i| gate.settled(alpha[i])), &golden["settled"], "settled");
    let found = each(&|i| gate.gradient(alpha[i], uniform[i], gradient[i], penalty));
    assert_close(&found, &golden["alpha_gradient"], "gradient");
}
