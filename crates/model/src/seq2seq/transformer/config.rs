use super::{StackInput, Transformer};
use crate::blocks::{
    Activation, Decoder, Embedding, Encoder, EncoderLayerConfig, FeedForwardConfig, LayerNorm, Linear,
    MultiHeadAttentionConfig, NormPlacement, RelativeConfig, RotaryConfig, SinusoidOrder,
};
use crate::ops::Rotary;
use crate::seq2seq::{SpecialTokens, TiedEmbeddings};
use crate::sizes::check_sizes;
use crate::{ModelError, ParamInit, Result};
use serde::{Deserialize, Serialize};

/// The configuration of a Transformer that reads a source and writes a target.
///
/// [`base`](Self::base) and [`big`](Self::big) are the models of Vaswani et al. 2017, table 3; fields or the `with_…`
/// methods set everything else.
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
    /// Heads of each attention; they share `d_model` evenly.
    pub n_heads: usize,
    /// Features inside the feed-forward networks.
    pub d_ff: usize,
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
    /// Where the layers normalise.
    pub norm: NormPlacement,
    /// Whether encoder and decoder end with a normalisation, which pre-norm stacks need.
    pub final_norms: bool,
    /// Added to the variance in every layer normalisation.
    pub layer_norm_eps: f64,
    /// Whether embeddings are multiplied by `√d_model` before positions are added (Vaswani et al. 2017, §3.4).
    pub scaled_embeddings: bool,
    /// Whether the sum of embeddings and positions is normalised, as in BART.
    pub embedding_norm: bool,
    /// The bias of the output layer.
    pub output_bias: OutputBias,
    /// How the weights are initialised.
    pub initial: InitialWeights,
    /// The ids of special tokens.
    pub tokens: SpecialTokens,
}

/// How positions are represented, in the encoder and in the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum PositionsConfig {
    /// Fixed [sinusoids](crate::blocks::SinusoidalPositions), added to the embeddings.
    Sinusoidal {
        /// The order of the features.
        #[serde(default)]
        order: SinusoidOrder,
    },
    /// [Learned tables](crate::blocks::LearnedPositions), one for the encoder and one for the decoder, added to the
    /// embeddings.
    Learned {
        /// Unused rows at the start of the table: 2 in BART.
        #[serde(default)]
        offset: usize,
    },
    /// Learned vectors for distances in each layer's self-attention (Shaw et al. 2018), see
    /// [`RelativePositions`](crate::blocks::RelativePositions).
    Relative {
        /// The greatest distance with its own vector; 16 in the paper's base model.
        max_distance: usize,
        /// Whether there are vectors for values as well as for keys, as in the paper.
        #[serde(default = "yes")]
        values: bool,
    },
    /// Scores of self-attention that decrease with the distance (Press et al. 2022). In the encoder, distances in both
    /// directions count alike.
    Alibi,
    /// Rotary positions in self-attention (Su et al. 2021).
    Rotary {
        /// Pair `i` of a head's `d / 2` is rotated by `theta^(−2i/d)` radians a position.
        #[serde(default = "theta")]
        theta: f64,
    },
    /// No positions at all.
    None,
}

fn yes() -> bool {
    true
}

fn theta() -> f64 {
    RotaryConfig::default().theta
}

impl PositionsConfig {
    /// The rotary positions, if they are of this kind.
    fn rotary(self) -> Option<RotaryConfig> {
        match self {
            Self::Rotary { theta } => Some(RotaryConfig { theta, ..RotaryConfig::default() }),
            _ => None,
        }
    }
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
            d_ff: 4 * d_model,
            max_positions: 1024,
            positions: PositionsConfig::Sinusoidal { order: SinusoidOrder::SinesFirst },
            dropout: 0.1,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            activation: Activation::Relu,
            norm: NormPlacement::Post,
            final_norms: false,
            layer_norm_eps: 1e-5,
            scaled_embeddings: true,
            embedding_norm: false,
            output_bias: OutputBias::None,
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

    /// Pieces in the source's vocabulary.
    pub fn source_vocabulary(&self) -> usize {
        self.source_vocab_size.unwrap_or(self.vocab_size)
    }

    /// Checks that the values fit together.
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
            ("d_ff", self.d_ff),
            ("max_positions", self.max_positions),
        ])?;
        if !self.d_model.is_multiple_of(self.n_heads) {
            let expected = format!("a divisor of `d_model`, which is {}", self.d_model);
            return refuse("n_heads", self.n_heads.to_string(), expected);
        }
        if self.tied.joins_source() && self.source_vocab_size.is_some() {
            let expected = "a setting that does not tie the source, which has a separate vocabulary".into();
            return refuse("tied", format!("{:?}", self.tied), expected);
        }
        const MOST: usize = i32::MAX as usize / 4;
        match self.positions {
            PositionsConfig::Learned { offset } if offset > MOST => {
                return refuse("positions.offset", offset.to_string(), format!("at most {MOST}"));
            }
            PositionsConfig::Relative { max_distance, .. } if max_distance > MOST => {
                return refuse("positions.max_distance", max_distance.to_string(), format!("at most {MOST}"));
            }
            _ => {}
        }
        if let Some(rotary) = self.positions.rotary() {
            rotary.validate(self.d_model / self.n_heads)?;
        }
        let positive = |x: f64| x >= 0.0 && x.is_finite();
        if !positive(self.layer_norm_eps) {
            let expected = "a number of 0 or more, such as 1e-5".into();
            return refuse("layer_norm_eps", self.layer_norm_eps.to_string(), expected);
        }
        if let InitialWeights::Normal { std } = self.initial
            && !positive(std)
        {
            return refuse("initial.std", std.to_string(), "a number of 0 or more, such as 0.02".into());
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
        }
    }

    fn build(&self, init: &mut ParamInit) -> Transformer {
        let bias = match self.output_bias {
            OutputBias::None => None,
            OutputBias::Fixed => Some(init.zeros([1, self.vocab_size]).set_require_grad(false)),
            OutputBias::Learned => Some(init.zeros([1, self.vocab_size])),
        };
        let rotary = self.positions.rotary().map(|rotary| rotary.init(self.d_model / self.n_heads));
        let (own, cross) = (self.attention(rotary.as_ref()), self.cross_attention());
        let source = (!self.tied.joins_source()).then(|| self.table(self.source_vocabulary(), init));
        Transformer {
            source_embeddings: source,
            target_embeddings: self.table(self.vocab_size, init),
            encoder_input: StackInput::new(self, init),
            encoder: Encoder {
                layers: self.layers(
                    self.n_encoder_layers,
                    |layer, init| {
                        let attention = own.init(init);
                        layer.init(attention, init)
                    },
                    init,
                ),
                final_norm: self.final_norm(init),
                repeats: 1,
                recompute: false,
            },
            decoder_input: StackInput::new(self, init),
            decoder: Decoder {
                layers: self.layers(
                    self.n_decoder_layers,
                    |layer, init| {
                        let (own, cross) = (own.init(init), cross.init(init));
                        layer.init_decoder(own, cross, init)
                    },
                    init,
                ),
                final_norm: self.final_norm(init),
            },
            output: (!self.tied.joins_output())
                .then(|| Linear::without_bias(self.d_model, self.vocab_size, init)),
            output_bias: bias,
            projection: None,
            config: self.clone(),
        }
    }

    /// An embedding table in which the padding piece's row is zero.
    fn table(&self, n: usize, init: &mut ParamInit) -> Embedding {
        let (d, pad, std) = (self.d_model, self.tokens.pad, self.table_std());
        let mut place = 0;
        let weight = init.param([n, d], move |init| {
            let value = init.standard_normal() * std;
            let row = place / d;
            place = (place + 1) % (n * d);
            if row == pad { 0.0 } else { value as f32 }
        });
        Embedding { weight }
    }

    /// Attention to other sequences, which has no positions.
    fn cross_attention(&self) -> MultiHeadAttentionConfig {
        MultiHeadAttentionConfig::new(self.d_model, self.n_heads).with_dropout(self.attention_dropout)
    }

    /// Self-attention; all layers share `rotary` and its tables.
    fn attention(&self, rotary: Option<&Rotary>) -> MultiHeadAttentionConfig {
        let attention = self.cross_attention();
        match (self.positions, rotary) {
            (_, Some(rotary)) => attention.with_rotary(rotary.clone()),
            (PositionsConfig::Relative { max_distance, values }, _) => {
                attention.with_relative(RelativeConfig { max_distance, values })
            }
            (PositionsConfig::Alibi, _) => attention.with_alibi(),
            _ => attention,
        }
    }

    fn final_norm(&self, init: &mut ParamInit) -> Option<LayerNorm> {
        self.final_norms.then(|| LayerNorm::new(self.d_model, self.layer_norm_eps, init))
    }

    fn layers<L>(
        &self,
        n: usize,
        layer: impl Fn(&EncoderLayerConfig, &mut ParamInit) -> L,
        init: &mut ParamInit,
    ) -> Vec<L> {
        let config = EncoderLayerConfig {
            feed_forward: FeedForwardConfig::new(self.d_model, self.d_ff, self.activation)
                .with_dropout(self.activation_dropout),
            attention_output_dropout: self.dropout,
            feed_forward_output_dropout: self.dropout,
            norm: self.norm,
            layer_norm_eps: self.layer_norm_eps,
        };
        (0..n).map(|_| layer(&config, init)).collect()
    }
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
        for (config, expected) in [
            (config.clone().with_heads(5), "`n_heads` is 5, expected a divisor of `d_model`, which is 64"),
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
        ] {
            assert_eq!(message(config), format!("model configuration: {expected}"));
        }
        assert!(TransformerConfig::preset("huge", 10).unwrap_err().to_string().contains("base, big"));
    }

    #[test]
    fn a_configuration_is_written_and_read() {
        let bases = [TransformerConfig::base(100), TransformerConfig::big(100).with_source_vocab(7)];
        for config in bases {
            let json = serde_json::to_value(&config).unwrap();
            assert_eq!(serde_json::from_value::<TransformerConfig>(json.clone()).unwrap(), config);
            let mut unknown = json;
            unknown["nlayers"] = 3.into();
            assert!(serde_json::from_value::<TransformerConfig>(unknown).is_err());
        }
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
