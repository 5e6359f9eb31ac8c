//! Golden files: what an exporter in `tests/fixtures` wrote down of PyTorch.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::weights::{ModulePath, NamedTensors};
use safetensors::{SafeTensors, tensor::Dtype};
use std::path::{Path, PathBuf};

/// The tensors of a `golden.safetensors`.
pub struct Golden(Vec<u8>);

impl Golden {
    pub fn open(folder: &Path) -> Self {
        Self::read(&folder.join("golden.safetensors"))
    }

    /// One of several files of a case.
    pub fn read(path: &Path) -> Self {
        Self(std::fs::read(path).unwrap())
    }

    pub fn data(&self, name: &str) -> TensorData {
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

    pub fn float<const D: usize>(&self, name: &str, device: &Device) -> Tensor<D> {
        Tensor::from_data(self.data(name), device)
    }

    pub fn int<const D: usize>(&self, name: &str, device: &Device) -> Tensor<D, Int> {
        Tensor::from_data(self.data(name), device)
    }

    pub fn names(&self) -> Vec<String> {
        SafeTensors::deserialize(&self.0).unwrap().names().into_iter().map(str::to_string).collect()
    }

    pub fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.0).unwrap().tensor(name).is_ok()
    }
}

fn chunks<T, const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|chunk| convert(*chunk)).collect()
}

/// The folder of a case.
pub fn fixture(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(case)
}

/// The largest error relative to the expected tensor's scale.
///
/// The scale has a floor: the keys' biases shift a whole row of scores, which softmax ignores, so
/// their true gradient is zero and both sides hold rounding noise of about 1e-9.
pub fn relative_error(actual: &TensorData, expected: &TensorData) -> f32 {
    assert_eq!(actual.shape(), expected.shape());
    let scale = expected.iter::<f32>().fold(0f32, |a, v| a.max(v.abs())).max(1e-3);
    let error = actual
        .iter::<f32>()
        .zip(expected.iter::<f32>())
        .fold(0f32, |worst, (a, e)| if (a - e).is_nan() { f32::NAN } else { worst.max((a - e).abs()) });
    error / scale
}

/// The gradients of a model's parameters by their paths; each parameter that is trained must have one.
pub fn gradients_of<M: Module>(model: &M, grads: GradientsParams) -> NamedTensors {
    gradients_but(model, grads, "")
}

/// The same for a model with a parameter, by its path, that has no part in the loss.
pub fn gradients_but<M: Module>(model: &M, grads: GradientsParams, unused: &str) -> NamedTensors {
    let unused = unused.to_string();
    let mut gradients =
        GradientsOf { grads, path: ModulePath::default(), unused, found: NamedTensors::new() };
    model.visit(&mut gradients);
    gradients.found
}

struct GradientsOf {
    grads: GradientsParams,
    path: ModulePath,
    unused: String,
    found: NamedTensors,
}

impl ModuleVisitor for GradientsOf {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.val().is_require_grad() {
            return;
        }
        let path = self.path.to_string();
        if path == self.unused {
            assert!(self.grads.get::<D>(param.id).is_none(), "a gradient of `{path}`");
            return;
        }
        let gradient = self.grads.get::<D>(param.id).unwrap_or_else(|| panic!("no gradient of `{path}`"));
        self.found.insert(path, gradient.into_data());
    }
}
