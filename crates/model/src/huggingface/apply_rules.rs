//! Rules applied to a model: its tensors for a file, and a file's tensors put into it.

use super::finite::first_non_finite;
use super::folder::file_of;
use super::layout::transpose;
use super::mapped_file::{addresses, let_go};
use super::quantization::{Found, Integers};
use super::reports::LoadReport;
use super::transfer::Transfer;
use super::{MappedTensors, TensorRules, tensors_of};
use crate::weights::{self, NamedTensors};
use crate::{ModelError, Result};
use burn::module::Module;
use burn::tensor::TensorData;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

impl TensorRules {
    /// The names that the tensors of `model` have in a file, in the model's order.
    ///
    /// # Errors
    /// Those of [`Self::tensors`].
    pub fn names<M: Module>(&self, model: &M) -> Result<Vec<String>> {
        let transfers = Transfer::all(self, &weights::shapes(model))?;
        Ok(transfers.into_iter().flat_map(|transfer| transfer.tensors).collect())
    }

    /// The tensors of a file for `model`: [`save_tensors`](super::save_tensors) writes them.
    ///
    /// A parameter without a rule keeps its path as its name, and is transposed if it is a matrix called `weight`.
    ///
    /// # Errors
    /// [`ModelError::Config`] for a rule that does not fit the model: the model lacks one of its parameters, or their
    /// shapes do not fit together.
    pub fn tensors<M: Module>(&self, model: &M) -> Result<NamedTensors> {
        let transfers = Transfer::all(self, &weights::shapes(model))?;
        let mut parameters = weights::collect(model);
        Ok(transfers.iter().flat_map(|transfer| transfer.store(&mut parameters)).collect())
    }

    /// Loads the weights of `folder`, in any of the formats that [`tensors_of`] reads, into `model`.
    ///
    /// A parameter whose path matches a pattern of `new` may be missing and then keeps its value; in a pattern, `*`
    /// stands for any characters.
    ///
    /// # Errors
    /// Those of [`tensors_of`] and [`Self::tensors`]; [`ModelError::MissingTensors`], [`ModelError::Shape`];
    /// [`ModelError::NonFinite`] for the first of the model's tensors with a NaN or an infinity; [`ModelError::Config`]
    /// for a malformed pattern.
    pub fn load<M: Module>(&self, model: M, folder: &Path, new: &[&str]) -> Result<(M, LoadReport)> {
        let (model, report, _) = self.put(model, folder, tensors_of(folder)?, new)?;
        Ok((model, report))
    }

    /// [`Self::load`] for tensors that were read from `folder`. Parameters that are whole matrices of integers become floats
    /// when they are first used; the integers are returned by the parameters' paths.
    pub(super) fn put<M: Module>(
        &self,
        model: M,
        folder: &Path,
        tensors: MappedTensors,
        new: &[&str],
    ) -> Result<(M, LoadReport, Integers)> {
        let path = || folder.to_path_buf();
        let new = patterns(new)?;
        let MappedTensors { floats, quantized, others, .. } = tensors;
        let mut report = LoadReport::default();
        // `position_ids` in old checkpoints are no weights.
        report.unexpected.extend(others.into_iter().filter(|name| !name.ends_with("position_ids")));
        let mut found: BTreeMap<String, (String, Found)> = BTreeMap::new();
        let floats = floats.into_iter().map(|(name, data)| (name, Found::Floats(data)));
        let quantized = quantized.into_iter().map(|(name, tensor)| (name, Found::Integers(tensor)));
        for (name, data) in floats.chain(quantized) {
            match found.entry(self.canonical(&name)) {
                Entry::Vacant(place) => _ = place.insert((name, data)),
                Entry::Occupied(_) => report.unexpected.push(name),
            }
        }
        self.untie(&mut found);

        let mut transfers = Vec::new();
        let mut missing = Vec::new();
        for transfer in Transfer::all(self, &weights::shapes(&model))? {
            let absent: Vec<&String> =
                transfer.tensors.iter().filter(|name| !found.contains_key(&self.canonical(name))).collect();
            if !absent.is_empty() {
                let is_old = |path: &&String| !new.iter().any(|pattern| pattern.matches(path));
                match transfer.parameters.iter().map(|(path, _)| path).find(is_old) {
                    Some(path) => missing.extend(absent.into_iter().map(|name| (name.clone(), path.clone()))),
                    None => report.missing.extend(absent.into_iter().cloned()),
                }
                continue;
            }
            let mut data = Vec::new();
            for (name, expected) in transfer.tensors.iter().zip(transfer.shapes()) {
                let (name, tensor) = found.remove(&self.canonical(name)).expect("it is there");
                if tensor.shape() != expected {
                    let found = tensor.shape();
                    return Err(ModelError::Shape { path: path(), name, expected, found });
                }
                data.push((name, tensor));
            }
            transfers.push((transfer, data));
        }
        let mut integers = Integers::new();
        let mut floats = Vec::new();
        for (transfer, data) in transfers {
            match transfer.load_integers(data) {
                Ok(found) => integers.extend(found),
                Err((transfer, data)) => floats.push((transfer, data)),
            }
        }
        if !missing.is_empty() {
            missing.sort();
            let (names, mut parameters): (_, Vec<_>) = missing.into_iter().unzip();
            let parameter = parameters.swap_remove(0);
            let mut others: Vec<String> = found.into_values().map(|(name, _)| name).collect();
            others.sort();
            return Err(ModelError::MissingTensors { path: path(), names, parameter, others });
        }
        report.unexpected.extend(found.into_values().map(|(name, _)| name));
        report.unexpected.sort();
        report.missing.sort();
        let loaded = |(transfer, data): (Transfer, Vec<(String, Found)>)| {
            let data: Vec<(String, TensorData)> =
                data.into_iter().map(|(name, found)| (name, found.into_floats())).collect();
            for (name, tensor) in &data {
                if let Some((index, value)) = first_non_finite(tensor) {
                    let path = file_of(folder, name);
                    return Err(ModelError::NonFinite { path, name: name.clone(), index, value });
                }
            }
            let read: Vec<Range<usize>> =
                data.iter().map(|(_, tensor)| addresses(tensor.as_bytes())).collect();
            let loaded = transfer.load(data.into_iter().map(|(_, tensor)| tensor).collect());
            let lies_there = |range: &Range<usize>| {
                loaded.iter().any(|(_, part)| range.contains(&part.as_bytes().as_ptr().addr()))
            };
            // A copy of each tensor that was transposed, and not its file's pages beside it.
            read.into_iter().filter(|range| !lies_there(range)).for_each(let_go);
            Ok(loaded)
        };
        // Check all of them, so that the error is always that of the first tensor.
        let loaded: Vec<Result<Vec<_>>> = floats.into_par_iter().map(loaded).collect();
        let loaded = loaded.into_iter().collect::<Result<Vec<_>>>()?;
        let model = weights::replace(model, loaded.into_iter().flatten().collect());
        let deferred = integers.iter().map(|(path, (tensor, transposed))| {
            let (tensor, transposed) = (Arc::clone(tensor), *transposed);
            let compute: weights::Compute = Box::new(move || {
                let data = tensor.dequantized();
                if transposed { transpose(&data) } else { data }
            });
            (path.clone(), compute)
        });
        let model = weights::defer(model, deferred.collect());
        Ok((model, report, integers))
    }

    /// The tensors of a file that are for parameters whose paths match a pattern of `new`, and have other shapes.
    pub(super) fn misfits<M: Module>(
        &self,
        model: &M,
        tensors: &MappedTensors,
        new: &[&str],
    ) -> Result<Vec<String>> {
        let new = patterns(new)?;
        let by_name: BTreeMap<String, (&String, Vec<usize>)> =
            tensors.shapes().map(|(name, shape)| (self.canonical(name), (name, shape))).collect();
        let mut misfits = Vec::new();
        for transfer in Transfer::all(self, &weights::shapes(model))? {
            let is_new = |path: &String| new.iter().any(|pattern| pattern.matches(path));
            if !transfer.parameters.iter().all(|(path, _)| is_new(path)) {
                continue;
            }
            for (name, expected) in transfer.tensors.iter().zip(transfer.shapes()) {
                let found = by_name.get(&self.canonical(name));
                let misfit = found.filter(|(_, shape)| *shape != expected);
                misfits.extend(misfit.map(|(name, _)| (*name).clone()));
            }
        }
        Ok(misfits)
    }
}

fn patterns(new: &[&str]) -> Result<Vec<glob::Pattern>> {
    let parse = |pattern: &&str| {
        glob::Pattern::new(pattern).map_err(|error| {
            ModelError::Config(format!("`{pattern}` is not a valid parameter pattern: {error}"))
        })
    };
    new.iter().map(parse).collect()
}
