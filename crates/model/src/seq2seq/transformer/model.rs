use super::{StackInput, TransformerConfig, TransformerState};
use crate::Sequences;
use crate::blocks::{
    AdaptiveSoftmax, Attention, Decoder, Embedding, Encoder, EncoderTrace, InferenceWeight, LayerCache,
    Linear, LinearMap, LinearMaps, MultiHeadAttention, OutputLayer, SampledSoftmax, is_recording,
};
use crate::ops::{self, AttentionMask, Packing, Queries};
use crate::seq2seq::{DecodeOptions, EncoderDecoder};
use burn::module::{Module, Param};
use burn::tensor::{Bool, Device, Int, Tensor};

/// The Transformer of Vaswani et al. 2017: an encoder, a decoder, and an output layer over the target's vocabulary.
///
/// It is trained through [`EncoderDecoder`] and decodes through [`NextToken`](crate::generate::NextToken).
#[derive(Module, Debug)]
pub struct Transformer {
    /// Source embeddings, `[source vocabulary, d_model]`; none if they are the target's.
    pub source_embeddings: Option<Embedding>,
    /// Target embeddings, `[vocab_size, d_model]`; also the output layer's matrix unless it has its own.
    pub target_embeddings: Embedding,
    /// Makes the encoder's input from source tokens.
    pub encoder_input: StackInput,
    /// The encoder.
    pub encoder: Encoder<MultiHeadAttention>,
    /// Makes the decoder's input from target tokens.
    pub decoder_input: StackInput,
    /// The decoder, left to right.
    pub decoder: Decoder<MultiHeadAttention>,
    /// The output layer's matrix, `[d_model, vocab_size]`; none if it is the target's embeddings or the output is
    /// [adaptive](Self::adaptive).
    pub output: Option<Linear>,
    /// The output layer's bias, `[1, vocab_size]`.
    pub output_bias: Option<Param<Tensor<2>>>,
    /// The adaptive softmax in place of a projection, if there is one.
    pub adaptive: Option<AdaptiveSoftmax>,
    /// The target's embedding table as the output layer's matrix, stored for inference.
    #[module(skip)]
    pub(super) inference_table: Option<InferenceWeight>,
    #[module(skip)]
    pub(super) config: TransformerConfig,
}

/// Input sequences of the layers: packed into one row, or padded to a rectangle.
pub(super) struct Batch {
    /// `[1, n_tokens]` or `[sequences, longest]`
    pub ids: Tensor<2, Int>,
    /// The lengths of the sequences, if they are packed into one row.
    pub packing: Option<Packing>,
    /// `[sequences, longest]`, `true` = padding; none if the sequences are packed or of one length.
    pub pad_mask: Option<Tensor<2, Bool>>,
    /// The same shape as `ids`, `true` where a token is the padding piece, which is not trained; none if no token is, or it
    /// is trained.
    pub padding: Option<Tensor<2, Bool>>,
}

impl Batch {
    fn new(sequences: &Sequences, packed: bool, pad: usize, device: &Device) -> Self {
        let pad = pad as i32;
        let has_padding = sequences.ids().contains(&pad);
        let padding = |ids: &Tensor<2, Int>| has_padding.then(|| ids.clone().equal_elem(pad));
        if packed {
            let ids = sequences.packed(device);
            return Self { padding: padding(&ids), ids, packing: Some(sequences.packing()), pad_mask: None };
        }
        let (ids, pad_mask) = sequences.padded(pad, device);
        Self { padding: padding(&ids), ids, packing: None, pad_mask }
    }

    /// The mask under which tokens of these sequences are keys.
    fn mask(&self) -> AttentionMask {
        let mut mask = AttentionMask::default();
        (mask.packing, mask.pad_mask) = (self.packing.clone(), self.pad_mask.clone());
        mask
    }
}

impl LinearMaps for Transformer {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        let Self { encoder, decoder, output, adaptive, target_embeddings, inference_table, .. } = self;
        let layers = LinearMap::of("encoder", encoder).chain(LinearMap::of("decoder", decoder));
        if adaptive.is_some() {
            return layers.chain(LinearMap::of("adaptive", adaptive)).collect();
        }
        layers
            .chain(LinearMap::of_output(output, ("target_embeddings", target_embeddings), inference_table))
            .collect()
    }

    fn tables_mut(&mut self) -> Vec<(&'static str, &mut Embedding)> {
        let source = self.source_embeddings.iter_mut().map(|table| ("source_embeddings", table));
        source.chain([("target_embeddings", &mut self.target_embeddings)]).collect()
    }
}

impl Transformer {
    /// The configuration of the model.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// The encoder's states of all source tokens.
    ///
    /// # Shapes
    /// - returns `[n_source_tokens, d_model]`, in the order of [`Sequences::ids`]
    ///
    /// # Panics
    /// If there is no source, or one is longer than `max_positions`.
    pub fn encode(&self, source: &Sequences, device: &Device) -> Tensor<2> {
        let batch = self.source_batch(source, device);
        tokens_of(self.encode_batch(&batch), &batch, source)
    }

    /// Whether packed sequences are processed without padding on this device, which is then faster.
    pub fn takes_packed(&self) -> bool {
        if self.encoder_input.relative_bias.is_some() {
            // Attention with a bias compares each token with all others, so rows of one sequence are faster.
            return false;
        }
        let encoder = self.encoder.layers.iter().map(|layer| &layer.attention);
        let decoder = self.decoder.layers.iter().flat_map(|layer| [&layer.attention, &layer.cross_attention]);
        encoder.chain(decoder).all(Attention::takes_packed)
    }

    pub(super) fn source_batch(&self, source: &Sequences, device: &Device) -> Batch {
        self.check("source", source);
        self.batch(source, self.takes_packed(), device)
    }

    fn batch(&self, sequences: &Sequences, packed: bool, device: &Device) -> Batch {
        let mut batch = Batch::new(sequences, packed, self.config.tokens.pad, device);
        batch.padding = batch.padding.filter(|_| !self.config.trained_padding);
        batch
    }

    fn check(&self, what: &str, sequences: &Sequences) {
        assert!(!sequences.is_empty(), "a batch without a {what}: leave it out");
        let (longest, most) = (sequences.longest(), self.config.max_positions);
        assert!(longest <= most, "a {what} of {longest} tokens, but the model has {most} positions");
    }

    /// Encoder states, `[batch, len, d_model]`, packed or padded like the batch.
    pub(super) fn encode_batch(&self, batch: &Batch) -> Tensor<3> {
        let table = self.source_embeddings.as_ref().unwrap_or(&self.target_embeddings);
        let Batch { ids, packing, padding, .. } = batch;
        let x = self.encoder_input.forward(table, ids.clone(), padding.clone(), packing.as_ref());
        let mask = self.encoder_input.biased(batch.mask(), x.dims()[1], &x.device());
        self.encoder.forward(x, &mask, EncoderTrace::default(), None).last_hidden_state
    }

    /// The logits of states; their log-probabilities, if the output is [adaptive](Self::adaptive).
    ///
    /// # Shapes
    /// - `states`: `[n, d_model]`; returns `[n, vocab_size]`
    pub fn project(&self, states: Tensor<2>) -> Tensor<2> {
        self.logits_of(self.scaled(states))
    }

    /// The output layer.
    fn logits_of(&self, read: Tensor<2>) -> Tensor<2> {
        if let Some(adaptive) = &self.adaptive {
            return adaptive.log_probs(read);
        }
        let bias = self.bias();
        match (&self.output, &self.inference_table) {
            (Some(output), _) => output.forward_plus(read, bias),
            (None, Some(table)) => table.forward(read, bias),
            (None, None) => ops::linear_tied(read, self.target_embeddings.weight.val(), bias),
        }
    }

    /// States as the output layer takes them.
    fn scaled(&self, states: Tensor<2>) -> Tensor<2> {
        match self.config.scaled_output {
            true => states.mul_scalar((self.config.d_model as f64).powf(-0.5)),
            false => states,
        }
    }

    /// `[vocab_size]`
    fn bias(&self) -> Option<Tensor<1>> {
        self.output_bias.as_ref().map(|bias| bias.val().squeeze_dim::<1>(0))
    }

    /// The decoder's state at each target token, `[n_target_tokens, d_model]`.
    fn teach(&self, source: &Sequences, target: &Sequences, device: &Device) -> Tensor<2> {
        assert_eq!(source.len(), target.len(), "as many sources as targets");
        self.check("target", target);
        let from = self.source_batch(source, device);
        let memory = self.encode_batch(&from);
        let to = self.batch(target, from.packing.is_some(), device);
        let x = self.decoder_input.forward(
            &self.target_embeddings,
            to.ids.clone(),
            to.padding.clone(),
            to.packing.as_ref(),
        );
        let mut memory_mask = from.mask();
        if memory_mask.packing.is_some() {
            memory_mask = memory_mask.with_queries(Queries::Counts(target.lengths().into()));
        }
        let mut mask = to.mask().with_causal();
        // Padding comes after all tokens, so no token sees it; a recording leaves it out.
        mask.pad_mask = mask.pad_mask.filter(|_| is_recording());
        let mask = self.decoder_input.biased(mask, x.dims()[1], device);
        let decoded = self.decoder.forward(x, &mask, Some(memory), &memory_mask, None, false);
        tokens_of(decoded.last_hidden_state, &to, target)
    }
}

impl EncoderDecoder for Transformer {
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
        let read = self.scaled(self.teach(source, target, device));
        let output = OutputLayer {
            adaptive: self.adaptive.as_ref(),
            logits: |read| self.logits_of(read),
            rows: |ids| match &self.output {
                Some(output) => output.rows(ids),
                None => self.target_embeddings.weight.val().select(0, ids),
            },
            bias: self.bias(),
            vocab_size: self.config.vocab_size,
        };
        output.losses(read, next, sampled)
    }

    fn begin(&self, source: &Sequences, options: DecodeOptions, device: &Device) -> TransformerState {
        let batch = self.source_batch(source, device);
        let memory = self.encode_batch(&batch);
        let bias = self.decoder_input.relative_bias.as_ref();
        let bias = bias.map(|bias| bias.before(self.config.max_positions, device));
        let caches = self.decoder.layers.iter().map(|layer| {
            let mut cache = LayerCache::new(layer.cross_attention.remember(memory.clone(), source.lengths()));
            if let Some(bias) = &bias {
                cache.own = cache.own.with_bias(bias.clone());
            }
            cache
        });
        TransformerState::new(caches.collect(), options, device)
    }

    fn max_source_tokens(&self) -> Option<usize> {
        Some(self.config.max_positions)
    }
}

/// Selects the states of tokens, `[n_tokens, d_model]`, from packed or padded states.
fn tokens_of(states: Tensor<3>, batch: &Batch, sequences: &Sequences) -> Tensor<2> {
    let device = states.device();
    let states = states.flatten::<2>(0, 1);
    match &batch.pad_mask {
        None => states,
        Some(_) => {
            let places: Vec<i32> = sequences.packing().padded_places().map(|place| place as i32).collect();
            states.select(0, Tensor::<1, Int>::from_data(places.as_slice(), &device))
        }
    }
}
