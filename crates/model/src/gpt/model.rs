use super::GptLayer;
use crate::Sequences;
use crate::blocks::{
    AdaptiveSoftmax, Embedding, InferenceWeight, LearnedPositions, Linear, LinearMap, LinearMaps, Norm,
    OutputLayer, SampledSoftmax, is_attention_observed, is_recording, recorded,
};
use crate::ops::{self, AttentionMask, Sight, TokenPositions};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// A left-to-right Transformer with its projection onto the vocabulary: `P(x) = Π_t P(x_t | x_<t)`.
///
/// [`GptConfig`](super::GptConfig) builds one. [`losses`](Self::losses) trains it, and
/// [`LanguageModel`](crate::generate::LanguageModel) generates text with it.
///
/// [`prefix_losses`](Self::prefix_losses) trains it as a prefix language model (Raffel et al. 2020, §3.2.1), whose
/// prompts are then read with [`bidirectional_prompts`](Self::bidirectional_prompts).
#[derive(Module, Debug)]
pub struct Gpt {
    /// Piece embeddings, `[vocab_size, d_model]`; also the projection onto the vocabulary, unless there is an
    /// [`output`](Self::output).
    pub tokens: Embedding,
    /// Position vectors, unless positions are rotary.
    pub positions: Option<LearnedPositions>,
    /// From the first layer to the last.
    pub layers: Vec<GptLayer>,
    /// Normalises the last layer's output, if layers are pre-norm.
    pub final_norm: Option<Norm>,
    /// The projection onto the vocabulary, if it is not the embedding table.
    pub output: Option<Linear>,
    /// The adaptive softmax in place of a projection, if there is one.
    pub adaptive: Option<AdaptiveSoftmax>,
    /// Whether training [recomputes](ops::recompute) each layer in the backward pass.
    pub recompute: bool,
    /// Whether the tokens of a prompt see one another, like a prefix, when text is generated.
    pub bidirectional_prompts: bool,
    pub(super) dropout: f64,
    pub(super) max_positions: usize,
    /// The embedding table as the projection, stored for inference.
    #[module(skip)]
    pub(super) inference_table: Option<InferenceWeight>,
}

impl LinearMaps for Gpt {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        let Self { tokens, layers, output, adaptive, inference_table, .. } = self;
        let maps = LinearMap::of("layers", layers);
        if adaptive.is_some() {
            return maps.chain(LinearMap::of("adaptive", adaptive)).collect();
        }
        maps.chain(LinearMap::of_output(output, ("tokens", tokens), inference_table)).collect()
    }

    fn tables_mut(&mut self) -> Vec<(&'static str, &mut Embedding)> {
        vec![("tokens", &mut self.tokens)]
    }
}

impl Gpt {
    /// The longest sequence, in tokens.
    pub fn max_positions(&self) -> usize {
        self.max_positions
    }

    /// The last states of all tokens, after the final normalisation if there is one.
    ///
    /// # Shapes
    /// - returns `[n_tokens, d_model]`, in the order of [`Sequences::ids`]
    ///
    /// # Panics
    /// If there is no sequence, or one is longer than the model's positions.
    pub fn states(&self, sequences: &Sequences, device: &Device) -> Tensor<2> {
        self.states_under(self.input(sequences, device), sequences)
    }

    /// [`states`](Self::states) with the first `prefixes` tokens of each sequence seeing one another. Later
    /// tokens see these, themselves and those before them.
    ///
    /// # Shapes
    /// - `prefixes`: `[sequences]`, each at most the sequence's length; returns `[n_tokens, d_model]`
    ///
    /// # Panics
    /// Those of [`states`](Self::states), and unless there is one prefix per sequence, at most as long as the
    /// sequence.
    pub fn prefix_states(&self, sequences: &Sequences, prefixes: &[usize], device: &Device) -> Tensor<2> {
        let (ids, mask) = self.input(sequences, device);
        self.states_under((ids, with_prefixes(mask, sequences, prefixes)), sequences)
    }

    fn states_under(&self, (ids, mask): (Tensor<2, Int>, AttentionMask), sequences: &Sequences) -> Tensor<2> {
        let positions = mask.query_positions(ids.dims()[1], ids.dims()[1]);
        let mut x = self.embed(ids, &positions);
        recorded(|pass| pass.begin(&x, &mask));
        for layer in &self.layers {
            recorded(|pass| pass.add_states(&x));
            x = match self.recompute && !is_attention_observed() {
                true => {
                    let mask = mask.clone();
                    ops::recompute(layer, x, move |layer: &GptLayer, x| layer.forward(x, &mask, None))
                }
                false => layer.forward(x, &mask, None),
            };
        }
        let states = self.normalised(flat(x, sequences));
        recorded(|pass| pass.states.push(states.clone()));
        states
    }

    /// The logits of the token after each token.
    ///
    /// # Shapes
    /// - returns `[n_tokens, vocab_size]`, in the order of [`Sequences::ids`]
    ///
    /// # Panics
    /// Those of [`states`](Self::states).
    pub fn logits(&self, sequences: &Sequences, device: &Device) -> Tensor<2> {
        self.project(self.states(sequences, device))
    }

    /// The cross-entropy of the token after each token, `−log P(x_t | x_<t)`, in nats.
    ///
    /// # Shapes
    /// - `next`: the id that follows each token, in the order of [`Sequences::ids`]
    /// - returns `[n_tokens]`
    ///
    /// # Panics
    /// Those of [`states`](Self::states), and if the numbers of ids and tokens differ.
    pub fn losses(&self, sequences: &Sequences, next: &[i32], device: &Device) -> Tensor<1> {
        assert_eq!(next.len(), sequences.n_tokens(), "the ids that follow, and the tokens");
        self.losses_of(self.states(sequences, device), next, None)
    }

    /// [`losses`](Self::losses) among pieces drawn for the batch, for training with a large vocabulary.
    ///
    /// # Shapes
    /// - as in [`losses`](Self::losses)
    ///
    /// # Panics
    /// Those of [`losses`](Self::losses); with an [adaptive](Self::adaptive) output, and if `sampled` is not
    /// [valid](SampledSoftmax::validate).
    pub fn sampled_losses(
        &self,
        sampled: SampledSoftmax,
        sequences: &Sequences,
        next: &[i32],
        device: &Device,
    ) -> Tensor<1> {
        assert_eq!(next.len(), sequences.n_tokens(), "the ids that follow, and the tokens");
        self.losses_of(self.states(sequences, device), next, Some(sampled))
    }

    /// The cross-entropy of the token after each state.
    fn losses_of(&self, states: Tensor<2>, next: &[i32], sampled: Option<SampledSoftmax>) -> Tensor<1> {
        let output = OutputLayer {
            adaptive: self.adaptive.as_ref(),
            logits: |states| self.project(states),
            rows: |ids| match &self.output {
                Some(output) => output.rows(ids),
                None => self.tokens.weight.val().select(0, ids),
            },
            bias: None,
            vocab_size: self.tokens.weight.lazy_shape()[0],
        };
        output.losses(states, next, sampled)
    }

    /// [`losses`](Self::losses) of some tokens; only their logits are computed.
    ///
    /// # Shapes
    /// - `next`: the ids that follow the wanted tokens, `n` of them
    /// - `wanted`: the indices of `n` tokens, in the order of [`Sequences::ids`]; returns `[n]`
    ///
    /// # Panics
    /// Those of [`states`](Self::states), and if the numbers of ids and wanted tokens differ.
    pub fn losses_at(
        &self,
        sequences: &Sequences,
        next: &[i32],
        wanted: &[i32],
        device: &Device,
    ) -> Tensor<1> {
        assert_eq!(next.len(), wanted.len(), "the ids that follow, and the wanted tokens");
        let vector =
            |ids: &[i32]| Tensor::<1, Int>::from_data(TensorData::new(ids.to_vec(), [ids.len()]), device);
        self.losses_of(self.states(sequences, device).select(0, vector(wanted)), next, None)
    }

    /// The cross-entropy of the tokens after each sequence's prefix, `−log P(x_t | x_<t)` for `t > p`, in
    /// nats, where the `p` prefix tokens see one another (Raffel et al. 2020, §3.2.1). The prefix's last
    /// token predicts the first one after it. Without a prefix (`p = 0`) each token predicts the next, as
    /// with a prefix of one token.
    ///
    /// # Shapes
    /// - `prefixes`: `[sequences]`; `next`: the id that follows each token, in the order of [`Sequences::ids`]
    /// - returns `[Σ (len − max(p, 1) + 1)]`, sequences concatenated
    ///
    /// # Panics
    /// Those of [`prefix_states`](Self::prefix_states), and if the numbers of ids and tokens differ.
    pub fn prefix_losses(
        &self,
        sequences: &Sequences,
        prefixes: &[usize],
        next: &[i32],
        device: &Device,
    ) -> Tensor<1> {
        assert_eq!(next.len(), sequences.n_tokens(), "the ids that follow, and the tokens");
        let mut start = 0;
        let wanted = sequences.lengths().iter().zip(prefixes).flat_map(|(len, prefix)| {
            let first = start + prefix.saturating_sub(1);
            start += len;
            first..start
        });
        let wanted: Vec<usize> = wanted.collect();
        let vector =
            |values: Vec<i32>| Tensor::<1, Int>::from_data(TensorData::new(values, [wanted.len()]), device);
        let next: Vec<i32> = wanted.iter().map(|token| next[*token]).collect();
        let wanted = vector(wanted.iter().map(|token| *token as i32).collect());
        self.losses_of(self.prefix_states(sequences, prefixes, device).select(0, wanted), &next, None)
    }

    /// The logits of states, `[n, d_model]` → `[n, vocab_size]`; the log-probabilities, if the output is
    /// [adaptive](Self::adaptive).
    pub fn project(&self, states: Tensor<2>) -> Tensor<2> {
        if let Some(adaptive) = &self.adaptive {
            return adaptive.log_probs(states);
        }
        match (&self.output, &self.inference_table) {
            (Some(output), _) => output.forward(states),
            (None, Some(table)) => table.forward(states, None),
            (None, None) => ops::linear_tied(states, self.tokens.weight.val(), None),
        }
    }

    /// The tokens in the layout that is fastest, and what each of them sees: one sequence per row, or packed
    /// if their lengths differ and the device supports it.
    ///
    /// Padding needs no mask: it is at the sequences' ends, where no token sees it. Only positions that
    /// depend on a sequence's length need it, and a recording, which leaves it out.
    pub(super) fn input(&self, sequences: &Sequences, device: &Device) -> (Tensor<2, Int>, AttentionMask) {
        assert!(!sequences.is_empty(), "no sequence: nothing to compute");
        let longest = sequences.longest();
        assert!(
            longest <= self.max_positions,
            "{longest} tokens, but the model has {} positions",
            self.max_positions
        );
        let mask = AttentionMask::default().with_causal();
        match is_even(sequences) || !ops::takes_packed(&Tensor::<1>::zeros([1], device)) {
            true => {
                let (ids, pad_mask) = sequences.padded(0, device);
                let counts = self.layers.iter().any(|layer| layer.attention.depends_on_length());
                let mask = match pad_mask.filter(|_| counts || is_recording()) {
                    Some(pad_mask) => mask.with_pad_mask(pad_mask),
                    None => mask,
                };
                (ids, mask)
            }
            false => (sequences.packed(device), mask.with_packing(sequences.packing())),
        }
    }

    /// # Shapes
    /// - `ids`: `[batch, len]`; returns `[batch, len, d_model]`
    pub(super) fn embed(&self, ids: Tensor<2, Int>, positions: &TokenPositions) -> Tensor<3> {
        let ([_, len], device) = (ids.dims(), ids.device());
        let mut x = self.tokens.forward(ids);
        if let Some(learned) = &self.positions {
            let ids = match positions {
                TokenPositions::From(start) => {
                    Tensor::<1, Int>::arange(*start as i64..(start + len) as i64, &device)
                        .unsqueeze_dim::<2>(0)
                }
                TokenPositions::Packed { positions, .. } => {
                    let positions: Vec<i32> = positions.iter().map(|position| *position as i32).collect();
                    Tensor::from_data(TensorData::new(positions, [1, len]), &device)
                }
                TokenPositions::Rows { positions, .. } => positions.clone(),
                _ => unreachable!("positions are one of these"),
            };
            x = x + learned.table.forward(ids);
        }
        ops::dropout(x, self.dropout)
    }

    /// `[n, d_model]`; returns the same.
    pub(super) fn normalised(&self, states: Tensor<2>) -> Tensor<2> {
        match &self.final_norm {
            Some(norm) => norm.forward(states),
            None => states,
        }
    }

    /// The embedding table.
    pub fn table(&self) -> &Param<Tensor<2>> {
        &self.tokens.weight
    }
}

/// A mask of left-to-right sequences whose first tokens see one another.
pub(super) fn with_prefixes(mask: AttentionMask, sequences: &Sequences, prefixes: &[usize]) -> AttentionMask {
    assert_eq!(prefixes.len(), sequences.len(), "prefixes, and sequences");
    let fit = prefixes.iter().zip(sequences.lengths()).all(|(prefix, len)| prefix <= len);
    assert!(fit, "prefixes of {prefixes:?} tokens in sequences of {:?}", sequences.lengths());
    let sights: Vec<Sight> = prefixes.iter().map(|prefix| Sight::Prefix(*prefix)).collect();
    let mut mask = mask.with_sights(sights);
    mask.causal = false;
    mask
}

/// Whether all sequences have the same length.
fn is_even(sequences: &Sequences) -> bool {
    sequences.n_tokens() == sequences.len() * sequences.longest()
}

/// Selects the states of the tokens, `[n_tokens, d_model]`, from packed or padded states.
pub(crate) fn flat(x: Tensor<3>, sequences: &Sequences) -> Tensor<2> {
    let ([batch, len, d_model], device) = (x.dims(), x.device());
    let x = x.reshape([batch * len, d_model]);
    if batch * len == sequences.n_tokens() {
        return x;
    }
    let places: Vec<i32> = sequences.packing().padded_places().map(|place| place as i32).collect();
    x.select(0, Tensor::from_data(places.as_slice(), &device))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::blocks::{Activation, NormKind, NormPlacement, pack_weights, quantize_int8};
    use crate::gpt::GptConfig;
    use burn::tensor::Tolerance;

    /// A small model of each kind.
    pub(in crate::gpt) fn configs() -> Vec<GptConfig> {
        let small = |config: GptConfig| GptConfig {
            n_heads: 4,
            n_kv_heads: 2,
            d_head: 6,
            d_ff: 20,
            max_positions: 16,
            embedding_dropout: 0.0,
            hidden_dropout: 0.0,
            attention_dropout: 0.0,
            init_std: 0.4,
            ..config
        };
        let llama = small(GptConfig::llama(23, 2, 16));
        vec![
            small(GptConfig::gpt2(23, 2, 16)),
            GptConfig { window: Some(3), ..llama.clone() },
            GptConfig { norm: NormPlacement::Post, activation: Activation::Relu, ..llama.clone() },
            GptConfig { norm_kind: NormKind::Layer, tied: true, attention_bias: true, ..llama },
        ]
    }

    pub(in crate::gpt) fn devices() -> [Device; 2] {
        // Where activations are checkpointed, operations are composed.
        [Device::flex(), Device::flex().autodiff().gradient_checkpointing()]
    }

    pub(in crate::gpt) fn close<const D: usize>(found: Tensor<D>, expected: Tensor<D>) {
        found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
    }

    fn models() -> impl Iterator<Item = (Gpt, Device)> {
        let of = |config: GptConfig| {
            devices().map(|device| {
                (config.init(&mut ParamInit::new(&device, 3).with_std(config.init_std)), device)
            })
        };
        configs().into_iter().flat_map(of)
    }

    #[test]
    fn no_position_sees_a_later_one() {
        for (model, device) in models() {
            let ids: Vec<i32> = (0..9).map(|i| 1 + i * 5 % 22).collect();
            let logits = |ids: &[i32]| model.logits(&[ids].into_iter().collect(), &device);
            let before = logits(&ids);
            for changed in 0..9 {
                let mut other = ids.clone();
                other[changed] = (other[changed] + 7) % 23;
                let difference = (logits(&other) - before.clone()).abs().max_dim(1).into_data();
                for (at, difference) in difference.iter::<f32>().enumerate() {
                    match at < changed {
                        true => assert_eq!(difference, 0.0, "{at} saw {changed}"),
                        false if at == changed => assert!(difference > 1e-4, "{at} is blind"),
                        false => (),
                    }
                }
            }
        }
    }

    #[test]
    fn a_prefix_sees_itself_and_nobody_sees_what_comes_behind() {
        // A window hides parts of a prefix.
        for (model, device) in models().filter(|(model, _)| !model.layers[0].attention.has_window()) {
            let ids: Vec<i32> = (0..9).map(|i| 1 + i * 5 % 22).collect();
            for prefix in [0, 1, 4, 9] {
                let states = |ids: &[i32]| {
                    // Beside a shorter one, so that they are packed where that is possible.
                    let both = [ids, &[7, 3, 2]].into_iter().collect();
                    model.prefix_states(&both, &[prefix, 3], &device).narrow(0, 0, 9)
                };
                let before = states(&ids);
                for changed in 0..9 {
                    let mut other = ids.clone();
                    other[changed] = (other[changed] + 7) % 23;
                    let difference = (states(&other) - before.clone()).abs().max_dim(1).into_data();
                    for (at, difference) in difference.iter::<f32>().enumerate() {
                        let sees = changed <= at || changed < prefix;
                        assert_eq!(difference != 0.0, sees, "{at} and {changed}, with a prefix of {prefix}");
                    }
                }
            }
        }
    }

    #[test]
    fn prefix_losses_are_those_behind_the_prefix() {
        for (model, device) in models() {
            let sequences: Sequences = [&[1, 2, 3, 4][..], &[5, 6, 7], &[8, 9]].into_iter().collect();
            let next = [2, 3, 4, 9, 6, 7, 8, 9, 0];
            // A prefix of no token or one is left to right.
            let plain = model.losses(&sequences, &next, &device);
            close(model.prefix_losses(&sequences, &[0, 1, 1], &next, &device), plain);
            let found = model.prefix_losses(&sequences, &[3, 3, 0], &next, &device);
            let states = model.prefix_states(&sequences, &[3, 3, 0], &device);
            let log_probs = burn::tensor::activation::log_softmax(model.project(states), 1);
            let picked = [(2, 4), (3, 9), (6, 8), (7, 9), (8, 0)]
                .map(|(row, id)| log_probs.clone().slice([row..row + 1, id..id + 1]).reshape([1]).neg());
            close(found, Tensor::cat(picked.to_vec(), 0));
        }
    }

    #[test]
    #[should_panic(expected = "prefixes of [2, 4] tokens in sequences of [2, 3]")]
    fn a_prefix_is_part_of_its_sequence() {
        let device = Device::flex();
        let model = configs()[0].init(&mut ParamInit::new(&device, 3));
        model.prefix_states(&[&[1, 2][..], &[3, 4, 5]].into_iter().collect(), &[2, 4], &device);
    }

    #[test]
    fn packing_changes_nothing() {
        for (model, device) in models() {
            let rows: [&[i32]; 3] = [&[1, 2, 3, 4, 5, 6, 7], &[8], &[9, 10, 11, 12]];
            let together = model.logits(&rows.into_iter().collect(), &device);
            let alone = rows.map(|row| model.logits(&[row].into_iter().collect(), &device));
            close(together, Tensor::cat(alone.to_vec(), 0));
            // Sequences of one length, one a row.
            let rows: [&[i32]; 2] = [&[1, 2, 3], &[7, 8, 9]];
            let together = model.logits(&rows.into_iter().collect(), &device);
            let alone = rows.map(|row| model.logits(&[row].into_iter().collect(), &device));
            close(together, Tensor::cat(alone.to_vec(), 0));
        }
    }

    #[test]
    fn a_window_hides_what_is_further_back() {
        let config = GptConfig { window: Some(2), n_layers: 1, ..configs().swap_remove(1) };
        for device in devices() {
            let model = config.init(&mut ParamInit::new(&device, 3).with_std(0.4));
            let last = |ids: &[i32]| {
                let logits = model.logits(&[ids].into_iter().collect(), &device);
                logits.narrow(0, ids.len() - 1, 1)
            };
            close(last(&[5, 6, 1, 2, 3]), last(&[7, 8, 1, 2, 3]));
            let difference = (last(&[5, 6, 1, 2, 3]) - last(&[5, 6, 9, 2, 3])).abs().max();
            assert!(difference.into_scalar::<f32>() > 1e-3);
        }
    }

    #[test]
    fn losses_are_those_of_the_logits() {
        for (model, device) in models() {
            let sequences: Sequences = [&[1, 2, 3][..], &[4, 5]].into_iter().collect();
            let losses = model.losses(&sequences, &[2, 3, 9, 5, 0], &device);
            let log_probs = burn::tensor::activation::log_softmax(model.logits(&sequences, &device), 1);
            let picked = [(0, 2), (1, 3), (2, 9), (3, 5), (4, 0)]
                .map(|(row, id)| log_probs.clone().slice([row..row + 1, id..id + 1]).reshape([1]).neg());
            close(losses, Tensor::cat(picked.to_vec(), 0));
        }
    }

    #[test]
    fn laid_out_weights_give_the_same() {
        for config in configs() {
            let device = Device::flex();
            let mut model = config.init(&mut ParamInit::new(&device, 3).with_std(0.4));
            let sequences: Sequences = [&[1, 2, 3][..]].into_iter().collect();
            let expected = model.logits(&sequences, &device);
            pack_weights(&mut model);
            close(model.logits(&sequences, &device), expected.clone());
            // From the second use on.
            close(model.logits(&sequences, &device), expected);
        }
    }

    #[test]
    fn eight_bits_change_logits_a_little() {
        for config in configs() {
            let device = Device::flex();
            let mut model = config.init(&mut ParamInit::new(&device, 3).with_std(0.4));
            let sequences: Sequences = [&[1, 2, 3][..], &[4, 5]].into_iter().collect();
            let expected = model.logits(&sequences, &device);
            quantize_int8(&mut model);
            let found = model.logits(&sequences, &device);
            let largest = expected.clone().abs().max().into_scalar::<f32>();
            let apart = (found - expected).abs().max().into_scalar::<f32>();
            assert!(apart > 0.0 && apart < 0.1 * largest, "{apart} of {largest}");
        }
    }

    #[test]
    fn recomputed_layers_give_the_same_bits() {
        let device = Device::flex().autodiff();
        for config in configs() {
            let config = GptConfig { hidden_dropout: 0.2, attention_dropout: 0.2, ..config };
            let mut model = config.init(&mut ParamInit::new(&device, 3).with_std(0.4));
            let sequences: Sequences = [&[1, 2, 3][..], &[4, 5]].into_iter().collect();
            let mut run = |recompute: bool| {
                model.recompute = recompute;
                device.seed(5);
                let losses = model.losses(&sequences, &[2, 3, 9, 5, 0], &device);
                let grads = losses.clone().sum().backward();
                let grad = model.layers[0].attention.key.weight.val().grad(&grads).unwrap();
                (losses.into_data(), grad.into_data())
            };
            assert!(run(false) == run(true));
        }
    }

    #[test]
    #[should_panic(expected = "17 tokens, but the model has 16 positions")]
    fn positions_end() {
        let device = Device::flex();
        let model = configs()[1].init(&mut ParamInit::new(&device, 3));
        model.logits(&[&[1; 17][..]].into_iter().collect(), &device);
    }
}
