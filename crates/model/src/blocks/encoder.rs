use super::{
    Attention, AttentionInput, Distances, EncoderLayer, Norm, WantedTokens, is_attention_observed,
    is_recording, recorded,
};
use crate::linear_maps;
use crate::ops::{self, AttentionMask};
use burn::module::Module;
use burn::tensor::Tensor;

/// A stack of encoder layers, each applied once or several times, with a final normalisation if the layers are pre-norm.
#[derive(Module, Debug)]
pub struct Encoder<A: Attention> {
    /// From the first layer to the last.
    pub layers: Vec<EncoderLayer<A>>,
    /// Normalises the last layer's output; pre-norm stacks need it, post-norm stacks have none.
    pub final_norm: Option<Norm>,
    /// Dropout on the last states, after the final normalisation (T5, XLNet).
    pub output_dropout: f64,
    /// The indices of `layers` in the order in which they are applied, each to the previous output: an index
    /// is repeated if layers share parameters, as in ALBERT (Lan et al. 2020, §3.1).
    #[module(skip)]
    pub order: Vec<usize>,
    /// Whether training [recomputes](ops::recompute) each layer in the backward pass, so that only the
    /// layers' inputs are kept from the forward pass. The results are the same. The device must
    /// [support](ops::can_recompute) it. Layers are not recomputed if attention probabilities are traced, the
    /// mask has a [bias](AttentionMask::bias), or the layers share vectors of [distances](Distances).
    pub recompute: bool,
}

linear_maps!(Encoder<A: Attention> { layers });

/// What to keep besides the last layer's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncoderTrace {
    /// The states that enter the first layer and leave each layer.
    pub hidden_states: bool,
    /// The attention probabilities of each layer.
    pub attentions: bool,
}

/// The output of the encoder.
#[derive(Debug, Clone)]
pub struct EncoderOutput {
    /// The last states, `[batch, len, d_model]`, or `[1, n, d_model]` for `n` wanted tokens.
    pub last_hidden_state: Tensor<3>,
    /// A tensor `[batch, len, d_model]` for the embeddings and one for each applied layer; empty unless traced.
    pub hidden_states: Vec<Tensor<3>>,
    /// A tensor `[batch, n_heads, len, len]` for each applied layer; empty unless traced.
    pub attentions: Vec<Tensor<4>>,
}

impl<A: Attention> Encoder<A> {
    /// With `wanted`, only these tokens' last states are returned, and the last layer skips the other tokens
    /// where possible.
    ///
    /// # Shapes
    /// - `x`: `[batch, len, d_model]`
    pub fn forward(
        &self,
        x: Tensor<3>,
        mask: &AttentionMask,
        trace: EncoderTrace,
        wanted: Option<&WantedTokens>,
    ) -> EncoderOutput {
        self.forward_with_distances(x, mask, None, trace, wanted)
    }

    /// [`forward`](Self::forward), with vectors for the distances between tokens that all layers share.
    pub fn forward_with_distances(
        &self,
        mut x: Tensor<3>,
        mask: &AttentionMask,
        distances: Option<&Distances>,
        trace: EncoderTrace,
        wanted: Option<&WantedTokens>,
    ) -> EncoderOutput {
        let mut hidden_states = Vec::new();
        let mut attentions = Vec::new();
        let mut order = self.order.iter().peekable();
        let (is_recording, is_observed) = (is_recording(), is_attention_observed());
        recorded(|pass| pass.begin(&x, mask));
        while let Some(layer) = order.next() {
            let layer = &self.layers[*layer];
            if trace.hidden_states {
                hidden_states.push(x.clone());
            }
            recorded(|pass| pass.add_states(&x));
            let wanted = wanted.filter(|_| order.peek().is_none() && !is_recording);
            // The gradient of a bias, or of the distances' vectors, would be lost in the recomputation.
            let can_recompute =
                !trace.attentions && !is_observed && mask.bias.is_none() && distances.is_none();
            if self.recompute && can_recompute {
                x = recomputed(layer, x, mask, wanted);
                continue;
            }
            let need_weights = trace.attentions;
            let input = AttentionInput::new(x, mask);
            let output = layer.forward(AttentionInput { distances, wanted, need_weights, ..input });
            attentions.extend(output.weights);
            x = output.context;
        }
        if let Some(norm) = &self.final_norm {
            x = norm.forward(x);
        }
        x = ops::dropout(x, self.output_dropout);
        if trace.hidden_states {
            hidden_states.push(x.clone());
        }
        recorded(|pass| pass.add_states(&x));
        if is_recording {
            x = WantedTokens::pick(wanted, x);
        }
        EncoderOutput { last_hidden_state: x, hidden_states, attentions }
    }
}

/// A layer's output, which the backward pass recomputes.
fn recomputed<A: Attention>(
    layer: &EncoderLayer<A>,
    x: Tensor<3>,
    mask: &AttentionMask,
    wanted: Option<&WantedTokens>,
) -> Tensor<3> {
    let (mask, wanted) = (mask.clone(), wanted.cloned());
    ops::recompute(layer, x, move |layer: &EncoderLayer<A>, x| {
        layer.forward(AttentionInput { wanted: wanted.as_ref(), ..AttentionInput::new(x, &mask) }).context
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bert::{BertConfig, BertForPreTraining, BertInput};
    use crate::blocks::{
        Activation, AttentionOutput, LoraConfig, MultiHeadAttention, MultiHeadAttentionConfig, NormPlacement,
        ResidualConvolutionConfig,
    };
    use crate::ops::{Precision, with_precision};
    use crate::{ParamInit, first_layers, freeze};
    use burn::module::{ModuleVisitor, Param};
    use burn::optim::GradientsParams;
    use burn::tensor::{Bool, Device, Distribution, Int, TensorData};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn device() -> Device {
        Device::flex().autodiff()
    }

    fn config() -> BertConfig {
        let config = BertConfig { d_ff: 24, n_heads: 4, ..BertConfig::new(41, 3, 16) };
        BertConfig { hidden_dropout: 0.2, attention_dropout: 0.2, ..config }
    }

    fn packed() -> BertInput {
        let lengths = [6, 1, 12];
        let ids: Vec<i32> = (0..19).map(|i| 5 + i * 7 % 36).collect();
        BertInput::packed(&ids, &lengths, &device())
    }

    fn padded() -> BertInput {
        let ids: Vec<i32> = (0..24).map(|i| 5 + i * 11 % 36).collect();
        let ignored: Vec<bool> = (0..24).map(|i| i >= 12 + 7).collect();
        let shape = [2, 12];
        let mask = Tensor::<2, Bool>::from_data(TensorData::new(ignored, shape), &device());
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, shape), &device());
        BertInput::new(ids).with_pad_mask(mask)
    }

    struct Found {
        gradients: GradientsParams,
        data: Vec<Option<TensorData>>,
    }

    impl ModuleVisitor for Found {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.data.push(self.gradients.remove::<D>(param.id).map(Tensor::into_data));
        }
    }

    /// The logits, and the gradients of all parameters that have one.
    fn results<A: Attention>(
        model: &BertForPreTraining<A>,
        input: BertInput,
    ) -> (Vec<TensorData>, Vec<Option<TensorData>>) {
        device().seed(9);
        let positions = Tensor::<1, Int>::from_data([1, 7, 15], &device());
        let logits = model.forward(input, positions);
        let pairs = logits.next_sentence.unwrap();
        let loss = logits.mlm.clone().powi_scalar(2).sum() + pairs.clone().powi_scalar(2).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), model);
        let mut found = Found { gradients, data: Vec::new() };
        model.visit(&mut found);
        (vec![logits.mlm.into_data(), pairs.into_data()], found.data)
    }

    fn recomputing<A: Attention>(model: &BertForPreTraining<A>) -> BertForPreTraining<A> {
        let mut again = model.clone();
        again.bert.encoder.recompute = true;
        again
    }

    #[test]
    fn recomputed_layers_give_the_same_bits() {
        let init = || ParamInit::new(&device(), 1).with_std(0.3);
        let pre = BertConfig { norm: NormPlacement::Pre, ..config() };
        let activation = Activation::Tanh;
        let convolution = ResidualConvolutionConfig { kernel: 3, n_groups: 2, activation };
        let mut models = vec![
            config().init(&mut init()),
            pre.init(&mut init()),
            BertConfig { share_layers: true, ..config() }.init(&mut init()),
            BertConfig { convolution: Some(convolution), ..config() }.init(&mut init()),
        ];
        let whole = models[0].clone();
        let first = |n_layers| first_layers(&whole, n_layers);
        for patterns in [first(0), first(2), vec!["bert.*".into()], vec!["*.bias".into()]] {
            models.push(freeze(whole.clone(), &patterns).unwrap());
        }
        let lora = LoraConfig { dropout: 0.3, ..LoraConfig::default() };
        models.push(BertForPreTraining {
            bert: lora.attach(whole.bert.clone(), &mut init()).unwrap(),
            ..whole
        });
        for (number, model) in models.iter().enumerate() {
            for input in [packed(), padded()] {
                for precision in [Precision::Fp32, Precision::Bf16] {
                    let run = |model: &_| with_precision(precision, || results(model, input.clone()));
                    let (kept, again) = (run(model), run(&recomputing(model)));
                    assert!(kept.1.iter().any(Option::is_some));
                    assert!(kept == again, "model {number} in {precision:?}");
                }
            }
        }
    }

    /// An attention that counts how often it is computed.
    #[derive(Module, Debug)]
    struct Counted {
        inner: MultiHeadAttention,
        #[module(skip)]
        calls: Arc<AtomicUsize>,
    }

    linear_maps!(Counted { inner });

    impl Attention for Counted {
        fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.inner.forward(input)
        }
    }

    #[test]
    fn a_layer_is_computed_twice_in_training_where_it_is_trained() {
        let calls = Arc::new(AtomicUsize::new(0));
        let attention = MultiHeadAttentionConfig::new(16, 4);
        let model = config().init_with(&mut ParamInit::new(&device(), 1), |init| Counted {
            inner: attention.init(init),
            calls: calls.clone(),
        });
        let count = |model: &BertForPreTraining<Counted>| {
            results(model, padded());
            calls.swap(0, Ordering::Relaxed)
        };
        assert_eq!((count(&model), count(&recomputing(&model))), (3, 6));
        let frozen = recomputing(&freeze(model.clone(), &first_layers(&model, 2)).unwrap());
        assert_eq!(count(&frozen), 4, "the frozen layers once");
        let valid = recomputing(&model.valid());
        valid.bert.forward(BertInput::new(Tensor::zeros([1, 4], &Device::flex())));
        assert_eq!(calls.swap(0, Ordering::Relaxed), 3, "nothing runs backwards");
    }

    /// An attention with its own random numbers.
    #[derive(Module, Debug)]
    struct Random {
        inner: MultiHeadAttention,
    }

    linear_maps!(Random { inner });

    impl Attention for Random {
        fn forward(&self, mut input: AttentionInput<'_>) -> AttentionOutput {
            let noise = input.queries.random_like(Distribution::Default);
            input.queries = input.queries + noise;
            self.inner.forward(input)
        }
    }

    #[test]
    #[should_panic(expected = "a second computation gave something else than the first")]
    fn other_random_numbers_are_found_out() {
        let attention = MultiHeadAttentionConfig::new(16, 4);
        let model = config()
            .init_with(&mut ParamInit::new(&device(), 1), |init| Random { inner: attention.init(init) });
        results(&recomputing(&model), padded());
    }
}
