//! Ranges of inputs that are the same for all tokens, and that training finds.

use crate::pruning::Target;
use crate::{Result, TrainerError};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor};
use cloze_files::write_atomic;
use cloze_model::blocks::{LinearMapKind, LinearMaps};
use cloze_model::weights::ModulePath;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The least and the greatest input of each map, by its path in the encoder.
pub type InputRanges = BTreeMap<String, [f32; 2]>;

/// The file of a model folder with the ranges that it was trained with.
const FILE: &str = "input_ranges.json";

/// What is left of a running mean in a step (Jacob et al. 2018, §3.1: "close to 1").
const MOMENTUM: f32 = 0.99;

/// The name of a map's range, beside its weight.
const RANGE: &str = "input_range";

/// The pattern of all ranges' paths.
pub(crate) const RANGES: &str = "*.input_range";

/// The least and the greatest inputs of a step's maps, by the places of their targets. Micro-batches and replicas add
/// theirs in any order.
#[derive(Debug, Default)]
pub struct SeenInputs(Mutex<BTreeMap<usize, [f32; 2]>>);

impl SeenInputs {
    /// Adds those of a part of the step.
    pub(crate) fn add(&self, ranges: impl IntoIterator<Item = (usize, [f32; 2])>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, [least, most]) in ranges {
            let range = seen.entry(place).or_insert([0.0; 2]);
            *range = [range[0].min(least), range[1].max(most)];
        }
    }

    pub(crate) fn take(&self) -> BTreeMap<usize, [f32; 2]> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The model with its running ranges moved towards what was seen.
pub(super) fn moved<M: Module>(model: M, targets: &[Target], seen: &BTreeMap<usize, [f32; 2]>) -> M {
    let seen = seen.iter().filter_map(|(place, range)| {
        let of = targets[*place].path.strip_suffix("weight")?;
        Some((format!("{of}{RANGE}"), *range))
    });
    model.map(&mut Move { path: ModulePath::default(), seen: seen.collect() })
}

struct Move {
    path: ModulePath,
    seen: BTreeMap<String, [f32; 2]>,
}

impl ModuleMapper for Move {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(seen) = self.seen.get(&self.path.to_string()) else { return param };
        param.map(|now| {
            let seen = Tensor::<1>::from_data(*seen, &now.device()).reshape(now.shape());
            now.detach() * MOMENTUM + seen * (1.0 - MOMENTUM)
        })
    }
}

/// Gives the maps their ranges, which are trained if `learnt`.
pub(crate) fn attach(model: &mut impl LinearMaps, ranges: &InputRanges, learnt: bool, device: &Device) {
    for map in model.linear_maps_mut() {
        if let (LinearMapKind::Plain(linear), Some(range)) = (map.kind, ranges.get(&map.path)) {
            let range = Tensor::<1>::from_data(*range, device);
            linear.input_range = Some(Param::from_tensor(range).set_require_grad(learnt));
        }
    }
}

/// Takes the ranges out of the maps.
pub(crate) fn detach(model: &mut impl LinearMaps) -> InputRanges {
    let maps = model.linear_maps_mut().into_iter().filter_map(|map| {
        let LinearMapKind::Plain(linear) = map.kind else { return None };
        let range: Vec<f32> = linear.input_range.take()?.val().into_data().iter::<f32>().collect();
        // As they are used: on either side of 0.
        Some((map.path, [range[0].min(0.0), range[1].max(0.0)]))
    });
    maps.collect()
}

/// Keeps ranges in a model's folder.
pub(crate) fn write(folder: &Path, ranges: &InputRanges) -> Result<()> {
    let text = serde_json::to_string_pretty(ranges).expect("paths and numbers") + "\n";
    Ok(write_atomic(&folder.join(FILE), text.as_bytes())?)
}

/// The ranges in a model's folder, if it was trained with any.
///
/// # Errors
/// An unreadable file; ends that are not finite, or not on either side of 0.
pub(crate) fn read(folder: &Path) -> Result<Option<InputRanges>> {
    let path = folder.join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let bad = |reason: String| TrainerError::BadTaskFile { path: path.clone(), reason };
    let text = fs::read_to_string(&path).map_err(|error| bad(error.to_string()))?;
    let ranges: InputRanges = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    for (map, [least, most]) in &ranges {
        if !(least.is_finite() && most.is_finite() && *least <= 0.0 && *most >= 0.0) {
            return Err(bad(format!(
                "`{map}` is [{least}, {most}]; expected two ends, one on either side of 0"
            )));
        }
    }
    Ok(Some(ranges))
}
