use super::TransformerConfig;
use crate::blocks::{
    Embedding, LearnedPositions, Norm, Positions, PositionsConfig, RelativeBias, RelativeBiasConfig,
    SinusoidalPositions,
};
use crate::ops::{AttentionMask, Packing};
use crate::{ParamInit, ops};
use burn::module::Module;
use burn::tensor::{Bool, Device, Int, Tensor};

/// Makes the input states of an encoder or a decoder from tokens: embeddings, scaled or not, with positions added,
/// normalised or not, and dropout (Vaswani et al. 2017, §3.4, §3.5 and §5.4).
///
/// The embedding table is an argument, because encoder, decoder and output layer may share it.
#[derive(Module, Debug)]
pub struct StackInput {
    /// The position table, `[offset + max_positions, d_model]`, if positions are learned.
    pub positions: Option<LearnedPositions>,
    /// The normalisation of the sum, in BART.
    pub norm: Option<Norm>,
    /// The bias of all layers' scores by distance, `[n_buckets, n_heads]`, in T5.
    pub relative_bias: Option<RelativeBias>,
    sinusoids: Option<SinusoidalPositions>,
    scale: f64,
    dropout: f64,
}

impl StackInput {
    /// A new input of the encoder for `config`.
    pub fn of_encoder(config: &TransformerConfig, init: &mut ParamInit) -> Self {
        Self::new(config, |bias, init| bias.init(config.n_heads, init), init)
    }

    /// A new input of the decoder for `config`.
    pub fn of_decoder(config: &TransformerConfig, init: &mut ParamInit) -> Self {
        Self::new(config, |bias, init| bias.init_causal(config.decoder_heads(), init), init)
    }

    fn new(
        config: &TransformerConfig,
        bias: impl Fn(&RelativeBiasConfig, &mut ParamInit) -> RelativeBias,
        init: &mut ParamInit,
    ) -> Self {
        let d = config.d_model;
        let (mut positions, mut sinusoids) = (None, None);
        match config.positions {
            PositionsConfig::Sinusoidal { order } => {
                sinusoids = Some(SinusoidalPositions::new(d).with_order(order));
            }
            PositionsConfig::Learned { offset } => {
                positions = Some(LearnedPositions::with_offset(config.max_positions, offset, d, init));
            }
            // The attention handles positions itself, or there are none.
            _ => {}
        }
        Self {
            positions,
            sinusoids,
            norm: config.embedding_norm.then(|| Norm::new(config.norm_kind, d, config.layer_norm_eps, init)),
            relative_bias: config.positions.relative_bias().map(|of| bias(&of, init)),
            scale: if config.scaled_embeddings { (d as f64).sqrt() } else { 1.0 },
            dropout: config.dropout,
        }
    }

    /// The states of tokens whose positions start at 0: one sequence per row, or packed.
    ///
    /// # Shapes
    /// - `ids`: `[batch, len]`, or `[1, n_tokens]` if `packing` is given; returns `[batch, len, d_model]`
    /// - `padding`: the same shape, `true` for the padding piece, whose embedding is not trained; none if there is none
    ///
    /// # Panics
    /// If a position exceeds what the encoding covers.
    pub fn forward(
        &self,
        table: &Embedding,
        ids: Tensor<2, Int>,
        padding: Option<Tensor<2, Bool>>,
        packing: Option<&Packing>,
    ) -> Tensor<3> {
        let embeddings = table.forward(ids);
        let embeddings = match padding {
            Some(padding) if ops::is_training(&embeddings.device()) => {
                let shape = embeddings.dims();
                let padding = padding.unsqueeze_dim::<3>(2).expand(shape);
                embeddings.clone().mask_where(padding, embeddings.detach())
            }
            _ => embeddings,
        };
        let scaled = self.scaled(embeddings);
        let sum = match (&self.positions, &self.sinusoids) {
            (Some(learned), _) => learned.add_to(scaled, packing),
            (None, Some(fixed)) => fixed.add_to(scaled, packing),
            (None, None) => scaled,
        };
        self.finished(sum)
    }

    /// The states of one token per row, each at its own position.
    ///
    /// # Shapes
    /// - `ids`: `[1, rows]`; `positions`: `rows`; returns `[1, rows, d_model]`
    ///
    /// # Panics
    /// If a position exceeds what the encoding covers.
    pub fn forward_at(&self, table: &Embedding, ids: Tensor<2, Int>, positions: &[usize]) -> Tensor<3> {
        let scaled = self.scaled(table.forward(ids));
        let sum = match (&self.positions, &self.sinusoids) {
            (Some(learned), _) => add_at(learned, scaled, positions),
            (None, Some(fixed)) => add_at(fixed, scaled, positions),
            (None, None) => scaled,
        };
        self.finished(sum)
    }

    /// The mask of self-attention among `len` tokens whose positions start at 0, with any score bias by
    /// distance.
    pub(super) fn biased(&self, mask: AttentionMask, len: usize, device: &Device) -> AttentionMask {
        match &self.relative_bias {
            Some(bias) => mask.with_bias(bias.forward(len, device)),
            None => mask,
        }
    }

    fn scaled(&self, embeddings: Tensor<3>) -> Tensor<3> {
        if self.scale == 1.0 { embeddings } else { embeddings.mul_scalar(self.scale) }
    }

    fn finished(&self, sum: Tensor<3>) -> Tensor<3> {
        let sum = match &self.norm {
            Some(norm) => norm.forward(sum),
            None => sum,
        };
        ops::dropout(sum, self.dropout)
    }
}

fn add_at(encoding: &impl Positions, x: Tensor<3>, positions: &[usize]) -> Tensor<3> {
    let device = x.device();
    let (Some(first), Some(last)) = (positions.iter().min(), positions.iter().max()) else { return x };
    let vectors = encoding.range(*first..last + 1, &device);
    if first == last {
        return x + vectors;
    }
    let rows: Vec<i32> = positions.iter().map(|position| (position - first) as i32).collect();
    let rows = Tensor::<1, Int>::from_data(rows.as_slice(), &device);
    x + vectors.select(1, rows)
}
