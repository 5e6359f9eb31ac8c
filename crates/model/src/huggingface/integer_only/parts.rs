//! The parts of an encoder of integers by the names of their tensors, which are those of transformers' I-BERT.

use super::Checked;
use crate::bert::integer_only::{
    IntegerClassifierParts, IntegerLayerParts, IntegerLayerScales, IntegerMap, IntegerNorm, IntegerParts,
    IntegerTable,
};

/// Where parts come from. Names are those of modules, without the prefix of a model with a head.
pub(super) trait PartSource {
    /// A linear map whose input has this scale.
    fn map(&self, module: &str, input_scale: f64) -> Checked<IntegerMap>;

    fn table(&self, module: &str) -> Checked<IntegerTable>;

    fn norm(&self, module: &str) -> Checked<IntegerNorm>;

    /// The scale of an activation of `bits` bits.
    fn scale(&self, activation: &str, bits: u32) -> Checked<f64>;

    /// The greatest integer of an activation, if the source has it.
    fn range(&self, activation: &str) -> Checked<Option<f64>>;
}

/// The maps of a head over sequences with tanh, by the names of their modules: the dense one and the output.
pub(super) type HeadNames = [&'static str; 2];

/// The activation of a head's dense layer, in our own folders.
pub(super) const POOLED: &str = "pooled_activation";

/// The activations of the embeddings.
pub(super) const SUM: &str = "embeddings.embeddings_act1";
pub(super) const EMBEDDED: &str = "embeddings.output_activation";

/// The tables of embeddings.
pub(super) const TABLES: [&str; 3] =
    ["embeddings.word_embeddings", "embeddings.token_type_embeddings", "embeddings.position_embeddings"];

/// The names of a layer's parts.
pub(super) struct LayerNames(String);

impl LayerNames {
    pub fn new(layer: usize) -> Self {
        Self(format!("encoder.layer.{layer}"))
    }

    pub fn of(&self, part: &str) -> String {
        format!("{}.{part}", self.0)
    }
}

/// The maps of a layer, each with the activation that is its input; none for the layer's own input.
pub(super) const MAPS: [(&str, Option<&str>); 6] = [
    ("attention.self.query", None),
    ("attention.self.key", None),
    ("attention.self.value", None),
    ("attention.output.dense", Some("attention.self.output_activation")),
    ("intermediate.dense", Some("pre_intermediate_act")),
    ("output.dense", Some("pre_output_act")),
];

/// The activations of a layer that have scales in our own folders, with their bits.
pub(super) fn activations(scales: &IntegerLayerScales) -> [(&'static str, f64); 11] {
    [
        ("attention.self.query_activation", scales.query),
        ("attention.self.key_activation", scales.key),
        ("attention.self.value_activation", scales.value),
        ("attention.self.output_activation", scales.context),
        ("attention.output.ln_input_act", scales.attention_sum),
        ("attention.output.output_activation", scales.attention),
        ("pre_intermediate_act", scales.feed_forward_input),
        ("intermediate.output_activation", scales.gelu),
        ("pre_output_act", scales.inner),
        ("output.ln_input_act", scales.feed_forward_sum),
        ("output.output_activation", scales.output),
    ]
}

/// An encoder's parts.
pub(super) fn parts_of(
    source: &impl PartSource,
    [n_layers, n_heads, position_offset]: [usize; 3],
    head: Option<HeadNames>,
) -> Checked<IntegerParts> {
    let output_scale = source.scale(EMBEDDED, 8)?;
    let mut input_scale = output_scale;
    let mut layers = Vec::with_capacity(n_layers);
    for layer in 0..n_layers {
        let names = LayerNames::new(layer);
        let scale = |activation: &str, bits| source.scale(&names.of(activation), bits);
        let scales = IntegerLayerScales {
            query: scale("attention.self.query_activation", 8)?,
            key: scale("attention.self.key_activation", 8)?,
            value: scale("attention.self.value_activation", 8)?,
            exponentials: source.range(&names.of("attention.self.softmax.act"))?,
            context: scale("attention.self.output_activation", 8)?,
            attention_sum: scale("attention.output.ln_input_act", 22)?,
            attention: scale("attention.output.output_activation", 8)?,
            feed_forward_input: scale("pre_intermediate_act", 8)?,
            gelu: scale("intermediate.output_activation", 8)?,
            inner: scale("pre_output_act", 8)?,
            feed_forward_sum: scale("output.ln_input_act", 22)?,
            output: scale("output.output_activation", 8)?,
        };
        let input = |activation: Option<&str>| activation.map_or(Ok(input_scale), |name| scale(name, 8));
        let map =
            |(module, activation): (&str, Option<&str>)| source.map(&names.of(module), input(activation)?);
        let [query, key, value, output, up, down] = MAPS;
        layers.push(IntegerLayerParts {
            query: map(query)?,
            key: map(key)?,
            value: map(value)?,
            output: map(output)?,
            attention_norm: source.norm(&names.of("attention.output.LayerNorm"))?,
            up: map(up)?,
            down: map(down)?,
            feed_forward_norm: source.norm(&names.of("output.LayerNorm"))?,
            scales,
        });
        input_scale = scales.output;
    }
    let classifier = head.map(|[dense, output]| {
        Ok::<_, String>(IntegerClassifierParts {
            dense: source.map(dense, input_scale)?,
            dense_scale: source.scale(POOLED, 16)?,
            output: source.map(output, crate::ops::integer_only::IntegerTanh::OUTPUT_SCALE)?,
        })
    });
    Ok(IntegerParts {
        n_heads,
        position_offset,
        tables: [source.table(TABLES[0])?, source.table(TABLES[1])?, source.table(TABLES[2])?],
        norm: source.norm("embeddings.LayerNorm")?,
        sum_scale: source.scale(SUM, 16)?,
        output_scale,
        layers,
        classifier: classifier.transpose()?,
    })
}
