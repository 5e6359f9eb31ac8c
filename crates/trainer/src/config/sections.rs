//! The sections of a run's config that belong to the trainer.

use std::path::{Path, PathBuf};

use cloze_model::bert::BertConfig;
use cloze_model::blocks::{Activation, NormPlacement};
use cloze_model::huggingface::{Architecture, Family, SaveConfig};
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};

use super::run::Pace;
use super::{ObjectiveSection, RunConfig};
use crate::engine::{NonFinite, Precision};

/// `[run]`: which run this is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RunSection {
    /// The run's name; the config file's stem where it is not given.
    pub name: String,
    /// Seed of everything random: initial weights, split, examples, masks, dropout. Default 42.
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
        /// Entries of the vocabulary, special tokens included.
        vocab_size: usize,
        /// Whether text is lower-cased and stripped of accents. Default true.
        #[serde(default = "defaults::yes")]
        lowercase: bool,
        /// How often a pair must occur to be merged. Default 2.
        #[serde(default = "defaults::min_frequency")]
        min_frequency: u64,
    },
    /// A byte-level BPE vocabulary trained on the corpus, as GPT-2's and RoBERTa's.
    TrainByteBpe {
        /// Entries of the vocabulary, special tokens included.
        vocab_size: usize,
        /// How often a pair must occur to be merged. Default 2.
        #[serde(default = "defaults::min_frequency")]
        min_frequency: u64,
    },
    /// A vocabulary of the corpus's characters, each a piece: for small language models.
    TrainCharacters {},
    /// A tokenizer that exists: a `tokenizer.json`, a `vocab.txt` or a folder with either.
    Load {
        /// The file or folder, relative to the current directory.
        path: PathBuf,
    },
    /// That of the checkpoint which `model.path` names; the only one there may be with it, and its default.
    Checkpoint {},
}

impl TokenizerSection {
    /// The name in configs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::TrainWordpiece { .. } => "train-wordpiece",
            Self::TrainByteBpe { .. } => "train-byte-bpe",
            Self::TrainCharacters {} => "train-characters",
            Self::Load { .. } => "load",
            Self::Checkpoint {} => "checkpoint",
        }
    }

    /// The file or folder that it is loaded from, where it is.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Load { path } => Some(path),
            Self::TrainWordpiece { .. }
            | Self::TrainByteBpe { .. }
            | Self::TrainCharacters {}
            | Self::Checkpoint {} => None,
        }
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
    /// All of them, the smallest first.
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

    /// The model of this size, with all else as in BERT-base.
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

    /// The keys of `[model]` it stands for, with their values.
    pub(super) fn sizes(self) -> [(&'static str, usize); 4] {
        // The vocabulary, which is not among them, does not matter.
        let BertConfig { n_layers, d_model, n_heads, d_ff, .. } = self.bert(1);
        [("n_layers", n_layers), ("d_model", d_model), ("n_heads", n_heads), ("d_ff", d_ff)]
    }
}

/// `[model]`: what is trained. The `kind` need not be written: with a `path` it is `"pretrained"`, else `"new"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ModelSection {
    /// An encoder with random weights.
    New(NewModel),
    /// A checkpoint's weights, to continue from.
    Pretrained(PretrainedModel),
}

impl ModelSection {
    /// The new model's, where it is one.
    pub fn as_new(&self) -> Option<&NewModel> {
        match self {
            Self::New(model) => Some(model),
            Self::Pretrained(_) => None,
        }
    }

    /// The checkpoint's, where there is one.
    pub fn as_pretrained(&self) -> Option<&PretrainedModel> {
        match self {
            Self::New(_) => None,
            Self::Pretrained(model) => Some(model),
        }
    }

    /// Whether types of tokens are languages.
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

    /// The checkpoint's, where there is one; programs may put a hub name's folder into its `path`.
    pub fn as_pretrained_mut(&mut self) -> Option<&mut PretrainedModel> {
        match self {
            Self::New(_) => None,
            Self::Pretrained(model) => Some(model),
        }
    }
}

/// A checkpoint that pretraining continues from. Its sizes and its tokenizer are its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PretrainedModel {
    /// The Hugging Face folder, relative to the current directory; programs may take a hub's name too.
    pub path: PathBuf,
    /// Dropout of embeddings and of each sublayer's output. Default the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_dropout: Option<f64>,
    /// Dropout of the attention probabilities. Default the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_dropout: Option<f64>,
    /// Whether its types of tokens are the languages of the corpus, as where it was pretrained so. Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub language_embeddings: bool,
}

/// A new encoder. The vocabulary's size is the tokenizer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NewModel {
    /// A published size: gives `n_layers`, `d_model`, `n_heads` and `d_ff` where their own keys do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<ModelPreset>,
    /// The published family whose architecture it has and as which it is saved, such as `"albert"`. Default `"bert"`.
    #[serde(default, skip_serializing_if = "is_bert")]
    pub family: Family,
    /// Encoder layers.
    pub n_layers: usize,
    /// Width of the hidden states.
    pub d_model: usize,
    /// Attention heads; divides `d_model`.
    pub n_heads: usize,
    /// Inner width of the feed-forward.
    pub d_ff: usize,
    /// Width of the embeddings where they are narrower than the hidden states (ALBERT, ELECTRA). Default `d_model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_embedding: Option<usize>,
    /// Longest sequence, in tokens. Default 512.
    #[serde(default = "defaults::max_positions")]
    pub max_positions: usize,
    /// How many tokens each way a token sees in layers with local attention (ModernBERT). Default 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_window: Option<usize>,
    /// Every so many layers one attends to the whole sequence, the first too (ModernBERT). Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_every: Option<usize>,
    /// Whether each token's embedding has its language's added (XLM; Conneau & Lample 2019, §3), in the place of its
    /// segment's: a row for each language of the corpus, in their order. Default false.
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
    /// Where layer norms stand. Default the family's: `"post"`, after each sublayer, or `"pre"` in ModernBERT. With
    /// another one the model could not be saved, so it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormPlacement>,
    /// Added to the variance in layer norms. Default 1e-12.
    #[serde(default = "defaults::layer_norm_eps")]
    pub layer_norm_eps: f64,
    /// Standard deviation of the truncated normal that weights start from. Default 0.02, BERT's; narrow
    /// models learn to attend sooner from about `1 / √d_model`, which keeps their scores' variance.
    #[serde(default = "defaults::init_std")]
    pub init_std: f64,
}

/// Runs of before there was a choice are resumed.
fn is_bert(family: &Family) -> bool {
    *family == Family::BERT
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl NewModel {
    /// Writes out what depends on other keys.
    pub(super) fn complete(&mut self) {
        self.norm = Some(self.with_vocabulary(1, 0).norm);
    }

    /// The model for a tokenizer's vocabulary.
    pub fn bert(&self, tokenizer: &Tokenizer) -> BertConfig {
        let pad = tokenizer.special_ids().pad.unwrap_or(0);
        self.with_vocabulary(tokenizer.vocab_size(), pad as usize)
    }

    /// The id that the family takes for padding whatever it is told.
    pub(crate) fn fixed_padding(&self) -> Option<u32> {
        let [first, second] = [0, 1].map(|told| self.with_vocabulary(2, told).pad_token_id);
        (first == second).then_some(first as u32)
    }

    /// The model for a vocabulary of `vocab_size` whose padding piece has the id `pad_token_id`.
    ///
    /// What the config gives is taken even where the family has no such thing: checking whether the model can be saved
    /// refuses it then, by its key.
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
        let mut encoder = self.family.encoder(sizes).with_layer_norm_eps(self.layer_norm_eps);
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

    /// The encoder as the objective of a run `config` trains it, and the class of transformers that it is saved as.
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
        let architecture = self.family.pretraining(pairs).unwrap_or(Architecture::MaskedLm);
        let encoder = encoder.with_pooler(architecture == Architecture::PreTraining);
        (encoder, SaveConfig::new(architecture).with_family(self.family).with_languages(languages))
    }
}

/// `[train]`: how much is trained, and with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TrainSection {
    /// Updates of the weights.
    pub steps: u64,
    /// Sequences in one micro-batch: what is in memory at once.
    pub batch_size: usize,
    /// Micro-batches averaged into one step. Default 1.
    #[serde(default = "defaults::one")]
    pub accumulate: usize,
    /// Threads that make batches; no result depends on it. Default 1.
    #[serde(default = "defaults::one")]
    pub workers: usize,
    /// Batches made ahead; no result depends on it. Default 4.
    #[serde(default = "defaults::prefetch")]
    pub prefetch: usize,
    /// What happens on a loss or gradient that is not finite. Default `"stop"`.
    #[serde(default)]
    pub non_finite: NonFinite,
    /// In what precision matrices are multiplied: `"f32"`, `"bf16"`, or on a graphics processor `"f16"`. Default `"f32"`.
    #[serde(default)]
    pub precision: Precision,
    /// Whether a layer's activations are not kept for the backward pass but computed again there: the same weights, in
    /// less memory, for about one more forward pass of time. Default false.
    #[serde(default)]
    pub recompute: bool,
}

impl TrainSection {
    /// What these say of a run that is measured each `every` steps, with this patience.
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
    /// Share of the documents held out from training, between 0 and 1. Default 0.05.
    pub heldout_fraction: f64,
    /// Steps between evaluations; the last step is always followed by one. Default 1,000.
    pub every: u64,
    /// Sequences in a batch. Default 64.
    pub batch_size: usize,
    /// Sequences evaluated at most, the same ones each time. Default 2,000.
    pub max_examples: usize,
    /// Evaluations in a row without a lower loss, that of masked tokens in pretraining, after which training ends; the
    /// best model is then the result. Without it, all steps are made, and the last model is the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
}

impl Default for EvalSection {
    fn default() -> Self {
        Self { heldout_fraction: 0.05, every: 1_000, batch_size: 64, max_examples: 2_000, patience: None }
    }
}

/// The defaults of sections that have required keys too.
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
