//! Freezing parameters, which training then leaves unchanged.

use crate::weights::{self, ModulePath};
use crate::{Backbone, HasBackbone, Result, patterns};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use glob::Pattern;

/// Freezes the parameters whose paths match one of the patterns, in which `*` stands for any characters: `bert.*` is
/// the whole encoder of a BERT; [`first_layers`] gives the patterns of a part of it.
///
/// A frozen parameter has no gradient, and the backward pass stops below the lowest trained parameter. Dropout stays
/// active. Frozen token embeddings are frozen in a masked-LM head that projects onto them, too.
///
/// # Errors
/// [`ModelError::Pattern`](crate::ModelError::Pattern) for a pattern that is malformed or matches no parameter.
pub fn freeze<M: Module>(module: M, patterns: &[impl AsRef<str>]) -> Result<M> {
    let paths = weights::shapes(&module);
    let patterns = patterns::parse(patterns, paths.iter().map(|(path, _)| path.as_str()))?;
    Ok(module.map(&mut Freeze { path: ModulePath::default(), patterns }))
}

/// The patterns of the embeddings and of the first `n_layers` layers of a model's backbone, or of all layers if it has
/// fewer, for [`freeze`].
pub fn first_layers<M: HasBackbone>(model: &M, n_layers: usize) -> Vec<String> {
    let backbone = model.backbone();
    let layers = backbone.layer_paths().into_iter().take(n_layers);
    let paths = std::iter::once(backbone.embeddings_path()).chain(layers);
    paths.map(|path| M::path_of(&format!("{path}.*"))).collect()
}

struct Freeze {
    path: ModulePath,
    patterns: Vec<Pattern>,
}

impl ModuleMapper for Freeze {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.to_string();
        match self.patterns.iter().any(|pattern| pattern.matches(&path)) {
            true => param.set_require_grad(false),
            false => param,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::bert::{BertConfig, BertInput};
    use crate::tasks::{BertForSequenceClassification, SequenceHead};
    use burn::module::ModuleVisitor;
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, TensorData};
    use std::collections::BTreeMap;

    /// The gradients by path.
    struct ByPath {
        path: ModulePath,
        gradients: GradientsParams,
        found: BTreeMap<String, TensorData>,
    }

    impl ModuleVisitor for ByPath {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }

        fn exit_module(&mut self, _name: &str, container: &str) {
            self.path.exit(container);
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.gradients.remove::<D>(param.id) {
                self.found.insert(self.path.to_string(), gradient.into_data());
            }
        }
    }

    fn model(init: &mut ParamInit) -> BertForSequenceClassification {
        let config = BertConfig { d_ff: 12, n_heads: 2, ..BertConfig::new(31, 3, 8) };
        let config = BertConfig { hidden_dropout: 0.0, attention_dropout: 0.0, ..config };
        let bert = config.init_encoder(init);
        BertForSequenceClassification::new(bert, SequenceHead::new(8, 2, 0.0, init))
    }

    fn gradients(model: &BertForSequenceClassification, device: &Device) -> BTreeMap<String, TensorData> {
        let logits = model.forward(BertInput::packed(&[5, 9, 3, 7, 7], &[3, 2], device));
        let gradients = GradientsParams::from_grads(logits.powi_scalar(2).sum().backward(), model);
        let mut visitor = ByPath { path: ModulePath::default(), gradients, found: BTreeMap::new() };
        model.visit(&mut visitor);
        visitor.found
    }

    #[test]
    fn the_frozen_have_no_gradient_and_the_others_the_same() {
        let device = Device::flex().autodiff();
        let whole = model(&mut ParamInit::new(&device, 1));
        let all = gradients(&whole, &device);
        let paths: Vec<String> = weights::shapes(&whole).into_iter().map(|(path, _)| path).collect();
        assert_eq!(all.keys().cloned().collect::<Vec<_>>().len(), paths.len());
        let first = |n_layers| first_layers(&whole, n_layers);
        for patterns in [first(0), first(2), vec!["bert.*".into()], vec!["*.bias".into()]] {
            let frozen = freeze(whole.clone(), &patterns).unwrap();
            let found = gradients(&frozen, &device);
            let globs: Vec<Pattern> = patterns.iter().map(|p| Pattern::new(p).unwrap()).collect();
            let expected: BTreeMap<_, _> = all
                .iter()
                .filter(|(path, _)| !globs.iter().any(|glob| glob.matches(path)))
                .map(|(path, gradient)| (path.clone(), gradient.clone()))
                .collect();
            assert!(!expected.is_empty() && expected.len() < all.len());
            assert_eq!(found, expected, "{patterns:?}");
        }
    }

    #[test]
    fn parameters_without_values_are_frozen_and_loaded_all_the_same() {
        let device = Device::flex().autodiff();
        let lazy = model(&mut ParamInit::new(&device, 1).deferred());
        let patterns = first_layers(&lazy, 1);
        let frozen = freeze(lazy, &patterns).unwrap();
        let weight = |model: &BertForSequenceClassification, layer: usize| {
            model.bert.encoder.layers[layer].feed_forward.up.weight.clone()
        };
        assert!(!weight(&frozen, 0).is_initialized());
        let tensors = weights::collect(&model(&mut ParamInit::new(&device, 2)));
        let loaded = weights::replace(frozen, tensors.clone());
        assert_eq!(weights::collect(&loaded), tensors);
        assert!(!weight(&loaded, 0).val().is_require_grad());
        assert!(weight(&loaded, 1).val().is_require_grad());
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_named() {
        let device = Device::flex();
        let refused = |pattern: &str| {
            freeze(model(&mut ParamInit::new(&device, 1)), &[pattern]).unwrap_err().to_string()
        };
        let message = refused("bert.encoder.layers.3.*");
        let expected =
            "pattern `bert.encoder.layers.3.*`: it matches nothing; an existing path is `bert.embeddings.";
        assert!(message.contains(expected), "{message}");
        assert!(refused("a[").contains("pattern `a[`: "));
    }
}
