use super::integer_only::{self, IntegerBert};
use super::{BertEmbeddings, Pooler, Pooling, TeacherMaps};
use crate::blocks::{
    Attention, Embedding, Encoder, EncoderTrace, LearnedPositions, LinearMap, LinearMaps, MultiHeadAttention,
    Positions, WantedTokens, recorded,
};
use crate::ops::{AttentionMask, Packing, Sight};
use crate::{Backbone, BackboneShape, HasBackbone};
use burn::module::Module;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use std::sync::Arc;

/// A batch of token sequences, BERT's input: one sequence per row, padded to the same length, or
/// [packed](Packing) into one row without padding.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BertInput {
    /// `[batch, len]`, or `[1, n_tokens]`
    pub input_ids: Tensor<2, Int>,
    /// `[batch, len]`, or `[1, n_tokens]`: 0 for the first segment, 1 for the second; in a model with language embeddings
    /// the language's number.
    pub token_type_ids: Tensor<2, Int>,
    /// `[batch, len]`, or `[1, n_tokens]`: the position of each token, counted from 0. None: its place in its
    /// sequence. Positions handled by the attention, such as rotary ones, are always the place in the
    /// sequence.
    pub position_ids: Option<Tensor<2, Int>>,
    /// `[batch, len]`, `true` = ignored; none if there is no padding.
    pub pad_mask: Option<Tensor<2, Bool>>,
    /// The lengths of the sequences, if they are packed into one row.
    pub packing: Option<Packing>,
    /// Whether a token sees only itself and the tokens before it.
    pub causal: bool,
    /// What the tokens of each sequence see, one value per sequence; `None` if all see all. With
    /// [prefixes](Sight::Prefix) one encoder is trained left to right, from source to target and in both
    /// directions (Dong et al. 2019, "UniLM").
    pub sights: Option<Arc<[Sight]>>,
    /// Added to the attention scores of every layer; broadcastable to `[sequences, n_heads, len, len]`, where `len` is
    /// the padded length even for packed input. See [`AttentionMask::bias`].
    pub bias: Option<Tensor<4>>,
    /// What to keep besides the last states.
    pub trace: EncoderTrace,
}

impl BertInput {
    /// One segment without padding.
    pub fn new(input_ids: Tensor<2, Int>) -> Self {
        let token_type_ids = input_ids.zeros_like();
        Self {
            input_ids,
            token_type_ids,
            position_ids: None,
            pad_mask: None,
            packing: None,
            causal: false,
            sights: None,
            bias: None,
            trace: EncoderTrace::default(),
        }
    }

    /// Packed sequences of one segment: `ids` holds them concatenated, with these `lengths`.
    ///
    /// [`Bert::forward`] pads them where packing does not pay, see [`Bert::takes_packed`]; the states are packed in
    /// either case.
    ///
    /// # Panics
    /// If a length is 0, or the lengths do not add up to the number of `ids`.
    pub fn packed(ids: &[i32], lengths: &[usize], device: &Device) -> Self {
        let packing = Packing::new(lengths);
        assert_eq!(ids.len(), packing.n_tokens(), "the lengths' sum is not the number of ids");
        let ids = TensorData::new(ids.to_vec(), [1, ids.len()]);
        Self { packing: Some(packing), ..Self::new(Tensor::from_data(ids, device)) }
    }

    /// Sets the token types.
    pub fn with_token_types(mut self, token_type_ids: Tensor<2, Int>) -> Self {
        self.token_type_ids = token_type_ids;
        self
    }

    /// Sets the positions, see [`position_ids`](Self::position_ids).
    pub fn with_positions(mut self, position_ids: Tensor<2, Int>) -> Self {
        self.position_ids = Some(position_ids);
        self
    }

    /// Sets the padding mask, `true` = ignored.
    pub fn with_pad_mask(mut self, pad_mask: Tensor<2, Bool>) -> Self {
        self.pad_mask = Some(pad_mask);
        self
    }

    /// Lets each token see only itself and the tokens before it.
    pub fn with_causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// Sets what the tokens of each sequence see, see [`sights`](Self::sights).
    pub fn with_sights(mut self, sights: impl Into<Arc<[Sight]>>) -> Self {
        self.sights = Some(sights.into());
        self
    }

    /// Sets a bias of the attention scores, see [`bias`](Self::bias). Packed sequences are then padded.
    pub fn with_bias(mut self, bias: Tensor<4>) -> Self {
        self.bias = Some(bias);
        self
    }

    /// Keeps every layer's states or attention.
    pub fn with_trace(mut self, trace: EncoderTrace) -> Self {
        self.trace = trace;
        self
    }

    /// The index of each sequence's first token, as [`Bert::states_at`] counts them.
    pub fn starts(&self) -> Vec<usize> {
        let [batch, len] = self.input_ids.dims();
        match &self.packing {
            Some(packing) => packing.starts().collect(),
            None => (0..batch).map(|row| row * len).collect(),
        }
    }

    /// [`Self::starts`] on the device, `[sequences]`.
    pub fn first_tokens(&self) -> Tensor<1, Int> {
        numbers(self.starts().into_iter(), &self.input_ids.device())
    }

    /// The number of tokens in the longest sequence; for padded input, the padded length.
    pub fn longest(&self) -> usize {
        match &self.packing {
            Some(packing) => packing.longest(),
            None => self.input_ids.dims()[1],
        }
    }

    /// # Panics
    /// If there is no token: there is nothing to compute, and devices handle that differently.
    fn assert_tokens(&self) {
        let [batch, len] = self.input_ids.dims();
        assert!(batch > 0 && len > 0, "an empty batch, {batch} sequences of {len} tokens: leave it out");
    }

    /// The same sequences, one per row, padded to the same length.
    fn padded(self, packing: &Packing) -> Self {
        let device = self.input_ids.device();
        let tokens = packing.padded_tokens();
        let shape = [packing.lengths().len(), packing.longest()];
        // Places without a token take the first token's ids and are masked.
        let from = tokens.iter().map(|token| token.unwrap_or(0) as i32).collect();
        let from = Tensor::<1, Int>::from_data(TensorData::new(from, [tokens.len()]), &device);
        let spread = |ids: Tensor<2, Int>| ids.flatten::<1>(0, 1).select(0, from.clone()).reshape(shape);
        let pad_mask = tokens.contains(&None).then(|| {
            let ignored = tokens.iter().map(Option::is_none).collect();
            Tensor::from_data(TensorData::new(ignored, shape), &device)
        });
        Self {
            input_ids: spread(self.input_ids.clone()),
            token_type_ids: spread(self.token_type_ids.clone()),
            position_ids: self.position_ids.clone().map(spread),
            pad_mask,
            packing: None,
            ..self
        }
    }
}

/// The encoder's output. For packed input, the states are packed, `[1, n_tokens, d_model]`, and the attention
/// probabilities are those of the padded sequences.
pub type BertOutput = crate::blocks::EncoderOutput;

/// The BERT encoder: embeddings, layers, pooler.
#[derive(Module, Debug)]
pub struct Bert<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    /// Pieces, segments and positions to vectors.
    pub embeddings: BertEmbeddings<P>,
    /// The layers.
    pub encoder: Encoder<A>,
    /// Summarises the first position, in families that have a pooler.
    pub pooler: Option<Pooler>,
    /// How a head over sequences summarises a sequence if there is no pooler.
    #[module(skip)]
    pub pooling: Pooling,
    /// Whether every input is [causal](BertInput::causal).
    #[module(skip)]
    pub causal: bool,
    /// While a student is trained: from its width to its teacher's. They change nothing but what is
    /// [recorded](crate::blocks::record_pass), and are not saved.
    pub teacher_maps: Option<TeacherMaps>,
    /// The encoder in integers alone, which computes in place of the parameters.
    #[module(skip)]
    pub(crate) integer_only: Option<Arc<IntegerBert>>,
}

impl<A: Attention, P: Positions> LinearMaps for Bert<A, P> {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        let Self { embeddings, encoder, pooler, integer_only, .. } = self;
        let is_used = integer_only.is_none();
        let kept = LinearMap::kept("embeddings", embeddings).chain(LinearMap::kept("pooler", pooler));
        let layers = LinearMap::of("encoder", encoder);
        layers
            .map(|map| LinearMap { is_convertible: map.is_convertible && is_used, ..map })
            .chain(kept)
            .collect()
    }

    fn tables_mut(&mut self) -> Vec<(&'static str, &mut Embedding)> {
        vec![("embeddings.tokens", &mut self.embeddings.tokens)]
    }
}

impl<A: Attention, P: Positions> Bert<A, P> {
    /// The same encoder with other [positions](BertEmbeddings::with_positions):
    /// [`NoPositions`](crate::blocks::NoPositions) if the attention handles positions itself.
    pub fn with_positions<Q: Positions>(self, positions: Q) -> Bert<A, Q> {
        let Self { embeddings, encoder, pooler, pooling, causal, teacher_maps, integer_only } = self;
        let embeddings = embeddings.with_positions(positions);
        Bert { embeddings, encoder, pooler, pooling, causal, teacher_maps, integer_only }
    }

    /// Whether [`record_pass`](crate::blocks::record_pass) sees its layers; it does not in integers alone.
    pub fn can_be_recorded(&self) -> bool {
        self.integer_only.is_none()
    }

    /// The contextual states of all positions.
    ///
    /// # Panics
    /// If the batch has no token, or a sequence is longer than `max_positions`.
    pub fn forward(&self, input: BertInput) -> BertOutput {
        input.assert_tokens();
        if let Some(bert) = &self.integer_only {
            return integer_only::forward(bert, input);
        }
        match input.packing.clone() {
            Some(packing) if input.trace.attentions || !self.works_packed(&input) => {
                self.forward_padded(input, &packing)
            }
            _ => self.encode(input, None),
        }
    }

    /// The last states of some tokens, without the work that only the other tokens need: the last layer's feed-forward
    /// network and, for packed sequences, its queries and output map. If few tokens are asked for, that saves two
    /// thirds of the last layer's arithmetic, or five sixths for packed sequences.
    ///
    /// # Shapes
    /// - `tokens`: `[n]`, indices into the flattened batch: `row · len + column`, or the token's index in packed
    ///   sequences; returns `[n, d_model]`
    ///
    /// # Panics
    /// If the batch has no token, or a sequence is longer than `max_positions`.
    pub fn states_at(&self, mut input: BertInput, tokens: Tensor<1, Int>) -> Tensor<2> {
        input.assert_tokens();
        input.trace = EncoderTrace::default();
        if let Some(bert) = &self.integer_only {
            let [batch, len] = input.input_ids.dims();
            let states = integer_only::forward(bert, input).last_hidden_state;
            return states.reshape([batch * len, bert.d_model()]).select(0, tokens);
        }
        let (input, tokens, places) = match input.packing.clone() {
            Some(_) if self.works_packed(&input) => {
                let (tokens, places) = in_order(tokens);
                (input, tokens, places)
            }
            Some(packing) => {
                let padded = numbers(packing.padded_places(), &input.input_ids.device());
                let tokens = padded.select(0, tokens);
                (input.padded(&packing), WantedTokens::new(tokens), None)
            }
            None => (input, WantedTokens::new(tokens), None),
        };
        let states = self.encode(input, Some(tokens)).last_hidden_state.squeeze_dim::<2>(0);
        match places {
            Some(places) => states.select(0, places),
            None => states,
        }
    }

    /// The last state of each sequence's first token.
    ///
    /// # Shapes
    /// - returns `[sequences, d_model]`
    ///
    /// # Panics
    /// If the batch has no token, or a sequence is longer than `max_positions`.
    pub fn first_states(&self, input: BertInput) -> Tensor<2> {
        let tokens = input.first_tokens();
        self.states_at(input, tokens)
    }

    /// Applies the encoder to the input as it is, packed or padded.
    fn encode(&self, input: BertInput, wanted: Option<WantedTokens>) -> BertOutput {
        let BertInput {
            input_ids,
            token_type_ids,
            position_ids,
            pad_mask,
            packing,
            causal,
            sights,
            bias,
            trace,
        } = input;
        let ([_, len], device) = (input_ids.dims(), input_ids.device());
        let hidden =
            self.embeddings.forward_at(input_ids, token_type_ids.clone(), packing.as_ref(), position_ids);
        let relative = self.embeddings.relative_bias.as_ref().map(|bias| bias.forward(len, &device));
        let bias = match (bias, relative) {
            (Some(bias), Some(relative)) => Some(bias + relative),
            (bias, relative) => bias.or(relative),
        };
        let distances = self.embeddings.distances(token_type_ids);
        let mut mask = AttentionMask::default();
        (mask.pad_mask, mask.packing, mask.bias) = (pad_mask, packing, bias);
        mask.causal = causal || self.causal;
        mask.sights = sights;
        let output =
            self.encoder.forward_with_distances(hidden, &mask, distances.as_ref(), trace, wanted.as_ref());
        if let Some(maps) = &self.teacher_maps {
            recorded(|pass| maps.apply(&mut pass.states));
        }
        output
    }

    /// Whether packed sequences are processed without padding on this device and by these layers' attention, which is
    /// then faster.
    pub fn takes_packed(&self) -> bool {
        let attention_does = || self.encoder.layers.iter().all(|layer| layer.attention.takes_packed());
        self.integer_only.is_some() || self.embeddings.relative_bias.is_none() && attention_does()
    }

    /// Whether this packed input is processed without padding. A bias is for padded sequences.
    fn works_packed(&self, input: &BertInput) -> bool {
        input.bias.is_none() && self.takes_packed()
    }

    /// Pads packed sequences, applies the encoder, and packs the states again.
    fn forward_padded(&self, input: BertInput, packing: &Packing) -> BertOutput {
        let places = numbers(packing.padded_places(), &input.input_ids.device());
        let pack = |states: Tensor<3>| {
            let [batch, len, d_model] = states.dims();
            states.reshape([batch * len, d_model]).select(0, places.clone()).unsqueeze_dim::<3>(0)
        };
        let output = self.forward(input.padded(packing));
        BertOutput {
            last_hidden_state: pack(output.last_hidden_state),
            hidden_states: output.hidden_states.into_iter().map(pack).collect(),
            attentions: output.attentions,
        }
    }
}

impl<A: Attention, P: Positions> Backbone for Bert<A, P> {
    fn shape(&self) -> BackboneShape {
        let [vocab_size, d_embedding] = self.embeddings.tokens.weight.lazy_shape().dims();
        let d_model = match &self.embeddings.projection {
            Some(projection) => projection.weight.lazy_shape().dims::<2>()[1],
            None => d_embedding,
        };
        BackboneShape::new(d_model, self.encoder.order.len(), vocab_size)
    }

    fn embeddings_path(&self) -> String {
        "embeddings".into()
    }

    fn layer_paths(&self) -> Vec<String> {
        (0..self.encoder.layers.len()).map(|layer| format!("encoder.layers.{layer}")).collect()
    }

    fn compute_in_integers(&mut self, bert: IntegerBert) -> bool {
        self.integer_only = Some(Arc::new(bert));
        true
    }
}

impl<A: Attention, P: Positions> HasBackbone for Bert<A, P> {
    type Backbone = Self;
    const PATH: &'static str = "";

    fn backbone(&self) -> &Self {
        self
    }

    fn backbone_mut(&mut self) -> &mut Self {
        self
    }
}

/// The indices of tokens, `[n]`.
fn numbers(of: impl Iterator<Item = usize>, device: &Device) -> Tensor<1, Int> {
    let numbers: Vec<i32> = of.map(|number| number as i32).collect();
    Tensor::from_data(numbers.as_slice(), device)
}

/// The packed tokens in ascending order, and the place of each among them; `None` if they are already in
/// order.
fn in_order(tokens: Tensor<1, Int>) -> (WantedTokens, Option<Tensor<1, Int>>) {
    let device = tokens.device();
    let indices: Vec<usize> = tokens.to_data().iter::<i64>().map(|token| token as usize).collect();
    if indices.is_sorted() {
        return (WantedTokens { tokens, numbers: Some(indices.into()) }, None);
    }
    let mut order: Vec<usize> = (0..indices.len()).collect();
    order.sort_by_key(|i| indices[*i]);
    let mut places = vec![0; indices.len()];
    order.iter().enumerate().for_each(|(place, i)| places[*i] = place);
    let sorted: Vec<usize> = order.iter().map(|i| indices[*i]).collect();
    (WantedTokens::packed(sorted, &device), Some(numbers(places.into_iter(), &device)))
}

/// The state of each sequence's first token.
///
/// # Shapes
/// - `states`: `[batch, len, d_model]`, packed if `packing` is given; returns `[sequences, d_model]`
pub(super) fn first_states(states: Tensor<3>, packing: Option<&Packing>) -> Tensor<2> {
    match packing {
        Some(packing) => {
            let starts = numbers(packing.starts(), &states.device());
            states.squeeze_dim::<2>(0).select(0, starts)
        }
        None => states.narrow(1, 0, 1).squeeze_dim::<2>(1),
    }
}

#[cfg(test)]
mod tests {
    use crate::bert::{Bert, BertConfig, BertForPreTraining, BertInput};
    use crate::blocks::{
        Attention, AttentionInput, AttentionOutput, EncoderTrace, MultiHeadAttention,
        MultiHeadAttentionConfig, NoPositions, NormPlacement, Positions, SinusoidalPositions,
    };
    use crate::ops::Sight;
    use crate::{ParamInit, linear_maps};
    use burn::module::Module;
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, Int, Tensor, TensorData, Tolerance};

    /// A researcher's attention, which knows nothing of packing.
    #[derive(Module, Debug)]
    struct Plain {
        inner: MultiHeadAttention,
    }

    linear_maps!(Plain { inner });

    impl Attention for Plain {
        fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput {
            assert!(input.mask.packing.is_none());
            self.inner.forward(input)
        }
    }

    fn config() -> BertConfig {
        let plain = BertConfig { d_ff: 24, n_heads: 4, ..BertConfig::new(41, 2, 16) };
        BertConfig { hidden_dropout: 0.0, attention_dropout: 0.0, ..plain }
    }

    fn data(values: &[i32], shape: [usize; 2], device: &Device) -> Tensor<2, Int> {
        Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
    }

    /// Ids and token types, one sequence after another.
    fn tokens(lengths: &[usize]) -> (Vec<i32>, Vec<i32>) {
        let n = lengths.iter().sum::<usize>() as i32;
        ((0..n).map(|i| 5 + i * 7 % 36).collect(), (0..n).map(|i| i % 3 / 2).collect())
    }

    /// All outputs and gradients of a loss that weighs every token's and every pair's logits.
    fn results<A: Attention>(
        model: &BertForPreTraining<A>,
        input: BertInput,
        positions: Vec<i32>,
        device: &Device,
    ) -> Vec<TensorData> {
        let n = positions.len();
        let logits = model.forward(input, Tensor::from_data(TensorData::new(positions, [n]), device));
        let weighed = |x: Tensor<2>| {
            let n = x.dims().iter().product::<usize>() as i64;
            let weights = Tensor::<1, Int>::arange(0..n, device).float().sin().reshape(x.dims());
            (x * weights).sum()
        };
        let next_sentence = logits.next_sentence.unwrap();
        let loss = weighed(logits.mlm.clone()) + weighed(next_sentence.clone());
        let mut grads = GradientsParams::from_grads(loss.backward(), model);
        let mut all = vec![logits.mlm.into_data(), next_sentence.into_data()];
        let weights = [
            &model.bert.embeddings.positions.as_ref().unwrap().table.weight,
            &model.bert.embeddings.tokens.weight,
            &model.bert.encoder.layers[0].feed_forward.up.weight,
            &model.bert.pooler.as_ref().unwrap().dense.weight,
        ];
        all.extend(weights.map(|weight| grads.remove::<2>(weight.id).unwrap().into_data()));
        all
    }

    #[test]
    fn packed_is_padded() {
        let device = Device::flex().autodiff();
        let model = config().init(&mut ParamInit::new(&device, 1));
        assert!(model.bert.takes_packed());
        let attention = MultiHeadAttentionConfig::new(16, 4);
        let plain =
            config().init_with(&mut ParamInit::new(&device, 1), |init| Plain { inner: attention.init(init) });
        assert!(!plain.bert.takes_packed());
        for lengths in [vec![1], vec![5], vec![3, 1, 9, 1, 4], vec![6, 6], vec![17, 2]] {
            let (ids, types) = tokens(&lengths);
            let n = ids.len();
            let packed = || {
                let input = BertInput::packed(&ids, &lengths, &device);
                input.with_token_types(data(&types, [1, n], &device))
            };
            let packing = packed().packing.unwrap();
            let shape = [lengths.len(), packing.longest()];
            let cells = packing.padded_tokens();
            let spread =
                |values: &[i32]| -> Vec<i32> { cells.iter().map(|t| t.map_or(0, |t| values[t])).collect() };
            let ignored = cells.iter().map(Option::is_none).collect();
            let padded = BertInput::new(data(&spread(&ids), shape, &device))
                .with_token_types(data(&spread(&types), shape, &device))
                .with_pad_mask(Tensor::from_data(TensorData::new(ignored, shape), &device));
            let places = packing.padded_places().map(|place| place as i32).collect();
            let expected = results(&model, padded, places, &device);
            let every: Vec<i32> = (0..n as i32).collect();
            for found in
                [results(&model, packed(), every.clone(), &device), results(&plain, packed(), every, &device)]
            {
                for (found, expected) in found.iter().zip(&expected) {
                    found.assert_approx_eq::<f32>(expected, Tolerance::rel_abs(1e-3, 2e-5));
                }
            }
        }
    }

    #[test]
    fn causal_and_biased_input_may_be_packed() {
        let device = Device::flex().autodiff();
        let model = config().init(&mut ParamInit::new(&device, 1).with_std(0.3)).bert;
        let (ids, _) = tokens(&[3, 6, 2]);
        let input = || BertInput::packed(&ids, &[3, 6, 2], &device);
        let bias = || {
            let distances = (0..36).map(|i| -((i / 6 - i % 6) as f32).abs()).collect();
            let distances = Tensor::<4>::from_data(TensorData::new(distances, [1, 1, 6, 6]), &device);
            distances.repeat_dim(1, 4).require_grad()
        };
        // By number: the second sequence's third token, and its last.
        let places = || Tensor::<1, Int>::from_data([5, 8], &device);
        for causal in [false, true] {
            let causal = |input: BertInput| if causal { input.with_causal() } else { input };
            let run = |input: BertInput, bias: &Tensor<4>| {
                let input = causal(input).with_bias(bias.clone());
                let states = model.forward(input).last_hidden_state;
                let [batch, len, d] = states.dims();
                states.reshape([batch * len, d])
            };
            let alone = BertInput::new(data(&ids[3..9], [1, 6], &device));
            let (packed, single) = (bias(), bias());
            let found = run(input(), &packed).narrow(0, 3, 6);
            let expected = run(alone.clone(), &single);
            let close = |found: Tensor<2>, expected: Tensor<2>| {
                found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
            };
            close(found, expected.clone());
            let gradient = |states: Tensor<2>, bias: &Tensor<4>| {
                bias.grad(&states.powi_scalar(3).sum().backward()).unwrap().reshape([4, 36])
            };
            let found = gradient(run(input(), &packed).narrow(0, 3, 6), &packed);
            assert!(found.clone().abs().sum().into_scalar::<f32>() > 1e-3, "the bias is learned");
            close(found, gradient(expected.clone(), &single));
            let some = model.states_at(causal(input()).with_bias(bias()), places());
            close(some, expected.clone().select(0, Tensor::from_data([2, 5], &device)));
            // Without a bias the packed form is worked on, if the device takes it.
            let plain = model.forward(causal(alone)).last_hidden_state.squeeze_dim::<2>(0);
            let some = model.states_at(causal(input()), places());
            close(some, plain.clone().select(0, Tensor::from_data([2, 5], &device)));
            let all = model.forward(causal(input())).last_hidden_state.squeeze_dim::<2>(0);
            close(all.narrow(0, 3, 6), plain);
        }
        // Nobody sees a later token.
        let changed = |last: i32| {
            let ids = data(&[5, 12, 19, last], [1, 4], &device);
            model.forward(BertInput::new(ids).with_causal()).last_hidden_state.narrow(1, 0, 3).into_data()
        };
        assert_eq!(changed(7), changed(30));
    }

    #[test]
    fn each_sequence_has_a_sight_of_its_own() {
        let device = Device::flex().autodiff();
        let model = config().init(&mut ParamInit::new(&device, 1).with_std(0.3)).bert;
        let attention = MultiHeadAttentionConfig::new(16, 4);
        let plain = config()
            .init_with(&mut ParamInit::new(&device, 1).with_std(0.3), |init| Plain {
                inner: attention.init(init),
            })
            .bert;
        let (lengths, sights) =
            ([3, 6, 2, 5], [Sight::RightToLeft, Sight::Prefix(4), Sight::All, Sight::LEFT_TO_RIGHT]);
        let (ids, _) = tokens(&lengths);
        let input = || BertInput::packed(&ids, &lengths, &device).with_sights(sights);
        let places = [1, 5, 8, 9, 15];
        let close = |found: Tensor<2>, expected: Tensor<2>| {
            found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::rel_abs(1e-4, 1e-5));
        };
        // Each alone, under a bias that hides what it does not see.
        let starts = [0, 3, 9, 11];
        let alone = (0..4).map(|sequence| {
            let (start, len) = (starts[sequence], lengths[sequence]);
            let hidden = (0..len * len).map(|i| {
                let sees = sights[sequence].keys((i / len) as isize, len).contains(&(i % len));
                if sees { 0.0f32 } else { -1e9 }
            });
            let bias = TensorData::new(hidden.collect(), [1, 1, len, len]);
            let input = BertInput::new(data(&ids[start..start + len], [1, len], &device));
            model
                .forward(input.with_bias(Tensor::from_data(bias, &device)))
                .last_hidden_state
                .squeeze_dim::<2>(0)
        });
        let expected = Tensor::cat(alone.collect(), 0);
        let some = expected.clone().select(0, Tensor::from_data(places, &device));
        close(model.forward(input()).last_hidden_state.squeeze_dim::<2>(0), expected.clone());
        close(plain.forward(input()).last_hidden_state.squeeze_dim::<2>(0), expected);
        let gradient = |states: Tensor<2>| {
            let grads = states.powi_scalar(3).sum().backward();
            model.encoder.layers[0].attention.key.weight.val().grad(&grads).unwrap()
        };
        let found = model.states_at(input(), Tensor::from_data(places, &device));
        close(found.clone(), some.clone());
        close(plain.states_at(input(), Tensor::from_data(places, &device)), some.clone());
        close(gradient(found), gradient(some));
        // Nobody is moved by what it does not see, and everybody by what it sees, through all layers.
        for (sight, n_seen) in [(Sight::LEFT_TO_RIGHT, 10), (Sight::Prefix(2), 11), (Sight::RightToLeft, 10)]
        {
            let states = |changed: Option<usize>| {
                let mut ids = vec![5, 12, 19, 7];
                changed.into_iter().for_each(|at| ids[at] += 3);
                let input = BertInput::new(data(&ids, [1, 4], &device)).with_sights([sight]);
                model.forward(input).last_hidden_state.squeeze_dim::<2>(0)
            };
            let mut moved = 0;
            for changed in 0..4 {
                let differences = (states(Some(changed)) - states(None)).abs().max_dim(1).into_data();
                for (at, difference) in differences.iter::<f32>().enumerate() {
                    let sees = sight.keys(at as isize, 4).contains(&changed);
                    assert_eq!(difference != 0.0, sees, "{at} and {changed}, {sight:?}");
                    moved += usize::from(sees);
                }
            }
            assert_eq!(moved, n_seen);
        }
    }

    #[test]
    fn positions_are_the_models_choice() {
        let device = Device::flex();
        let bert = || config().init_encoder(&mut ParamInit::new(&device, 1).with_std(0.3));
        let (ids, _) = tokens(&[3, 6]);
        let input = || BertInput::packed(&ids, &[3, 6], &device);
        let alone = || BertInput::new(data(&ids[3..9], [1, 6], &device));
        fn check<P: Positions>(bert: &Bert<MultiHeadAttention, P>, packed: BertInput, alone: BertInput) {
            let packed = bert.forward(packed).last_hidden_state.narrow(1, 3, 6).into_data();
            let alone = bert.forward(alone).last_hidden_state.into_data();
            packed.assert_approx_eq::<f32>(&alone, Tolerance::absolute(1e-5));
        }
        let sinusoidal = bert().with_positions(SinusoidalPositions::new(16));
        check(&sinusoidal, input(), alone());
        let none = bert().with_positions(NoPositions {});
        check(&none, input(), alone());
        assert_eq!(none.num_params(), bert().num_params() - 512 * 16);
        // Without positions a text backwards has the same states backwards.
        let ids: Vec<i32> = ids[3..9].iter().rev().copied().collect();
        let backwards = none.forward(BertInput::new(data(&ids, [1, 6], &device))).last_hidden_state.flip([1]);
        let forwards = none.forward(alone()).last_hidden_state.into_data();
        backwards.into_data().assert_approx_eq::<f32>(&forwards, Tolerance::absolute(1e-5));
    }

    /// That some tokens have the states that they have among all.
    fn check_states_at<A: Attention, P: Positions>(bert: &Bert<A, P>, device: &Device) {
        let lengths = [3, 5, 1];
        let (ids, types) = tokens(&lengths);
        let packed = BertInput::packed(&ids, &lengths, device).with_token_types(data(&types, [1, 9], device));
        let padded = packed.clone().padded(packed.packing.as_ref().unwrap());
        let all = bert.forward(packed.clone()).last_hidden_state.squeeze_dim::<2>(0);
        let close = |found: Tensor<2>, tokens: &[i32]| {
            let expected = all.clone().select(0, Tensor::from_data(tokens, device)).into_data();
            found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::rel_abs(1e-4, 1e-5));
        };
        close(bert.states_at(packed.clone(), Tensor::from_data([7, 0, 3, 8], device)), &[7, 0, 3, 8]);
        // The longest has five places.
        close(bert.states_at(padded.clone(), Tensor::from_data([9, 0, 5, 10], device)), &[7, 0, 3, 8]);
        close(bert.first_states(packed.clone()), &[0, 3, 8]);
        close(bert.first_states(padded), &[0, 3, 8]);
    }

    #[test]
    fn some_tokens_have_the_states_that_they_have_among_all() {
        let device = Device::flex();
        let init = || ParamInit::new(&device, 4).with_std(0.3);
        let pre = BertConfig { norm: NormPlacement::Pre, ..config() };
        for config in [config(), pre, BertConfig { share_layers: true, ..config() }] {
            check_states_at(&config.init_encoder(&mut init()), &device);
        }
        let attention = MultiHeadAttentionConfig::new(16, 4);
        let plain = config().init_with(&mut init(), |init| Plain { inner: attention.init(init) });
        check_states_at(&plain.bert, &device);
    }

    #[test]
    fn nothing_masked_leaves_the_pairs() {
        let device = Device::flex().autodiff();
        let model = config().init(&mut ParamInit::new(&device, 1));
        let input = BertInput::packed(&tokens(&[3, 5]).0, &[3, 5], &device);
        let none = Tensor::<1, Int>::from_data(TensorData::new(Vec::<i32>::new(), [0]), &device);
        let logits = model.forward(input, none);
        assert_eq!(logits.mlm.dims(), [0, 41]);
        assert_eq!(logits.next_sentence.unwrap().dims(), [2, 2]);
    }

    /// Positions are all that tells which of two sentences side by side comes first.
    #[test]
    fn sentences_side_by_side_may_each_begin_at_position_0() {
        let device = Device::flex();
        let bert = config().init_encoder(&mut ParamInit::new(&device, 5));
        let (first, second) = ([5, 9, 12, 7], [8, 6, 11]);
        let row = |values: Vec<i32>| data(&values, [1, 7], &device);
        let side_by_side = |ids: [&[i32]; 2], types: [i32; 2]| {
            let of = |value: &dyn Fn(usize, usize) -> i32| {
                let each = |(side, ids): (usize, &&[i32])| {
                    (0..ids.len()).map(|at| value(side, at)).collect::<Vec<_>>()
                };
                row(ids.iter().enumerate().flat_map(each).collect())
            };
            BertInput::new(row(ids.concat()))
                .with_token_types(of(&|side, _| types[side]))
                .with_positions(of(&|_, at| at as i32))
        };
        let forth = bert.forward(side_by_side([&first, &second], [0, 1])).last_hidden_state;
        let back = bert.forward(side_by_side([&second, &first], [1, 0])).last_hidden_state;
        let swapped = Tensor::cat(vec![back.clone().narrow(1, 3, 4), back.narrow(1, 0, 3)], 1);
        forth.clone().into_data().assert_approx_eq::<f32>(&swapped.into_data(), Tolerance::absolute(1e-5));
        // They are seen from the first to the last all the same.
        let alone = bert.forward(BertInput::new(data(&first, [1, 4], &device))).last_hidden_state;
        let difference = (forth.clone().narrow(1, 0, 4) - alone).abs().max();
        assert!(difference.into_data().iter::<f32>().all(|value| value > 1e-3));
        // Packed with another sequence, on this device without padding, and on one that pads.
        let mut packed = BertInput::packed(&[&first[..], &second, &[9, 9]].concat(), &[7, 2], &device);
        let many = |values: &[i32]| data(values, [1, 9], &device);
        packed = packed.with_token_types(many(&[0, 0, 0, 0, 1, 1, 1, 0, 0]));
        packed = packed.with_positions(many(&[0, 1, 2, 3, 0, 1, 2, 0, 1]));
        for packed in [packed.clone(), packed.with_bias(Tensor::zeros([1, 1, 7, 7], &device))] {
            let states = bert.forward(packed).last_hidden_state.narrow(1, 0, 7).into_data();
            forth.clone().into_data().assert_approx_eq::<f32>(&states, Tolerance::absolute(1e-5));
        }
    }

    #[test]
    fn traces_of_packed_input() {
        let device = Device::flex();
        let model = config().init_encoder(&mut ParamInit::new(&device, 2));
        let lengths = [3, 5];
        let run = |attentions| {
            let trace = EncoderTrace { hidden_states: true, attentions };
            model.forward(BertInput::packed(&tokens(&lengths).0, &lengths, &device).with_trace(trace))
        };
        let (with, without) = (run(true), run(false));
        assert_eq!(with.attentions[1].dims(), [2, 4, 5, 5]);
        assert!(without.attentions.is_empty());
        for (a, b) in with.hidden_states.into_iter().zip(without.hidden_states) {
            assert_eq!(a.dims(), [1, 8, 16]);
            a.into_data().assert_approx_eq::<f32>(&b.into_data(), Tolerance::rel_abs(1e-4, 1e-5));
        }
    }

    #[test]
    fn a_step_on_packed_sequences_is_repeatable() {
        let device = Device::flex().autodiff();
        let config = BertConfig { hidden_dropout: 0.2, attention_dropout: 0.2, ..config() };
        let model = config.init(&mut ParamInit::new(&device, 3));
        let lengths = [4, 1, 11];
        let run = || {
            device.seed(9);
            let input = BertInput::packed(&tokens(&lengths).0, &lengths, &device);
            results(&model, input, vec![0, 7, 15], &device)
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn an_empty_batch_is_named() {
        let device = Device::flex();
        let model = config().init(&mut ParamInit::new(&device, 2));
        let none = || Tensor::<1, Int>::from_data(TensorData::new(Vec::<i32>::new(), [0]), &device);
        let empty =
            |shape| BertInput::new(Tensor::from_data(TensorData::new(Vec::<i32>::new(), shape), &device));
        let panics = |run: &dyn Fn()| {
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
            panic.downcast_ref::<String>().unwrap().clone()
        };
        for shape in [[0, 0], [0, 5], [3, 0]] {
            let [n, len] = shape;
            let expected = format!("an empty batch, {n} sequences of {len} tokens: leave it out");
            assert_eq!(panics(&|| _ = model.bert.forward(empty(shape))), expected);
            assert_eq!(panics(&|| _ = model.forward(empty(shape), none())), expected);
        }
        let packed = || BertInput::packed(&[], &[], &device);
        assert!(panics(&|| _ = model.bert.first_states(packed())).starts_with("an empty batch"));
        assert!(panics(&|| _ = model.bert.forward(packed())).starts_with("an empty batch"));
    }

    #[test]
    #[should_panic(expected = "9 tokens, but the model has 8 positions")]
    fn packed_positions_end() {
        let device = Device::flex();
        let config = BertConfig { max_positions: 8, ..config() };
        let model = config.init_encoder(&mut ParamInit::new(&device, 2));
        let lengths = [2, 9];
        model.forward(BertInput::packed(&tokens(&lengths).0, &lengths, &device));
    }
}
