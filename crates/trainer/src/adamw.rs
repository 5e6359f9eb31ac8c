//! Adam with decoupled weight decay.

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_ops::{self as ops, AdamWStep};
use std::collections::{BTreeMap, HashMap};

/// The constants of [`AdamW`].
#[derive(Debug, Clone, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment (BERT: 1e-6).
    pub eps: f64,
    /// Decoupled weight decay, on matrices only.
    pub weight_decay: f64,
}

/// AdamW (Loshchilov & Hutter 2019, algorithm 2) with Adam's bias correction.
///
/// Weight decay spares parameters of one dimension, that is biases and norms, as BERT's
/// `AdamWeightDecayOptimizer` does by name. Unlike that optimiser, and like PyTorch's, the moments
/// are corrected for their start at zero.
#[derive(Debug)]
pub struct AdamW {
    config: AdamWConfig,
    step: u64,
    moments: HashMap<ParamId, Moments>,
}

/// Running averages of a parameter's gradient and of its square, flattened, `[n]`.
#[derive(Debug, Clone)]
struct Moments {
    first: Tensor<1>,
    second: Tensor<1>,
}

/// The optimiser's state by parameter path: `PATH.first` and `PATH.second`, `[n]` each.
pub type OptimizerState = BTreeMap<String, TensorData>;

impl AdamW {
    /// An optimiser before its first step.
    pub fn new(config: AdamWConfig) -> Self {
        Self { config, step: 0, moments: HashMap::new() }
    }

    /// One step. `scale` multiplies every gradient: the clipping factor.
    ///
    /// Parameters without a gradient stay as they are.
    pub fn step<M: Module>(&mut self, module: M, gradients: GradientsParams, lr: f64, scale: f64) -> M {
        self.step += 1;
        let mut update = Update { optimizer: self, gradients, lr, scale };
        module.map(&mut update)
    }

    /// Copies the state to the host; `module` gives the names.
    pub fn state<M: Module>(&self, module: &M) -> OptimizerState {
        let mut state = OptimizerState::new();
        for (path, id) in paths(module) {
            if let Some(moments) = self.moments.get(&id) {
                state.insert(format!("{path}.first"), moments.first.to_data());
                state.insert(format!("{path}.second"), moments.second.to_data());
            }
        }
        state
    }

    /// The optimiser after `step` steps with this state; `module` gives the names.
    pub fn restore<M: Module>(
        config: AdamWConfig,
        step: u64,
        mut state: OptimizerState,
        module: &M,
        device: &Device,
    ) -> Self {
        let mut moments = HashMap::new();
        for (path, id) in paths(module) {
            let mut take = |part: &str| {
                let data = state.remove(&format!("{path}.{part}"))?;
                Some(Tensor::<1>::from_data(data, device))
            };
            if let (Some(first), Some(second)) = (take("first"), take("second")) {
                moments.insert(id, Moments { first, second });
            }
        }
        Self { config, step, moments }
    }
}

struct Update<'a> {
    optimizer: &'a mut AdamW,
    gradients: GradientsParams,
    lr: f64,
    scale: f64,
}

impl ModuleMapper for Update<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else {
            return param;
        };
        let AdamWConfig { beta1, beta2, eps, weight_decay } = self.optimizer.config;
        let weight_decay = if D == 1 { 0.0 } else { weight_decay };
        let (lr, scale, step) = (self.lr, self.scale, self.optimizer.step);
        let step = AdamWStep { beta1, beta2, eps, weight_decay, lr, scale, step };

        let (id, tensor, mapper) = param.consume();
        let shape = tensor.dims();
        let tracked = tensor.is_require_grad();
        // Out of the map, so that they are held once and can be updated in place.
        let moments = self.optimizer.moments.remove(&id).map(|moments| [moments.first, moments.second]);
        let (value, [first, second]) =
            ops::adamw(tensor.inner().reshape([-1]), gradient.reshape([-1]), moments, step);
        self.optimizer.moments.insert(id, Moments { first, second });
        let value = Tensor::from_inner(value.reshape(shape));
        let value = if tracked { value.require_grad() } else { value };
        Param::from_mapped_value(id, value, mapper)
    }
}

/// Every float parameter's path and identity.
fn paths<M: Module>(module: &M) -> Vec<(String, ParamId)> {
    #[derive(Default)]
    struct Paths {
        path: Vec<String>,
        found: Vec<(String, ParamId)>,
    }
    impl burn::module::ModuleVisitor for Paths {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.path.push(name.to_string());
        }

        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.found.push((self.path.join("."), param.id));
        }
    }
    let mut paths = Paths::default();
    module.visit(&mut paths);
    paths.found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradients;
    use cloze_model::blocks::Linear;
    use cloze_model::{ParamInit, weights};

    fn config() -> AdamWConfig {
        AdamWConfig { beta1: 0.9, beta2: 0.999, eps: 1e-6, weight_decay: 0.1 }
    }

    /// A linear map with known values, and the gradients of `Σ (x·W + b)²` at a known x.
    fn setup(device: &Device) -> (Linear, GradientsParams) {
        let linear = Linear::new(2, 1, &mut ParamInit::new(device, 0));
        let linear = weights::replace(
            linear,
            [
                ("weight".to_string(), TensorData::from([[0.5f32], [-1.0]])),
                ("bias".to_string(), TensorData::from([0.25f32])),
            ]
            .into(),
        );
        let grads = grads(&linear, device);
        (linear, grads)
    }

    fn grads(linear: &Linear, device: &Device) -> GradientsParams {
        let x = Tensor::<2>::from_data([[1.0, 2.0]], device);
        let loss = linear.forward(x).powi_scalar(2).sum();
        GradientsParams::from_grads(loss.backward(), linear)
    }

    fn values(linear: &Linear) -> Vec<f32> {
        weights::collect(linear).into_values().flat_map(|d| d.iter::<f32>().collect::<Vec<_>>()).collect()
    }

    #[test]
    fn three_steps_equal_torch() {
        // torch 2.9: AdamW([{params: [w], weight_decay: .1}, {params: [b], weight_decay: 0}],
        // lr=0.1, eps=1e-6), loss ((x @ w + b) ** 2).sum(), x = [1, 2], three steps.
        let device = Device::flex().autodiff();
        let (mut linear, _) = setup(&device);
        let mut optimizer = AdamW::new(config());
        for _ in 0..3 {
            let grads = grads(&linear, &device);
            linear = optimizer.step(linear, grads, 0.1, 1.0);
        }
        let expected = [0.536_891_4, 0.769_080_34, -0.686_368_17];
        for (value, expected) in values(&linear).into_iter().zip(expected) {
            assert!((value - expected).abs() < 1e-5, "{value} is not {expected}");
        }
    }

    #[test]
    fn the_norm_is_over_all_parameters_and_the_scale_clips() {
        let device = Device::flex().autodiff();
        let (linear, grads) = setup(&device);
        // y = 0.5 − 2 + 0.25 = −1.25, so dy²/db = −2.5, dw = (−2.5, −5).
        let norm = gradients::global_norm(&linear, &grads);
        assert!((norm - (2.5f64.powi(2) * 2.0 + 25.0).sqrt()).abs() < 1e-5);
        let again = self::grads(&linear, &device);
        let doubled = gradients::add(&linear, grads, again);
        assert!((gradients::global_norm(&linear, &doubled) - 2.0 * norm).abs() < 1e-4);
    }

    #[test]
    fn a_restored_optimizer_goes_on_with_the_same_bits() {
        let device = Device::flex().autodiff();
        let (mut linear, first) = setup(&device);
        let mut optimizer = AdamW::new(config());
        linear = optimizer.step(linear, first, 0.1, 1.0);
        let state = optimizer.state(&linear);
        let mut restored = AdamW::restore(config(), 1, state, &linear, &device.clone().inner());
        let a = optimizer.step(linear.clone(), grads(&linear, &device), 0.1, 0.5);
        let b = restored.step(linear.clone(), grads(&linear, &device), 0.1, 0.5);
        assert_eq!(values(&a), values(&b));
    }
}
