//! Averages of a model's weights over a run, evaluated and saved in place of the last weights.

use super::checkpoint::{Averaged, Checkpoint};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Tensor, TensorData};
use cloze_evaluation::figures::Better;
use cloze_model::weights::{self, NamedTensors, TensorsOnDevice};
use cloze_ops as ops;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// `[average]`: which average of the weights over a run is its result. Training itself is unaffected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Averaging {
    /// An exponential moving average over all steps (Polyak & Juditsky 1992). Evaluations use it.
    Ema {
        /// The decay, i.e. the fraction of the average kept at each update. At update `t` it is at most `(1 +
        /// t) / (10 + t)`, so that the first weights are soon forgotten (as in TensorFlow's
        /// `ExponentialMovingAverage` with `num_updates`).
        decay: f64,
    },
    /// The mean of the last few weights, taken every so many steps (Vaswani et al. 2017, §6.1). Evaluations use
    /// it. Memory and checkpoints hold this many copies of the weights.
    Last {
        /// Number of copies.
        checkpoints: usize,
        /// Steps between copies; the last step of a run always counts.
        every: u64,
    },
    /// The mean of the weights with the best evaluations; evaluations use the raw weights. Memory and
    /// checkpoints hold this many copies of the weights.
    Best {
        /// Number of copies.
        checkpoints: usize,
    },
}

/// The prefix of an exponential moving average's tensors in a checkpoint.
const EMA: &str = "ema/";

/// The average of a run's weights so far.
pub(super) struct Average<M> {
    settings: Averaging,
    /// The moving average, without autodiff.
    moving: Option<M>,
    /// The averaged weights, the earliest first.
    kept: Vec<Kept<M>>,
}

struct Kept<M> {
    of: Averaged,
    /// Without autodiff. Shares its tensors with the model until a step changes them.
    model: M,
}

impl<M: Module> Average<M> {
    pub fn new(settings: Averaging) -> Self {
        Self { settings, moving: None, kept: Vec::new() }
    }

    /// Restores the state saved in the checkpoint of `model`.
    pub fn restore(settings: Averaging, checkpoint: &mut Checkpoint, model: &M) -> Self {
        let mut moving = BTreeMap::new();
        let mut steps: BTreeMap<u64, NamedTensors> = BTreeMap::new();
        for (name, data) in std::mem::take(&mut checkpoint.average) {
            if let Some(path) = name.strip_prefix(EMA) {
                moving.insert(path.to_owned(), data);
            } else if let Some((step, path)) = name.split_once('/')
                && let Ok(step) = step.parse()
            {
                steps.entry(step).or_default().insert(path.to_owned(), data);
            }
        }
        let made = |tensors| weights::replace(model.valid(), tensors);
        let kept = checkpoint
            .state
            .average
            .iter()
            .filter_map(|of| Some(Kept { of: *of, model: made(steps.remove(&of.step)?) }));
        Self { settings, kept: kept.collect(), moving: (!moving.is_empty()).then(|| made(moving)) }
    }

    /// Adds the weights after a step, which `updates` updates have changed. `is_last` marks the run's last
    /// step.
    pub fn after_step(&mut self, model: &M, step: u64, updates: u64, updated: bool, is_last: bool) {
        match self.settings {
            Averaging::Ema { decay } if updated => {
                let Some(moving) = self.moving.take() else {
                    self.moving = Some(model.valid());
                    return;
                };
                let decay = decay.min((1 + updates) as f64 / (10 + updates) as f64);
                let mut values = Values::default();
                model.visit(&mut values);
                self.moving = Some(moving.map(&mut Move { values: values.0, decay }));
            }
            Averaging::Last { checkpoints, every } if is_last || step.is_multiple_of(every.max(1)) => {
                self.keep(Averaged { step, figure: None }, model);
                let surplus = self.kept.len().saturating_sub(checkpoints.max(1));
                self.kept.drain(..surplus);
            }
            _ => {}
        }
    }

    /// Adds the weights of an evaluation with the main metric `name`.
    pub fn after_evaluation(&mut self, model: &M, step: u64, name: &str, figure: f64) {
        let Averaging::Best { checkpoints } = self.settings else { return };
        if !figure.is_finite() {
            return;
        }
        self.keep(Averaged { step, figure: Some(figure) }, model);
        if self.kept.len() > checkpoints.max(1) {
            let better = Better::of(name);
            let figure = |kept: &Kept<M>| kept.of.figure.unwrap_or(f64::NAN);
            // The earliest of equal ones goes.
            let worst = (1..self.kept.len()).fold(0, |worst, place| {
                let is_worse = better.improves(figure(&self.kept[worst]), figure(&self.kept[place]));
                if is_worse { place } else { worst }
            });
            self.kept.remove(worst);
        }
    }

    fn keep(&mut self, of: Averaged, model: &M) {
        self.kept.retain(|kept| kept.of.step != of.step);
        self.kept.push(Kept { of, model: model.valid() });
    }

    /// The model to evaluate instead of the raw one, if there is an average yet.
    pub fn measured(&self) -> Option<M> {
        match self.settings {
            Averaging::Ema { .. } => self.moving.clone(),
            Averaging::Last { .. } => self.mean(),
            Averaging::Best { .. } => None,
        }
    }

    /// The result if it has not been evaluated yet: the mean of the best models, if there are several.
    pub fn unmeasured_result(&self) -> Option<M> {
        match self.settings {
            Averaging::Best { .. } if self.kept.len() > 1 => self.mean(),
            _ => None,
        }
    }

    /// The mean of the kept weights.
    fn mean(&self) -> Option<M> {
        let first = self.kept.first()?;
        if self.kept.len() == 1 {
            return Some(first.model.clone());
        }
        let mut sums: BTreeMap<String, (Vec<f64>, burn::tensor::Shape)> = BTreeMap::new();
        for kept in &self.kept {
            for (path, data) in weights::collect(&kept.model) {
                let shape = data.shape().clone();
                let n = shape.num_elements();
                let (sum, _) = sums.entry(path).or_insert_with(|| (vec![0.0; n], shape));
                sum.iter_mut().zip(data.iter::<f32>()).for_each(|(sum, x)| *sum += f64::from(x));
            }
        }
        let n = self.kept.len() as f64;
        let mean = |(sum, shape): (Vec<f64>, _)| {
            TensorData::new(sum.into_iter().map(|sum| (sum / n) as f32).collect::<Vec<f32>>(), shape)
        };
        let means = sums.into_iter().map(|(path, sum)| (path, mean(sum))).collect();
        Some(weights::replace(first.model.clone(), means))
    }

    /// For a checkpoint: which weights are kept.
    pub fn state(&self) -> Vec<Averaged> {
        self.kept.iter().map(|kept| kept.of).collect()
    }

    /// For a checkpoint: the kept tensors.
    pub fn on_device(&self) -> TensorsOnDevice {
        let named = |prefix: String, model: &M| {
            let tensors = weights::on_device(model).into_iter();
            tensors.map(move |(path, tensor)| (format!("{prefix}{path}"), tensor))
        };
        let moving = self.moving.iter().flat_map(|model| named(EMA.into(), model));
        let kept = self.kept.iter().flat_map(|kept| named(format!("{}/", kept.of.step), &kept.model));
        moving.chain(kept).collect()
    }
}

/// Checks that a checkpoint's averages match parameters with these paths and shapes; returns the mismatch if
/// not.
pub(super) fn check(
    average: &NamedTensors,
    state: &[Averaged],
    shapes: &[(String, Vec<usize>)],
) -> Result<(), String> {
    let of_steps = state.iter().map(|of| format!("{}/", of.step));
    let has_moving = average.keys().any(|name| name.starts_with(EMA));
    for prefix in of_steps.chain(has_moving.then(|| EMA.to_owned())) {
        for (path, shape) in shapes {
            let name = format!("{prefix}{path}");
            match average.get(&name) {
                Some(tensor) if tensor.shape().to_vec() == *shape => {}
                Some(tensor) => {
                    let found = tensor.shape().to_vec();
                    return Err(format!("`{name}` has the shape {found:?}, the model's has {shape:?}"));
                }
                None => return Err(format!("`{name}` is missing")),
            }
        }
    }
    Ok(())
}

/// Every parameter's values, without autodiff and without copies.
#[derive(Default)]
struct Values(HashMap<ParamId, Tensor<1>>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.insert(param.id, param.val().inner().reshape([-1]));
    }
}

/// Moves an average towards new values.
struct Move {
    values: HashMap<ParamId, Tensor<1>>,
    decay: f64,
}

impl ModuleMapper for Move {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(value) = self.values.remove(&param.id) else { return param };
        let (id, average, mapper) = param.consume();
        let shape = average.dims();
        let average = ops::moving_average(average.reshape([-1]), value, self.decay);
        Param::from_mapped_value(id, average.reshape(shape), mapper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use cloze_model::ParamInit;
    use cloze_model::blocks::Linear;

    /// One model, whose parameters have various values.
    struct Values(Linear);

    impl Values {
        fn new() -> Self {
            Self(Linear::new(1, 1, &mut ParamInit::new(&Device::flex().autodiff(), 0)))
        }

        fn at(&self, value: f32) -> Linear {
            let tensors = [
                ("weight".to_string(), TensorData::from([[value]])),
                ("bias".to_string(), TensorData::from([-value])),
            ];
            weights::replace(self.0.clone(), tensors.into())
        }
    }

    fn value(model: Option<Linear>) -> f32 {
        let tensors = weights::collect(&model.unwrap());
        let [weight, bias] = ["weight", "bias"].map(|name| tensors[name].iter::<f32>().next().unwrap());
        assert_eq!(weight, -bias);
        weight
    }

    #[test]
    fn a_moving_average_forgets_its_beginning() {
        let model = Values::new();
        let mut average = Average::new(Averaging::Ema { decay: 0.5 });
        assert!(average.measured().is_none());
        average.after_step(&model.at(8.0), 1, 1, true, false);
        assert_eq!(value(average.measured()), 8.0);
        // At the second update the decay is at most 3/12.
        average.after_step(&model.at(4.0), 2, 2, true, false);
        assert_eq!(value(average.measured()), 0.25 * 8.0 + 0.75 * 4.0);
        average.after_step(&model.at(100.0), 3, 2, false, false);
        assert_eq!(value(average.measured()), 5.0, "a step without an update");
        average.after_step(&model.at(1.0), 100, 100, true, false);
        assert_eq!(value(average.measured()), 3.0);
    }

    #[test]
    fn the_last_ones_are_averaged() {
        let model = Values::new();
        let mut average = Average::new(Averaging::Last { checkpoints: 2, every: 10 });
        for step in 1..=33 {
            average.after_step(&model.at(step as f32), step, step, true, step == 33);
        }
        assert_eq!(average.state().iter().map(|of| of.step).collect::<Vec<_>>(), [30, 33]);
        assert_eq!(value(average.measured()), 31.5);
        assert!(average.unmeasured_result().is_none());
    }

    #[test]
    fn the_best_ones_are_averaged_at_the_end() {
        let model = Values::new();
        let mut average = Average::new(Averaging::Best { checkpoints: 2 });
        for (step, loss) in [(1, 5.0), (2, 3.0), (3, f64::NAN), (4, 4.0), (5, 3.5), (6, 3.5)] {
            average.after_evaluation(&model.at(step as f32), step, "loss", loss);
            assert!(average.measured().is_none());
        }
        assert_eq!(average.state().iter().map(|of| of.step).collect::<Vec<_>>(), [2, 6]);
        assert_eq!(value(average.unmeasured_result()), 4.0);
    }
}
