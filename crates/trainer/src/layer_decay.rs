//! Layer-wise learning-rate decay.

use crate::engine::optimizer::ParamGroup;
use cloze_model::{Backbone, HasBackbone};

/// The groups of layer-wise learning-rate decay (Sun et al. 2019, §5.4.3) for a model's backbone: its last
/// layer has `decay` times the learning rate, each lower layer `decay` times that of the one above it, and the
/// embeddings `decay` times that of the first layer. Heads and the pooler keep the full rate.
///
/// Sun et al. start with the full rate in the last layer, ELECTRA's code (Clark et al. 2020) with `decay²`.
///
/// Layers that share their parameters count as one layer. Put user-defined groups before these: the first group
/// that matches a parameter applies.
///
/// ```
/// # use burn::tensor::Device;
/// # use cloze_model::{ParamInit, bert::BertConfig};
/// # use cloze_trainer::layer_decay::layer_decay;
/// let model = BertConfig::tiny(100).init(&mut ParamInit::new(&Device::flex(), 1));
/// let groups = layer_decay(&model, 0.5);
/// let scales = groups.iter().map(|group| (group.parameters.as_str(), group.lr_scale));
/// assert_eq!(
///     scales.collect::<Vec<_>>(),
///     [
///         ("bert.embeddings.*", 0.125),
///         ("bert.encoder.layers.0.*", 0.25),
///         ("bert.encoder.layers.1.*", 0.5),
///     ]
/// );
/// ```
pub fn layer_decay<M: HasBackbone>(model: &M, decay: f64) -> Vec<ParamGroup> {
    let backbone = model.backbone();
    let layers = backbone.layer_paths();
    let n_layers = layers.len();
    let paths = std::iter::once(backbone.embeddings_path()).chain(layers);
    let group = |(number, path): (usize, String)| ParamGroup {
        lr_scale: decay.powi((n_layers + 1 - number) as i32),
        ..ParamGroup::new(M::path_of(&format!("{path}.*")))
    };
    paths.enumerate().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::optimizer::{Optimizer, OptimizerConfig};
    use burn::optim::GradientsParams;
    use burn::tensor::Device;
    use cloze_model::bert::{BertConfig, BertInput};
    use cloze_model::tasks::{BertForSequenceClassification, SequenceHead};
    use cloze_model::{ParamInit, weights};

    #[test]
    fn layers_that_share_their_parameters_are_one() {
        let shape = BertConfig::new(31, 5, 8).with_share_layers(true).with_d_ff(8).with_n_heads(2);
        let model = shape.init(&mut ParamInit::new(&Device::flex(), 1));
        let groups = layer_decay(&model, 0.5);
        let scales: Vec<f64> = groups.iter().map(|group| group.lr_scale).collect();
        assert_eq!(scales, [0.25, 0.5]);
        // Each group has parameters.
        Optimizer::new(OptimizerConfig { groups, ..OptimizerConfig::default() }, &model).unwrap();
    }

    #[test]
    fn a_first_step_goes_as_far_as_the_rate_says() {
        let device = Device::flex().autodiff();
        let init = &mut ParamInit::new(&device, 1);
        // Eleven layers, so that layer 1 must not be taken for 10.
        let shape = BertConfig::new(31, 11, 8).with_d_ff(8).with_n_heads(2);
        let shape = shape.with_hidden_dropout(0.0).with_attention_dropout(0.0);
        let bert = shape.init_encoder(init);
        let model = BertForSequenceClassification::new(bert, SequenceHead::new(8, 2, 0.0, init));
        let (lr, decay) = (1e-2, 0.8);
        let config = OptimizerConfig {
            weight_decay: 0.0,
            eps: 1e-30,
            groups: layer_decay(&model, decay),
            ..OptimizerConfig::default()
        };
        let mut optimizer = Optimizer::new(config, &model).unwrap();
        let before = weights::collect(&model);
        let logits = model.forward(BertInput::packed(&[4, 9, 2, 17], &[4], &device));
        let gradients = GradientsParams::from_grads(logits.narrow(1, 0, 1).sum().backward(), &model);
        let after = weights::collect(&optimizer.step(model, gradients, lr, 1.0));
        // Adam's first step is the learning rate, whatever the gradient.
        let moved = |path: &str| {
            let steps = after[path].iter::<f64>().zip(before[path].iter::<f64>());
            steps.map(|(after, before)| (after - before).abs()).fold(0.0, f64::max)
        };
        for (path, below) in [
            ("head.output.bias", 0),
            ("bert.encoder.layers.10.feed_forward_norm.beta", 1),
            ("bert.encoder.layers.1.feed_forward_norm.beta", 10),
            ("bert.encoder.layers.0.feed_forward_norm.beta", 11),
            ("bert.embeddings.norm.beta", 12),
        ] {
            let expected = lr * decay.powi(below);
            assert!((moved(path) - expected).abs() < 1e-3 * expected, "{path}: {}", moved(path));
        }
    }
}
