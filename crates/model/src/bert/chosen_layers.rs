//! A smaller encoder out of some layers of another: the start of a student, or a model pruned by layers.

use super::{Bert, BertConfig};
use crate::blocks::Attention;
use crate::{ModelError, Result};

impl BertConfig {
    /// The configuration of an encoder with only these layers of this one, counted from 0, in this order; the
    /// counterpart of [`Bert::with_layers`].
    ///
    /// # Errors
    /// [`ModelError::Setting`] for no layer, one that is not there, one that is named twice or out of order, or
    /// one that cannot stand in its new place: in ModernBERT a layer that sees the whole sequence cannot take
    /// the place of a local one, the first layers of ModernBERT and DeBERTa v2 have parts that others lack,
    /// and ALBERT's layers are one.
    pub fn with_chosen_layers(&self, layers: &[usize]) -> Result<Self> {
        let refused = |expected: String| {
            Err(ModelError::Setting { key: "layers", found: format!("{layers:?}"), expected })
        };
        if layers.is_empty() {
            return refused("one layer at least".into());
        }
        if self.share_layers {
            return refused("none to be chosen: the layers share their parameters".into());
        }
        if layers.iter().any(|layer| *layer >= self.n_layers) {
            return refused(format!("layers from 0 to {}", self.n_layers - 1));
        }
        if layers.windows(2).any(|pair| pair[0] >= pair[1]) {
            return refused("each layer once, in order".into());
        }
        if layers[0] > 0 && (!self.first_norm || self.convolution.is_some()) {
            return refused("layer 0 among them: its parts differ from those of the others".into());
        }
        let mut config = Self { n_layers: layers.len(), ..self.clone() };
        if !self.pruned_heads.is_empty() {
            config.pruned_heads = layers.iter().map(|layer| self.pruned_heads[*layer].clone()).collect();
        }
        if let (Some(old), Some(local)) = (&self.local, &mut config.local) {
            let chosen = |kinds: &Vec<bool>| layers.iter().map(|layer| kinds[*layer]).collect();
            local.layers = old.layers.as_ref().map(chosen);
            let differs = |(place, layer): (usize, &usize)| old.is_global(*layer) != local.is_global(place);
            if let Some(place) = layers.iter().enumerate().position(differs) {
                return refused(format!(
                    "layer {} at another place than {place}: one layer in {} sees the whole sequence, the others a part of it",
                    layers[place], old.global_every
                ));
            }
        }
        Ok(config)
    }
}

impl<A: Attention> Bert<A> {
    /// The encoder with only these of its layers, counted from 0, in this order. Embeddings, pooler and the
    /// final normalisation stay. DistilBERT takes every other layer (Sanh et al. 2019, §2).
    ///
    /// # Panics
    /// If [`BertConfig::with_chosen_layers`] refuses them.
    pub fn with_layers(mut self, layers: &[usize]) -> Self {
        let encoder = &mut self.encoder;
        assert!(encoder.order.iter().copied().eq(0..encoder.layers.len()), "layers share parameters");
        let mut old: Vec<_> = std::mem::take(&mut encoder.layers).into_iter().map(Some).collect();
        encoder.layers = layers.iter().map(|layer| old[*layer].take().expect("each layer once")).collect();
        encoder.order = (0..encoder.layers.len()).collect();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::bert::{BertInput, LocalAttention};
    use crate::blocks::{Activation, EncoderTrace, ResidualConvolutionConfig};
    use burn::tensor::{Device, Int, Tensor};

    fn config() -> BertConfig {
        BertConfig { n_heads: 2, ..BertConfig::new(31, 5, 8) }
    }

    #[test]
    fn chosen_layers_compute_what_they_computed() {
        let model = config().init_encoder(&mut ParamInit::new(&Device::flex(), 1).with_std(0.5));
        let input = || BertInput::new(Tensor::<2, Int>::from_data([[2, 7, 30, 3]], &Device::flex()));
        let trace = EncoderTrace { hidden_states: true, ..EncoderTrace::default() };
        let traced = |model: &Bert| model.forward(BertInput { trace, ..input() });
        let whole = traced(&model);
        // The first layers give the states that they gave in the whole.
        let first = model.clone().with_layers(&[0, 1]).forward(input());
        assert_eq!(first.last_hidden_state.into_data(), whole.hidden_states[2].clone().into_data());
        // Any layer gives what it makes of its input.
        let chosen = model.clone().with_layers(&[0, 3]);
        assert_eq!(traced(&chosen).hidden_states.len(), 3);
        let third = model.with_layers(&[3]);
        assert_eq!(
            third.encoder.layers[0].feed_forward.up.weight.val().into_data(),
            chosen.encoder.layers[1].feed_forward.up.weight.val().into_data()
        );
        assert_eq!(config().with_chosen_layers(&[0, 3]).unwrap(), BertConfig { n_layers: 2, ..config() });
    }

    #[test]
    fn layers_that_cannot_be_chosen_are_told() {
        let error = |config: &BertConfig, layers: &[usize]| {
            config.with_chosen_layers(layers).unwrap_err().to_string()
        };
        let of = config();
        assert!(error(&of, &[]).ends_with("`layers` is [], expected one layer at least"));
        assert!(error(&of, &[0, 5]).ends_with("`layers` is [0, 5], expected layers from 0 to 4"));
        assert!(error(&of, &[2, 1]).ends_with("each layer once, in order"));
        assert!(error(&of, &[2, 2]).ends_with("each layer once, in order"));
        assert!(
            error(&BertConfig { share_layers: true, ..config() }, &[0]).contains("share their parameters")
        );
        let convolution = ResidualConvolutionConfig { kernel: 3, n_groups: 2, activation: Activation::Tanh };
        for of in [
            BertConfig { first_norm: false, ..config() },
            BertConfig { convolution: Some(convolution), ..config() },
        ] {
            assert!(error(&of, &[1, 2]).contains("expected layer 0 among them"));
            assert_eq!(of.with_chosen_layers(&[0, 4]).unwrap().n_layers, 2);
        }
        let of = BertConfig { local: Some(LocalAttention::new(8, 3)), ..config() };
        assert!(error(&of, &[0, 3]).contains("expected layer 3 at another place than 1: one layer in 3"));
        assert_eq!(of.with_chosen_layers(&[0, 1, 4]).unwrap().n_layers, 3);
        let listed = LocalAttention {
            layers: Some(vec![false, true, true, false, true]),
            ..LocalAttention::new(8, 3)
        };
        let of = BertConfig { local: Some(listed), ..config() };
        let chosen = of.with_chosen_layers(&[0, 3]).unwrap().local.unwrap();
        assert_eq!(chosen.layers, Some(vec![false, false]));
    }
}
