//! ELECTRA (Clark et al. 2020): a discriminator detects which tokens a small generator replaced.

use super::{Bert, BertConfig, BertInput, MlmHead};
use crate::backbone::has_bert;
use crate::blocks::{
    Activation, Attention, Encoder, LearnedPositions, Linear, MultiHeadAttention, Positions,
};
use crate::tasks::BertForMaskedLm;
use crate::{ModelError, ParamInit, Result, linear_maps};
use burn::module::Module;
use burn::tensor::{IndexingUpdateOp, Int, Tensor, activation};

/// The configurations of ELECTRA's two encoders.
///
/// ```
/// # use cloze_model::bert::{BertConfig, ElectraConfig};
/// let config = ElectraConfig::new(BertConfig::base(30_522).with_pooler(false), 1.0 / 3.0)?;
/// let generator = config.generator();
/// assert_eq!((generator.d_model, generator.n_heads, generator.d_ff), (256, 4, 1024));
/// assert_eq!((generator.n_layers, generator.d_embedding), (12, Some(768)));
/// # Ok::<(), cloze_model::ModelError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ElectraConfig {
    discriminator: BertConfig,
    generator: BertConfig,
}

impl ElectraConfig {
    /// A discriminator, and a generator with as many layers whose width and feed-forward networks are
    /// `generator_size` times as large. Its heads have 64 features or slightly more, so that they divide its
    /// width evenly.
    ///
    /// The paper has sizes of ¼ to ½ (§3.2, figure 3): 1/4 for ELECTRA-small and -large, 1/3 for -base (table 6).
    ///
    /// # Errors
    /// [`ModelError::Setting`] for a `generator_size` that is not above 0 and at most 1: a generator that is
    /// stronger than the discriminator teaches it less; for an invalid discriminator; for one with distance
    /// vectors or biases in its embeddings, which only suit its own attention, or with embeddings [projected
    /// before normalisation](BertConfig::project_before_norm).
    pub fn new(discriminator: BertConfig, generator_size: f64) -> Result<Self> {
        if !(generator_size > 0.0 && generator_size <= 1.0) {
            let expected = "a number above 0, at most 1: the generator is no wider than the discriminator";
            return Err(ModelError::setting("generator_size", generator_size, expected));
        }
        discriminator.validate()?;
        for (key, is_there) in [
            ("relative_bias", discriminator.relative_bias.is_some()),
            ("disentangled", discriminator.disentangled.is_some()),
        ] {
            if is_there {
                let expected = "none: a generator shares the embeddings, but not the heads";
                return Err(ModelError::setting(key, "given", expected));
            }
        }
        if discriminator.project_before_norm {
            let expected = "false: a generator shares the normalisation, but not the width that it is of";
            return Err(ModelError::setting("project_before_norm", true, expected));
        }
        let scaled = |size: usize| ((size as f64 * generator_size).round() as usize).max(1);
        let (d_model, d_embedding) = (scaled(discriminator.d_model), discriminator.embedding_width());
        let most_heads = (d_model / 64).max(1);
        let n_heads = (1..=most_heads).rev().find(|n| d_model.is_multiple_of(*n)).unwrap_or(1);
        let generator = BertConfig {
            d_model,
            n_heads,
            d_ff: scaled(discriminator.d_ff),
            d_embedding: Some(d_embedding).filter(|d| *d != d_model),
            pooler: false,
            ..discriminator.clone()
        };
        generator.validate()?;
        Ok(Self { discriminator, generator })
    }

    /// The discriminator's encoder.
    pub fn discriminator(&self) -> &BertConfig {
        &self.discriminator
    }

    /// The generator's encoder, whose embeddings are the discriminator's.
    pub fn generator(&self) -> &BertConfig {
        &self.generator
    }

    /// A new model. The discriminator is drawn first: with the same seed it does not depend on the
    /// generator's size.
    pub fn init(&self, init: &mut ParamInit) -> Electra {
        let bert = self.discriminator.init_encoder(init);
        let head = ReplacedTokenHead::new(&self.discriminator, init);
        let discriminator = ReplacedTokenDetector { bert, head };
        Electra { discriminator, generator: Generator::new(&self.generator, init) }
    }
}

/// The head of replaced token detection: whether a token is original.
///
/// ```text
/// D(x, t) = σ(w·act(W·h₍t₎ + b) + c)
/// ```
///
/// The paper has only the output layer (§2); the dense layer before it follows the authors' code and
/// transformers.
#[derive(Module, Debug)]
pub struct ReplacedTokenHead {
    /// `[d_model, d_model]`
    pub dense: Linear,
    /// `[d_model, 1]`
    pub output: Linear,
    #[module(skip)]
    activation: Activation,
}

linear_maps!(ReplacedTokenHead { dense, output });

impl ReplacedTokenHead {
    /// A new head for `config`, with the non-linearity of its layers.
    pub fn new(config: &BertConfig, init: &mut ParamInit) -> Self {
        Self {
            dense: Linear::new(config.d_model, config.d_model, init),
            output: Linear::new(config.d_model, 1, init),
            activation: config.activation,
        }
    }

    /// # Shapes
    /// - `states`: `[n, d_model]`; returns `[n]`: the logits that a token was replaced
    pub fn forward(&self, states: Tensor<2>) -> Tensor<1> {
        let states = self.activation.forward(self.dense.forward(states));
        self.output.forward(states).squeeze_dim::<1>(1)
    }
}

/// An encoder that detects replaced tokens: ELECTRA's discriminator, `ElectraForPreTraining`.
#[derive(Module, Debug)]
pub struct ReplacedTokenDetector<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    /// The encoder.
    pub bert: Bert<A, P>,
    /// Distinguishes replaced tokens from original ones.
    pub head: ReplacedTokenHead,
}

has_bert!(ReplacedTokenDetector { head });

impl<A: Attention, P: Positions> ReplacedTokenDetector<A, P> {
    /// The logits that tokens were replaced; [`replaced_token_loss`] is their loss.
    ///
    /// # Shapes
    /// - `positions`: `[n]`, indices into the flattened batch: `row · len + column`, or the token's index in packed
    ///   sequences; returns `[n]`
    pub fn forward(&self, input: BertInput, positions: Tensor<1, Int>) -> Tensor<1> {
        self.head.forward(self.bert.states_at(input, positions))
    }
}

/// The binary cross-entropy of each token, in nats (Clark et al. 2020, §2):
///
/// ```text
/// −[t replaced]·log σ(x₍t₎) − [t original]·log(1 − σ(x₍t₎))
/// ```
///
/// # Shapes
/// - `logits`: `[n]`, that a token was replaced; `replaced`: `[n]`, 1 if it was, else 0; returns `[n]`
pub fn replaced_token_loss(logits: Tensor<1>, replaced: Tensor<1, Int>) -> Tensor<1> {
    // log(1 − σ(x)) = log σ(x) − x
    let original = replaced.float().neg().add_scalar(1.0);
    original * logits.clone() - activation::log_sigmoid(logits)
}

/// All of ELECTRA's generator but its embeddings, which are the discriminator's.
#[derive(Module, Debug)]
pub struct Generator<A: Attention = MultiHeadAttention> {
    /// `[d_embedding, d_generator]`; none if both widths are equal.
    pub projection: Option<Linear>,
    /// The layers.
    pub encoder: Encoder<A>,
    /// Predicts the masked pieces; it projects onto the shared token embeddings.
    pub mlm: MlmHead,
}

linear_maps!(Generator<A: Attention> { encoder; projection, mlm });

impl Generator {
    /// A new generator. Embeddings of its own are never drawn.
    fn new(config: &BertConfig, init: &mut ParamInit) -> Self {
        let d_embedding = config.embedding_width();
        Self {
            projection: config.d_embedding.map(|_| Linear::new(d_embedding, config.d_model, init)),
            encoder: config.init_layers(init),
            mlm: MlmHead::new(config, init),
        }
    }
}

/// ELECTRA (Clark et al. 2020): a generator fills masked tokens by sampling, and a discriminator detects
/// which tokens of the result are not original.
///
/// The two share all embeddings: pieces, segments, positions, and their normalisation (§3.2, with embeddings
/// as wide as the discriminator's). The model holds them once, in the discriminator, and accumulates both
/// gradients in them.
#[derive(Module, Debug)]
pub struct Electra<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    /// The discriminator, which is fine-tuned later.
    pub discriminator: ReplacedTokenDetector<A, P>,
    /// The generator, which replaces tokens.
    pub generator: Generator<A>,
}

linear_maps!(Electra<A: Attention, P: Positions> { discriminator, generator });

impl<A: Attention, P: Positions> Electra<A, P> {
    /// The generator with the shared embeddings, as a masked language model by itself: `ElectraForMaskedLM`.
    ///
    /// Its parameters are those of this model, so that gradients of its outputs are gradients of this model's.
    pub fn masked_lm(&self) -> BertForMaskedLm<A, P> {
        let Generator { projection, encoder, mlm } = self.generator.clone();
        let Bert { embeddings, pooling, causal, .. } = &self.discriminator.bert;
        let mut embeddings = embeddings.clone();
        embeddings.projection = projection;
        let bert = Bert {
            embeddings,
            encoder,
            pooler: None,
            pooling: *pooling,
            causal: *causal,
            integer_only: None,
            teacher_maps: None,
        };
        BertForMaskedLm { bert, mlm }
    }

    /// The same model with the layers and the head of another generator; its embeddings are not used.
    pub fn with_masked_lm(self, masked_lm: BertForMaskedLm<A, P>) -> Self {
        let BertForMaskedLm { bert: Bert { embeddings, encoder, .. }, mlm } = masked_lm;
        Self { generator: Generator { projection: embeddings.projection, encoder, mlm }, ..self }
    }
}

/// One piece for each row of logits, drawn from their softmax: the first piece whose cumulative probability exceeds the
/// row's number. No gradient goes through it.
///
/// The same numbers give the same pieces, regardless of the device's generator.
///
/// # Shapes
/// - `logits`: `[n, vocab_size]`; `uniform`: `[n]`, each from 0 to below 1; returns `[n]`
pub fn sampled_pieces(logits: Tensor<2>, uniform: Tensor<1>) -> Tensor<1, Int> {
    let [n, vocab_size] = logits.dims();
    if n == 0 {
        return Tensor::zeros([0], &logits.device());
    }
    let cumulative = activation::softmax(logits.detach(), 1).cumsum(1);
    let passed = cumulative.lower_equal(uniform.reshape([n, 1]).expand([n, vocab_size]));
    // Rounding may leave a sum below the number.
    passed.int().sum_dim(1).squeeze_dim::<1>(1).clamp(0, vocab_size as i32 - 1)
}

/// The tokens with other `pieces` at some places.
///
/// # Shapes
/// - `input_ids`: `[batch, len]`; `positions`: `[n]`, indices into the flattened batch, each once; `pieces`: `[n]`;
///   returns `[batch, len]`
pub fn with_pieces(
    input_ids: Tensor<2, Int>,
    positions: Tensor<1, Int>,
    pieces: Tensor<1, Int>,
) -> Tensor<2, Int> {
    if positions.dims() == [0] {
        return input_ids;
    }
    let shape = input_ids.dims();
    let ids = input_ids.flatten::<1>(0, 1);
    let change = pieces - ids.clone().select(0, positions.clone());
    ids.select_assign(0, positions, change, IndexingUpdateOp::Add).reshape(shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::{self, ModulePath, NamedTensors};
    use burn::module::{ModuleVisitor, Param};
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, TensorData};

    fn config(generator_size: f64) -> ElectraConfig {
        let discriminator = BertConfig::new(31, 2, 16)
            .with_n_heads(2)
            .with_d_ff(24)
            .with_max_positions(12)
            .with_hidden_dropout(0.0)
            .with_attention_dropout(0.0)
            .with_pooler(false);
        ElectraConfig::new(discriminator, generator_size).unwrap()
    }

    fn model(generator_size: f64, device: &Device) -> Electra {
        config(generator_size).init(&mut ParamInit::new(device, 3).with_std(0.3))
    }

    fn int(values: &[i32], device: &Device) -> Tensor<1, Int> {
        Tensor::from_data(values, device)
    }

    fn input(device: &Device) -> BertInput {
        BertInput::packed(&[2, 7, 9, 4, 8, 3, 2, 12, 3], &[6, 3], device)
    }

    #[test]
    fn the_generator_is_scaled() {
        let base = BertConfig::base(30_522).with_pooler(false);
        let sizes = |size: f64| {
            let config = ElectraConfig::new(base.clone(), size).unwrap();
            let BertConfig { n_layers, d_model, n_heads, d_ff, d_embedding, .. } = config.generator;
            (n_layers, d_model, n_heads, d_ff, d_embedding)
        };
        assert_eq!(sizes(0.25), (12, 192, 3, 768, Some(768)));
        assert_eq!(sizes(1.0), (12, 768, 12, 3072, None));
        assert_eq!(sizes(1e-9), (12, 1, 1, 1, Some(768)));
        // 346 is not a multiple of 5; of 2 it is.
        assert_eq!(sizes(0.45), (12, 346, 2, 1382, Some(768)));
        // As wide as the embeddings, though not as the discriminator.
        let narrow = base.clone().with_d_embedding(Some(384));
        assert_eq!(ElectraConfig::new(narrow, 0.5).unwrap().generator.d_embedding, None);
        for size in [0.0, -1.0, 1.01, f64::NAN, f64::INFINITY] {
            let message = ElectraConfig::new(base.clone(), size).unwrap_err().to_string();
            assert!(
                message.contains("`generator_size` is") && message.contains("no wider than"),
                "{message}"
            );
        }
    }

    #[test]
    fn shared_parameters_are_held_once() {
        let device = Device::flex();
        let paths: Vec<String> =
            weights::shapes(&model(0.5, &device)).into_iter().map(|(path, _)| path).collect();
        let tables = paths.iter().filter(|path| path.contains("embeddings")).count();
        assert_eq!(tables, 5, "three tables and a norm: {paths:?}");
        assert!(paths.contains(&"generator.projection.weight".to_owned()), "{paths:?}");
        let equal = weights::shapes(&model(1.0, &device));
        assert!(equal.iter().all(|(path, _)| !path.contains("projection")));
        // The discriminator does not depend on its generator.
        let of = |size| weights::collect(&model(size, &device).discriminator);
        assert_eq!(of(0.5), of(1.0));
        // What is assembled has all of it, and gives it back.
        let electra = model(0.5, &device);
        let masked_lm = electra.masked_lm();
        assert_eq!(masked_lm.num_params(), {
            let encoder = config(0.5).generator.init_encoder(&mut ParamInit::new(&device, 1));
            encoder.num_params() + electra.generator.mlm.num_params()
        });
        let other = model(0.5, &device).with_masked_lm(masked_lm);
        assert_eq!(weights::collect(&other), weights::collect(&electra));
    }

    /// The gradients by path.
    struct ByPath<'a> {
        path: ModulePath,
        gradients: &'a GradientsParams,
        found: NamedTensors,
    }

    impl ModuleVisitor for ByPath<'_> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }

        fn exit_module(&mut self, _name: &str, container: &str) {
            self.path.exit(container);
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.gradients.get::<D>(param.id) {
                self.found.insert(self.path.to_string(), gradient.into_data());
            }
        }
    }

    fn gradients(model: &Electra, loss: Tensor<1>) -> NamedTensors {
        let gradients = GradientsParams::from_grads(loss.backward(), model);
        let mut visitor =
            ByPath { path: ModulePath::default(), gradients: &gradients, found: NamedTensors::new() };
        model.visit(&mut visitor);
        visitor.found
    }

    fn of_generator(model: &Electra, device: &Device) -> Tensor<1> {
        let logits = model.masked_lm().forward(input(device), int(&[1, 4, 7], device));
        crate::ops::cross_entropy(logits, int(&[5, 9, 30], device)).sum()
    }

    fn of_discriminator(model: &Electra, device: &Device) -> Tensor<1> {
        let logits = model.discriminator.forward(input(device), int(&[0, 1, 4, 7, 8], device));
        replaced_token_loss(logits, int(&[0, 1, 0, 1, 0], device)).sum()
    }

    fn values(data: &TensorData) -> Vec<f32> {
        data.iter::<f32>().collect()
    }

    #[test]
    fn gradients_of_both_add_up_in_what_they_share() {
        let device = Device::flex().autodiff();
        let model = model(0.5, &device);
        let of = |loss: Tensor<1>| gradients(&model, loss);
        let (generator, discriminator) =
            (of(of_generator(&model, &device)), of(of_discriminator(&model, &device)));
        let both = of(of_generator(&model, &device) + of_discriminator(&model, &device).mul_scalar(50.0));
        let paths: Vec<String> = weights::shapes(&model).into_iter().map(|(path, _)| path).collect();
        assert_eq!(both.keys().cloned().collect::<Vec<_>>().len(), paths.len());
        let (mut shared, zeros) = (0, |path: &str| vec![0.0; values(&both[path]).len()]);
        for path in &paths {
            let part = |of: &NamedTensors| of.get(path).map(values);
            let (first, second) = (part(&generator), part(&discriminator));
            shared += usize::from(first.is_some() && second.is_some());
            let first = first.unwrap_or_else(|| zeros(path));
            let second = second.unwrap_or_else(|| zeros(path));
            let scale = values(&both[path]).iter().fold(0.1f32, |scale, x| scale.max(x.abs()));
            for (found, (first, second)) in values(&both[path]).iter().zip(first.iter().zip(&second)) {
                let expected = first + 50.0 * second;
                assert!((found - expected).abs() <= 1e-4 * scale, "{path}: {found} is not {expected}");
            }
        }
        assert_eq!(shared, 5, "the embeddings and their normalisation");
    }

    #[test]
    fn the_gradient_of_a_shared_parameter_is_the_losss_slope() {
        let device = Device::flex().autodiff();
        let model = model(0.5, &device);
        let loss = |model: &Electra| of_generator(model, &device) + of_discriminator(model, &device);
        const NORM: &str = "discriminator.bert.embeddings.norm.beta";
        let gradient = values(&gradients(&model, loss(&model))[NORM]);
        let beta = values(&weights::collect(&model)[NORM]);
        let at = |feature: usize, by: f32| {
            let mut moved = beta.clone();
            moved[feature] += by;
            let moved = TensorData::new(moved, [beta.len()]);
            let model = weights::replace(model.clone(), [(NORM.to_owned(), moved)].into());
            f64::from(loss(&model).into_scalar::<f32>())
        };
        for feature in [0, 5, 15] {
            let slope = (at(feature, 1e-2) - at(feature, -1e-2)) / 2e-2;
            let found = f64::from(gradient[feature]);
            assert!((slope - found).abs() <= 2e-2 * found.abs().max(0.5), "{feature}: {slope} and {found}");
        }
    }

    #[test]
    fn pieces_are_drawn_by_the_inverse_of_their_distribution() {
        let device = Device::flex().autodiff();
        // Probabilities of 0.1, 0.2, 0, 0.3 and 0.4.
        let row = [0.1f32, 0.2, 0.0, 0.3, 0.4].map(f32::ln);
        let draws = [0.0, 0.05, 0.15, 0.29, 0.31, 0.59, 0.61, 0.999_999_94];
        let logits = Tensor::<2>::from_data([row; 8], &device).add_scalar(3.0).require_grad();
        let uniform = Tensor::<1>::from_data(draws, &device);
        let pieces = sampled_pieces(logits.clone(), uniform);
        assert_eq!(pieces.clone().into_data().iter::<i32>().collect::<Vec<_>>(), [0, 0, 1, 1, 3, 3, 4, 4]);
        // As often as they are probable.
        let n = 1_000;
        let uniform: Vec<f32> = (0..n).map(|i| (i as f32 + 0.5) / n as f32).collect();
        let many = Tensor::<2>::from_data([row], &device).expand([n, 5]);
        let pieces = sampled_pieces(many, Tensor::from_data(uniform.as_slice(), &device)).into_data();
        let mut counts = [0; 5];
        pieces.iter::<i32>().for_each(|piece| counts[piece as usize] += 1);
        for (count, expected) in counts.into_iter().zip([100, 200, 0, 300, 400i32]) {
            assert!((count - expected).abs() <= 1, "{counts:?}");
        }
        let none = Tensor::<2>::zeros([0, 5], &device);
        assert_eq!(sampled_pieces(none, Tensor::zeros([0], &device)).dims(), [0]);
        // A sum that rounding leaves below the number is the last piece.
        let last = sampled_pieces(Tensor::zeros([1, 3], &device), Tensor::from_data([1.0], &device));
        assert_eq!(last.into_data().iter::<i32>().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn pieces_are_put_where_they_belong() {
        let device = Device::flex();
        let ids = || Tensor::<2, Int>::from_data([[2, 7, 9], [4, 8, 3]], &device);
        let found = with_pieces(ids(), int(&[1, 3, 5], &device), int(&[11, 4, 0], &device)).into_data();
        assert_eq!(found, Tensor::<2, Int>::from_data([[2, 11, 9], [4, 8, 0]], &device).into_data());
        let none = || Tensor::<1, Int>::zeros([0], &device);
        assert_eq!(with_pieces(ids(), none(), none()).into_data(), ids().into_data());
    }

    #[test]
    fn a_tokens_loss_is_its_binary_cross_entropy() {
        let device = Device::flex().autodiff();
        let logits = [0.0f32, 2.0, -3.0, 100.0, -100.0, 100.0];
        let replaced = [1, 0, 1, 1, 0, 0];
        let tensor = Tensor::<1>::from_data(logits, &device).require_grad();
        let losses = replaced_token_loss(tensor.clone(), int(&replaced, &device));
        let slopes = values(&tensor.grad(&losses.clone().sum().backward()).unwrap().into_data());
        let losses = values(&losses.into_data());
        for (place, (x, is_replaced)) in logits.into_iter().zip(replaced).enumerate() {
            let x = f64::from(x);
            let sign = if is_replaced == 1 { -1.0 } else { 1.0 };
            let expected = (1.0 + (sign * x).exp()).ln();
            assert!((f64::from(losses[place]) - expected).abs() < 1e-5, "{x}: {} {expected}", losses[place]);
            let slope = 1.0 / (1.0 + (-x).exp()) - f64::from(is_replaced);
            assert!((f64::from(slopes[place]) - slope).abs() < 1e-5, "{x}: {} {slope}", slopes[place]);
        }
    }
}
