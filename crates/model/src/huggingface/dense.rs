//! The module `Dense` of sentence-transformers.

use super::folder::{file_of, tensors_of};
use super::json_file::read_json;
use crate::blocks::{Activation, Linear, pack_weights};
use crate::{ModelError, Result};
use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use serde::Deserialize;
use std::path::Path;

/// A map of embeddings, `φ(x·W + b)` with an activation `φ` or none.
#[derive(Debug)]
pub struct Dense {
    linear: Linear,
    activation: Option<Activation>,
    d_in: usize,
    d_out: usize,
}

/// `config.json`
#[derive(Deserialize)]
struct DenseFile {
    in_features: usize,
    out_features: usize,
    bias: bool,
    /// A class's path.
    activation_function: String,
    /// What it maps, in newer files.
    module_input_name: Option<String>,
    /// What the result is called, in newer files; without a name that of what it maps.
    module_output_name: Option<String>,
    /// Whether what goes in is added to what comes out, in newer files.
    #[serde(default)]
    use_residual: bool,
}

/// Classes of activations by the last parts of their paths.
const ACTIVATIONS: [(&str, Option<Activation>); 5] = [
    ("Tanh", Some(Activation::Tanh)),
    ("Identity", None),
    ("ReLU", Some(Activation::Relu)),
    ("GELU", Some(Activation::Gelu)),
    ("SiLU", Some(Activation::Silu)),
];

impl Dense {
    /// Reads a module's folder: `config.json`, and the weights, as [`tensors_of`] finds them.
    ///
    /// # Errors
    /// A file that is missing or malformed; an activation that is not known here; tensors that are missing or of another shape.
    pub fn load(folder: &Path, device: &Device) -> Result<Self> {
        let path = folder.join("config.json");
        let config: DenseFile = read_json(&path, "a configuration of the module Dense")?;
        let names = [
            ("module_input_name", &config.module_input_name),
            ("module_output_name", &config.module_output_name),
        ];
        for (key, name) in names {
            if let Some(name) = name.as_deref().filter(|name| *name != "sentence_embedding") {
                return Err(ModelError::Config(format!(
                    "{}: `{key}` is \"{}\", expected \"sentence_embedding\"",
                    path.display(),
                    name.escape_debug()
                )));
            }
        }
        if config.use_residual {
            let path = path.display();
            return Err(ModelError::Config(format!("{path}: `use_residual` is true, expected false")));
        }
        let (d_in, d_out) = (config.in_features, config.out_features);
        let name = config.activation_function.rsplit('.').next().unwrap_or_default();
        let Some((_, activation)) = ACTIVATIONS.iter().find(|(known, _)| *known == name) else {
            let known = ACTIVATIONS.map(|(known, _)| known).join(", ");
            return Err(ModelError::Config(format!(
                "{}: activation `{}` is not supported, expected one of {known}",
                path.display(),
                config.activation_function.escape_debug()
            )));
        };
        let mut tensors = tensors_of(folder)?.floats;
        let mut take = |name: &str, expected: &[usize]| -> Result<TensorData> {
            let found = tensors.remove(name).ok_or_else(|| ModelError::MissingTensors {
                path: folder.into(),
                names: vec![name.into()],
                parameter: name.into(),
                others: Vec::new(),
            })?;
            match found.shape().as_slice() == expected {
                true => Ok(found),
                false => Err(ModelError::Shape {
                    path: file_of(folder, name),
                    name: name.into(),
                    found: found.shape().to_vec(),
                    expected: expected.into(),
                }),
            }
        };
        // PyTorch's layout is the transpose of ours.
        let weight = Tensor::<2>::from_data(take("linear.weight", &[d_out, d_in])?, device).transpose();
        let bias = match config.bias {
            true => Some(Param::from_tensor(Tensor::<1>::from_data(take("linear.bias", &[d_out])?, device))),
            false => None,
        };
        let mut linear = Linear::from_parts(Param::from_tensor(weight), bias);
        // By the packed kernel, a row's bits do not depend on how many rows there are.
        if !device.is_autodiff() {
            pack_weights(&mut linear);
        }
        Ok(Self { linear, activation: *activation, d_in, d_out })
    }

    /// The linear map.
    pub fn linear(&self) -> &Linear {
        &self.linear
    }

    /// The activation of its output, if there is one.
    pub fn activation(&self) -> Option<Activation> {
        self.activation
    }

    /// Features that it takes.
    pub fn d_in(&self) -> usize {
        self.d_in
    }

    /// Features that it gives.
    pub fn d_out(&self) -> usize {
        self.d_out
    }

    /// Maps embeddings.
    ///
    /// # Shapes
    /// - `embeddings`: `[n, d_in]`; returns `[n, d_out]`
    pub fn forward(&self, embeddings: Tensor<2>) -> Tensor<2> {
        let mapped = self.linear.forward(embeddings);
        match self.activation {
            Some(activation) => activation.forward(mapped),
            None => mapped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::huggingface::write_tensors;
    use crate::weights::NamedTensors;
    use std::fs;

    fn folder(config: &str, bias: &[f32]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), config).unwrap();
        let tensors = NamedTensors::from([
            ("linear.weight".to_owned(), TensorData::new(vec![1.0_f32, 2.0, 3.0, -4.0, 5.0, 6.0], [3, 2])),
            ("linear.bias".to_owned(), TensorData::new(bias.to_vec(), [bias.len()])),
        ]);
        write_tensors(&folder.path().join("model.safetensors"), &tensors, &[]).unwrap();
        folder
    }

    fn config(bias: bool, activation: &str) -> String {
        format!(
            r#"{{"in_features": 2, "out_features": 3, "bias": {bias}, "activation_function": "torch.nn.modules.{activation}"}}"#
        )
    }

    fn mapped(bias: bool, activation: &str) -> Vec<f32> {
        let device = Device::flex();
        let dense =
            Dense::load(folder(&config(bias, activation), &[0.5, 0.0, -20.0]).path(), &device).unwrap();
        assert_eq!((dense.d_in(), dense.d_out()), (2, 3));
        let x = Tensor::from_data(TensorData::new(vec![1.0_f32, 0.5], [1, 2]), &device);
        dense.forward(x).into_data().try_into_vec::<f32>().unwrap()
    }

    #[test]
    fn it_is_the_affine_map_of_its_file() {
        // (1·1 + 2·0.5, 3·1 − 4·0.5, 5·1 + 6·0.5)
        assert_eq!(mapped(false, "linear.Identity"), [2.0, 1.0, 8.0]);
        assert_eq!(mapped(true, "linear.Identity"), [2.5, 1.0, -12.0]);
        assert_eq!(mapped(true, "activation.ReLU"), [2.5, 1.0, 0.0]);
        for (found, x) in mapped(true, "activation.Tanh").iter().zip([2.5_f32, 1.0, -12.0]) {
            assert!((found - x.tanh()).abs() < 1e-6);
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = |config: &str, bias: &[f32]| {
            let folder = folder(config, bias);
            let error = Dense::load(folder.path(), &Device::flex()).unwrap_err().to_string();
            error.replace(&format!("{}/", folder.path().display()), "")
        };
        let unknown = error(&config(true, "activation.Mish"), &[0.0; 3]);
        assert!(unknown.ends_with("`torch.nn.modules.activation.Mish` is not supported, expected one of Tanh, Identity, ReLU, GELU, SiLU"), "{unknown}");
        assert_eq!(
            error(&config(true, "activation.Tanh"), &[0.0; 2]),
            "model.safetensors: tensor `linear.bias` has shape [2], the configuration asks for [3]"
        );
        assert!(
            error("{}", &[0.0])
                .starts_with("config.json: cannot be read as a configuration of the module Dense")
        );
    }
}
