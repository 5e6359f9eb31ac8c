//! Gradual unfreezing of lower layers.

use crate::engine::Epochs;
use crate::engine::optimizer::ParamGroup;
use crate::layer_decay::layer_decay;
use cloze_model::HasBackbone;

/// Gradual unfreezing (Howard & Ruder 2018, §3.3) of a model's backbone: heads are trained from the start, the
/// last layer from the second epoch on, each lower layer one epoch after the one above it, and the embeddings
/// last. `decay` is that of [`layer_decay`]; ULMFiT's discriminative rates use 1 / 2.6 (§3.2).
///
/// A run with too few epochs never trains the lowest layers.
///
/// ```
/// # use burn::tensor::Device;
/// # use cloze_model::{ParamInit, bert::BertConfig};
/// # use cloze_trainer::engine::Epochs;
/// # use cloze_trainer::gradual_unfreezing::gradual_unfreezing;
/// let model = BertConfig::tiny(100).init(&mut ParamInit::new(&Device::flex(), 1));
/// let groups = gradual_unfreezing(&model, 1.0, &Epochs::Even(10));
/// let frozen = groups.iter().map(|group| (group.parameters.as_str(), group.frozen_steps));
/// assert_eq!(
///     frozen.collect::<Vec<_>>(),
///     [
///         ("bert.embeddings.*", 30),
///         ("bert.encoder.layers.0.*", 20),
///         ("bert.encoder.layers.1.*", 10),
///     ]
/// );
/// ```
pub fn gradual_unfreezing<M: HasBackbone>(model: &M, decay: f64, epochs: &Epochs) -> Vec<ParamGroup> {
    let groups = layer_decay(model, decay);
    let n = groups.len() as u64;
    let later = |(number, group)| ParamGroup { frozen_steps: epochs.steps_of(n - number), ..group };
    (0..n).zip(groups).map(later).collect()
}
