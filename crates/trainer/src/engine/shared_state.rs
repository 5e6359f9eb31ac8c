//! The state of a run that replicas share: checkpoints, which the first replica reads and writes for all.

use super::checkpoint::Checkpoint;
use super::messages::{from_first, gather};
use super::optimizer::{Optimizer, paths};
use super::replicas::{Replicas, bytes_of, words_of};
use super::settings::Exchange;
use super::slices::Slices;
use super::team::Team;
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::weights::{NamedTensors, OnDevice, TensorsOnDevice};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A checkpoint but for its tensors, of which it has names and shapes.
#[derive(Serialize, Deserialize)]
struct Outline {
    state: super::checkpoint::RunState,
    /// The tensors of the model, the optimiser, the average and the extensions.
    tensors: [Vec<(String, Vec<usize>)>; 4],
}

/// The checkpoint that the first replica finds, on all of them.
///
/// # Errors
/// Those of `found`; the other replicas then get [`TrainerError::Replicas`].
pub(super) fn checkpoint(
    replicas: &dyn Replicas,
    found: impl FnOnce() -> Result<Option<Checkpoint>>,
) -> Result<Option<Checkpoint>> {
    if replicas.size() <= 1 {
        return found();
    }
    if replicas.rank() == 0 {
        let found = found()?;
        let outline = found.as_ref().map(|checkpoint| {
            let outline = |tensors: &NamedTensors| {
                tensors.iter().map(|(name, data)| (name.clone(), data.shape().to_vec())).collect()
            };
            let Checkpoint { state, .. } = checkpoint;
            Outline { state: state.clone(), tensors: parts(checkpoint).map(outline) }
        });
        from_first(replicas, Some(serde_json::to_vec(&outline).expect("plain values serialise")))?;
        for data in found.iter().flat_map(parts).flat_map(|tensors| tensors.values()) {
            gather(replicas, data.iter::<f32>().map(f32::to_bits).collect())?;
        }
        return Ok(found);
    }
    let outline: Option<Outline> = read(&from_first(replicas, None)?)?;
    let Some(Outline { state, tensors }) = outline else { return Ok(None) };
    let mut received = Vec::new();
    for names in tensors {
        let mut tensors = NamedTensors::new();
        for (name, shape) in names {
            let words = gather(replicas, Vec::new())?.swap_remove(0);
            if words.len() != shape.iter().product::<usize>() {
                return Err(unreadable(format!("`{name}` has {} numbers for {shape:?}", words.len())));
            }
            let values: Vec<f32> = words.into_iter().map(f32::from_bits).collect();
            tensors.insert(name, TensorData::new(values, shape));
        }
        received.push(tensors);
    }
    let [model, optimizer, average, extensions] = received.try_into().expect("four of four");
    Ok(Some(Checkpoint { state, model, optimizer, average, extensions }))
}

fn parts(checkpoint: &Checkpoint) -> [&NamedTensors; 4] {
    [&checkpoint.model, &checkpoint.optimizer, &checkpoint.average, &checkpoint.extensions]
}

/// The moments of all slices, as [`Optimizer::on_device`] has them, on the first replica.
pub(super) fn moments<M: Module>(
    replicas: &dyn Replicas,
    slices: &Slices,
    optimizer: &Optimizer,
    model: &M,
    device: &Device,
) -> Result<TensorsOnDevice> {
    let team = Team { replicas, slices, divides_update: true, exchange: Exchange::F32 };
    let device = device.clone().inner();
    let paths = paths(model);
    let mut tensors = TensorsOnDevice::new();
    for (place, name) in ["first", "second"].into_iter().enumerate() {
        let whole = team.whole_on_first(|id| Some(optimizer.moments(id)?[place].clone()))?;
        for (path, id, _) in &paths {
            if let Some(values) = whole.get(id) {
                let tensor = Tensor::<1>::from_data(values.as_slice(), &device);
                tensors.insert(format!("{path}.{name}"), OnDevice::new(tensor));
            }
        }
    }
    Ok(tensors)
}

/// What the first replica computes, on all of them.
///
/// # Errors
/// Those of `compute`, on the first replica.
pub(crate) fn computed_by_first<T: Serialize + DeserializeOwned>(
    replicas: &dyn Replicas,
    compute: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if replicas.size() <= 1 {
        return compute();
    }
    let told = match replicas.rank() {
        0 => Some(serde_json::to_vec(&compute()?).expect("plain values serialise")),
        _ => None,
    };
    read(&from_first(replicas, told)?)
}

/// What replicas must have in common: what it is, and its text or hash.
pub(crate) type Fact = (&'static str, String);

/// Checks that all replicas have the same facts.
///
/// # Errors
/// [`TrainerError::Replicas`] naming what differs, and where.
pub(crate) fn check_same(replicas: &dyn Replicas, own: &[Fact]) -> Result<()> {
    if replicas.size() <= 1 {
        return Ok(());
    }
    let told: Vec<&String> = own.iter().map(|(_, fact)| fact).collect();
    let all = gather(replicas, words_of(&serde_json::to_vec(&told).expect("plain values serialise")))?;
    let all =
        all.iter().map(|message| read::<Vec<String>>(&bytes_of(message))).collect::<Result<Vec<_>>>()?;
    for (place, (what, _)) in own.iter().enumerate() {
        let of = |rank: usize| all[rank].get(place).map_or("", String::as_str);
        let Some(rank) = (1..all.len()).find(|rank| of(*rank) != of(0)) else { continue };
        let shown = |rank| if of(rank).len() < 60 { format!(" ({})", of(rank)) } else { String::new() };
        let problem =
            format!("needs one {what}: rank {rank} has another{} than rank 0{}", shown(rank), shown(0));
        return Err(TrainerError::Replicas { problem });
    }
    Ok(())
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| unreadable(format!("rank 0 told {error}")))
}

fn unreadable(problem: String) -> TrainerError {
    TrainerError::Replicas { problem: format!("disagree: {problem}") }
}
