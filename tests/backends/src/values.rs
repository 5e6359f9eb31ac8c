//! What is computed of a case.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::ops::{cross_entropy, read};
use cloze_model::weights::{self, ModulePath};
use cloze_model::{ParamInit, Sequences};
use cloze_trainer::engine::optimizer::{Optimizer, OptimizerConfig};
use std::collections::BTreeMap;

/// What a case computes on a device, by name.
pub type Values = BTreeMap<String, TensorData>;

/// Of the weights, which are drawn on the host: the same on every device.
const SEED: u64 = 11;

/// Far wider than BERT's: logits that differ, and attention that prefers some tokens.
const STD: f64 = 0.3;

/// Weights to be drawn on a device.
pub fn init(device: &Device) -> ParamInit {
    ParamInit::new(device, SEED).with_std(STD)
}

/// Sequences of these lengths, of ids from 4 to `vocab_size`.
pub fn sequences(lengths: &[usize], vocab_size: usize) -> Sequences {
    let mut sequences = Sequences::new();
    let mut next = 0;
    for len in lengths {
        let ids: Vec<i32> = (next..next + len).map(|i| (4 + i * 7 % (vocab_size - 4)) as i32).collect();
        next += len;
        sequences.push(&ids);
    }
    sequences
}

/// A label for each row of logits.
fn labels(logits: &Tensor<2>) -> Tensor<1, Int> {
    let [rows, classes] = logits.dims();
    let labels: Vec<i32> = (0..rows).map(|row| ((row * 5 + 1) % classes) as i32).collect();
    Tensor::from_data(labels.as_slice(), &logits.device())
}

/// A model's logits without and with autodiff, the mean cross-entropy, its gradients, and the parameters after an
/// update by AdamW.
pub fn classified<M: Module>(
    device: &Device,
    make: impl Fn(&mut ParamInit) -> M,
    logits: impl Fn(&M, &Device) -> Tensor<2>,
) -> Values {
    let loss = |_: &M, logits: Tensor<2>| cross_entropy(logits.clone(), labels(&logits));
    trained(device, make, logits, loss)
}

/// The same with a loss of its own.
pub fn trained<M: Module>(
    device: &Device,
    make: impl Fn(&mut ParamInit) -> M,
    logits: impl Fn(&M, &Device) -> Tensor<2>,
    loss: impl Fn(&M, Tensor<2>) -> Tensor<1>,
) -> Values {
    let mut values = Values::new();
    let plain = make(&mut init(device));
    values.insert("logits in inference".into(), read(logits(&plain, device)));
    let device = device.clone().autodiff();
    let model = make(&mut init(&device));
    let found = logits(&model, &device);
    values.insert("logits".into(), read(found.clone()));
    let loss = loss(&model, found).mean();
    values.insert("loss".into(), read(loss.clone()));
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    values.extend(self::gradients(&model, &gradients));
    // A large ε: Adam's first step is else as long for a gradient of rounding as for any other.
    let config = OptimizerConfig { eps: 1e-2, ..OptimizerConfig::default() };
    let mut optimizer = Optimizer::new(config, &model).expect("no groups");
    let model = optimizer.step(model, gradients, 1e-2, 1.0);
    let updated = weights::collect(&model);
    values.extend(updated.into_iter().map(|(path, data)| (format!("{path}, updated"), data)));
    values
}

/// A model's gradients, by their parameters' paths.
pub fn gradients<M: Module>(model: &M, gradients: &GradientsParams) -> Values {
    let mut values = Values::new();
    model.visit(&mut GradientsOf { gradients, path: ModulePath::default(), values: &mut values });
    values
}

struct GradientsOf<'a> {
    gradients: &'a GradientsParams,
    path: ModulePath,
    values: &'a mut Values,
}

impl ModuleVisitor for GradientsOf<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            self.values.insert(format!("gradient of {}", self.path), read(gradient));
        }
    }
}
