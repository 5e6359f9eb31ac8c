use super::super::FloatType;
use super::super::fields::Fields;
use super::activations::{activation_name, activation_of};
use super::encoder_keys::{
    BUCKETS, CONVOLUTION_GROUPS, FARTHEST, GROUPS, HEAD, INNER_LAYERS, IS_DECODER, KERNEL, LANGUAGE,
};
use super::pruned_heads;
use crate::Result;
use crate::bert::BertConfig;
use crate::blocks::{Activation, NormKind, NormPlacement};
use serde_json::{Map, Value};

/// How a `config.json` describes an encoder like BERT's: its keys with transformers' defaults, and the fixed values of
/// the family's class.
pub(in crate::huggingface) struct EncoderFormat {
    pub d_model: (&'static str, usize),
    pub n_layers: (&'static str, usize),
    pub n_heads: (&'static str, usize),
    pub d_ff: (&'static str, usize),
    pub hidden_dropout: (&'static str, f64),
    pub attention_dropout: (&'static str, f64),
    pub activation: (&'static str, Activation),
    /// Whether the activation's key is no name, but says with true that it is GELU and with false that it is ReLU (XLM).
    pub activation_is_flag: bool,
    pub max_positions: (&'static str, usize),
    /// Added to the variance in the layer normalisations; none: no key, and 1e-12.
    pub layer_norm_eps: Option<(&'static str, f64)>,
    /// The key's default; all families have the same key.
    pub vocab_size: usize,
    /// The key's default; all families have the same key.
    pub pad_token_id: usize,
    /// The default of `embedding_size`, if the family has the key.
    pub embedding_size: Option<usize>,
    /// The default of the number of token types and the least number that is allowed, if the family has token types.
    pub token_types: Option<(usize, usize)>,
    /// The key of the number of token types.
    pub token_types_key: &'static str,
    /// Whether there is the key `position_embedding_type`.
    pub has_position_type: bool,
    /// Whether the class reads `is_decoder`: then a token sees only itself and the tokens before it.
    pub has_is_decoder: bool,
    /// Whether transformers 4 builds the class with fewer heads, by the key `pruned_heads`.
    pub has_pruned_heads: bool,
    /// Whether the embeddings are projected.
    pub projection: Projection,
    /// Where positions start in their table.
    pub first_position: FirstPosition,
    /// See [`BertConfig::share_layers`].
    pub share_layers: bool,
    /// See [`BertConfig::attention_output_dropout`].
    pub attention_output_dropout: bool,
    /// See [`BertConfig::feed_forward_output_dropout`].
    pub feed_forward_output_dropout: bool,
    /// See [`BertConfig::mlm_activation`].
    pub mlm_activation: Option<Activation>,
    /// Sets the switches that BERT does not have, or resets them if the family does not have them either
    /// ([`without_switches`]).
    pub switch: fn(BertConfig) -> BertConfig,
}

/// Where positions start in their table.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::huggingface) enum FirstPosition {
    /// At its first row.
    Zero,
    /// At the row of the padding's id plus 1.
    AfterPadding,
    /// Where the config says, [`BertConfig::position_offset`]; the family reads and writes it.
    Given,
}

/// The names of the fields of [`BertConfig`] that a family's `switch` may set.
const SWITCHES: [&str; 38] = [
    "d_ff",
    "activation",
    "pad_token_id",
    "max_positions",
    "attention_dropout",
    "absolute_positions",
    "sinusoidal",
    "relative",
    "alibi",
    "rotary",
    "local",
    "relative_bias",
    "disentangled",
    "transformer_xl",
    "convolution",
    "project_before_norm",
    "layer_groups",
    "gated",
    "attention_bias",
    "attention_output_bias",
    "n_kv_heads",
    "feed_forward_bias",
    "feed_forward_up_bias",
    "norm_bias",
    "first_norm",
    "attention_dropout_on_output",
    "feed_forward_dropout",
    "head_bias",
    "mlm_bias",
    "mlm_transform",
    "pooling",
    "d_head",
    "scaled_scores",
    "norm_kind",
    "embedding_norm",
    "output_dropout",
    "causal",
    "pruned_heads",
];

/// The same encoder with BERT's value of every switch that only later families have.
pub(super) fn without_switches(config: BertConfig) -> BertConfig {
    BertConfig {
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
        project_before_norm: false,
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
        pooling: None,
        d_head: None,
        scaled_scores: true,
        norm_kind: NormKind::Layer,
        embedding_norm: true,
        output_dropout: false,
        ..config
    }
}

/// When a family's encoder projects its embeddings.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::huggingface) enum Projection {
    /// Never: the embeddings are as wide as the model.
    Never,
    /// Always, even to the same width.
    Always,
    /// If the widths differ.
    ToAnotherWidth,
}

impl Projection {
    /// The required value of [`BertConfig::d_embedding`].
    fn expected(self) -> &'static str {
        match self {
            Self::Never => "none",
            Self::Always => "a width",
            Self::ToAnotherWidth => "none, or another width than `d_model`",
        }
    }
}

impl EncoderFormat {
    /// The name of a [`BertConfig`] field in `config.json`.
    pub fn key_of(&self, field: &'static str) -> &'static str {
        match field {
            "d_model" => self.d_model.0,
            "n_layers" => self.n_layers.0,
            "n_heads" => self.n_heads.0,
            "d_ff" => self.d_ff.0,
            "hidden_dropout" => self.hidden_dropout.0,
            "attention_dropout" => self.attention_dropout.0,
            "max_positions" | "position_offset" => self.max_positions.0,
            "layer_norm_eps" => self.layer_norm_eps.map_or(field, |(key, _)| key),
            "n_token_types" => self.token_types_key,
            "language" => LANGUAGE,
            "d_embedding" => "embedding_size",
            // ALBERT's and DeBERTa's.
            "layer_groups.n_groups" => GROUPS,
            "layer_groups.n_inner_layers" => INNER_LAYERS,
            "convolution.kernel" => KERNEL,
            "convolution.n_groups" => CONVOLUTION_GROUPS,
            // T5's names; MPNet's are fixed.
            "d_head" => HEAD.0,
            "relative_bias.n_buckets" => BUCKETS.0,
            "relative_bias.max_distance" => FARTHEST.0,
            other => other,
        }
    }

    /// See [`Family::encoder`](super::Family::encoder).
    pub fn switched(&self, sizes: BertConfig) -> BertConfig {
        let d_model = sizes.d_model;
        (self.switch)(BertConfig {
            n_token_types: self.token_types.map_or(0, |(_, least)| sizes.n_token_types.max(least)),
            norm: NormPlacement::Post,
            layer_norm_eps: if self.layer_norm_eps.is_some() { sizes.layer_norm_eps } else { 1e-12 },
            d_embedding: match self.projection {
                Projection::Never => None,
                Projection::Always => Some(sizes.embedding_width()),
                Projection::ToAnotherWidth => sizes.d_embedding.filter(|d| *d != d_model),
            },
            position_offset: match self.first_position {
                FirstPosition::Given => sizes.position_offset,
                FirstPosition::Zero | FirstPosition::AfterPadding => self.position_offset(sizes.pad_token_id),
            },
            share_layers: self.share_layers,
            layer_groups: sizes.layer_groups.filter(|_| self.share_layers),
            attention_output_dropout: self.attention_output_dropout,
            feed_forward_output_dropout: self.feed_forward_output_dropout,
            mlm_activation: self.mlm_activation,
            causal: sizes.causal && self.has_is_decoder,
            pruned_heads: if self.has_pruned_heads { sizes.pruned_heads } else { Vec::new() },
            ..sizes
        })
    }

    /// The encoder that a file describes, without a pooler.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) for a value that this crate does not support.
    pub fn read(&self, fields: &Fields) -> Result<BertConfig> {
        let size = |(key, default): (&str, usize)| match fields.size(key)?.unwrap_or(default) {
            0 => Err(fields.refuse(key, &0.into(), "at least 1")),
            size => Ok(size),
        };
        let number = |(key, default): (&str, f64)| Ok(fields.number(key)?.unwrap_or(default));
        let kind = fields.text("position_embedding_type")?.filter(|kind| *kind != "absolute");
        if let Some(kind) = kind.filter(|_| self.has_position_type) {
            return Err(fields.refuse("position_embedding_type", &kind.into(), "\"absolute\""));
        }
        let (key, default) = self.activation;
        let activation = match self.activation_is_flag {
            true => match fields.flag(key)? {
                None => default,
                Some(true) => Activation::Gelu,
                Some(false) => Activation::Relu,
            },
            false => match fields.text(key)? {
                None => default,
                Some(name) => activation_of(name, key, fields)?,
            },
        };
        let d_embedding = match self.embedding_size {
            Some(default) => Some(size(("embedding_size", default))?),
            None => None,
        };
        let pad_token_id = fields.size("pad_token_id")?.unwrap_or(self.pad_token_id);
        let rows = size(self.max_positions)?;
        let max_positions = rows.checked_sub(self.position_offset(pad_token_id)).ok_or_else(|| {
            fields.error(&format!(
                "`{}` = {rows} has no place beyond `pad_token_id` = {pad_token_id}",
                self.max_positions.0
            ))
        })?;
        let n_token_types = match self.token_types {
            Some((default, 0)) => fields.size(self.token_types_key)?.unwrap_or(default),
            Some((default, _)) => size((self.token_types_key, default))?,
            None => 0,
        };
        let layer_norm_eps = self.layer_norm_eps.map_or(Ok(1e-12), number)?;
        let causal = self.has_is_decoder && fields.flag(IS_DECODER)?.unwrap_or(false);
        if self.has_is_decoder {
            fields.fixed("add_cross_attention", false)?;
        }
        let n_layers = size(self.n_layers)?;
        let sizes = BertConfig {
            causal,
            pruned_heads: if self.has_pruned_heads {
                pruned_heads::read(fields, n_layers)?
            } else {
                Vec::new()
            },
            n_heads: size(self.n_heads)?,
            d_ff: size(self.d_ff)?,
            max_positions,
            n_token_types,
            hidden_dropout: number(self.hidden_dropout)?,
            attention_dropout: number(self.attention_dropout)?,
            activation,
            layer_norm_eps,
            init_std: number(("initializer_range", 0.02))?,
            pad_token_id,
            d_embedding,
            pooler: false,
            ..BertConfig::new(size(("vocab_size", self.vocab_size))?, n_layers, size(self.d_model)?)
        };
        Ok(self.switched(sizes))
    }

    /// Adds an encoder that was [checked](Self::check) to a `config.json`.
    pub fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        let mut set = |key: &str, value: Value| _ = config.insert(key.to_string(), value);
        set("vocab_size", encoder.vocab_size.into());
        set(self.d_model.0, encoder.d_model.into());
        set(self.n_layers.0, encoder.n_layers.into());
        set(self.n_heads.0, encoder.n_heads.into());
        set(self.d_ff.0, encoder.d_ff.into());
        set(self.hidden_dropout.0, encoder.hidden_dropout.into());
        set(self.attention_dropout.0, encoder.attention_dropout.into());
        let activation = match self.activation_is_flag {
            true => (encoder.activation == Activation::Gelu).into(),
            false => activation_name(encoder.activation).into(),
        };
        set(self.activation.0, activation);
        set(self.max_positions.0, (encoder.position_offset + encoder.max_positions).into());
        set("initializer_range", encoder.init_std.into());
        set("pad_token_id", encoder.pad_token_id.into());
        set("torch_dtype", dtype.name().into());
        if self.token_types.is_some() {
            set(self.token_types_key, encoder.n_token_types.into());
        }
        if let Some((key, _)) = self.layer_norm_eps {
            set(key, encoder.layer_norm_eps.into());
        }
        if self.has_position_type {
            set("position_embedding_type", "absolute".into());
        }
        if self.embedding_size.is_some() {
            set("embedding_size", encoder.embedding_width().into());
        }
        if encoder.causal {
            set(IS_DECODER, true.into());
        }
        if !encoder.pruned_heads.is_empty() {
            set(pruned_heads::KEY, pruned_heads::written(&encoder.pruned_heads));
        }
    }

    /// Checks that the family's class builds such an encoder.
    ///
    /// # Errors
    /// The offending field of [`BertConfig`], its value, and the expected value.
    pub fn check(&self, encoder: &BertConfig) -> std::result::Result<(), (&'static str, String, String)> {
        let fitting = self.switched(encoder.clone());
        let field = |key, fits: bool, found: String, expected: String| match fits {
            true => Ok(()),
            false => Err((key, found, expected)),
        };
        let flag = |key, found: bool, expected: bool| {
            field(key, found == expected, found.to_string(), expected.to_string())
        };
        let norm = |norm| if norm == NormPlacement::Pre { "\"pre\"" } else { "\"post\"" }.to_string();
        field("norm", encoder.norm == fitting.norm, norm(encoder.norm), norm(fitting.norm))?;
        let (offset, expected) = (encoder.position_offset, fitting.position_offset);
        field("position_offset", offset == expected, offset.to_string(), expected.to_string())?;
        let width = encoder.d_embedding.map_or("none".into(), |width| width.to_string());
        let expected = self.projection.expected().into();
        field("d_embedding", encoder.d_embedding == fitting.d_embedding, width, expected)?;
        flag("share_layers", encoder.share_layers, fitting.share_layers)?;
        let types = encoder.n_token_types;
        let expected = match self.token_types {
            None => "0",
            Some((_, 0)) => "0, or 2 or more",
            Some(_) => "1 or more",
        };
        field("n_token_types", types == fitting.n_token_types, types.to_string(), expected.into())?;
        let (eps, expected) = (encoder.layer_norm_eps, fitting.layer_norm_eps);
        field("layer_norm_eps", eps == expected, eps.to_string(), format!("{expected:e}"))?;
        let (found, expected) = (encoder.attention_output_dropout, fitting.attention_output_dropout);
        flag("attention_output_dropout", found, expected)?;
        let (found, expected) = (encoder.feed_forward_output_dropout, fitting.feed_forward_output_dropout);
        flag("feed_forward_output_dropout", found, expected)?;
        // Given here or the same as the encoder's: what matters is what the head computes.
        let of = |config: &BertConfig| config.mlm_activation.unwrap_or(config.activation);
        let named = |config: &BertConfig| format!("\"{}\"", activation_name(of(config)));
        field("mlm_activation", of(encoder) == of(&fitting), named(encoder), named(&fitting))?;
        let json = |config: &BertConfig| serde_json::to_value(config).expect("plain values serialise");
        let (found, expected) = (json(encoder), json(&fitting));
        let named = |value: Option<&Value>| value.map_or("none".into(), Value::to_string);
        SWITCHES.into_iter().try_for_each(|key| {
            let (found, expected) = (found.get(key), expected.get(key));
            field(key, found == expected, named(found), named(expected))
        })
    }

    /// The first row that a file's other keys tell.
    fn position_offset(&self, pad_token_id: usize) -> usize {
        match self.first_position {
            FirstPosition::Zero | FirstPosition::Given => 0,
            FirstPosition::AfterPadding => pad_token_id.saturating_add(1),
        }
    }
}
