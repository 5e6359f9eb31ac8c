use super::{StackInput, Transformer};
use crate::blocks::{
    Activation, AdaptiveSoftmaxConfig, Decoder, Embedding, Encoder, EncoderLayerConfig, FeedForward,
    FeedForwardConfig, Linear, MultiHeadAttention, MultiHeadAttentionConfig, Norm, NormKind, NormPlacement,
    PositionKind, PositionsConfig, RelativeConfig, SinusoidOrder,
};
use crate::seq2seq::{SpecialTokens, TiedEmbeddings};
use crate::sizes::check_sizes;
use crate::{ModelError, ParamInit, Result};
use serde::{Deserialize, Serialize};

/// The configuration of an encoder–decoder Transformer.
///
/// [`base`](Self::base) and [`big`](Self::big) are the models of Vaswani et al. 2017, table 3, and [`t5`](Self::t5) is that
/// of Raffel et al. 2020; fields or the `with_…` methods set everything else.
///
/// ```
/// # use burn::tensor::Device;
/// # use cloze_model::{ParamInit, Sequences};
/// use cloze_model::blocks::NormPlacement;
/// use cloze_model::seq2seq::{EncoderDecoder, TransformerConfig};
///
/// let config = TransformerConfig::new(100, 2, 64).with_norm(NormPlacement::Pre);
/// let device = Device::flex();
/// let model = config.init(&mut ParamInit::new(&device, 1));
/// let source: Sequences = [&[5, 6, 7, 2][..], &[8, 2]].into_iter().collect();
/// let target: Sequences = [&[2, 9][..], &[2, 10, 11]].into_iter().collect();
/// assert_eq!(model.logits(&source, &target, &device).dims(), [5, 100]);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TransformerConfig {
    /// Pieces in the target's vocabulary, and in the source's unless that has [its own](Self::source_vocab_size).
    pub vocab_size: usize,
    /// Pieces in the source's vocabulary if it differs from the target's; none: one joint vocabulary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_vocab_size: Option<usize>,
    /// Which of source embeddings, target embeddings and output layer share a table.
    pub tied: TiedEmbeddings,
    /// Encoder layers.
    pub n_encoder_layers: usize,
    /// Decoder layers.
    pub n_decoder_layers: usize,
    /// Features of a hidden state.
    pub d_model: usize,
    /// Heads of each attention; they share `d_model` evenly unless they have a [width of their own](Self::d_head).
    pub n_heads: usize,
    /// Heads of each attention in the decoder, including attention to the source. `None`:
    /// `n_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_decoder_heads: Option<usize>,
    /// Features of a head, of which `n_heads` need not add up to `d_model` (T5). None: `d_model / n_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_head: Option<usize>,
    /// Features inside the feed-forward networks.
    pub d_ff: usize,
    /// Features inside the decoder's feed-forward networks. None: `d_ff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_decoder_ff: Option<usize>,
    /// The longest source and the longest target, in tokens.
    pub max_positions: usize,
    /// How positions are represented.
    pub positions: PositionsConfig,
    /// Dropout on the embeddings and on each sub-layer's output.
    pub dropout: f64,
    /// Dropout on the attention probabilities.
    pub attention_dropout: f64,
    /// Dropout after the non-linearity of the feed-forward networks.
    pub activation_dropout: f64,
    /// The non-linearity of the feed-forward networks.
    pub activation: Activation,
    /// Whether the feed-forward networks have a [gate](FeedForwardConfig::gated) (T5 1.1, mT5 and Flan-T5).
    #[serde(default, skip_serializing_if = "is_false")]
    pub gated: bool,
    /// Whether the layers' linear maps have biases; in T5 they have none.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub bias: bool,
    /// Whether attention scores are divided by the root of a head's width; in T5 they are not.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub scaled_scores: bool,
    /// Where the layers normalise.
    pub norm: NormPlacement,
    /// The layers' kind of normalisation; T5 uses the root mean square.
    #[serde(default, skip_serializing_if = "is_layer_norm")]
    pub norm_kind: NormKind,
    /// Whether encoder and decoder end with a normalisation, which pre-norm stacks need.
    pub final_norms: bool,
    /// Whether dropout acts on the last states of encoder and decoder too, as in T5.
    #[serde(default, skip_serializing_if = "is_false")]
    pub output_dropout: bool,
    /// Added to the variance, or to the mean square, in every normalisation.
    pub layer_norm_eps: f64,
    /// Whether embeddings are multiplied by `√d_model` before positions are added (Vaswani et al. 2017, §3.4).
    pub scaled_embeddings: bool,
    /// Whether the sum of embeddings and positions is normalised, as in BART.
    pub embedding_norm: bool,
    /// Whether the padding piece's embedding is trained. In T5 it is: the piece begins targets as well.
    #[serde(default, skip_serializing_if = "is_false")]
    pub trained_padding: bool,
    /// Whether states are divided by `√d_model` before the output layer, as in T5 with tied embeddings.
    #[serde(default, skip_serializing_if = "is_false")]
    pub scaled_output: bool,
    /// The bias of the output layer.
    pub output_bias: OutputBias,
    /// An adaptive softmax, for large vocabularies, in place of the projection onto the vocabulary, which is then not tied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<AdaptiveSoftmaxConfig>,
    /// How the weights are initialised.
    pub initial: InitialWeights,
    /// The ids of special tokens.
    pub tokens: SpecialTokens,
}

fn yes() -> bool {
    true
}

fn is_true(flag: &bool) -> bool {
    *flag
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

fn is_layer_norm(kind: &NormKind) -> bool {
    *kind == NormKind::Layer
}

/// The bias of the output layer, with one number for each piece of the target's vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OutputBias {
    /// No bias.
    #[default]
    None,
    /// A bias that is not trained: `final_logits_bias` in transformers' Marian and BART, a buffer there.
    Fixed,
    /// A trained bias.
    Learned,
}

/// How the weights of linear maps and embeddings are initialised. Biases start at zero, and so does the padding piece's
/// embedding.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum InitialWeights {
    /// Xavier's uniform distribution for linear maps (Glorot & Bengio 2010), and a normal one with standard deviation
    /// `1 / √d_model` for embeddings, as in tensor2tensor and fairseq.
    Xavier,
    /// A truncated normal distribution, as in BERT. transformers' BART and Marian use the same without truncation.
    Normal {
        /// The standard deviation before truncation.
        std: f64,
    },
    /// Normal distributions as in T5: with standard deviation 1 for embeddings and a separate output layer, and
    /// `1 / √d_in` for linear maps, divided by the root of a head's width for queries, whose scores are not scaled. The
    /// padding piece's embedding is drawn too.
    T5 {
        /// Multiplies all of them: 1 in T5.
        factor: f64,
    },
}

impl TransformerConfig {
    /// A model of `n_layers` encoder layers, as many decoder layers, width `d_model`, heads of 64 features and `d_ff =
    /// 4 · d_model`; everything else is as in [`base`](Self::base).
    pub fn new(vocab_size: usize, n_layers: usize, d_model: usize) -> Self {
        Self {
            vocab_size,
            source_vocab_size: None,
            tied: TiedEmbeddings::All,
            n_encoder_layers: n_layers,
            n_decoder_layers: n_layers,
            d_model,
            n_heads: (d_model / 64).max(1),
            n_decoder_heads: None,
            d_ff: 4 * d_model,
            d_decoder_ff: None,
            max_positions: 1024,
            positions: PositionsConfig::Sinusoidal { order: SinusoidOrder::SinesFirst },
            dropout: 0.1,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            d_head: None,
            activation: Activation::Relu,
            gated: false,
            bias: true,
            scaled_scores: true,
            norm: NormPlacement::Post,
            norm_kind: NormKind::Layer,
            final_norms: false,
            output_dropout: false,
            layer_norm_eps: 1e-5,
            scaled_embeddings: true,
            embedding_norm: false,
            trained_padding: false,
            scaled_output: false,
            output_bias: OutputBias::None,
            output: None,
            initial: InitialWeights::Xavier,
            tokens: SpecialTokens::new(1, 2),
        }
    }

    /// The paper's base model: 6 layers of 512, `d_ff` = 2,048, 8 heads, dropout 0.1 (Vaswani et al. 2017, table 3).
    /// Sines precede cosines, as in the authors' own code.
    pub fn base(vocab_size: usize) -> Self {
        Self::new(vocab_size, 6, 512)
    }

    /// The paper's big model: 6 layers of 1,024, `d_ff` = 4,096, 16 heads, dropout 0.3 (Vaswani et al. 2017, table 3).
    pub fn big(vocab_size: usize) -> Self {
        Self { dropout: 0.3, ..Self::new(vocab_size, 6, 1024) }
    }

    /// A T5 of `n_layers` encoder layers and as many decoder layers (Raffel et al. 2020, §2.1): root mean
    /// square normalisation before each sub-layer, score biases by distance, maps without biases, and one
    /// table for source, target and output. Its padding piece, 0, begins targets, and 1 ends them. For T5 1.1
    /// add [`with_gate`](Self::with_gate) and a separate output layer ([`TiedEmbeddings::SourceTarget`]),
    /// before which states are not scaled ([`scaled_output`](Self::scaled_output)).
    pub fn t5(vocab_size: usize, n_layers: usize, d_model: usize) -> Self {
        Self {
            max_positions: 512,
            positions: PositionKind::RelativeBias.into(),
            attention_dropout: 0.1,
            activation_dropout: 0.1,
            bias: false,
            scaled_scores: false,
            norm: NormPlacement::Pre,
            norm_kind: NormKind::Rms,
            final_norms: true,
            output_dropout: true,
            layer_norm_eps: 1e-6,
            scaled_embeddings: false,
            trained_padding: true,
            scaled_output: true,
            initial: InitialWeights::T5 { factor: 1.0 },
            tokens: SpecialTokens::new(0, 1).with_decoder_start(0),
            ..Self::new(vocab_size, n_layers, d_model)
        }
    }

    /// The preset called `base` or `big`.
    ///
    /// # Errors
    /// [`ModelError::Config`] for another name.
    pub fn preset(name: &str, vocab_size: usize) -> Result<Self> {
        match name {
            "base" => Ok(Self::base(vocab_size)),
            "big" => Ok(Self::big(vocab_size)),
            other => Err(ModelError::Config(format!("no preset is called `{other}`; there are base, big"))),
        }
    }

    /// Sets the numbers of layers.
    pub fn with_layers(mut self, n_encoder_layers: usize, n_decoder_layers: usize) -> Self {
        (self.n_encoder_layers, self.n_decoder_layers) = (n_encoder_layers, n_decoder_layers);
        self
    }

    /// Sets the number of heads.
    pub fn with_heads(mut self, n_heads: usize) -> Self {
        self.n_heads = n_heads;
        self
    }

    /// Sets the width of the feed-forward networks.
    pub fn with_d_ff(mut self, d_ff: usize) -> Self {
        self.d_ff = d_ff;
        self
    }

    /// Sets the decoder's number of heads and feed-forward width, if different.
    pub fn with_decoder(mut self, n_heads: usize, d_ff: usize) -> Self {
        self.n_decoder_heads = Some(n_heads).filter(|n| *n != self.n_heads);
        self.d_decoder_ff = Some(d_ff).filter(|d| *d != self.d_ff);
        self
    }

    /// Sets a separate source vocabulary. Source and target then have separate tables.
    pub fn with_source_vocab(mut self, source_vocab_size: usize) -> Self {
        self.source_vocab_size = Some(source_vocab_size);
        self.tied = match self.tied.joins_output() {
            true => TiedEmbeddings::TargetOutput,
            false => TiedEmbeddings::None,
        };
        self
    }

    /// Sets which embeddings share a table.
    pub fn with_tied(mut self, tied: TiedEmbeddings) -> Self {
        self.tied = tied;
        self
    }

    /// Sets the kind of positions.
    pub fn with_positions(mut self, positions: PositionsConfig) -> Self {
        self.positions = positions;
        self
    }

    /// Sets the maximum length.
    pub fn with_max_positions(mut self, max_positions: usize) -> Self {
        self.max_positions = max_positions;
        self
    }

    /// Sets the dropout on the embeddings and on each sub-layer's output.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    /// Sets the dropout on the attention probabilities and after the non-linearity of the feed-forward networks.
    pub fn with_inner_dropouts(mut self, attention_dropout: f64, activation_dropout: f64) -> Self {
        (self.attention_dropout, self.activation_dropout) = (attention_dropout, activation_dropout);
        self
    }

    /// Sets the non-linearity.
    pub fn with_activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Adds a gate to the feed-forward networks.
    pub fn with_gate(mut self) -> Self {
        self.gated = true;
        self
    }

    /// Sets the features of a head, see [`d_head`](Self::d_head).
    pub fn with_d_head(mut self, d_head: usize) -> Self {
        self.d_head = Some(d_head);
        self
    }

    /// Sets where the layers normalise; pre-norm stacks end with a normalisation, post-norm stacks do not.
    pub fn with_norm(mut self, norm: NormPlacement) -> Self {
        (self.norm, self.final_norms) = (norm, norm == NormPlacement::Pre);
        self
    }

    /// Sets the bias of the output layer.
    pub fn with_output_bias(mut self, output_bias: OutputBias) -> Self {
        self.output_bias = output_bias;
        self
    }

    /// Sets an adaptive softmax as the output layer, which shares no table.
    pub fn with_output(mut self, output: AdaptiveSoftmaxConfig) -> Self {
        (self.output, self.tied) = (Some(output), self.tied.without_output());
        self
    }

    /// Sets the initialisation.
    pub fn with_initial(mut self, initial: InitialWeights) -> Self {
        self.initial = initial;
        self
    }

    /// Sets the ids of special tokens.
    pub fn with_tokens(mut self, tokens: SpecialTokens) -> Self {
        self.tokens = tokens;
        self
    }

    /// Heads of each attention in the decoder.
    pub fn decoder_heads(&self) -> usize {
        self.n_decoder_heads.unwrap_or(self.n_heads)
    }

    /// Features inside the decoder's feed-forward networks.
    pub fn decoder_ff(&self) -> usize {
        self.d_decoder_ff.unwrap_or(self.d_ff)
    }

    /// Pieces in the source's vocabulary.
    pub fn source_vocabulary(&self) -> usize {
        self.source_vocab_size.unwrap_or(self.vocab_size)
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        let refuse = |key, found: String, expected: String| Err(ModelError::Setting { key, found, expected });
        check_sizes([
            ("vocab_size", self.vocab_size),
            ("source_vocab_size", self.source_vocabulary()),
            ("n_encoder_layers", self.n_encoder_layers),
            ("n_decoder_layers", self.n_decoder_layers),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("n_decoder_heads", self.decoder_heads()),
            ("d_ff", self.d_ff),
            ("d_decoder_ff", self.decoder_ff()),
            ("d_head", self.d_head.unwrap_or(1)),
            ("max_positions", self.max_positions),
        ])?;
        for (key, n_heads) in [("n_heads", self.n_heads), ("n_decoder_heads", self.decoder_heads())] {
            if self.d_head.is_none() && !self.d_model.is_multiple_of(n_heads) {
                let expected = format!("a divisor of `d_model`, which is {}", self.d_model);
                return refuse(key, n_heads.to_string(), expected);
            }
        }
        if self.tied.joins_source() && self.source_vocab_size.is_some() {
            let expected = "a setting that does not tie the source, which has a separate vocabulary".into();
            return refuse("tied", format!("{:?}", self.tied), expected);
        }
        self.tied.check_output(self.output.as_ref(), self.vocab_size, self.d_model)?;
        if self.output.is_some() && self.output_bias != OutputBias::None {
            let expected = "`none`: an adaptive output has no bias".into();
            return refuse("output_bias", format!("{:?}", self.output_bias), expected);
        }
        const MOST: usize = i32::MAX as usize / 4;
        match self.positions {
            PositionsConfig::Learned { offset } if offset > MOST => {
                return refuse("positions.offset", offset.to_string(), format!("at most {MOST}"));
            }
            PositionsConfig::Relative { max_distance, .. } if max_distance > MOST => {
                return refuse("positions.max_distance", max_distance.to_string(), format!("at most {MOST}"));
            }
            PositionsConfig::RelativeBias { n_buckets, max_distance } => {
                check_sizes([("positions.n_buckets", n_buckets), ("positions.max_distance", max_distance)])?;
                if n_buckets < 4 || !n_buckets.is_multiple_of(2) {
                    let expected = "an even number, at least 4".into();
                    return refuse("positions.n_buckets", n_buckets.to_string(), expected);
                }
                if max_distance <= n_buckets / 2 {
                    let expected = format!("more than half of `n_buckets`, which is {}", n_buckets / 2);
                    return refuse("positions.max_distance", max_distance.to_string(), expected);
                }
            }
            _ => {}
        }
        if let Some(rotary) = self.positions.rotary() {
            rotary.validate(self.head_width(self.n_heads))?;
            rotary.validate(self.head_width(self.decoder_heads()))?;
        }
        let positive = |x: f64| x >= 0.0 && x.is_finite();
        if !positive(self.layer_norm_eps) {
            let expected = "a number of 0 or more, such as 1e-5".into();
            return refuse("layer_norm_eps", self.layer_norm_eps.to_string(), expected);
        }
        match self.initial {
            InitialWeights::Normal { std } if !positive(std) => {
                return refuse("initial.std", std.to_string(), "a number of 0 or more, such as 0.02".into());
            }
            InitialWeights::T5 { factor } if !positive(factor) => {
                return refuse(
                    "initial.factor",
                    factor.to_string(),
                    "a number of 0 or more, such as 1".into(),
                );
            }
            _ => {}
        }
        let dropouts = [
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
            ("activation_dropout", self.activation_dropout),
        ];
        for (name, p) in dropouts {
            if !(0.0..1.0).contains(&p) {
                return refuse(name, p.to_string(), "0 or more and below 1".into());
            }
        }
        let pad = self.tokens.pad;
        if pad >= self.source_vocabulary() {
            let expected = format!("below `source_vocab_size`, which is {}", self.source_vocabulary());
            return refuse("tokens.pad", pad.to_string(), expected);
        }
        self.tokens.validate(self.vocab_size)
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> Transformer {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let values = match self.initial {
            InitialWeights::Xavier => (self.table_std(), true),
            InitialWeights::Normal { std } => (std, false),
            // For the biases of scores; maps and embeddings are drawn by themselves.
            InitialWeights::T5 { factor } => (factor / (self.d_model as f64).sqrt(), false),
        };
        let before = init.replace_values(values);
        let model = self.build(init);
        init.replace_values(before);
        model
    }

    /// The standard deviation of embeddings.
    fn table_std(&self) -> f64 {
        match self.initial {
            InitialWeights::Xavier => (self.d_model as f64).powf(-0.5),
            InitialWeights::Normal { std } => std,
            InitialWeights::T5 { factor } => factor,
        }
    }

    /// Features of each of `n_heads` heads.
    fn head_width(&self, n_heads: usize) -> usize {
        self.d_head.unwrap_or(self.d_model / n_heads)
    }

    fn build(&self, init: &mut ParamInit) -> Transformer {
        let bias = match self.output_bias {
            OutputBias::None => None,
            OutputBias::Fixed => Some(init.zeros([1, self.vocab_size]).set_require_grad(false)),
            OutputBias::Learned => Some(init.zeros([1, self.vocab_size])),
        };
        let of_encoder = self.attention(self.n_heads);
        let (own, cross) = (self.attention(self.decoder_heads()), self.cross_attention(self.decoder_heads()));
        let output_dropout = if self.output_dropout { self.dropout } else { 0.0 };
        let source = (!self.tied.joins_source()).then(|| self.table(self.source_vocabulary(), init));
        Transformer {
            source_embeddings: source,
            target_embeddings: self.table(self.vocab_size, init),
            encoder_input: StackInput::of_encoder(self, init),
            encoder: Encoder {
                layers: self.layers(
                    (self.n_encoder_layers, self.d_ff),
                    |layer, init| {
                        let attention = self.drawn(of_encoder.init(init), self.n_heads, init);
                        let mut layer = layer.init(attention, init);
                        self.draw_feed_forward(&mut layer.feed_forward, init);
                        layer
                    },
                    init,
                ),
                final_norm: self.final_norm(init),
                output_dropout,
                order: (0..self.n_encoder_layers).collect(),
                recompute: false,
            },
            decoder_input: StackInput::of_decoder(self, init),
            decoder: Decoder {
                layers: self.layers(
                    (self.n_decoder_layers, self.decoder_ff()),
                    |layer, init| {
                        let (own, cross) = (own.init(init), cross.init(init));
                        let n_heads = self.decoder_heads();
                        let (own, cross) = (self.drawn(own, n_heads, init), self.drawn(cross, n_heads, init));
                        let mut layer = layer.init_decoder(own, cross, init);
                        self.draw_feed_forward(&mut layer.feed_forward, init);
                        layer
                    },
                    init,
                ),
                final_norm: self.final_norm(init),
                output_dropout,
            },
            output: (!self.tied.joins_output() && self.output.is_none()).then(|| {
                let mut output = Linear::without_bias(self.d_model, self.vocab_size, init);
                if let InitialWeights::T5 { factor } = self.initial {
                    output.weight = init.normal([self.d_model, self.vocab_size], factor);
                }
                output
            }),
            output_bias: bias,
            adaptive: self.output.as_ref().map(|output| output.init(self.vocab_size, self.d_model, init)),
            inference_table: None,
            config: self.clone(),
        }
    }

    /// The attention, with [T5's](InitialWeights::T5) initialisation if configured.
    fn drawn(
        &self,
        mut attention: MultiHeadAttention,
        n_heads: usize,
        init: &mut ParamInit,
    ) -> MultiHeadAttention {
        let InitialWeights::T5 { factor } = self.initial else { return attention };
        let of_queries = factor / (self.head_width(n_heads) as f64).sqrt();
        let MultiHeadAttention { query, key, value, output, .. } = &mut attention;
        for (map, factor) in [(query, of_queries), (key, factor), (value, factor), (output, factor)] {
            draw_by_inputs(map, factor, init);
        }
        attention
    }

    /// The same for a feed-forward network.
    fn draw_feed_forward(&self, network: &mut FeedForward, init: &mut ParamInit) {
        let InitialWeights::T5 { factor } = self.initial else { return };
        let FeedForward { up, down, gate, .. } = network;
        [up, down].into_iter().chain(gate).for_each(|map| draw_by_inputs(map, factor, init));
    }

    /// An embedding table in which the padding piece's row is zero, unless it is trained.
    fn table(&self, n: usize, init: &mut ParamInit) -> Embedding {
        let (d, std) = (self.d_model, self.table_std());
        // No row has this number.
        let pad = if self.trained_padding { n } else { self.tokens.pad };
        let mut place = 0;
        let weight = init.param([n, d], move |init| {
            let value = init.standard_normal() * std;
            let row = place / d;
            place = (place + 1) % (n * d);
            if row == pad { 0.0 } else { value as f32 }
        });
        Embedding::from_weight(weight)
    }

    /// Attention to other sequences, which has no positions.
    fn cross_attention(&self, n_heads: usize) -> MultiHeadAttentionConfig {
        let attention = MultiHeadAttentionConfig::of_heads(self.d_model, n_heads, self.head_width(n_heads))
            .with_biases(self.bias, self.bias)
            .with_dropout(self.attention_dropout);
        if self.scaled_scores { attention } else { attention.without_scale() }
    }

    /// Self-attention. The layers of a stack share the tables of rotary positions.
    fn attention(&self, n_heads: usize) -> MultiHeadAttentionConfig {
        let attention = self.cross_attention(n_heads);
        if let Some(rotary) = self.positions.rotary() {
            return attention.with_rotary(rotary.init(self.head_width(n_heads)));
        }
        match self.positions {
            PositionsConfig::Relative { max_distance, values } => {
                attention.with_relative(RelativeConfig { max_distance, values })
            }
            PositionsConfig::Alibi => attention.with_alibi(),
            _ => attention,
        }
    }

    fn final_norm(&self, init: &mut ParamInit) -> Option<Norm> {
        self.final_norms.then(|| Norm::new(self.norm_kind, self.d_model, self.layer_norm_eps, init))
    }

    fn layers<L>(
        &self,
        (n_layers, d_ff): (usize, usize),
        layer: impl Fn(&EncoderLayerConfig, &mut ParamInit) -> L,
        init: &mut ParamInit,
    ) -> Vec<L> {
        let config = EncoderLayerConfig {
            feed_forward: FeedForwardConfig {
                gated: self.gated,
                bias: self.bias,
                dropout: self.activation_dropout,
                ..FeedForwardConfig::new(self.d_model, d_ff, self.activation)
            },
            attention_output_dropout: self.dropout,
            feed_forward_output_dropout: self.dropout,
            norm: self.norm,
            norm_kind: self.norm_kind,
            layer_norm_eps: self.layer_norm_eps,
        };
        (0..n_layers).map(|_| layer(&config, init)).collect()
    }
}

/// Redraws a map's weights from a normal distribution with standard deviation `factor / √d_in`.
fn draw_by_inputs(map: &mut Linear, factor: f64, init: &mut ParamInit) {
    let shape: [usize; 2] = map.weight.lazy_shape().dims();
    map.weight = init.normal(shape, factor / (shape[0] as f64).sqrt());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights;
    use burn::tensor::Device;

    #[test]
    fn parameter_counts_are_those_of_the_paper() {
        // Table 3: 65 and 213 million, with a joint vocabulary of about 37,000 pieces.
        let count = |config: TransformerConfig| {
            let init = &mut ParamInit::new(&Device::flex(), 0).deferred();
            let shapes = weights::shapes(&config.init(init));
            shapes.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum::<usize>()
        };
        let (d, d_ff) = (512, 2_048);
        let attention = 4 * (d * d + d);
        let feed_forward = 2 * d * d_ff + d + d_ff;
        let layers = 6 * (attention + feed_forward + 4 * d) + 6 * (2 * attention + feed_forward + 6 * d);
        assert_eq!(count(TransformerConfig::base(37_000)), 37_000 * d + layers);
        assert_eq!(count(TransformerConfig::base(37_000)) / 1_000_000, 63);
        assert_eq!(count(TransformerConfig::big(37_000)) / 1_000_000, 214);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let config = TransformerConfig::new(100, 2, 64);
        let message = |config: TransformerConfig| config.validate().unwrap_err().to_string();
        let biased = |n_buckets, max_distance| {
            config.clone().with_positions(PositionsConfig::RelativeBias { n_buckets, max_distance })
        };
        for (config, expected) in [
            (config.clone().with_heads(5), "`n_heads` is 5, expected a divisor of `d_model`, which is 64"),
            (
                config.clone().with_decoder(3, 64),
                "`n_decoder_heads` is 3, expected a divisor of `d_model`, which is 64",
            ),
            (config.clone().with_decoder(1, 0), "`d_decoder_ff` is 0, expected at least 1"),
            (config.clone().with_layers(2, 0), "`n_decoder_layers` is 0, expected at least 1"),
            (config.clone().with_dropout(1.0), "`dropout` is 1, expected 0 or more and below 1"),
            (
                config.clone().with_source_vocab(50).with_tied(TiedEmbeddings::All),
                "`tied` is All, expected a setting that does not tie the source, which has a separate vocabulary",
            ),
            (
                config.clone().with_tokens(SpecialTokens::new(1, 100)),
                "`tokens.eos` is 100, expected below `vocab_size`, which is 100",
            ),
            (biased(7, 128), "`positions.n_buckets` is 7, expected an even number, at least 4"),
            (biased(0, 128), "`positions.n_buckets` is 0, expected at least 1"),
            (
                biased(32, 16),
                "`positions.max_distance` is 16, expected more than half of `n_buckets`, which is 16",
            ),
            (config.clone().with_d_head(0), "`d_head` is 0, expected at least 1"),
            (
                config.clone().with_initial(InitialWeights::T5 { factor: f64::NAN }),
                "`initial.factor` is NaN, expected a number of 0 or more, such as 1",
            ),
        ] {
            assert_eq!(message(config), format!("model configuration: {expected}"));
        }
        assert!(TransformerConfig::preset("huge", 10).unwrap_err().to_string().contains("base, big"));
    }

    #[test]
    fn a_configuration_is_written_and_read() {
        let bases = [
            TransformerConfig::base(100),
            TransformerConfig::big(100).with_source_vocab(7),
            TransformerConfig::t5(100, 2, 64).with_gate().with_d_head(8),
            TransformerConfig::base(100).with_decoder(4, 100),
        ];
        for config in bases {
            let json = serde_json::to_value(&config).unwrap();
            // Folders of before these switches are written as they were.
            let switches = ["d_head", "gated", "bias", "scaled_scores", "norm_kind", "output_dropout"];
            let is_plain = config.positions.relative_bias().is_none();
            assert!(switches.iter().all(|key| json.get(key).is_none() == is_plain), "{json}");
            assert_eq!(serde_json::from_value::<TransformerConfig>(json.clone()).unwrap(), config);
            let mut unknown = json;
            unknown["nlayers"] = 3.into();
            assert!(serde_json::from_value::<TransformerConfig>(unknown).is_err());
        }
    }

    #[test]
    fn a_t5_starts_from_its_own_distributions() {
        let init = &mut ParamInit::new(&Device::flex(), 5);
        let config =
            TransformerConfig::t5(300, 1, 64).with_heads(4).with_d_head(25).with_d_ff(144).with_gate();
        let model = TransformerConfig { tied: TiedEmbeddings::SourceTarget, ..config }.init(init);
        let expected = [
            ("target_embeddings.weight", 1.0),
            ("output.weight", 1.0),
            ("encoder_input.relative_bias.table.weight", 1.0 / 8.0),
            ("encoder.layers.0.attention.query.weight", 1.0 / 40.0),
            ("decoder.layers.0.attention.query.weight", 1.0 / 40.0),
            ("decoder.layers.0.cross_attention.query.weight", 1.0 / 40.0),
            ("decoder.layers.0.cross_attention.value.weight", 1.0 / 8.0),
            ("encoder.layers.0.attention.output.weight", 1.0 / 10.0),
            ("encoder.layers.0.feed_forward.gate.weight", 1.0 / 8.0),
            ("decoder.layers.0.feed_forward.down.weight", 1.0 / 12.0),
        ];
        let parameters = weights::collect(&model);
        for (path, expected) in expected {
            let values: Vec<f64> = parameters[path].iter::<f64>().collect();
            let std = (values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64).sqrt();
            // The table of distances has 128 numbers, the others thousands.
            let within = if path.contains("relative") { 0.2 } else { 0.05 };
            assert!((std / expected - 1.0).abs() < within, "{path}: {std} is not {expected}");
        }
        assert!(parameters.keys().all(|path| !path.ends_with("bias") && !path.ends_with("beta")));
        assert_eq!(parameters["encoder.final_norm.gamma"].iter::<f32>().sum::<f32>(), 64.0);
    }

    #[test]
    fn what_is_tied_is_there_once() {
        let init = &mut ParamInit::new(&Device::flex(), 0);
        let config = TransformerConfig::new(40, 1, 8).with_d_ff(8);
        for (tied, tables) in [
            (TiedEmbeddings::All, 1),
            (TiedEmbeddings::TargetOutput, 2),
            (TiedEmbeddings::SourceTarget, 2),
            (TiedEmbeddings::None, 3),
        ] {
            let model = config.clone().with_tied(tied).init(init);
            let shapes = weights::shapes(&model);
            let found = shapes.iter().filter(|(_, shape)| shape.contains(&40)).count();
            assert_eq!(found, tables, "{tied:?}");
            // The padding piece's embedding starts at zero.
            let row = model.target_embeddings.weight.val().narrow(0, 1, 1);
            assert_eq!(row.abs().sum().into_scalar::<f32>(), 0.0);
        }
    }
}
