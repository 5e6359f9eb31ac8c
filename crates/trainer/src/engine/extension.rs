//! Custom additions to a run's steps, with state that is kept in checkpoints.

use super::optimizer::{Optimizer, OptimizerState};
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::optim::GradientsParams;
use cloze_model::weights::{NamedTensors, TensorsOnDevice};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Hooks into the steps of a run, e.g. for pruning, rounding or weight constraints. A [`Recipe`](super::Recipe)
/// creates those of its run.
///
/// An extension's state must be a function of the run so far. It is written into each checkpoint and
/// [restored](Self::restore) from it, so that a resumed run is bit-identical.
pub trait Extension<M: Module>: Send {
    /// Its name in checkpoints: letters, digits and hyphens, unique among the run's extensions.
    fn name(&self) -> &str;

    /// Whether its state follows from the micro-batches that this process computes, and not from the model, its gradients and
    /// the step alone. Other replicas would then have another state, so it needs a run in one process.
    fn follows_batches(&self) -> bool {
        false
    }

    /// Changes the model before the first step of a run or a resumed run: the parameters are then those of the
    /// checkpoint, and [`restore`](Self::restore) has been called.
    ///
    /// # Errors
    /// The extension's own.
    fn prepare(&mut self, model: M) -> Result<M> {
        Ok(model)
    }

    /// Called before step `step`, between two steps: an earlier state of the run to return to, if any. The data
    /// goes on.
    fn rewind(&mut self, _model: &M, _optimizer: &Optimizer, _step: u64) -> Option<Rewind> {
        None
    }

    /// Changes the model before step `step`, such as to draw a mask for this step alone.
    fn before_step(&mut self, model: M, _step: u64) -> M {
        model
    }

    /// Changes the gradients of step `step`, before their norm is computed. They are summed over micro-batches
    /// and replicas, and multiplied by the loss scale in FP16.
    fn on_gradients(&mut self, _model: &M, gradients: GradientsParams, _step: u64) -> GradientsParams {
        gradients
    }

    /// Changes the model before the update of step `step`, such as to put weights without masks in their place.
    fn before_update(&mut self, model: M, _step: u64) -> M {
        model
    }

    /// Changes the model after step `step` if it was skipped because loss or gradients were not finite.
    fn after_skip(&mut self, model: M, _step: u64) -> M {
        model
    }

    /// Changes the model after the update of step `step`.
    fn after_update(&mut self, model: M, _step: u64) -> M {
        model
    }

    /// The tensors to keep in checkpoints, under the extension's own names.
    fn tensors(&self) -> TensorsOnDevice {
        TensorsOnDevice::default()
    }

    /// Other state to keep in checkpoints.
    fn state(&self) -> Value {
        Value::Null
    }

    /// Restores state from a checkpoint, for a model like this one.
    ///
    /// # Errors
    /// What is wrong with the state, such as mismatched shapes.
    fn restore(&mut self, _model: &M, _kept: KeptState) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// A state of a run to return to.
#[derive(Debug)]
pub struct Rewind {
    /// The parameters, by path.
    pub parameters: NamedTensors,
    /// The optimiser's state.
    pub moments: OptimizerState,
    /// The updates that the optimiser had made.
    pub updates: u64,
}

/// An extension's state in a checkpoint.
#[derive(Debug, Default)]
pub struct KeptState {
    /// Its tensors.
    pub tensors: NamedTensors,
    /// The rest.
    pub state: Value,
}

/// The extensions of a run, in order.
pub type Extensions<M> = Vec<Box<dyn Extension<M>>>;

/// Rejects duplicate names, names that are invalid in a checkpoint, and with several replicas state that is of one.
pub(super) fn check<M: Module>(extensions: &Extensions<M>, n_replicas: usize) -> Result<()> {
    let of_one = extensions.iter().find(|extension| n_replicas > 1 && extension.follows_batches());
    if let Some(extension) = of_one {
        let problem = "follows the examples that one process sees: train in one process".into();
        return Err(TrainerError::Extension { name: extension.name().into(), problem });
    }
    let mut names = BTreeSet::new();
    for name in extensions.iter().map(|extension| extension.name()) {
        let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let problem = match (is_plain, names.insert(name)) {
            (true, true) => continue,
            (false, _) => "expected a name of letters, digits and hyphens",
            (true, false) => "another extension of the run has this name",
        };
        return Err(TrainerError::Extension { name: name.into(), problem: problem.into() });
    }
    Ok(())
}

/// Separates an extension's name from its tensor's name in a checkpoint.
const OF: char = '/';

/// For a checkpoint: the tensors of all extensions.
pub(super) fn tensors<M: Module>(extensions: &Extensions<M>) -> TensorsOnDevice {
    let named = extensions.iter().flat_map(|extension| {
        let tensors = extension.tensors().into_iter();
        tensors.map(move |(name, tensor)| (format!("{}{OF}{name}", extension.name()), tensor))
    });
    named.collect()
}

/// For a checkpoint: the other non-empty states.
pub(super) fn states<M: Module>(extensions: &Extensions<M>) -> BTreeMap<String, Value> {
    let states = extensions.iter().map(|extension| (extension.name().to_owned(), extension.state()));
    states.filter(|(_, state)| !state.is_null()).collect()
}

/// Restores each extension's state; all of the checkpoint's state must be claimed.
pub(super) fn restore<M: Module>(
    extensions: &mut Extensions<M>,
    model: &M,
    mut tensors: NamedTensors,
    mut states: BTreeMap<String, Value>,
) -> Result<()> {
    for extension in extensions {
        let name = extension.name().to_owned();
        let prefix = format!("{name}{OF}");
        let of_it = |found: &String| found.starts_with(&prefix);
        let names: Vec<String> = tensors.keys().filter(|found| of_it(found)).cloned().collect();
        let own = names.into_iter().filter_map(|found| {
            let data = tensors.remove(&found)?;
            Some((found[prefix.len()..].to_owned(), data))
        });
        let kept = KeptState { tensors: own.collect(), state: states.remove(&name).unwrap_or_default() };
        extension.restore(model, kept).map_err(|problem| TrainerError::Extension { name, problem })?;
    }
    let left =
        tensors.keys().filter_map(|name| name.split(OF).next()).chain(states.keys().map(String::as_str));
    match left.min() {
        None => Ok(()),
        Some(name) => Err(TrainerError::Extension {
            name: name.into(),
            problem: "the checkpoint was made with it, but the run has no extension of this name".into(),
        }),
    }
}
