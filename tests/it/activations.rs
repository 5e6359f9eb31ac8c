//! Activations against transformers, by their names in config.json: `tests/fixtures/activations/export.py`.

use crate::golden::fixture;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::huggingface::PretrainedConfig;
use serde_json::{Value, json};
use std::fs;

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

#[test]
fn every_name_has_transformers_values_and_derivatives() {
    let golden: Value =
        serde_json::from_str(&fs::read_to_string(fixture("activations").join("golden.json")).unwrap())
            .unwrap();
    let x = numbers(&golden["x"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    let device = Device::flex().autodiff();
    let activations = golden["activations"].as_object().unwrap();
    assert_eq!(activations.len(), 21);
    for (name, expected) in activations {
        fs::write(&path, json!({"model_type": "bert", "hidden_act": name}).to_string()).unwrap();
        let activation = PretrainedConfig::read(&path).unwrap().encoder.activation;
        let at = Tensor::<1>::from_data(TensorData::new(x.clone(), [x.len()]), &device).require_grad();
        let y = activation.forward(at.clone());
        let grads = y.clone().sum().backward();
        let (y, dy) = (y.into_data(), at.grad(&grads).unwrap().into_data());
        for (what, found, expected) in [("y", y, &expected["y"]), ("dy", dy, &expected["dy"])] {
            for ((x, found), expected) in x.iter().zip(found.iter::<f32>()).zip(numbers(expected)) {
                let tolerance = 1e-5 * expected.abs().max(1.0);
                assert!(
                    (found - expected).abs() <= tolerance,
                    "{name}, {what} at {x}: {found}, not {expected}"
                );
            }
        }
    }
    for name in ["prelu", "xielu", "sqrtsoftplus", "gelu_11"] {
        fs::write(&path, json!({"model_type": "bert", "hidden_act": name}).to_string()).unwrap();
        let error = PretrainedConfig::read(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("`hidden_act` is \"{name}\", expected \"gelu\"")), "{error}");
    }
}
