use super::time_major::TimeMajor;
use super::{Bridge, RecurrentEncoderDecoderConfig, Wiring};
use crate::blocks::{AdaptiveSoftmax, Embedding, Linear, OutputLayer, SampledSoftmax, is_attention_observed};
use crate::ops::{self, AttentiveInput, AttentiveState, Direction, Packing};
use crate::recurrent::{Recurrent, RecurrentLayer, RecurrentOutput, RecurrentState, padded, unpadded};
use crate::scores::{AdditiveScore, AnyScore, Memory, Score, attend};
use crate::{ParamInit, Sequences, linear_maps};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// A recurrent encoder, and a recurrent decoder that attends to its states or starts from its last ones.
///
/// The output layer reads `tanh(W [s; c])` with Luong's [`Wiring`] (Luong et al. 2015, eq. 5) and `tanh(W [s;
/// c; y])` with Bahdanau's, where the paper has a maxout layer (§A.2.2). Without attention it reads the state
/// itself, projected to the embedding's width if they are tied. Embeddings are initially uniform in ±0.1.
#[derive(Module, Debug)]
pub struct RecurrentEncoderDecoder<S: Score = AnyScore> {
    /// Source embeddings; none if they are the target's.
    pub source_embedding: Option<Embedding>,
    /// Target embeddings.
    pub target_embedding: Embedding,
    /// The encoder.
    pub encoder: Recurrent,
    /// Computes the decoder's first states from the encoder's last ones.
    pub bridge: Bridge,
    /// The attention's score; none without attention.
    pub attention: Option<S>,
    /// The decoder's layers, from the lowest to the highest.
    pub decoder: Vec<RecurrentLayer>,
    /// Computes the output layer's input.
    pub readout: Option<Linear>,
    /// `[d_readout, vocab_size]`; none if it is the target's embedding table or the output is [adaptive](Self::adaptive).
    pub output: Option<Linear>,
    /// The adaptive softmax in place of a projection, if there is one.
    pub adaptive: Option<AdaptiveSoftmax>,
    /// `[vocab_size]`: the bias of a tied output.
    pub output_bias: Option<Param<Tensor<1>>>,
    /// Dropout on the embeddings, between layers, and before the output.
    pub dropout: f64,
    #[module(skip)]
    wiring: Wiring,
}

linear_maps!(RecurrentEncoderDecoder<S: Score> { readout, output; encoder, bridge, attention, decoder, adaptive });

impl RecurrentEncoderDecoderConfig {
    /// A new model with a custom score; none without attention.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate), or exactly one of attention and score is missing.
    pub fn init_with<S: Score>(&self, score: Option<S>, init: &mut ParamInit) -> RecurrentEncoderDecoder<S> {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        assert_eq!(score.is_some(), self.wiring != Wiring::None, "a score where there is attention");
        let (d_embedding, d) = (self.d_embedding, self.d_model);
        let mut table = |n: usize| Embedding::from_weight(init.uniform([n, d_embedding], 0.1));
        let target_embedding = table(self.vocab_size);
        let source_embedding =
            (!self.tied.joins_source()).then(|| table(self.source_vocab_size.unwrap_or(self.vocab_size)));
        let encoder = self.encoder().init(init);
        let bridge = Bridge::new(self.bridge, self.cell, self.n_decoder_layers, d, init);
        let d_readout = self.d_readout();
        let decoder = (0..self.n_decoder_layers).map(|layer| {
            let d_below = if layer == 0 { d_embedding } else { d };
            let d_added = match self.wiring {
                Wiring::Bahdanau => d,
                Wiring::LuongInputFeeding if layer == 0 => d_readout,
                _ => 0,
            };
            RecurrentLayer::new(self.cell, d_below + d_added, d, init)
        });
        let decoder = decoder.collect();
        let readout = match self.wiring {
            Wiring::None => (d_readout != d).then(|| Linear::uniform(d, d_readout, init)),
            Wiring::Bahdanau => Some(Linear::uniform(2 * d + d_embedding, d_readout, init)),
            Wiring::Luong | Wiring::LuongInputFeeding => Some(Linear::uniform(2 * d, d_readout, init)),
        };
        let tied = self.tied.joins_output();
        let is_whole = self.output.is_none();
        RecurrentEncoderDecoder {
            source_embedding,
            target_embedding,
            encoder,
            bridge,
            attention: score,
            decoder,
            readout,
            output: (!tied && is_whole).then(|| Linear::uniform(d_readout, self.vocab_size, init)),
            adaptive: self.output.as_ref().map(|output| output.init(self.vocab_size, d_readout, init)),
            output_bias: tied.then(|| init.zeros([self.vocab_size])),
            dropout: self.dropout,
            wiring: self.wiring,
        }
    }
}

/// The decoder's state between two time steps.
#[derive(Debug, Clone)]
pub(super) struct DecoderState {
    /// The state of each layer.
    pub layers: Vec<RecurrentState>,
    /// The output layer's last input, `[rows, d_readout]`, if it is fed back.
    pub fed: Option<Tensor<2>>,
    /// The memory; none without attention.
    pub memory: Option<Memory>,
}

impl DecoderState {
    /// The first `n` rows.
    fn first(self, n: usize) -> Self {
        if self.layers[0].hidden.dims()[0] == n {
            return self;
        }
        Self {
            layers: self.layers.into_iter().map(|state| state.map(|x| x.narrow(0, 0, n))).collect(),
            fed: self.fed.map(|fed| fed.narrow(0, 0, n)),
            memory: self.memory.map(|memory| memory.first(n)),
        }
    }
}

impl<S: Score> RecurrentEncoderDecoder<S> {
    /// Where the decoder attends.
    pub fn wiring(&self) -> Wiring {
        self.wiring
    }

    /// The encoder's states.
    fn read(&self, source: &Sequences, device: &Device) -> RecurrentOutput {
        let table = self.source_embedding.as_ref().unwrap_or(&self.target_embedding);
        let x = ops::dropout(embedded(table, source.ids(), device), self.dropout);
        self.encoder.forward(x, &source.packing(), None)
    }

    /// Reads sources: the decoder's state before its first step.
    pub(super) fn encode(&self, source: &Sequences, device: &Device) -> DecoderState {
        let output = self.read(source, device);
        let packing = source.packing();
        let memory = self.attention.as_ref().map(|score| Memory::new(score, output.states, &packing));
        let fed = (self.wiring == Wiring::LuongInputFeeding).then(|| {
            let d_readout = self.readout.as_ref().map_or(0, |map| map.weight.dims()[1]);
            Tensor::zeros([source.len(), d_readout], device)
        });
        DecoderState { layers: self.bridge.forward(&output.last), fed, memory }
    }

    /// The target's embeddings, `[n, d_embedding]`.
    pub(super) fn embed(&self, ids: &[i32], device: &Device) -> Tensor<2> {
        ops::dropout(embedded(&self.target_embedding, ids, device), self.dropout)
    }

    /// The output layer's input.
    ///
    /// # Shapes
    /// - `state`, `context`: `[n, d_model]`; `x`: `[n, d_embedding]`; returns `[n, d_readout]`
    fn read_out(&self, state: Tensor<2>, context: Option<Tensor<2>>, x: Option<Tensor<2>>) -> Tensor<2> {
        match (&self.readout, context) {
            (Some(map), None) => map.forward(state),
            (None, _) => state,
            (Some(map), Some(context)) => {
                let parts = [Some(state), Some(context), x].into_iter().flatten().collect();
                map.forward(Tensor::cat(parts, 1)).tanh()
            }
        }
    }

    /// The logits; the log-probabilities, if the output is [adaptive](Self::adaptive).
    ///
    /// # Shapes
    /// - `read`: `[n, d_readout]`; returns `[n, vocab_size]`
    pub(super) fn logits_of(&self, read: Tensor<2>) -> Tensor<2> {
        self.project(ops::dropout(read, self.dropout))
    }

    /// The output layer.
    fn project(&self, read: Tensor<2>) -> Tensor<2> {
        match (&self.adaptive, &self.output) {
            (Some(adaptive), _) => adaptive.log_probs(read),
            (None, Some(output)) => output.forward(read),
            (None, None) => {
                let bias = self.output_bias.as_ref().map(Param::val);
                ops::linear_tied(read, self.target_embedding.weight.val(), bias)
            }
        }
    }

    /// See [`EncoderDecoder::losses`](crate::seq2seq::EncoderDecoder::losses).
    pub(super) fn losses_of(
        &self,
        read: Tensor<2>,
        next: &[i32],
        sampled: Option<SampledSoftmax>,
    ) -> Tensor<1> {
        let table = &self.target_embedding.weight;
        let of_output = self.output.as_ref().and_then(|output| output.bias.as_ref());
        let output = OutputLayer {
            adaptive: self.adaptive.as_ref(),
            logits: |read| self.project(read),
            rows: |ids| match &self.output {
                Some(output) => output.rows(ids),
                None => table.val().select(0, ids),
            },
            bias: of_output.or(self.output_bias.as_ref()).map(Param::val),
            vocab_size: table.lazy_shape()[0],
        };
        output.losses(ops::dropout(read, self.dropout), next, sampled)
    }

    /// The context and the weights of one query per row.
    fn attend(&self, query: Tensor<2>, memory: Option<&Memory>) -> (Tensor<2>, Tensor<2>) {
        let (Some(score), Some(memory)) = (&self.attention, memory) else {
            panic!("this wiring has attention");
        };
        let attended = attend(score, query.unsqueeze_dim::<3>(1), memory);
        (attended.context.squeeze_dim::<2>(1), attended.weights.squeeze_dim::<2>(1))
    }

    /// One step of one token per row: the output layer's input, and the attention's weights.
    ///
    /// # Shapes
    /// - `x`: `[rows, d_embedding]`; returns `[rows, d_readout]` and `[rows, longest source]`
    pub(super) fn advance(&self, x: Tensor<2>, running: &mut DecoderState) -> (Tensor<2>, Option<Tensor<2>>) {
        let beside = |x: Tensor<2>, more: Tensor<2>| Tensor::cat(vec![x, more], 1);
        if self.wiring == Wiring::Bahdanau {
            let (context, weights) = self.attend(running.layers[0].hidden.clone(), running.memory.as_ref());
            let state =
                self.step_layers(x.clone(), &mut running.layers, |below| beside(below, context.clone()));
            return (self.read_out(state, Some(context), Some(x)), Some(weights));
        }
        let x = match running.fed.take() {
            Some(fed) => beside(x, fed),
            None => x,
        };
        let state = self.step_layers(x, &mut running.layers, |below| below);
        if self.wiring == Wiring::None {
            return (self.read_out(state, None, None), None);
        }
        let (context, weights) = self.attend(state.clone(), running.memory.as_ref());
        let read = self.read_out(state, Some(context), None);
        if self.wiring == Wiring::LuongInputFeeding {
            running.fed = Some(read.clone());
        }
        (read, Some(weights))
    }

    /// One step of all layers; `input` makes a layer's input from the output of the layer below.
    fn step_layers(
        &self,
        x: Tensor<2>,
        states: &mut [RecurrentState],
        input: impl Fn(Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        let mut below = x;
        for (i, (layer, state)) in self.decoder.iter().zip(states).enumerate() {
            if i > 0 {
                below = ops::dropout(below, self.dropout);
            }
            *state = layer.step(input(below), Some(state.clone()));
            below = state.hidden.clone();
        }
        below
    }

    /// The output layer's input at each target token, `[n_target_tokens, d_readout]`.
    pub(super) fn teach(&self, source: &Sequences, target: &Sequences, device: &Device) -> Tensor<2> {
        assert_eq!(source.len(), target.len(), "as many sources as targets");
        // Attention that is observed has to be computed by itself.
        let additive =
            self.attention.as_ref().and_then(Score::as_additive).filter(|_| !is_attention_observed());
        match (self.wiring, additive) {
            (Wiring::Bahdanau, Some(score)) => self.teach_attentive(score, source, target, device),
            (Wiring::None | Wiring::Luong, _) => self.teach_at_once(source, target, device),
            (Wiring::Bahdanau | Wiring::LuongInputFeeding, _) => {
                self.teach_step_by_step(source, target, device)
            }
        }
    }

    /// If no step needs the previous step's context: each layer runs over all time steps.
    fn teach_at_once(&self, source: &Sequences, target: &Sequences, device: &Device) -> Tensor<2> {
        let DecoderState { layers, memory, .. } = self.encode(source, device);
        let packing = target.packing();
        let x = self.embed(target.ids(), device);
        let states = self.run_layers(0, x, &packing, layers, |below| below);
        let context = self.attention.as_ref().zip(memory).map(|(score, memory)| {
            let query = padded(states.clone(), &packing);
            unpadded(attend(score, query, &memory).context, &packing)
        });
        self.read_out(states, context, None)
    }

    /// If each step's query is the previous state, with an additive score: the lowest layer is one operation.
    fn teach_attentive(
        &self,
        score: &AdditiveScore,
        source: &Sequences,
        target: &Sequences,
        device: &Device,
    ) -> Tensor<2> {
        let RecurrentOutput { states: memory, last } = self.read(source, device);
        let initial = self.bridge.forward(&last);
        let x = self.embed(target.ids(), device);
        let (layer, [_, d_embedding]) = (&self.decoder[0], x.dims());
        let weight = layer.input.weight.val();
        let [d_in, _] = weight.dims();
        let [of_token, context] = [(0, d_embedding), (d_embedding, d_in - d_embedding)]
            .map(|(start, len)| weight.clone().narrow(0, start, len));
        let RecurrentState { hidden, cell } = initial[0].clone();
        let input = AttentiveInput {
            inputs: ops::linear(x.clone(), of_token, layer.input.bias.as_ref().map(Param::val)),
            keys: score.key.forward(memory.clone()),
            memory,
            query: score.query.weight.val(),
            v: score.v.val(),
            context,
            recurrent: layer.recurrent.val(),
            bias: layer.recurrent_bias.as_ref().map(Param::val),
            initial: AttentiveState { hidden, cell },
        };
        let both = ops::attentive(input, &source.packing(), &target.packing());
        let d = layer.d();
        let d_memory = both.dims()[1] - d;
        let (state, context) = (both.clone().narrow(1, 0, d), both.narrow(1, d, d_memory));
        let beside = |below: Tensor<2>| Tensor::cat(vec![below, context.clone()], 1);
        let state = self.run_layers(1, state, &target.packing(), initial, beside);
        self.read_out(state, Some(context), Some(x))
    }

    /// The layers from `first` on, over all time steps.
    fn run_layers(
        &self,
        first: usize,
        x: Tensor<2>,
        packing: &Packing,
        initial: Vec<RecurrentState>,
        input: impl Fn(Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        let mut below = x;
        for (i, (layer, initial)) in self.decoder.iter().zip(initial).enumerate().skip(first) {
            if i > 0 {
                below = ops::dropout(below, self.dropout);
            }
            below = layer.forward(input(below), packing, Some(initial), Direction::Forward).states;
        }
        below
    }

    /// If each step needs the previous step's results.
    fn teach_step_by_step(&self, source: &Sequences, target: &Sequences, device: &Device) -> Tensor<2> {
        let steps = TimeMajor::new(target, !ops::is_fused(device));
        let mut running = self.encode(&steps.ordered(source), device);
        let first = running.layers.clone();
        let x = self.embed(&steps.ids, device);
        let (mut start, mut reads, mut contexts) = (0, Vec::new(), Vec::new());
        for count in &steps.counts {
            running = running.first(*count);
            let x = x.clone().narrow(0, start, *count);
            start += count;
            if self.wiring == Wiring::Bahdanau {
                // The layers above the lowest follow once all contexts are known.
                let (context, _) = self.attend(running.layers[0].hidden.clone(), running.memory.as_ref());
                let input = Tensor::cat(vec![x, context.clone()], 1);
                let state = self.decoder[0].step(input, Some(running.layers[0].clone()));
                reads.push(state.hidden.clone());
                contexts.push(context);
                running.layers[0] = state;
            } else {
                reads.push(self.advance(x, &mut running).0);
            }
        }
        let reads = steps.in_token_order(Tensor::cat(reads, 0));
        if self.wiring != Wiring::Bahdanau {
            return reads;
        }
        let context = steps.in_token_order(Tensor::cat(contexts, 0));
        let x = steps.in_token_order(x);
        let rows = steps.rows(device);
        let initial = first.into_iter().map(|state| state.select(rows.clone())).collect();
        let beside = |below: Tensor<2>| Tensor::cat(vec![below, context.clone()], 1);
        let state = self.run_layers(1, reads, &target.packing(), initial, beside);
        self.read_out(state, Some(context), Some(x))
    }
}

/// `[n, d]`
fn embedded(table: &Embedding, ids: &[i32], device: &Device) -> Tensor<2> {
    let ids = TensorData::new(ids.to_vec(), [1, ids.len()]);
    table.forward(Tensor::<2, Int>::from_data(ids, device)).squeeze_dim::<2>(0)
}
