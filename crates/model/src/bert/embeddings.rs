use super::BertConfig;
use crate::blocks::{
    DistanceSinusoids, DistanceVectors, Distances, Embedding, LayerNorm, LearnedPositions, Linear, PartKind,
    PartType, Positions, RelativeBias, SinusoidalPositions, of_other_segments,
};
use crate::ops::Packing;
use crate::{ParamInit, linear_maps, ops};
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};

/// The sum of piece, segment and position embeddings, normalised (Devlin et al. 2019, figure 2), and projected if their
/// width is not the model's (Lan et al. 2020, §3.1).
///
/// `d_embedding` is `d_model` unless there is a projection. In DeBERTa v2 the projection comes before the normalisation, see
/// [`BertConfig::project_before_norm`].
#[derive(Module, Debug)]
pub struct BertEmbeddings<P: Positions = LearnedPositions> {
    /// `[vocab_size, d_embedding]`; the masked-LM head projects onto this very parameter.
    pub tokens: Embedding,
    /// `[n_token_types, d_embedding]`: for segments, or for languages in a model with language embeddings
    /// (XLM). DistilBERT has none.
    pub token_types: Option<Embedding>,
    /// Position vectors: in BERT a learned table, `[position_offset + max_positions, d_embedding]`. `None` if
    /// only the attention handles positions.
    pub positions: Option<P>,
    /// Fixed position vectors, divided by `√d_embedding`, see [`BertConfig::sinusoidal`].
    pub fixed_positions: Option<SinusoidalPositions>,
    /// The normalisation of the sum; T5 and XLNet have none.
    pub norm: Option<LayerNorm>,
    /// `[d_embedding, d_model]`, after normalisation and dropout, or before both.
    pub projection: Option<Linear>,
    /// The bias of all layers' scores by distance, in MPNet and T5.
    pub relative_bias: Option<RelativeBias>,
    /// The distance vectors shared by all layers, in DeBERTa.
    pub distances: Option<DistanceVectors>,
    /// The same for XLNet, which are no parameters.
    pub sinusoids: Option<DistanceSinusoids>,
    /// XLNet's initial query vector in pretraining, `[d_model]`. Unused by the encoder, but kept when saving
    /// the model.
    pub query: Option<Param<Tensor<1>>>,
    /// See [`BertConfig::language`]. [`forward`](Self::forward) uses token types as given; this is read by
    /// the code that makes them.
    #[module(skip)]
    pub language: Option<usize>,
    dropout: f64,
    project_before_norm: bool,
    positions_type: PartType<P>,
}

linear_maps!(BertEmbeddings<P: Positions> { projection });

impl BertEmbeddings {
    /// New tables for `config`.
    pub fn new(config: &BertConfig, init: &mut ParamInit) -> Self {
        let d = config.embedding_width();
        let d_norm = if config.project_before_norm { config.d_model } else { d };
        let token_types = |init: &mut ParamInit| Embedding::new(config.n_token_types, d, init);
        Self {
            tokens: Embedding::new(config.vocab_size, d, init),
            token_types: (config.n_token_types > 0).then(|| token_types(init)),
            positions: config.absolute_positions.then(|| {
                LearnedPositions::with_offset(config.max_positions, config.position_offset, d, init)
            }),
            fixed_positions: config
                .sinusoidal
                .map(|order| SinusoidalPositions::new(d).with_order(order).with_scale((d as f64).powf(-0.5))),
            norm: config
                .embedding_norm
                .then(|| LayerNorm::new(d_norm, config.layer_norm_eps, init).with_bias(config.norm_bias)),
            projection: config
                .d_embedding
                .map(|d| Linear::with_bias(!config.project_before_norm, d, config.d_model, init)),
            relative_bias: config.relative_bias.map(|bias| bias.init(config.n_heads, init)),
            distances: config.disentangled.map(|distances| {
                DistanceVectors::new(&distances, config.d_model, config.layer_norm_eps, init)
            }),
            sinusoids: config.transformer_xl.map(|terms| DistanceSinusoids::new(&terms, config.d_model)),
            query: config.transformer_xl.map(|_| init.truncated_normal([config.d_model])),
            language: config.language,
            dropout: config.hidden_dropout,
            project_before_norm: config.project_before_norm,
            positions_type: PartType::new(PartKind::Positions),
        }
    }
}

impl<P: Positions> BertEmbeddings<P> {
    /// The same embeddings with other positions, whose vectors must have `d_embedding` features.
    pub fn with_positions<Q: Positions>(self, positions: Q) -> BertEmbeddings<Q> {
        let Self { tokens, token_types, norm, projection, relative_bias, distances, sinusoids, .. } = self;
        let (query, language, dropout) = (self.query, self.language, self.dropout);
        let project_before_norm = self.project_before_norm;
        BertEmbeddings {
            tokens,
            token_types,
            positions: Some(positions),
            fixed_positions: None,
            norm,
            projection,
            relative_bias,
            distances,
            sinusoids,
            query,
            language,
            dropout,
            project_before_norm,
            positions_type: PartType::new(PartKind::Positions),
        }
    }

    /// # Shapes
    /// - `input_ids`, `token_type_ids`: `[batch, len]`, packed if `packing` is given; returns `[batch, len, d_model]`
    ///
    /// # Panics
    /// If a sequence is longer than the positions cover.
    pub fn forward(
        &self,
        input_ids: Tensor<2, Int>,
        token_type_ids: Tensor<2, Int>,
        packing: Option<&Packing>,
    ) -> Tensor<3> {
        self.forward_at(input_ids, token_type_ids, packing, None)
    }

    /// [`forward`](Self::forward) with each token's position, `[batch, len]`, if it differs from its place in
    /// its sequence.
    ///
    /// # Panics
    /// If a position is out of range.
    pub fn forward_at(
        &self,
        input_ids: Tensor<2, Int>,
        token_type_ids: Tensor<2, Int>,
        packing: Option<&Packing>,
        position_ids: Option<Tensor<2, Int>>,
    ) -> Tensor<3> {
        let mut sum = self.tokens.forward(input_ids);
        if let Some(table) = &self.token_types {
            let [n, d] = table.weight.dims();
            // With a one-row table, every token takes that row, whatever segments the tokenizer assigned.
            sum = match n {
                1 => sum + table.weight.val().reshape([1, 1, d]),
                _ => sum + table.forward(token_type_ids),
            };
        }
        if let Some(positions) = &self.positions {
            sum = with_positions(positions, sum, packing, position_ids.clone());
        }
        if let Some(positions) = &self.fixed_positions {
            sum = with_positions(positions, sum, packing, position_ids);
        }
        let projected = |states, is_here: bool| match self.projection.as_ref().filter(|_| is_here) {
            Some(projection) => projection.forward(states),
            None => states,
        };
        let sum = projected(sum, self.project_before_norm);
        let sum = match &self.norm {
            Some(norm) => norm.forward(sum),
            None => sum,
        };
        projected(ops::dropout(sum, self.dropout), !self.project_before_norm)
    }

    /// The distance vectors for padded sequences, shared by all layers, if the attention needs them.
    ///
    /// # Shapes
    /// - `token_type_ids`: `[batch, len]`
    pub(super) fn distances(&self, token_type_ids: Tensor<2, Int>) -> Option<Distances> {
        let [_, len] = token_type_ids.dims();
        match (&self.distances, &self.sinusoids) {
            (Some(vectors), _) => Some(vectors.forward(len)),
            (None, Some(sinusoids)) => {
                let distances = sinusoids.forward(len, &token_type_ids.device());
                // One mask for all layers, and for all sequences; transformers draws one for each sequence.
                let vectors = ops::dropout(distances.vectors, self.dropout);
                let of_others = Some(of_other_segments(token_type_ids));
                Some(Distances { vectors, of_others, ..distances })
            }
            (None, None) => None,
        }
    }
}

/// Embeddings with the vectors of their positions added: of these positions, or of their places.
fn with_positions(
    positions: &impl Positions,
    embeddings: Tensor<3>,
    packing: Option<&Packing>,
    ids: Option<Tensor<2, Int>>,
) -> Tensor<3> {
    match ids {
        Some(ids) => embeddings + positions.at(ids),
        None => positions.add_to(embeddings, packing),
    }
}
