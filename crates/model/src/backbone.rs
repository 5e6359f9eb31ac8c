use crate::bert::integer_only::IntegerBert;
use crate::blocks::LinearMaps;
use burn::module::Module;

/// The part of a model that turns tokens into states: what freezing, adapters and layer-wise learning rates
/// need to know about it. Heads are put on it.
pub trait Backbone: Module + LinearMaps {
    /// Its sizes.
    fn shape(&self) -> BackboneShape;

    /// The path of its embeddings, such as `embeddings`.
    fn embeddings_path(&self) -> String;

    /// The paths of its layers, from the lowest to the highest, such as `encoder.layers.0`. A layer that is applied
    /// several times is listed once.
    fn layer_paths(&self) -> Vec<String>;

    /// Computes with an encoder of integers from now on, for inference; returns whether it can. Its parameters are not used
    /// any more, except by heads.
    fn compute_in_integers(&mut self, _: IntegerBert) -> bool {
        false
    }
}

/// The sizes of a [`Backbone`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackboneShape {
    /// Features of a hidden state.
    pub d_model: usize,
    /// Number of layers that a token passes through. Shared layers count each time, so this may exceed the
    /// number of [paths](Backbone::layer_paths).
    pub n_layers: usize,
    /// Pieces in the vocabulary.
    pub vocab_size: usize,
}

impl BackboneShape {
    /// Hidden states of `d_model` features, `n_layers` layers, and a vocabulary of `vocab_size` pieces.
    pub fn new(d_model: usize, n_layers: usize, vocab_size: usize) -> Self {
        Self { d_model, n_layers, vocab_size }
    }
}

/// A model with a [`Backbone`]: a task model with heads on it, or the backbone by itself.
///
/// ```
/// # use burn::module::Module;
/// # use cloze_model::{Backbone, HasBackbone, bert::Bert, blocks::Linear};
/// #[derive(Module, Debug)]
/// struct Scorer {
///     encoder: Bert,
///     score: Linear,
/// }
///
/// impl HasBackbone for Scorer {
///     type Backbone = Bert;
///     const PATH: &'static str = "encoder";
///
///     fn backbone(&self) -> &Bert {
///         &self.encoder
///     }
///
///     fn backbone_mut(&mut self) -> &mut Bert {
///         &mut self.encoder
///     }
/// }
///
/// assert_eq!(Scorer::path_of("embeddings.*"), "encoder.embeddings.*");
/// ```
pub trait HasBackbone: Module {
    /// The backbone's type.
    type Backbone: Backbone;

    /// The path of the field that holds the backbone; empty if the model is the backbone itself.
    const PATH: &'static str;

    /// The backbone.
    fn backbone(&self) -> &Self::Backbone;

    /// The backbone, to change it.
    fn backbone_mut(&mut self) -> &mut Self::Backbone;

    /// Prefixes a path in the backbone, or a pattern of paths, with the path of the backbone in this model.
    fn path_of(inner: &str) -> String {
        if Self::PATH.is_empty() { inner.to_string() } else { format!("{}.{inner}", Self::PATH) }
    }

    /// Whether the parameter with this path belongs to the backbone.
    fn is_of_backbone(path: &str) -> bool {
        Self::PATH.is_empty() || path.strip_prefix(Self::PATH).is_some_and(|rest| rest.starts_with('.'))
    }
}

/// [`HasBackbone`] and [`LinearMaps`] for models whose field `bert` is a [`Bert`](crate::bert::Bert); the other fields with
/// linear maps are those of heads.
macro_rules! has_bert {
    ($($model:ident { $($head:ident),+ }),+ $(,)?) => {
        $($crate::linear_maps!($model<A: $crate::blocks::Attention, P: $crate::blocks::Positions> {
            bert; $($head),+
        });

        impl<A: $crate::blocks::Attention, P: $crate::blocks::Positions> $crate::HasBackbone for $model<A, P> {
            type Backbone = $crate::bert::Bert<A, P>;
            const PATH: &'static str = "bert";

            fn backbone(&self) -> &Self::Backbone {
                &self.bert
            }

            fn backbone_mut(&mut self) -> &mut Self::Backbone {
                &mut self.bert
            }
        })+
    };
}
pub(crate) use has_bert;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bert::{Bert, BertConfig, BertForPreTraining};
    use crate::{ParamInit, weights};
    use burn::tensor::Device;

    fn model(config: &BertConfig) -> BertForPreTraining {
        config.init(&mut ParamInit::new(&Device::flex(), 1))
    }

    #[test]
    fn paths_are_those_of_parameters() {
        let config = BertConfig { d_ff: 12, n_heads: 2, ..BertConfig::new(31, 2, 8) };
        let mut model = model(&config);
        assert_eq!(model.backbone().shape(), BackboneShape::new(8, 2, 31));
        let paths: Vec<String> = weights::shapes(&model).into_iter().map(|(path, _)| path).collect();
        let below = |prefix: &str| {
            let prefix = format!("{}.", <BertForPreTraining>::path_of(prefix));
            paths.iter().filter(|path| path.starts_with(&prefix)).count()
        };
        // Three tables and a norm; four maps of attention, two of the feed-forward network, and two norms.
        assert_eq!(below(&model.backbone().embeddings_path()), 5);
        assert_eq!(
            model.backbone().layer_paths().iter().map(|path| below(path)).collect::<Vec<_>>(),
            [16, 16]
        );
        let linears: Vec<String> =
            model.backbone_mut().linear_maps_mut().into_iter().map(|map| map.path).collect();
        // Six in each layer, and the pooler's.
        assert_eq!(linears.len(), 2 * 6 + 1);
        assert!(linears.iter().all(|path| below(path) == 2), "{linears:?}");
        for path in &paths {
            let expected = path.starts_with("bert.");
            assert_eq!(<BertForPreTraining>::is_of_backbone(path), expected);
        }
        assert!(weights::shapes(&model.bert).iter().all(|(path, _)| <Bert>::is_of_backbone(path)));
        assert_eq!(<Bert>::path_of("pooler.*"), "pooler.*");
    }

    #[test]
    fn layers_that_share_their_parameters_have_one_path() {
        let config = BertConfig { share_layers: true, n_layers: 5, ..BertConfig::tiny(31) };
        let model = model(&config);
        assert_eq!(model.bert.shape(), BackboneShape::new(128, 5, 31));
        assert_eq!(model.bert.layer_paths(), ["encoder.layers.0"]);
    }
}
