use super::{CaptionDecoder, Draws, Taught, TransformerCaptionConfig};
use crate::blocks::{
    Decoder, Embedding, InferenceWeight, LayerCache, LearnedPositions, Linear, LinearMap, LinearMaps,
    MultiHeadAttention, Positions,
};
use crate::generate::{NextToken, StepOutput};
use crate::gpt::flat;
use crate::ops::{self, AttentionMask};
use crate::seq2seq::DecodeOptions;
use crate::vision::ImageStates;
use crate::{ParamInit, Sequences};
use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};

/// A Transformer that writes captions: the layers of GPT-2, each with attention to the image's states between its two
/// sub-layers. It is the decoder of transformers' `VisionEncoderDecoderModel` with a `GPT2LMHeadModel`.
///
/// It sees all states of the encoder, the class piece included, as that class does.
#[derive(Module, Debug)]
pub struct TransformerCaptionDecoder {
    /// The image's states in the decoder's width, `[d_image, d_model]`, if the widths differ.
    pub projection: Option<Linear>,
    /// Piece embeddings, `[vocab_size, d_model]`; also the projection onto the vocabulary, unless there is an
    /// [`output`](Self::output).
    pub tokens: Embedding,
    /// Position vectors.
    pub positions: LearnedPositions,
    /// The layers, and the normalisation after them.
    pub decoder: Decoder<MultiHeadAttention>,
    /// The projection onto the vocabulary, if it is not the embedding table.
    pub output: Option<Linear>,
    dropout: f64,
    max_positions: usize,
    #[module(skip)]
    image_positions: bool,
    /// The embedding table as the projection, stored for inference.
    #[module(skip)]
    inference_table: Option<InferenceWeight>,
}

impl LinearMaps for TransformerCaptionDecoder {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        let Self { projection, tokens, decoder, output, inference_table, .. } = self;
        let output = LinearMap::of_output(output, ("tokens", tokens), inference_table);
        LinearMap::of("decoder", decoder)
            .chain(output)
            .chain(LinearMap::kept("projection", projection))
            .collect()
    }

    fn tables_mut(&mut self) -> Vec<(&'static str, &mut Embedding)> {
        vec![("tokens", &mut self.tokens)]
    }
}

impl TransformerCaptionDecoder {
    pub(super) fn new(config: &TransformerCaptionConfig, init: &mut ParamInit) -> Self {
        let TransformerCaptionConfig { gpt, d_image, image_positions } = config;
        let projection = (*d_image != gpt.d_model).then(|| Linear::new(*d_image, gpt.d_model, init));
        Self {
            projection,
            tokens: Embedding::new(gpt.vocab_size, gpt.d_model, init),
            positions: LearnedPositions::new(gpt.max_positions, gpt.d_model, init),
            decoder: config.layers(init),
            output: (!gpt.tied).then(|| Linear::without_bias(gpt.d_model, gpt.vocab_size, init)),
            dropout: gpt.embedding_dropout,
            max_positions: gpt.max_positions,
            image_positions: *image_positions,
            inference_table: None,
        }
    }

    /// What the layers attend to, `[batch, pieces + places, d_model]`.
    fn memory(&self, images: &ImageStates) -> Tensor<3> {
        let states = match self.image_positions {
            true => images.clone().with_positions().states,
            false => images.states.clone(),
        };
        match &self.projection {
            Some(map) => map.forward(states),
            None => states,
        }
    }

    /// The logits of states, `[n, d_model]` → `[n, vocab_size]`.
    fn project(&self, states: Tensor<2>) -> Tensor<2> {
        match (&self.output, &self.inference_table) {
            (Some(output), _) => output.forward(states),
            (None, Some(table)) => table.forward(states, None),
            (None, None) => ops::linear_tied(states, self.tokens.weight.val(), None),
        }
    }
}

/// The attention of tokens to an image, `[heads, tokens, states]`, as that to its places: the mean over the heads, of which each
/// row is divided by its sum. `[tokens, places]`
fn to_places(weights: Tensor<3>, n_pieces: usize) -> Tensor<2> {
    let mean: Tensor<2> = weights.mean_dim(0).squeeze_dim(0);
    if n_pieces == 0 {
        return mean;
    }
    let [_, n] = mean.dims();
    let places = mean.narrow(1, n_pieces, n - n_pieces);
    let sums = places.clone().sum_dim(1).clamp_min(1e-9);
    places / sums
}

impl CaptionDecoder for TransformerCaptionDecoder {
    fn teach(&self, images: &ImageStates, captions: &Sequences, _: Option<&Draws>) -> Taught {
        assert_eq!(images.states.dims()[0], captions.len(), "as many images as captions");
        let longest = captions.longest();
        assert!(
            longest <= self.max_positions,
            "a caption of {longest} tokens, but the model has {} positions",
            self.max_positions
        );
        let device = images.states.device();
        // Padding stands at the ends, where no token sees it.
        let (ids, _) = captions.padded(0, &device);
        let x = ops::dropout(self.positions.add_to(self.tokens.forward(ids), None), self.dropout);
        let mask = AttentionMask::default().with_causal();
        let memory = self.memory(images);
        let output = self.decoder.forward(x, &mask, Some(memory), &AttentionMask::default(), None, false);
        Taught::new(self.project(flat(output.last_hidden_state, captions)))
    }

    fn begin(&self, images: &ImageStates, options: DecodeOptions) -> TransformerCaptioning {
        let memory = self.memory(images);
        let [rows, len, _] = memory.dims();
        assert!(rows > 0, "an image at least");
        let caches =
            self.decoder.layers.iter().map(|layer| {
                LayerCache::new(layer.cross_attention.remember(memory.clone(), &vec![len; rows]))
            });
        TransformerCaptioning { caches: caches.collect(), n_pieces: images.n_pieces, options }
    }
}

/// The state of a [`TransformerCaptionDecoder`] between decoding steps: keys and values of the images, computed once, and of
/// the tokens so far.
#[derive(Debug, Clone)]
pub struct TransformerCaptioning {
    /// One for each layer; at least one.
    caches: Vec<LayerCache>,
    n_pieces: usize,
    options: DecodeOptions,
}

impl NextToken for TransformerCaptionDecoder {
    type State = TransformerCaptioning;

    fn step(&self, tokens: &[i32], state: &mut TransformerCaptioning) -> StepOutput {
        let LayerCache { own, memory } = &state.caches[0];
        let positions = own.lengths();
        assert_eq!(tokens.len(), positions.len(), "a token for each row");
        let (mask, memory_mask) = (own.step_mask(), memory.step_mask());
        let device = self.tokens.weight.lazy_device();
        let row =
            |ids: Vec<i32>| Tensor::<2, Int>::from_data(TensorData::new(ids, [1, tokens.len()]), &device);
        let positions = row(positions.iter().map(|position| *position as i32).collect());
        let x = self.tokens.forward(row(tokens.to_vec())) + self.positions.table.forward(positions);
        let caches = Some(&mut state.caches[..]);
        let output = self.decoder.forward(x, &mask, None, &memory_mask, caches, state.options.alignment);
        let alignment = output.weights.map(|weights| to_places(weights.squeeze_dim(0), state.n_pieces));
        StepOutput::new(self.project(output.last_hidden_state.squeeze_dim(0))).with_alignment(alignment)
    }

    fn select(&self, state: &mut TransformerCaptioning, rows: &[usize]) {
        state.caches.iter_mut().for_each(|cache| cache.select(rows));
    }

    fn join(&self, state: &mut TransformerCaptioning, other: TransformerCaptioning) {
        state.caches.iter_mut().zip(other.caches).for_each(|(cache, other)| cache.join(other));
    }

    fn max_tokens(&self) -> Option<usize> {
        Some(self.max_positions)
    }
}
