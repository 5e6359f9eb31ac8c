//! Taking weights out of a model and putting others in their place.

use super::targets::Target;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use cloze_model::weights::ModulePath;
use std::collections::{BTreeMap, HashMap};

/// The targets' weights, without autodiff, in the order of the targets.
///
/// # Panics
/// If a target is not there.
pub(crate) fn weights<M: Module>(model: &M, targets: &[Target]) -> Vec<Tensor<2>> {
    let mut found = Weights { path: ModulePath::default(), targets, found: BTreeMap::new() };
    model.visit(&mut found);
    let mut found = found.found;
    targets
        .iter()
        .map(|target| found.remove(&target.path).expect("a target is a weight of the model"))
        .collect()
}

/// The model with these weights, in the order of the targets.
pub(crate) fn with_weights<M: Module>(model: M, targets: &[Target], weights: Vec<Tensor<2>>) -> M {
    let weights = targets.iter().map(|target| target.path.clone()).zip(weights).collect();
    model.map(&mut Put { path: ModulePath::default(), weights })
}

/// The ids of the targets' parameters, each with the place of its target.
pub(crate) fn ids<M: Module>(model: &M, targets: &[Target]) -> HashMap<ParamId, usize> {
    let mut found = Ids { path: ModulePath::default(), targets, found: HashMap::new() };
    model.visit(&mut found);
    found.found
}

struct Ids<'a> {
    path: ModulePath,
    targets: &'a [Target],
    found: HashMap<ParamId, usize>,
}

impl ModuleVisitor for Ids<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.to_string();
        if let Some(place) = self.targets.iter().position(|target| target.path == path) {
            self.found.insert(param.id, place);
        }
    }
}

struct Weights<'a> {
    path: ModulePath,
    targets: &'a [Target],
    found: BTreeMap<String, Tensor<2>>,
}

impl ModuleVisitor for Weights<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if D != 2 {
            return;
        }
        let path = self.path.to_string();
        if let Some(target) = self.targets.iter().find(|target| target.path == path) {
            self.found.insert(path, param.val().inner().reshape(target.shape));
        }
    }
}

struct Put {
    path: ModulePath,
    weights: BTreeMap<String, Tensor<2>>,
}

impl ModuleMapper for Put {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(weight) = self.weights.remove(&self.path.to_string()) else { return param };
        let (id, old, mapper) = param.consume();
        let (shape, tracked) = (old.dims(), old.is_require_grad());
        let value = Tensor::from_inner(weight.reshape(shape));
        Param::from_mapped_value(id, if tracked { value.require_grad() } else { value }, mapper)
    }
}
