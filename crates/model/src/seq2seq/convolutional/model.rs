use super::attention::ROOT_HALF;
use super::attention::{AttendedSource, Encoded};
use super::{ConvolutionalDecoderLayer, ConvolutionalDecoding};
use crate::Sequences;
use crate::blocks::{
    AdaptiveSoftmax, Embedding, GatedConvolution, InferenceWeight, LinearMap, LinearMaps, NormedLinear,
    OutputLayer, SampledSoftmax,
};
use crate::ops;
use crate::seq2seq::{DecodeOptions, EncoderDecoder};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// The convolutional encoder–decoder of Gehring et al. 2017, "Convolutional Sequence to Sequence Learning".
///
/// Each token is embedded with its position, `e_j = w_j + p_j` (§3.1). Encoder and decoder map embeddings to `d_model`
/// features and back, and have layers of one convolution each with a gated linear unit and a residual connection (§3.2):
///
/// `h_i = (v(W [h_(i−k/2); …; h_(i+k/2)] + b) + h_i) · √½`, with `v([A; B]) = A ⊗ σ(B)`
///
/// over the layer below, with windows of `k` tokens and zero padding. The decoder's windows end with their
/// own token. In every decoder layer, the convolution's output `h_i` attends separately to the encoder's
/// outputs `z_j` (§3.3; eq. 1, 2):
///
/// `d_i = W h_i + b + g_i`, `a_ij = exp(d_i · z_j) / Σ_t exp(d_i · z_t)`, `c_i = Σ_j a_ij (z_j + e_j)`
///
/// where `g_i` is the target's own embedding. `c_i` is mapped to `d_model` features and added to `h_i` before the residual
/// connection. The last layer's output is mapped back to the embeddings' width, and to the vocabulary.
///
/// Variances are preserved (§3.4, §3.5): sums of two are multiplied by `√½`; `c_i` of a source of `m` tokens
/// by `m · √(1/m) = √m`; gradients of the encoder, except those of its embeddings as values, by `1 / (2 ·
/// n)` with `n` attentions. Linear maps and convolutions are
/// [weight-normalised](crate::blocks::NormedLinear). With `p` of the inputs kept by dropout, they start from
/// `N(0, √(4p/n))` before a gate and `N(0, √(p/n))` elsewhere, embeddings from `N(0, 0.1)`, biases from 0.
/// Dropout acts on embeddings, on the convolutions' inputs and before the output layer.
///
/// Where the paper leaves a choice, this follows the authors' code, fairseq's `fconv`: `d_i` and `z_j + e_j`
/// are sums of two and multiplied by `√½`, and the gradients' factor has the 2. All layers have the same
/// width; the paper's largest models grow wider with depth.
///
/// It is trained through [`EncoderDecoder`] and decodes through
/// [`NextToken`](crate::generate::NextToken).
#[derive(Module, Debug)]
pub struct ConvolutionalEncoderDecoder {
    /// Source embeddings; `None` if shared with the target.
    pub source_embedding: Option<Embedding>,
    /// Target embeddings.
    pub target_embedding: Embedding,
    /// Source position embeddings, `[max_positions, d_embedding]`.
    pub source_positions: Embedding,
    /// Target position embeddings, `[max_positions, d_embedding]`.
    pub target_positions: Embedding,
    /// Maps embeddings to states.
    pub encoder_input: NormedLinear,
    /// From the lowest layer to the highest.
    pub encoder: Vec<GatedConvolution>,
    /// Maps states to the width of embeddings.
    pub encoder_output: NormedLinear,
    /// Maps embeddings to states.
    pub decoder_input: NormedLinear,
    /// From the lowest layer to the highest.
    pub decoder: Vec<ConvolutionalDecoderLayer>,
    /// Maps states to the output layer's input, `[d_model, d_embedding]`.
    pub readout: NormedLinear,
    /// `[d_embedding, vocab_size]`; `None` if it is the target's embedding table, which is not
    /// normalised, or the output is [adaptive](Self::adaptive).
    pub output: Option<NormedLinear>,
    /// The adaptive softmax in place of a projection, if there is one.
    pub adaptive: Option<AdaptiveSoftmax>,
    /// `[vocab_size]`: the bias of a tied output.
    pub output_bias: Option<Param<Tensor<1>>>,
    /// Dropout on the embeddings, on the convolutions' inputs, and before the output layer.
    pub dropout: f64,
    /// The target's embedding table as a tied output's matrix, stored for inference.
    #[module(skip)]
    pub(super) inference_table: Option<InferenceWeight>,
}

impl LinearMaps for ConvolutionalEncoderDecoder {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        let Self { encoder_input, encoder, encoder_output, decoder_input, decoder, readout, .. } = self;
        let Self { output, adaptive, target_embedding, inference_table, .. } = self;
        let maps = LinearMap::of("encoder_input", encoder_input)
            .chain(LinearMap::of("encoder", encoder))
            .chain(LinearMap::of("encoder_output", encoder_output))
            .chain(LinearMap::of("decoder_input", decoder_input))
            .chain(LinearMap::of("decoder", decoder))
            .chain(LinearMap::of("readout", readout));
        if adaptive.is_some() {
            return maps.chain(LinearMap::of("adaptive", adaptive)).collect();
        }
        maps.chain(LinearMap::of_output(output, ("target_embedding", target_embedding), inference_table))
            .collect()
    }
}

impl ConvolutionalEncoderDecoder {
    /// Maximum tokens of a source and of a target.
    pub(super) fn max_positions(&self) -> usize {
        self.target_positions.weight.lazy_shape()[0]
    }

    fn check(&self, what: &str, sequences: &Sequences) {
        assert!(!sequences.is_empty(), "a batch without a {what}: leave it out");
        let (longest, most) = (sequences.longest(), self.max_positions());
        assert!(longest <= most, "a {what} of {longest} tokens, but the model has {most} positions");
    }

    /// The encoder's outputs and values.
    pub(super) fn encode(&self, source: &Sequences, device: &Device) -> Encoded {
        self.check("source", source);
        let packing = source.packing();
        let table = self.source_embedding.as_ref().unwrap_or(&self.target_embedding);
        let positions = packing.positions();
        let embedded = self.embed(table, &self.source_positions, source.ids(), positions, device);
        let mut x = self.encoder_input.forward(embedded.clone());
        for convolution in &self.encoder {
            let y = convolution.forward(ops::dropout(x.clone(), self.dropout), &packing);
            x = (y + x).mul_scalar(ROOT_HALF);
        }
        let outputs = self.encoder_output.forward(x);
        // Each attention asks the same outputs, twice.
        let outputs = scaled_gradient(outputs, 0.5 / self.decoder.len() as f64);
        Encoded::new(outputs, embedded, packing)
    }

    /// The embeddings of target tokens at these positions, `[n, d_embedding]`.
    pub(super) fn embed_target(
        &self,
        ids: &[i32],
        positions: impl Iterator<Item = usize>,
        device: &Device,
    ) -> Tensor<2> {
        self.embed(&self.target_embedding, &self.target_positions, ids, positions, device)
    }

    fn embed(
        &self,
        table: &Embedding,
        places: &Embedding,
        ids: &[i32],
        positions: impl Iterator<Item = usize>,
        device: &Device,
    ) -> Tensor<2> {
        let positions = positions.map(|position| position as i32).collect();
        let embedded = looked_up(table, ids.to_vec(), device) + looked_up(places, positions, device);
        ops::dropout(embedded, self.dropout)
    }

    /// The logits of the highest layer's states; their log-probabilities, if the output is [adaptive](Self::adaptive).
    ///
    /// # Shapes
    /// - `states`: `[n, d_model]`; returns `[n, vocab_size]`
    pub(super) fn project(&self, states: Tensor<2>) -> Tensor<2> {
        self.logits_of(self.read_out(states))
    }

    /// The output layer.
    fn logits_of(&self, read: Tensor<2>) -> Tensor<2> {
        let bias = || self.output_bias.as_ref().map(Param::val);
        if let Some(adaptive) = &self.adaptive {
            return adaptive.log_probs(read);
        }
        match (&self.output, &self.inference_table) {
            (Some(output), _) => output.forward(read),
            (None, Some(table)) => table.forward(read, bias()),
            (None, None) => ops::linear_tied(read, self.target_embedding.weight.val(), bias()),
        }
    }

    /// The output layer's input.
    fn read_out(&self, states: Tensor<2>) -> Tensor<2> {
        ops::dropout(self.readout.forward(states), self.dropout)
    }

    /// The highest layer's state at each target token, `[n_target_tokens, d_model]`.
    fn teach(&self, source: &Sequences, target: &Sequences, device: &Device) -> Tensor<2> {
        assert_eq!(source.len(), target.len(), "as many sources as targets");
        self.check("target", target);
        let packing = target.packing();
        let attended = AttendedSource::new(self.encode(source, device), &packing);
        let embedded = self.embed_target(target.ids(), packing.positions(), device);
        let mut x = self.decoder_input.forward(embedded.clone());
        for layer in &self.decoder {
            x = layer.forward(
                x,
                embedded.clone(),
                |convolution, x| convolution.forward(ops::dropout(x, self.dropout), &packing),
                |query| attended.contexts(query),
            );
        }
        x
    }
}

impl EncoderDecoder for ConvolutionalEncoderDecoder {
    fn logits(&self, source: &Sequences, target: &Sequences, device: &Device) -> Tensor<2> {
        self.project(self.teach(source, target, device))
    }

    fn losses(
        &self,
        source: &Sequences,
        target: &Sequences,
        next: &[i32],
        sampled: Option<SampledSoftmax>,
        device: &Device,
    ) -> Tensor<1> {
        let read = self.read_out(self.teach(source, target, device));
        let table = &self.target_embedding.weight;
        let bias = self.output.as_ref().map(|output| &output.bias).or(self.output_bias.as_ref());
        let output = OutputLayer {
            adaptive: self.adaptive.as_ref(),
            logits: |read| self.logits_of(read),
            rows: |ids| match &self.output {
                Some(output) => output.rows(ids),
                None => table.val().select(0, ids),
            },
            bias: bias.map(Param::val),
            vocab_size: table.lazy_shape()[0],
        };
        output.losses(read, next, sampled)
    }

    fn begin(&self, source: &Sequences, options: DecodeOptions, device: &Device) -> ConvolutionalDecoding {
        ConvolutionalDecoding::new(self, source, options, device)
    }

    fn max_source_tokens(&self) -> Option<usize> {
        Some(self.max_positions())
    }
}

/// `[n, d]`
fn looked_up(table: &Embedding, ids: Vec<i32>, device: &Device) -> Tensor<2> {
    let shape = [1, ids.len()];
    table.forward(Tensor::<2, Int>::from_data(TensorData::new(ids, shape), device)).squeeze_dim::<2>(0)
}

/// `x` unchanged, with its gradient multiplied by `factor`.
fn scaled_gradient(x: Tensor<2>, factor: f64) -> Tensor<2> {
    if !ops::is_training(&x.device()) {
        return x;
    }
    let value = x.clone().detach();
    // The difference is zero.
    value.clone() + (x - value).mul_scalar(factor)
}
