//! The trainer's config sections.

use std::path::{Path, PathBuf};

use cloze_model::bert::BertConfig;
use cloze_model::blocks::{Activation, NormPlacement, PositionKind};
use cloze_model::huggingface::{Architecture, Family, SaveConfig};
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};

use super::run::Pace;
use super::{ObjectiveSection, RunConfig};
use crate::engine::{NonFinite, Precision};

/// `[run]`: identifies the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RunSection {
    /// The run's name; without `--out` its folder is `runs/NAME`. Default the config file's stem.
    pub name: String,
    /// Random seed: initial weights, splits, order, examples, masks, dropout. Default 42.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
}

/// `[tokenizer]`: where the vocabulary comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum TokenizerSection {
    /// A WordPiece vocabulary trained on the corpus, with BERT's normalisation.
    TrainWordpiece {
        /// Vocabulary size, special tokens included.
        vocab_size: usize,
        /// Whether text is lower-cased and stripped of accents. Default true.
        #[serde(default = "defaults::yes")]
        lowercase: bool,
        /// How often a pair must occur to be merged. Default 2.
        #[serde(default = "defaults::min_frequency")]
        min_frequency: u64,
    },
    /// A byte-level BPE vocabulary trained on the corpus, as for GPT-2 and RoBERTa.
    TrainByteBpe {
        /// Vocabulary size, special tokens included.
        vocab_size: usize,
        /// How often a pair must occur to be merged. Default 2.
        #[serde(default = "defaults::min_frequency")]
        min_frequency: u64,
    },
    /// A vocabulary of the corpus's characters, one piece each: for small language models, and only for them.
    TrainCharacters {},
    /// The corpus's most frequent words and punctuation marks, in this order, for language models only; other words are
    /// `<unk>`. Texts are cut at white space and around punctuation, and written with spaces between the pieces.
    TrainWords {
        /// Vocabulary size, special tokens included.
        vocab_size: usize,
        /// Whether text is lower-cased. Default false.
        #[serde(default)]
        lowercase: bool,
        /// How often a word must occur. Default 2.
        #[serde(default = "defaults::min_frequency")]
        min_frequency: u64,
    },
    /// An existing tokenizer.
    Load {
        /// A `tokenizer.json`, a `vocab.txt` or a folder with either, relative to the current directory.
        path: PathBuf,
    },
    /// The tokenizer of the checkpoint in `model.path`; with a checkpoint, the default and the only choice.
    Checkpoint {},
}

impl TokenizerSection {
    /// The name in configs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::TrainWordpiece { .. } => "train-wordpiece",
            Self::TrainByteBpe { .. } => "train-byte-bpe",
            Self::TrainCharacters {} => "train-characters",
            Self::TrainWords { .. } => "train-words",
            Self::Load { .. } => "load",
            Self::Checkpoint {} => "checkpoint",
        }
    }

    /// The file or folder that it is loaded from, if any.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Load { path } => Some(path),
            Self::TrainWordpiece { .. }
            | Self::TrainByteBpe { .. }
            | Self::TrainCharacters {}
            | Self::TrainWords { .. }
            | Self::Checkpoint {} => None,
        }
    }

    /// Whether it is one for language models only, without mask and padding pieces.
    pub(crate) fn is_for_language_models(&self) -> bool {
        matches!(self, Self::TrainCharacters {} | Self::TrainWords { .. })
    }
}

/// The published sizes of BERT (Devlin et al. 2019; the small ones Turc et al. 2019).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ModelPreset {
    /// 2 layers of width 128.
    Tiny,
    /// 4 layers of width 256.
    Mini,
    /// 4 layers of width 512.
    Small,
    /// 8 layers of width 512.
    Medium,
    /// 12 layers of width 768.
    Base,
    /// 24 layers of width 1,024.
    Large,
}

impl ModelPreset {
    /// All presets, the smallest first.
    pub const ALL: [Self; 6] = [Self::Tiny, Self::Mini, Self::Small, Self::Medium, Self::Base, Self::Large];

    /// The name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Mini => "mini",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Base => "base",
            Self::Large => "large",
        }
    }

    /// The model of this size, otherwise like BERT-base.
    fn bert(self, vocab_size: usize) -> BertConfig {
        match self {
            Self::Tiny => BertConfig::tiny(vocab_size),
            Self::Mini => BertConfig::mini(vocab_size),
            Self::Small => BertConfig::small(vocab_size),
            Self::Medium => BertConfig::medium(vocab_size),
            Self::Base => BertConfig::base(vocab_size),
            Self::Large => BertConfig::large(vocab_size),
        }
    }

    /// The keys of `[model]` that it sets, with their values.
    pub(super) fn sizes(self) -> [(&'static str, usize); 4] {
        // The vocabulary, which is not among them, does not matter.
        let BertConfig { n_layers, d_model, n_heads, d_ff, .. } = self.bert(1);
        [("n_layers", n_layers), ("d_model", d_model), ("n_heads", n_heads), ("d_ff", d_ff)]
    }
}

/// `[model]`: the encoder to train. With `path`, only `hidden_dropout`, `attention_dropout` and
/// `language_embeddings` may be set besides.
///
/// `kind` is optional: `"pretrained"` with a `path`, else `"new"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ModelSection {
    /// An encoder with random weights.
    New(NewModel),
    /// A checkpoint's weights to continue from.
    Pretrained(PretrainedModel),
}

impl ModelSection {
    /// The new model's settings, if it is new.
    pub fn as_new(&self) -> Option<&NewModel> {
        match self {
            Self::New(model) => Some(model),
            Self::Pretrained(_) => None,
        }
    }

    /// The checkpoint's settings, if there is one.
    pub fn as_pretrained(&self) -> Option<&PretrainedModel> {
        match self {
            Self::New(_) => None,
            Self::Pretrained(model) => Some(model),
        }
    }

    /// Whether token types are languages.
    pub fn has_language_embeddings(&self) -> bool {
        match self {
            Self::New(model) => model.language_embeddings,
            Self::Pretrained(model) => model.language_embeddings,
        }
    }

    /// The checkpoint's folder, if there is one.
    pub fn checkpoint(&self) -> Option<&Path> {
        self.as_pretrained().map(|model| model.path.as_path())
    }

    /// The checkpoint's settings, if there is one; programs may resolve a hub name in its `path`.
    pub fn as_pretrained_mut(&mut self) -> Option<&mut PretrainedModel> {
        match self {
            Self::New(_) => None,
            Self::Pretrained(model) => Some(model),
        }
    }
}

/// A checkpoint to continue pretraining from. Its sizes and its tokenizer are its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PretrainedModel {
    /// The checkpoint: a Hugging Face folder, relative to the current directory; `cloze` also takes a name on
    /// the hub. For replaced tokens it must be a discriminator; training also continues from a generator in
    /// its subfolder `generator`.
    pub path: PathBuf,
    /// The layers to start from, counted from 0, such as every other one for a student of its teacher. Default
    /// all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<usize>>,
    /// Dropout of embeddings and of each sublayer's output. Default the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_dropout: Option<f64>,
    /// Dropout of the attention probabilities. Default the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_dropout: Option<f64>,
    /// Whether its token types are the corpus's languages, if it was pretrained that way. Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub language_embeddings: bool,
}

/// A new encoder. The vocabulary size is the tokenizer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NewModel {
    /// A published size. It sets `n_layers`, `d_model`, `n_heads` and `d_ff`, each of which may also be set
    /// by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<ModelPreset>,
    /// The published family whose architecture and file format it uses: `"bert"`, `"roberta"`,
    /// `"xlm-roberta"`, `"camembert"`, `"distilbert"`, `"albert"`, `"electra"`, `"modernbert"`, `"mpnet"`,
    /// `"deberta-v2"`, `"nomic_bert"`, `"gte"` or `"xlm"`. With `language_embeddings` and `d_ff` four times
    /// `d_model`, `"xlm"` is saved as an XLM, whose masked-LM head has no transform. Default `"bert"`.
    #[serde(default, skip_serializing_if = "is_bert")]
    pub family: Family,
    /// Encoder layers. Default the preset's; required without one.
    pub n_layers: usize,
    /// Width of the hidden states. Default the preset's; required without one.
    pub d_model: usize,
    /// Attention heads; divides `d_model`. Default the preset's; required without one.
    pub n_heads: usize,
    /// Inner width of the feed-forward. Default the preset's; required without one.
    pub d_ff: usize,
    /// Width of the embeddings, which are projected to `d_model` (ALBERT, ELECTRA). Default `d_model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_embedding: Option<usize>,
    /// How positions are represented, in a `"bert"`; other families have positions of their own. transformers' BERT has
    /// learned positions alone: a model with others is saved in a format of this program. Default the family's, which is
    /// `"learned"` in a `"bert"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<PositionKind>,
    /// Maximum sequence length in tokens. Without a table of positions it costs nothing, and may be beyond what is trained.
    /// Default 512.
    #[serde(default = "defaults::max_positions")]
    pub max_positions: usize,
    /// Number of tokens on each side that a token attends to in local-attention layers (ModernBERT). Default
    /// 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_window: Option<usize>,
    /// One in this many layers, starting with the first, has global attention (ModernBERT). Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_every: Option<usize>,
    /// Whether a vector for its language is added to each token's embedding (XLM; Conneau & Lample 2019, §3)
    /// in place of the segment's: one row per language of `corpus.languages`, in order. Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub language_embeddings: bool,
    /// Dropout of embeddings and of each sublayer's output. Default 0.1.
    #[serde(default = "defaults::dropout")]
    pub hidden_dropout: f64,
    /// Dropout of the attention probabilities. Default 0.1.
    #[serde(default = "defaults::dropout")]
    pub attention_dropout: f64,
    /// The feed-forward's activation. Default `"gelu"`.
    #[serde(default)]
    pub activation: Activation,
    /// Position of the layer norms. Any other than the family's is rejected, because no Hugging Face folder
    /// can hold such a model. Default the family's: `"post"`, or `"pre"` in ModernBERT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormPlacement>,
    /// Added to the variance in layer norms. Default 1e-12.
    #[serde(default = "defaults::layer_norm_eps")]
    pub layer_norm_eps: f64,
    /// Standard deviation of the truncated normal distribution of initial weights. With about `1 / √d_model`,
    /// which preserves their scores' variance, narrow models learn to attend sooner. Default 0.02.
    #[serde(default = "defaults::init_std")]
    pub init_std: f64,
}

/// Lets runs from before this option existed resume.
fn is_bert(family: &Family) -> bool {
    *family == Family::BERT
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl NewModel {
    /// Fills in values that depend on other keys.
    pub(super) fn complete(&mut self) {
        self.norm = Some(self.with_vocabulary(1, 0).norm);
    }

    /// The model for a tokenizer's vocabulary.
    pub fn bert(&self, tokenizer: &Tokenizer) -> BertConfig {
        let pad = tokenizer.special_ids().pad.unwrap_or(0);
        self.with_vocabulary(tokenizer.vocab_size(), pad as usize)
    }

    /// The padding id that the family always uses, if it has one.
    pub(crate) fn fixed_padding(&self) -> Option<u32> {
        let [first, second] = [0, 1].map(|told| self.with_vocabulary(2, told).pad_token_id);
        (first == second).then_some(first as u32)
    }

    /// The model with this `vocab_size` and padding id `pad_token_id`.
    ///
    /// Config values are applied even if the family does not support them: the check whether the model can be
    /// saved then rejects them by key.
    pub(crate) fn with_vocabulary(&self, vocab_size: usize, pad_token_id: usize) -> BertConfig {
        let sizes = BertConfig::new(vocab_size, self.n_layers, self.d_model)
            .with_n_heads(self.n_heads)
            .with_d_ff(self.d_ff)
            .with_d_embedding(self.d_embedding)
            .with_max_positions(self.max_positions)
            .with_hidden_dropout(self.hidden_dropout)
            .with_attention_dropout(self.attention_dropout)
            .with_activation(self.activation)
            .with_layer_norm_eps(self.layer_norm_eps)
            .with_init_std(self.init_std)
            .with_pad_token_id(pad_token_id);
        let sizes = match self.positions {
            Some(kind) => sizes.with_positions(kind.into()),
            None => sizes,
        };
        let mut encoder = self.saved_family().encoder(sizes).with_layer_norm_eps(self.layer_norm_eps);
        encoder.d_embedding = self.d_embedding.or(encoder.d_embedding);
        if self.family == Family::XLM {
            encoder = encoder.with_d_ff(self.d_ff).with_activation(self.activation);
        }
        encoder.norm = self.norm.unwrap_or(encoder.norm);
        if let Some(local) = &mut encoder.local {
            local.window = self.local_window.unwrap_or(local.window);
            local.global_every = self.global_every.unwrap_or(local.global_every);
        }
        encoder
    }

    /// The family whose format it is saved in: transformers' BERT has learned positions alone.
    fn saved_family(&self) -> Family {
        let has_others = self.positions.is_some_and(|kind| kind != PositionKind::Learned);
        if has_others && self.family == Family::BERT { Family::CLOZE_BERT } else { self.family }
    }

    /// The encoder as trained by `config`'s objective, and the transformers class that it is saved as.
    pub(crate) fn published(&self, config: &RunConfig, encoder: BertConfig) -> (BertConfig, SaveConfig) {
        let encoder = match self.language_embeddings {
            true => encoder.with_n_token_types(config.corpus.languages.len()),
            false => encoder,
        };
        let languages = config.language_names();
        if matches!(config.objective, ObjectiveSection::ReplacedTokens { .. }) {
            let encoder = encoder.with_pooler(false).with_mlm_activation(Some(Activation::Gelu));
            let save = SaveConfig::new(Architecture::ReplacedTokens).with_family(Family::ELECTRA);
            return (encoder, save.with_languages(languages));
        }
        // A new BERT always has both heads. Pairs that a family has no head for are refused when a config is read.
        let pairs = config.examples.has_pairs() || self.family == Family::BERT;
        let family = self.saved_family();
        let architecture = family.pretraining(pairs).unwrap_or(Architecture::MaskedLm);
        let encoder = encoder.with_pooler(architecture == Architecture::PreTraining);
        (encoder, SaveConfig::new(architecture).with_family(family).with_languages(languages))
    }
}

/// `[train]`: steps, batches and precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TrainSection {
    /// Training steps, i.e. weight updates.
    pub steps: u64,
    /// Sequences per micro-batch, the unit held in memory.
    pub batch_size: usize,
    /// Micro-batches averaged into one step. Default 1.
    #[serde(default = "defaults::one")]
    pub accumulate: usize,
    /// Threads that build batches; results do not depend on it. Default 1.
    #[serde(default = "defaults::one")]
    pub workers: usize,
    /// Batches prefetched; results do not depend on it. Default 4.
    #[serde(default = "defaults::prefetch")]
    pub prefetch: usize,
    /// What to do on a non-finite loss or gradient. Default `"stop"`.
    #[serde(default)]
    pub non_finite: NonFinite,
    /// Precision of matrix products. Default `"f32"`.
    #[serde(default)]
    pub precision: Precision,
    /// Whether to recompute a layer's activations in the backward pass instead of keeping them: the same
    /// weights in less memory, for about one more forward pass. Only on flex. Default false.
    #[serde(default)]
    pub recompute: bool,
}

impl TrainSection {
    /// The pace of a run that is evaluated each `every` steps, with this patience.
    pub fn pace(&self, every: u64, patience: Option<u64>) -> Pace {
        Pace {
            steps: self.steps,
            precision: self.precision,
            non_finite: self.non_finite,
            evaluate_every: every,
            evaluate_untrained: true,
            patience,
        }
    }
}

/// `[eval]`: evaluation on held-out documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct EvalSection {
    /// Fraction of the documents held out from training, between 0 and 1. Default 0.05.
    pub heldout_fraction: f64,
    /// Steps between evaluations; the last step is always evaluated. Default 1,000.
    pub every: u64,
    /// Sequences per batch. Default 64.
    pub batch_size: usize,
    /// Maximum number of sequences to evaluate, always the same ones. Default 2,000.
    pub max_examples: usize,
    /// Number of evaluations in a row without a lower loss (in pretraining, of masked tokens) after which
    /// training stops; the result is then the best model. Default none: all steps run, and the result is the
    /// last model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
}

impl Default for EvalSection {
    fn default() -> Self {
        Self { heldout_fraction: 0.05, every: 1_000, batch_size: 64, max_examples: 2_000, patience: None }
    }
}

/// The defaults of sections that also have required keys.
mod defaults {
    pub fn seed() -> u64 {
        42
    }

    pub fn yes() -> bool {
        true
    }

    pub fn min_frequency() -> u64 {
        2
    }

    pub fn max_positions() -> usize {
        512
    }

    pub fn dropout() -> f64 {
        0.1
    }

    pub fn init_std() -> f64 {
        0.02
    }

    pub fn layer_norm_eps() -> f64 {
        1e-12
    }

    pub fn one() -> usize {
        1
    }

    pub fn prefetch() -> usize {
        4
    }
}
