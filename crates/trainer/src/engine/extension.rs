//! What a run does besides its steps, with a state that checkpoints keep.

use crate::{Result, TrainerError};
use burn::module::Module;
use burn::optim::GradientsParams;
use cloze_model::weights::{NamedTensors, TensorsOnDevice};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Hooks into the steps of a run: pruning, rounding, constraints on weights. A [`Recipe`](super::Recipe) makes those of its run.
///
/// What an extension knows is a function of the run so far. It is written into each checkpoint and [restored](Self::restore)
/// from it, so that a resumed run ends with the same bits.
pub trait Extension<M: Module>: Send {
    /// Its name in checkpoints, of letters, digits and hyphens; another one than those of the run's other extensions.
    fn name(&self) -> &str;

    /// Changes the model before the first step of a run, or of what is left of it: the parameters are those of the
    /// checkpoint then, and [`restore`](Self::restore) was called before.
    ///
    /// # Errors
    /// Whatever the extension's own are.
    fn prepare(&mut self, model: M) -> Result<M> {
        Ok(model)
    }

    /// Changes the gradients of step `step`, before their norm is taken. They are those of all micro-batches and replicas, times
    /// the scale of the loss in FP16.
    fn on_gradients(&mut self, _model: &M, gradients: GradientsParams, _step: u64) -> GradientsParams {
        gradients
    }

    /// Changes the model after the update of step `step`.
    fn after_update(&mut self, model: M, _step: u64) -> M {
        model
    }

    /// The tensors that checkpoints keep, by names of its own.
    fn tensors(&self) -> TensorsOnDevice {
        TensorsOnDevice::default()
    }

    /// What else they keep.
    fn state(&self) -> Value {
        Value::Null
    }

    /// Takes back what a checkpoint has kept, for a model like this one.
    ///
    /// # Errors
    /// What is wrong with it, such as tensors of other shapes.
    fn restore(&mut self, _model: &M, _kept: KeptState) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// What a checkpoint has kept of an extension.
#[derive(Debug, Default)]
pub struct KeptState {
    /// Its tensors.
    pub tensors: NamedTensors,
    /// The rest.
    pub state: Value,
}

/// The extensions of a run, in their order.
pub type Extensions<M> = Vec<Box<dyn Extension<M>>>;

/// Refuses two extensions of one name, and a name that a checkpoint's file could not have.
pub(super) fn check<M: Module>(extensions: &Extensions<M>) -> Result<()> {
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

/// Between an extension's name and that of its tensor, in a checkpoint's file.
const OF: char = '/';

/// For a checkpoint: the tensors of all.
pub(super) fn tensors<M: Module>(extensions: &Extensions<M>) -> TensorsOnDevice {
    let named = extensions.iter().flat_map(|extension| {
        let tensors = extension.tensors().into_iter();
        tensors.map(move |(name, tensor)| (format!("{}{OF}{name}", extension.name()), tensor))
    });
    named.collect()
}

/// For a checkpoint: what else they keep, where that is anything.
pub(super) fn states<M: Module>(extensions: &Extensions<M>) -> BTreeMap<String, Value> {
    let states = extensions.iter().map(|extension| (extension.name().to_owned(), extension.state()));
    states.filter(|(_, state)| !state.is_null()).collect()
}

/// Gives each what a checkpoint has of it; all of it is somebody's.
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
            problem: "the checkpoint was made with it, and the run has none of this name".into(),
        }),
    }
}
