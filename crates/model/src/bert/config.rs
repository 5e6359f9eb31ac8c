use super::{Bert, BertEmbeddings, BertForPreTraining, MlmHead, NextSentenceHead, Pooler, Pooling};
use crate::blocks::{
    Activation, Attention, DisentangledConfig, Encoder, EncoderLayerConfig, FeedForwardConfig,
    MultiHeadAttention, MultiHeadAttentionConfig, Norm, NormKind, NormPlacement, PositionsConfig,
    RelativeBiasConfig, RelativeConfig, ResidualConvolutionConfig, RotaryConfig, SinusoidOrder,
    TransformerXlConfig,
};
use crate::sizes::check_sizes;
use crate::with_fields::with_fields;
use crate::{ModelError, ParamInit, Result};
use serde::{Deserialize, Serialize};

/// The configuration of a BERT, or of another encoder with the same arithmetic and different switches. The
/// published [family](crate::huggingface::Family) is not part of it: a folder says which one it is.
///
/// The presets are the sizes of Turc et al. 2019 (tiny to medium) and Devlin et al. 2019 (base,
/// large), with heads of 64 features and `d_ff = 4 · d_model`. Each field has a method that changes it:
///
/// ```
/// # use cloze_model::bert::BertConfig;
/// let config = BertConfig::new(30_000, 4, 256).with_max_positions(128).with_hidden_dropout(0.0);
/// assert_eq!((config.d_ff, config.max_positions), (1024, 128));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BertConfig {
    /// Pieces in the vocabulary.
    pub vocab_size: usize,
    /// Encoder layers.
    pub n_layers: usize,
    /// Features of a hidden state.
    pub d_model: usize,
    /// Attention heads; they share `d_model` evenly unless they have a [width of their own](Self::d_head).
    pub n_heads: usize,
    /// Features inside the feed-forward networks.
    pub d_ff: usize,
    /// The longest sequence, in tokens.
    pub max_positions: usize,
    /// Number of token types (segments); 0 for a model without token types. With 1, every token is in that
    /// segment, regardless of the input.
    pub n_token_types: usize,
    /// Dropout on the embeddings and on each sub-layer's output, except for sub-layers that two switches below exclude.
    pub hidden_dropout: f64,
    /// Dropout on the attention probabilities.
    pub attention_dropout: f64,
    /// The non-linearity of the feed-forward networks, and of the masked-LM head unless it has
    /// [its own](Self::mlm_activation).
    pub activation: Activation,
    /// Where the encoder layers normalise.
    pub norm: NormPlacement,
    /// Added to the variance in every layer normalisation.
    pub layer_norm_eps: f64,
    /// Standard deviation of the truncated normal that weights start from.
    pub init_std: f64,
    /// The padding piece's id, which Hugging Face's `config.json` records.
    pub pad_token_id: usize,
    /// Features of the embeddings if they differ from `d_model`: a linear map projects them (ALBERT, Lan et al. 2020,
    /// §3.1). None: as wide as the model, without a projection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_embedding: Option<usize>,
    /// Whether embeddings of another width are projected before they are normalised, by a map without biases (DeBERTa v2).
    #[serde(default, skip_serializing_if = "is_false")]
    pub project_before_norm: bool,
    /// Unused rows at the start of the position table: RoBERTa counts positions from its padding piece's id plus 1.
    #[serde(default)]
    pub position_offset: usize,
    /// Whether all `n_layers` layers share one layer's parameters (ALBERT), or those of [groups](Self::layer_groups).
    #[serde(default)]
    pub share_layers: bool,
    /// The groups of layers that share parameters; none: one group of one layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_groups: Option<LayerGroups>,
    /// Whether the encoder has a pooler.
    #[serde(default = "yes")]
    pub pooler: bool,
    /// Whether [`hidden_dropout`](Self::hidden_dropout) acts on the attention's output; in DistilBERT it does not.
    #[serde(default = "yes")]
    pub attention_output_dropout: bool,
    /// Whether [`hidden_dropout`](Self::hidden_dropout) acts on the feed-forward network's output; in ALBERT it does
    /// not.
    #[serde(default = "yes")]
    pub feed_forward_output_dropout: bool,
    /// The masked-LM head's non-linearity if it differs from [`activation`](Self::activation): it is GELU in RoBERTa
    /// and ELECTRA, whatever the layers have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mlm_activation: Option<Activation>,
    /// Whether vectors of absolute positions are added to the embeddings.
    #[serde(default = "yes")]
    pub absolute_positions: bool,
    /// The order of fixed sines and cosines, divided by the root of the embeddings' width, that are added to the
    /// embeddings: Vaswani et al. 2017, §3.4 and §3.5, multiply the embeddings by that root instead, which is the same
    /// after the normalisation. None: nothing is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sinusoidal: Option<SinusoidOrder>,
    /// Learned vectors for distances in each layer (Shaw et al. 2018). Attention with them is composed on every device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<RelativeConfig>,
    /// Whether scores decrease with the distance, in both directions alike (Press et al. 2022, "ALiBi"). Attention with it
    /// is composed on every device.
    #[serde(default, skip_serializing_if = "is_false")]
    pub alibi: bool,
    /// Rotary positions in the attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary: Option<RotaryConfig>,
    /// The layers with local attention; `None`: all layers attend to the whole sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalAttention>,
    /// A bias of all layers' scores by distance (MPNet). Attention with it is composed on every device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_bias: Option<RelativeBiasConfig>,
    /// Disentangled attention (DeBERTa). It is composed on every device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disentangled: Option<DisentangledConfig>,
    /// The terms of Transformer-XL in the attention's scores (XLNet). It is composed on every device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transformer_xl: Option<TransformerXlConfig>,
    /// A convolution of the embeddings, added to the first layer's output (DeBERTa v2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convolution: Option<ResidualConvolutionConfig>,
    /// Whether the feed-forward networks have a [gate](FeedForwardConfig::gated).
    #[serde(default)]
    pub gated: bool,
    /// Whether the attention's maps have biases.
    #[serde(default = "yes")]
    pub attention_bias: bool,
    /// The same for the attention's output map, if it differs: in Qwen2 only the other maps have
    /// biases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_output_bias: Option<bool>,
    /// Key–value heads, each shared by the same number of query heads (Ainslie et al. 2023). `None`:
    /// `n_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_kv_heads: Option<usize>,
    /// Whether the feed-forward networks' maps have biases.
    #[serde(default = "yes")]
    pub feed_forward_bias: bool,
    /// The same for the up and gate maps, if it differs: in GTE only the map down has a bias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_forward_up_bias: Option<bool>,
    /// Whether the layer normalisations have a learned shift.
    #[serde(default = "yes")]
    pub norm_bias: bool,
    /// Whether the first layer normalises its attention's input; in ModernBERT, whose embeddings are
    /// normalised, it does not.
    #[serde(default = "yes")]
    pub first_norm: bool,
    /// Whether the dropout on the attention's output has the probability of
    /// [`attention_dropout`](Self::attention_dropout) instead (ModernBERT).
    #[serde(default)]
    pub attention_dropout_on_output: bool,
    /// Dropout inside the feed-forward networks, after the non-linearity.
    #[serde(default)]
    pub feed_forward_dropout: f64,
    /// Whether the dense layers of the masked-LM head and of those over states have biases.
    #[serde(default = "yes")]
    pub head_bias: bool,
    /// Whether the masked-LM head has a bias for each piece.
    #[serde(default = "yes")]
    pub mlm_bias: bool,
    /// Whether the masked-LM head transforms a state before it projects it; in XLM it does not.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub mlm_transform: bool,
    /// Whether the masked-LM head projects onto the token embeddings; otherwise it has a matrix of its own.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub mlm_tied: bool,
    /// How heads over sequences summarise a sequence if there is no pooler; none: by the first token's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
    /// Features of a head, of which `n_heads` need not add up to `d_model` (T5). None: `d_model / n_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_head: Option<usize>,
    /// Whether attention scores are divided by the root of a head's width; in T5 they are not.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub scaled_scores: bool,
    /// The layers' kind of normalisation; T5 uses the root mean square.
    #[serde(default, skip_serializing_if = "is_layer_norm")]
    pub norm_kind: NormKind,
    /// Whether the embeddings are normalised; in T5 and XLNet they are not.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub embedding_norm: bool,
    /// Whether [`hidden_dropout`](Self::hidden_dropout) acts on the last states too (T5, XLNet).
    #[serde(default, skip_serializing_if = "is_false")]
    pub output_dropout: bool,
    /// Whether attention is causal, as in folders with `is_decoder`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub causal: bool,
    /// The heads that each layer lacks since they were [pruned](Bert::without), by their numbers among `n_heads`, in
    /// ascending order; a list for each layer, or empty if every layer has all heads. `n_heads` and the width of a
    /// head are those of before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pruned_heads: Vec<Vec<usize>>,
    /// The language of texts, as a row of the token-type table if token types are languages (XLM). `None` if
    /// they are not, or are given per token, as in pretraining.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<usize>,
}

/// How layers that share parameters form groups (ALBERT's `num_hidden_groups` and `inner_group_num`).
///
/// Each of a model's `n_layers` steps applies all layers of one group, in order. The steps are divided evenly
/// among the groups: step `i` applies group `⌊i / (n_layers / n_groups)⌋`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerGroups {
    /// Number of groups, at most the number of steps.
    pub n_groups: usize,
    /// Layers per group, each with its own parameters.
    pub n_inner_layers: usize,
}

impl LayerGroups {
    /// One group of one layer.
    pub const ONE: Self = Self { n_groups: 1, n_inner_layers: 1 };

    /// The indices of layers in the order in which `n_layers` steps apply them.
    fn order(self, n_layers: usize) -> Vec<usize> {
        // In floating point, as in transformers, so that rounding decides alike.
        let steps_of_group = n_layers as f64 / self.n_groups as f64;
        let first = (0..n_layers).map(|step| (step as f64 / steps_of_group) as usize * self.n_inner_layers);
        first.flat_map(|first| first..first + self.n_inner_layers).collect()
    }
}

/// Local attention (ModernBERT, Warner et al. 2024, §2.1.1): all layers but every `global_every`-th,
/// counted from the first, see only a neighbourhood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LocalAttention {
    /// Number of tokens that a token sees in each direction.
    pub window: usize,
    /// Every Nth layer attends to the whole sequence, starting with the first.
    pub global_every: usize,
    /// Whether each layer is local, from first to last, if not determined by
    /// [`global_every`](Self::global_every).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<bool>>,
    /// The base of these layers' rotary angles if it differs from the others', see [`RotaryConfig::theta`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theta: Option<f64>,
    /// These layers' rotary positions if they differ from the others' in more than their base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary: Option<RotaryConfig>,
}

impl LocalAttention {
    /// All layers but every `global_every`-th, with the same rotary positions as the others.
    pub fn new(window: usize, global_every: usize) -> Self {
        Self { window, global_every, layers: None, theta: None, rotary: None }
    }

    /// Sets the base of these layers' rotary angles.
    pub fn with_theta(mut self, theta: Option<f64>) -> Self {
        self.theta = theta;
        self
    }

    /// Whether a layer, counted from 0, attends to the whole sequence.
    pub fn is_global(&self, layer: usize) -> bool {
        match &self.layers {
            Some(layers) => !layers[layer],
            None => layer.is_multiple_of(self.global_every),
        }
    }

    /// These layers' rotary positions, given those of the others.
    pub fn rotary(&self, others: &RotaryConfig) -> RotaryConfig {
        let theta = self.theta.unwrap_or(others.theta);
        self.rotary.clone().unwrap_or_else(|| RotaryConfig { theta, ..others.clone() })
    }
}

with_fields!(BertConfig {
    with_vocab_size => vocab_size: usize,
    with_n_layers => n_layers: usize,
    with_d_model => d_model: usize,
    with_n_heads => n_heads: usize,
    with_d_ff => d_ff: usize,
    with_max_positions => max_positions: usize,
    with_n_token_types => n_token_types: usize,
    with_hidden_dropout => hidden_dropout: f64,
    with_attention_dropout => attention_dropout: f64,
    with_activation => activation: Activation,
    with_norm => norm: NormPlacement,
    with_layer_norm_eps => layer_norm_eps: f64,
    with_init_std => init_std: f64,
    with_pad_token_id => pad_token_id: usize,
    with_d_embedding => d_embedding: Option<usize>,
    with_project_before_norm => project_before_norm: bool,
    with_position_offset => position_offset: usize,
    with_share_layers => share_layers: bool,
    with_layer_groups => layer_groups: Option<LayerGroups>,
    with_pooler => pooler: bool,
    with_attention_output_dropout => attention_output_dropout: bool,
    with_feed_forward_output_dropout => feed_forward_output_dropout: bool,
    with_mlm_activation => mlm_activation: Option<Activation>,
    with_absolute_positions => absolute_positions: bool,
    with_sinusoidal => sinusoidal: Option<SinusoidOrder>,
    with_relative => relative: Option<RelativeConfig>,
    with_alibi => alibi: bool,
    with_rotary => rotary: Option<RotaryConfig>,
    with_local => local: Option<LocalAttention>,
    with_relative_bias => relative_bias: Option<RelativeBiasConfig>,
    with_disentangled => disentangled: Option<DisentangledConfig>,
    with_transformer_xl => transformer_xl: Option<TransformerXlConfig>,
    with_convolution => convolution: Option<ResidualConvolutionConfig>,
    with_gated => gated: bool,
    with_attention_bias => attention_bias: bool,
    with_attention_output_bias => attention_output_bias: Option<bool>,
    with_n_kv_heads => n_kv_heads: Option<usize>,
    with_feed_forward_bias => feed_forward_bias: bool,
    with_feed_forward_up_bias => feed_forward_up_bias: Option<bool>,
    with_norm_bias => norm_bias: bool,
    with_first_norm => first_norm: bool,
    with_attention_dropout_on_output => attention_dropout_on_output: bool,
    with_feed_forward_dropout => feed_forward_dropout: f64,
    with_head_bias => head_bias: bool,
    with_mlm_bias => mlm_bias: bool,
    with_mlm_transform => mlm_transform: bool,
    with_mlm_tied => mlm_tied: bool,
    with_pooling => pooling: Option<Pooling>,
    with_d_head => d_head: Option<usize>,
    with_scaled_scores => scaled_scores: bool,
    with_norm_kind => norm_kind: NormKind,
    with_embedding_norm => embedding_norm: bool,
    with_output_dropout => output_dropout: bool,
    with_causal => causal: bool,
    with_pruned_heads => pruned_heads: Vec<Vec<usize>>,
    with_language => language: Option<usize>,
});

fn yes() -> bool {
    true
}

fn is_true(flag: &bool) -> bool {
    *flag
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

fn is_layer_norm(kind: &NormKind) -> bool {
    *kind == NormKind::Layer
}

impl BertConfig {
    /// A BERT of `n_layers` layers of width `d_model`; everything else is as in BERT-base.
    pub fn new(vocab_size: usize, n_layers: usize, d_model: usize) -> Self {
        Self {
            vocab_size,
            n_layers,
            d_model,
            n_heads: (d_model / 64).max(1),
            d_ff: d_model.saturating_mul(4),
            max_positions: 512,
            n_token_types: 2,
            hidden_dropout: 0.1,
            attention_dropout: 0.1,
            activation: Activation::Gelu,
            norm: NormPlacement::Post,
            layer_norm_eps: 1e-12,
            init_std: 0.02,
            pad_token_id: 0,
            d_embedding: None,
            project_before_norm: false,
            position_offset: 0,
            share_layers: false,
            layer_groups: None,
            pooler: true,
            attention_output_dropout: true,
            feed_forward_output_dropout: true,
            mlm_activation: None,
            absolute_positions: true,
            sinusoidal: None,
            relative: None,
            alibi: false,
            rotary: None,
            local: None,
            relative_bias: None,
            disentangled: None,
            transformer_xl: None,
            convolution: None,
            gated: false,
            attention_bias: true,
            attention_output_bias: None,
            n_kv_heads: None,
            feed_forward_bias: true,
            feed_forward_up_bias: None,
            norm_bias: true,
            first_norm: true,
            attention_dropout_on_output: false,
            feed_forward_dropout: 0.0,
            head_bias: true,
            mlm_bias: true,
            mlm_transform: true,
            mlm_tied: true,
            pooling: None,
            d_head: None,
            scaled_scores: true,
            norm_kind: NormKind::Layer,
            embedding_norm: true,
            output_dropout: false,
            causal: false,
            pruned_heads: Vec::new(),
            language: None,
        }
    }

    /// 2 layers of 128: 4.4 million parameters with BERT's vocabulary.
    pub fn tiny(vocab_size: usize) -> Self {
        Self::new(vocab_size, 2, 128)
    }

    /// 4 layers of 256: 11 million parameters with BERT's vocabulary.
    pub fn mini(vocab_size: usize) -> Self {
        Self::new(vocab_size, 4, 256)
    }

    /// 4 layers of 512: 29 million parameters with BERT's vocabulary.
    pub fn small(vocab_size: usize) -> Self {
        Self::new(vocab_size, 4, 512)
    }

    /// 8 layers of 512: 41 million parameters with BERT's vocabulary.
    pub fn medium(vocab_size: usize) -> Self {
        Self::new(vocab_size, 8, 512)
    }

    /// 12 layers of 768: 110 million parameters with BERT's vocabulary.
    pub fn base(vocab_size: usize) -> Self {
        Self::new(vocab_size, 12, 768)
    }

    /// 24 layers of 1,024: 335 million parameters with BERT's vocabulary.
    pub fn large(vocab_size: usize) -> Self {
        Self::new(vocab_size, 24, 1024)
    }

    /// The preset called `tiny`, `mini`, `small`, `medium`, `base` or `large`.
    pub fn preset(name: &str, vocab_size: usize) -> Result<Self> {
        Ok(match name {
            "tiny" => Self::tiny(vocab_size),
            "mini" => Self::mini(vocab_size),
            "small" => Self::small(vocab_size),
            "medium" => Self::medium(vocab_size),
            "base" => Self::base(vocab_size),
            "large" => Self::large(vocab_size),
            other => {
                return Err(ModelError::Config(format!(
                    "no preset is called `{other}`; there are tiny, mini, small, medium, base, large"
                )));
            }
        })
    }

    /// The same encoder with these positions alone.
    ///
    /// ```
    /// # use cloze_model::{bert::BertConfig, blocks::PositionKind};
    /// let config = BertConfig::tiny(30_000).with_positions(PositionKind::Rotary.into());
    /// assert!(!config.absolute_positions && config.rotary.is_some());
    /// ```
    pub fn with_positions(self, positions: PositionsConfig) -> Self {
        let none = Self {
            absolute_positions: false,
            position_offset: 0,
            sinusoidal: None,
            relative: None,
            relative_bias: positions.relative_bias(),
            rotary: positions.rotary(),
            alibi: false,
            disentangled: None,
            transformer_xl: None,
            ..self
        };
        match positions {
            PositionsConfig::Learned { offset } => {
                Self { absolute_positions: true, position_offset: offset, ..none }
            }
            PositionsConfig::Sinusoidal { order } => Self { sinusoidal: Some(order), ..none },
            PositionsConfig::Relative { max_distance, values } => {
                Self { relative: Some(RelativeConfig { max_distance, values }), ..none }
            }
            PositionsConfig::Alibi => Self { alibi: true, ..none },
            PositionsConfig::RelativeBias { .. } | PositionsConfig::Rotary { .. } | PositionsConfig::None => {
                none
            }
        }
    }

    /// Its positions, if they are of one kind alone that [`PositionsConfig`] has; in MPNet they are of two kinds.
    pub fn positions(&self) -> Option<PositionsConfig> {
        let found = match self {
            Self { absolute_positions: true, .. } => {
                PositionsConfig::Learned { offset: self.position_offset }
            }
            Self { sinusoidal: Some(order), .. } => PositionsConfig::Sinusoidal { order: *order },
            Self { relative: Some(RelativeConfig { max_distance, values }), .. } => {
                PositionsConfig::Relative { max_distance: *max_distance, values: *values }
            }
            Self { relative_bias: Some(RelativeBiasConfig { n_buckets, max_distance }), .. } => {
                PositionsConfig::RelativeBias { n_buckets: *n_buckets, max_distance: *max_distance }
            }
            Self { rotary: Some(rotary), .. } => PositionsConfig::Rotary { theta: rotary.theta },
            Self { alibi: true, .. } => PositionsConfig::Alibi,
            _ => PositionsConfig::None,
        };
        (self.clone().with_positions(found) == *self).then_some(found)
    }

    /// Features of the embeddings, before the projection if there is one.
    pub fn embedding_width(&self) -> usize {
        self.d_embedding.unwrap_or(self.d_model)
    }

    /// The indices of distinct layers, in the order of application.
    fn layer_order(&self) -> Vec<usize> {
        match self.share_layers {
            true => self.layer_groups.unwrap_or(LayerGroups::ONE).order(self.n_layers),
            false => (0..self.n_layers).collect(),
        }
    }

    /// Number of layers that a token passes through: `n_layers`, times the layers of a
    /// [group](Self::layer_groups).
    pub fn n_applied_layers(&self) -> usize {
        self.n_layers.saturating_mul(self.layer_groups.unwrap_or(LayerGroups::ONE).n_inner_layers)
    }

    /// Features of a head.
    pub fn head_width(&self) -> usize {
        self.d_head.unwrap_or(self.d_model / self.n_heads)
    }

    /// The floating-point operations of a sequence's way through the layers, with a product and a sum counted as two: the
    /// layers' linear maps and the products of attention. Embeddings, norms, heads on the encoder and the terms of
    /// distances are not counted.
    pub fn flops(&self, len: usize) -> f64 {
        let applied = self.n_applied_layers() / self.n_layers.max(1);
        let (len, d_model, d_ff) = (len as f64, self.d_model as f64, self.d_ff as f64);
        let feed_forward = 2.0 * len * d_model * d_ff * if self.gated { 3.0 } else { 2.0 };
        let projected = self.d_embedding.map_or(0.0, |width| 2.0 * len * width as f64 * d_model);
        let of_layer = |layer: usize| {
            let width = (self.n_heads_of(layer) * self.head_width()) as f64;
            let seen = match &self.local {
                Some(local) if !local.is_global(layer) => len.min((2 * local.window + 1) as f64),
                _ => len,
            };
            let shared = self.n_kv_heads.map_or(1.0, |n| n as f64 / self.n_heads as f64);
            let maps = 4.0 * len * d_model * width * (1.0 + shared);
            (maps + 4.0 * len * seen * width + feed_forward) * applied as f64
        };
        projected + (0..self.n_layers).map(of_layer).sum::<f64>()
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_sizes([
            ("vocab_size", self.vocab_size),
            ("n_layers", self.n_layers),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("d_ff", self.d_ff),
            ("max_positions", self.max_positions),
            ("d_embedding", self.embedding_width()),
            ("d_head", self.d_head.unwrap_or(1)),
        ])?;
        let refuse = |key, found: String, expected: String| Err(ModelError::Setting { key, found, expected });
        // These may be 0.
        for (name, size) in [("n_token_types", self.n_token_types), ("position_offset", self.position_offset)]
        {
            let most = i32::MAX as usize;
            if size > most {
                return refuse(name, size.to_string(), format!("at most {most}"));
            }
        }
        if let Some(language) = self.language.filter(|language| *language >= self.n_token_types) {
            let expected = match self.n_token_types {
                0 => "none: the model has no languages".into(),
                n => format!("less than {n}, the languages that there are"),
            };
            return refuse("language", language.to_string(), expected);
        }
        if self.d_head.is_none() && !self.d_model.is_multiple_of(self.n_heads) {
            let expected = format!("a divisor of `d_model`, which is {}", self.d_model);
            return refuse("n_heads", self.n_heads.to_string(), expected);
        }
        let n_kv_heads = self.n_kv_heads.unwrap_or(self.n_heads);
        if n_kv_heads == 0 || !self.n_heads.is_multiple_of(n_kv_heads) {
            let expected = format!("a divisor of `n_heads`, which is {}", self.n_heads);
            return refuse("n_kv_heads", n_kv_heads.to_string(), expected);
        }
        if !(self.layer_norm_eps >= 0.0 && self.layer_norm_eps.is_finite()) {
            let expected = "a number of 0 or more, such as 1e-12".into();
            return refuse("layer_norm_eps", self.layer_norm_eps.to_string(), expected);
        }
        for (name, p) in [
            ("hidden_dropout", self.hidden_dropout),
            ("attention_dropout", self.attention_dropout),
            ("feed_forward_dropout", self.feed_forward_dropout),
        ] {
            if !(0.0..1.0).contains(&p) {
                return refuse(name, p.to_string(), "0 or more and below 1".into());
            }
        }
        if let Some(groups) = self.layer_groups {
            check_sizes([
                ("layer_groups.n_groups", groups.n_groups),
                ("layer_groups.n_inner_layers", groups.n_inner_layers),
            ])?;
            if !self.share_layers {
                return refuse("layer_groups", "given".into(), "none: no layers share parameters".into());
            }
            if groups.n_groups > self.n_layers {
                let expected = format!("at most `n_layers`, which is {}", self.n_layers);
                return refuse("layer_groups.n_groups", groups.n_groups.to_string(), expected);
            }
            let most = 10_000 / self.n_layers;
            if groups.n_inner_layers > most {
                let expected = format!("at most {most}, as they are applied `n_layers` times");
                return refuse("layer_groups.n_inner_layers", groups.n_inner_layers.to_string(), expected);
            }
        }
        if let Some(convolution) = self.convolution {
            convolution.validate(self.d_model)?;
            if self.share_layers {
                return refuse("convolution", "given".into(), "none: layers share parameters".into());
            }
        }
        self.validate_pruned_heads()?;
        self.validate_positions()
    }

    /// The number of heads of a layer that are left.
    pub fn n_heads_of(&self, layer: usize) -> usize {
        self.n_heads - self.pruned_heads.get(layer).map_or(0, Vec::len)
    }

    /// Checks that the layers are as many as the lists, that each has a head left, and that no part of the attention
    /// is shared between layers or between heads.
    fn validate_pruned_heads(&self) -> Result<()> {
        let lists = &self.pruned_heads;
        if lists.is_empty() {
            return Ok(());
        }
        let refuse = |found: String, expected: String| {
            Err(ModelError::Setting { key: "pruned_heads", found, expected })
        };
        if lists.len() != self.n_layers {
            let expected = format!("{}, one a layer", self.n_layers);
            return refuse(format!("given for {} layers", lists.len()), expected);
        }
        for (layer, heads) in lists.iter().enumerate() {
            let found = || format!("{heads:?} in layer {layer}");
            if heads.iter().any(|head| *head >= self.n_heads) {
                return refuse(found(), format!("heads from 0 to {}", self.n_heads - 1));
            }
            if heads.windows(2).any(|pair| pair[0] >= pair[1]) {
                return refuse(found(), "each head once, in order".into());
            }
            if heads.len() == self.n_heads {
                return refuse(found(), "one head at least that is left".into());
            }
        }
        match self.fixed_heads() {
            Some(reason) => refuse("given".into(), format!("none: {reason}")),
            None => Ok(()),
        }
    }

    /// Why single heads of this encoder cannot be removed; none if they can.
    pub fn fixed_heads(&self) -> Option<&'static str> {
        let shares_keys = self.n_kv_heads.is_some_and(|n| n != self.n_heads);
        match self {
            _ if self.share_layers => Some("the layers share their parameters"),
            _ if shares_keys => Some("heads share their keys and values"),
            _ if self.alibi => Some("each head has its own slope of the bias by distance"),
            _ if self.relative.is_some() => Some("heads share the vectors of distances"),
            _ if self.relative_bias.is_some() => Some("each head has its own part of the bias by distance"),
            _ if self.disentangled.is_some() || self.transformer_xl.is_some() => {
                Some("each head has its own part of the vectors of distances")
            }
            _ => None,
        }
    }

    /// Checks the attention's positions.
    pub(crate) fn validate_positions(&self) -> Result<()> {
        let refuse = |key, found: String, expected: String| Err(ModelError::Setting { key, found, expected });
        if let Some(rotary) = &self.rotary {
            rotary.validate(self.head_width())?;
        }
        if let Some(local) = &self.local {
            let LocalAttention { window, global_every, theta, .. } = *local;
            check_sizes([("local.global_every", global_every)])?;
            if let Some(layers) = local.layers.as_ref().filter(|layers| layers.len() != self.n_layers) {
                let expected = format!("{}, one a layer", self.n_layers);
                return refuse("local.layers", format!("a list of {}", layers.len()), expected);
            }
            if let Some(rotary) = &local.rotary {
                rotary.validate(self.head_width())?;
            }
            if window > i32::MAX as usize {
                return refuse("local.window", window.to_string(), format!("at most {}", i32::MAX));
            }
            if let Some(theta) = theta.filter(|theta| !(theta.is_finite() && *theta > 0.0)) {
                return refuse("local.theta", theta.to_string(), "a number above 0".into());
            }
            if self.share_layers && (0..self.n_layers).any(|layer| !local.is_global(layer)) {
                return refuse("share_layers", "true".into(), "false: some layers attend locally".into());
            }
        }
        if let Some(RelativeConfig { max_distance, .. }) = self.relative {
            const MOST: usize = i32::MAX as usize / 4;
            if max_distance > MOST {
                return refuse("relative.max_distance", max_distance.to_string(), format!("at most {MOST}"));
            }
        }
        self.relative_bias.map_or(Ok(()), |bias| bias.validate())?;
        if let Some(terms) = self.transformer_xl {
            terms.validate()?;
            if !self.d_model.is_multiple_of(2) {
                let expected = "an even number: distances are sines and as many cosines".into();
                return refuse("d_model", self.d_model.to_string(), expected);
            }
        }
        self.disentangled.map_or(Ok(()), |terms| terms.validate())
    }

    /// A new model with its pretraining heads; the head for pairs requires a pooler.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> BertForPreTraining {
        let bert = self.init_encoder(init);
        self.with_heads(bert, init)
    }

    /// A new model with a custom attention: `attention` makes each layer's attention, from first to
    /// last.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_with<A: Attention>(
        &self,
        init: &mut ParamInit,
        attention: impl FnMut(&mut ParamInit) -> A,
    ) -> BertForPreTraining<A> {
        let bert = self.init_encoder_with(init, attention);
        self.with_heads(bert, init)
    }

    /// A new encoder without heads.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_encoder(&self, init: &mut ParamInit) -> Bert {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        self.init_encoder_with(init, self.attention_of_layers())
    }

    /// The layers of a new encoder, without embeddings.
    pub(super) fn init_layers(&self, init: &mut ParamInit) -> Encoder<MultiHeadAttention> {
        self.init_layers_with(init, self.attention_of_layers())
    }

    /// Makes the attention of each layer, from first to last.
    fn attention_of_layers(&self) -> impl FnMut(&mut ParamInit) -> MultiHeadAttention {
        let [global, local] = self.attentions();
        let mut layers = 0..;
        move |init| {
            let layer = layers.next().unwrap_or_default();
            let is_local = self.local.as_ref().is_some_and(|of| !of.is_global(layer));
            let config = if is_local { &local } else { &global };
            match self.n_heads_of(layer) {
                n if n == self.n_heads => config.init(init),
                left => config.clone().with_heads(left).init(init),
            }
        }
    }

    /// The attention of layers that see the whole sequence, and of local ones.
    fn attentions(&self) -> [MultiHeadAttentionConfig; 2] {
        let config = MultiHeadAttentionConfig::of_heads(self.d_model, self.n_heads, self.head_width())
            .with_kv_heads(self.n_kv_heads.unwrap_or(self.n_heads))
            .with_biases(self.attention_bias, self.attention_output_bias.unwrap_or(self.attention_bias))
            .with_dropout(self.attention_dropout);
        let config = if self.scaled_scores { config } else { config.without_scale() };
        let config = match self.relative {
            Some(relative) => config.with_relative(relative),
            None => config,
        };
        let config = if self.alibi { config.with_alibi() } else { config };
        let config = match self.disentangled {
            Some(terms) => config.with_disentangled(terms, self.hidden_dropout),
            None => config,
        };
        let config = match self.transformer_xl {
            Some(_) => config.with_transformer_xl(),
            None => config,
        };
        let rotated = |rotary: Option<RotaryConfig>| match rotary {
            Some(rotary) => config.clone().with_rotary(rotary.init(self.head_width())),
            None => config.clone(),
        };
        let local = match &self.local {
            Some(local) => {
                rotated(self.rotary.as_ref().map(|others| local.rotary(others))).with_window(local.window)
            }
            None => config.clone(),
        };
        [rotated(self.rotary.clone()), local]
    }

    /// A new encoder without heads and with a custom attention, see [`init_with`](Self::init_with).
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_encoder_with<A: Attention>(
        &self,
        init: &mut ParamInit,
        attention: impl FnMut(&mut ParamInit) -> A,
    ) -> Bert<A> {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        Bert {
            embeddings: BertEmbeddings::new(self, init),
            encoder: self.init_layers_with(init, attention),
            pooler: self.pooler.then(|| Pooler::new(self.d_model, init)),
            pooling: self.pooling.unwrap_or(Pooling::Cls),
            causal: self.causal,
            teacher_maps: None,
            integer_only: None,
        }
    }

    fn init_layers_with<A: Attention>(
        &self,
        init: &mut ParamInit,
        mut attention: impl FnMut(&mut ParamInit) -> A,
    ) -> Encoder<A> {
        let dropout = |acts: bool| if acts { self.hidden_dropout } else { 0.0 };
        let feed_forward = FeedForwardConfig {
            gated: self.gated,
            bias: self.feed_forward_bias,
            up_bias: self.feed_forward_up_bias,
            ..FeedForwardConfig::new(self.d_model, self.d_ff, self.activation)
        };
        let layer = EncoderLayerConfig {
            feed_forward: feed_forward.with_dropout(self.feed_forward_dropout),
            attention_output_dropout: match self.attention_dropout_on_output {
                true => self.attention_dropout,
                false => dropout(self.attention_output_dropout),
            },
            feed_forward_output_dropout: dropout(self.feed_forward_output_dropout),
            norm: self.norm,
            norm_kind: self.norm_kind,
            layer_norm_eps: self.layer_norm_eps,
        };
        let order = self.layer_order();
        Encoder {
            layers: (0..order.iter().max().map_or(0, |last| last + 1))
                .map(|number| {
                    let attention = attention(init);
                    let mut layer = layer.init(attention, init);
                    let kept = layer.attention_norm.filter(|_| self.first_norm || number > 0);
                    layer.attention_norm = kept.map(|norm| norm.with_bias(self.norm_bias));
                    layer.feed_forward_norm = layer.feed_forward_norm.with_bias(self.norm_bias);
                    layer.convolution = self
                        .convolution
                        .filter(|_| number == 0)
                        .map(|of| of.init(self.d_model, self.hidden_dropout, self.layer_norm_eps, init));
                    layer
                })
                .collect(),
            final_norm: (self.norm == NormPlacement::Pre).then(|| {
                Norm::new(self.norm_kind, self.d_model, self.layer_norm_eps, init).with_bias(self.norm_bias)
            }),
            output_dropout: dropout(self.output_dropout),
            order,
            recompute: false,
        }
    }

    fn with_heads<A: Attention>(&self, bert: Bert<A>, init: &mut ParamInit) -> BertForPreTraining<A> {
        BertForPreTraining {
            bert,
            mlm: MlmHead::new(self, init),
            next_sentence: self.pooler.then(|| NextSentenceHead::new(self.d_model, init)),
            span_boundary: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;
    use burn::tensor::Device;

    /// Those of every linear map as it is applied, and of attention's two products.
    #[test]
    fn operations_are_those_of_the_maps_that_are_applied() {
        use crate::bert::BertInput;
        use crate::blocks::observe_inputs;
        use crate::weights;
        use burn::tensor::Tensor;
        use std::cell::Cell;
        use std::rc::Rc;

        let device = Device::flex();
        let config = BertConfig::new(20, 3, 16).with_n_heads(4).with_d_ff(40).with_pooler(false);
        let heads = vec![vec![1], vec![], vec![0, 3]];
        let config = config.with_pruned_heads(heads);
        let bert = config.init_encoder(&mut ParamInit::new(&device, 1));
        let sum = Rc::new(Cell::new(0.0));
        let observed = sum.clone();
        let is_map =
            |path: &str| path.starts_with("encoder") && path.ends_with("weight") && !path.contains("norm");
        let maps = weights::shapes(&bert).into_iter().filter(|(path, _)| is_map(path));
        let parameters: usize = maps.map(|(_, shape)| shape.iter().product::<usize>()).sum();
        let len = 7;
        let observer = move |_, x: Tensor<2>| observed.set(observed.get() + x.dims()[0] as f64);
        observe_inputs(observer, || bert.forward(BertInput::packed(&[1; 7], &[len], &device)));
        // Six maps a layer, each applied once to all tokens.
        assert_eq!(sum.get(), (3 * 6 * len) as f64);
        let width = 4.0 * (3.0 + 4.0 + 2.0);
        let attention = 4.0 * (len * len) as f64 * width;
        assert_eq!(config.flops(len), 2.0 * (parameters * len) as f64 + attention);
    }

    #[test]
    fn parameter_counts_are_the_published_ones() {
        // transformers' BertForPreTraining(...).num_parameters() of the same shapes.
        let init = &mut ParamInit::new(&Device::flex(), 0);
        assert_eq!(BertConfig::tiny(30_522).init(init).num_params(), 4_433_468);
        assert_eq!(BertConfig::mini(30_522).init(init).num_params(), 11_267_900);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let config = BertConfig { n_heads: 3, ..BertConfig::tiny(10) };
        let message = config.validate().unwrap_err().to_string();
        assert_eq!(
            message,
            "model configuration: `n_heads` is 3, expected a divisor of `d_model`, which is 128"
        );
    }

    #[test]
    fn configurations_of_before_the_switches_still_read() {
        let config = BertConfig::tiny(10);
        let mut json = serde_json::to_value(&config).unwrap();
        let later = ["position_offset", "share_layers", "pooler"];
        for key in later.into_iter().chain(["attention_output_dropout", "feed_forward_output_dropout"]) {
            json.as_object_mut().unwrap().remove(key).unwrap();
        }
        assert_eq!(serde_json::from_value::<BertConfig>(json).unwrap(), config);
    }

    #[test]
    fn groups_of_layers_are_applied_one_after_another() {
        let init = &mut ParamInit::new(&Device::flex(), 0);
        let mut order = |n_layers, n_groups, n_inner_layers| {
            let layer_groups = Some(LayerGroups { n_groups, n_inner_layers });
            let config = BertConfig { layer_groups, share_layers: true, n_layers, ..BertConfig::tiny(100) };
            let encoder = config.init_encoder(init).encoder;
            assert_eq!(encoder.layers.len(), n_groups * n_inner_layers);
            assert_eq!(encoder.order.len(), config.n_applied_layers());
            encoder.order
        };
        assert_eq!(order(4, 2, 1), [0, 0, 1, 1]);
        assert_eq!(order(2, 1, 2), [0, 1, 0, 1]);
        assert_eq!(order(4, 2, 2), [0, 1, 0, 1, 2, 3, 2, 3]);
        // transformers' `int(i / (5 / 3))`.
        assert_eq!(order(5, 3, 1), [0, 0, 1, 1, 2]);
        for (groups, expected) in [
            ((3, 1), "`layer_groups.n_groups` is 3, expected at most `n_layers`, which is 2"),
            ((0, 1), "`layer_groups.n_groups` is 0, expected at least 1"),
            (
                (1, 9_000),
                "`layer_groups.n_inner_layers` is 9000, expected at most 5000, as they are applied `n_layers` times",
            ),
        ] {
            let layer_groups = Some(LayerGroups { n_groups: groups.0, n_inner_layers: groups.1 });
            let config = BertConfig { layer_groups, share_layers: true, ..BertConfig::tiny(100) };
            assert!(config.validate().unwrap_err().to_string().ends_with(expected));
            let unshared = BertConfig { share_layers: false, layer_groups: Some(LayerGroups::ONE), ..config };
            assert!(unshared.validate().unwrap_err().to_string().contains("`layer_groups` is given"));
        }
    }

    #[test]
    fn shared_layers_are_one_set_of_parameters() {
        let init = &mut ParamInit::new(&Device::flex(), 0);
        let config = BertConfig { d_embedding: Some(32), share_layers: true, ..BertConfig::tiny(100) };
        let albert = config.init_encoder(init);
        assert_eq!(albert.encoder.layers.len(), 1);
        // Tables and their norm of 32, the projection, one layer of 12·d² + 13·d, the pooler.
        let layer = 12 * 128 * 128 + 13 * 128;
        let expected = (100 + 2 + 512 + 2) * 32 + 33 * 128 + layer + 129 * 128;
        assert_eq!(albert.num_params(), expected);
    }
}
