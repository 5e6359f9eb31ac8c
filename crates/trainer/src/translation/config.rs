//! A translation run's configuration, read as strictly as a [pretraining run's](crate::config).

use super::model::TranslationModel;
use super::validate::validate;
use crate::config::{ConfigFile, NonFinite, Pace, Precision, Run, layered};
use crate::error::Result;
use cloze_data::labelled::BatchSize;
use cloze_data::parallel::{OnBadPair, ParallelFiles};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Configures a run that trains a translation model: any file with `[parallel]`.
///
/// [`TranslationConfig::load`] resolves one from a file; its `[parallel]` section distinguishes it from other
/// runs'.
pub type TranslationConfig = Run<TranslationRun>;

/// The sections of a [`TranslationConfig`] besides those common to all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TranslationRun {
    /// `[parallel]`: languages and sentences.
    pub parallel: ParallelSection,
    /// `[tokenizer]`: the vocabulary shared by both languages; or, in its place, one for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<VocabularySection>,
    /// `[source_tokenizer]`: the source vocabulary, in place of a shared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_tokenizer: Option<VocabularySection>,
    /// `[target_tokenizer]`: the target vocabulary, in place of a shared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_tokenizer: Option<VocabularySection>,
    /// `[model]`: the network.
    pub model: TranslationModel,
    /// `[train]`: steps and batches.
    pub train: TranslationTrain,
    /// `[eval]`: when to evaluate, by which metric, and when to stop.
    #[serde(default)]
    pub eval: TranslationEval,
}

/// `[parallel]`: the languages, and sentences with their translations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ParallelSection {
    /// The source language, such as `"en"`.
    pub source: String,
    /// The target language, such as `"de"`.
    pub target: String,
    /// Maximum tokens of a source, and of a target; a pair with a longer side is a bad one. Default 256.
    #[serde(default = "defaults::max_len")]
    pub max_len: usize,
    /// What to do with an unusable pair: one with an empty side, too many tokens, or an unreadable line.
    /// Files that cannot be read, and files with different numbers of lines, are errors either way. Default
    /// `"error"`.
    #[serde(default)]
    pub on_bad_pair: OnBadPair,
    /// The largest share of a split's pairs that `on_bad_pair = "skip"` may leave out, from 0 to 1; more are an error, which
    /// names the first ones. One pair may always be left out. Default 0.05.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_skipped: Option<f64>,
    /// The training pairs.
    pub train: ParallelFiles,
    /// Pairs for evaluation during training. Default none.
    #[serde(default, skip_serializing_if = "ParallelFiles::is_empty")]
    pub dev: ParallelFiles,
    /// Pairs for evaluating the result. Default none.
    #[serde(default, skip_serializing_if = "ParallelFiles::is_empty")]
    pub test: ParallelFiles,
}

impl ParallelSection {
    /// The languages: source and target.
    pub fn languages(&self) -> [&str; 2] {
        [&self.source, &self.target]
    }
}

/// `[tokenizer]`: where a vocabulary comes from. A trained vocabulary starts with the pieces `<s>`, `<pad>`,
/// `</s>` and an unknown piece, preserves case unless `lowercase` is set, and is trained on the training pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum VocabularySection {
    /// Byte-pair encoding of characters (Sennrich et al. 2016), with SentencePiece's treatment of spaces.
    TrainBpe {
        /// Vocabulary size, special tokens included.
        vocab_size: usize,
        /// Whether text is lower-cased. Default false.
        #[serde(default)]
        lowercase: bool,
        /// How often a pair must occur to be merged. Default 2.
        #[serde(default = "defaults::min_frequency")]
        min_frequency: u64,
    },
    /// Byte-pair encoding of bytes, which can encode any text.
    TrainByteBpe {
        /// Vocabulary size, special tokens included.
        vocab_size: usize,
        /// Whether text is lower-cased. Default false.
        #[serde(default)]
        lowercase: bool,
        /// How often a pair must occur to be merged. Default 2.
        #[serde(default = "defaults::min_frequency")]
        min_frequency: u64,
    },
    /// WordPiece with BERT's splitting. Decoding loses the spacing of punctuation.
    TrainWordpiece {
        /// Vocabulary size, special tokens included.
        vocab_size: usize,
        /// Whether text is lower-cased and stripped of accents. Default false.
        #[serde(default)]
        lowercase: bool,
        /// How often a pair must occur to be merged. Default 2.
        #[serde(default = "defaults::min_frequency")]
        min_frequency: u64,
    },
    /// A Unigram model (Kudo 2018), with SentencePiece's treatment of spaces.
    TrainUnigram {
        /// Vocabulary size, special tokens included.
        vocab_size: usize,
        /// Whether text is lower-cased. Default false.
        #[serde(default)]
        lowercase: bool,
    },
    /// The most frequent words and punctuation marks, in this order; other words are `<unk>`. Texts are cut at white space
    /// and around punctuation, and written with spaces between the pieces.
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
    /// An existing tokenizer, a file or a folder, that ends texts with a piece such as `</s>`.
    Load {
        /// The file or folder, relative to the current directory.
        path: PathBuf,
    },
}

impl VocabularySection {
    /// The file or folder that it is loaded from, if any.
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::Load { path } => Some(path),
            _ => None,
        }
    }
}

/// `[train]`: steps, batches and precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TranslationTrain {
    /// Training steps, i.e. weight updates.
    pub steps: u64,
    /// Maximum tokens of a micro-batch, of sources and targets together, counted with padding to its longest
    /// pair. This or `batch_size` is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_tokens: Option<usize>,
    /// Pairs per micro-batch; a maximum if `batch_tokens` is set too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// Micro-batches averaged into one step. Default 1.
    #[serde(default = "defaults::one")]
    pub accumulate: usize,
    /// The fraction of each target spread over the vocabulary (Szegedy et al. 2016, §7). Default 0.
    #[serde(default)]
    pub label_smoothing: f64,
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
}

impl TranslationTrain {
    /// The pace of a run that is evaluated each `every` steps, with this patience.
    pub fn pace(&self, every: u64, patience: Option<u64>) -> Pace {
        Pace {
            steps: self.steps,
            precision: self.precision,
            non_finite: self.non_finite,
            evaluate_every: every,
            evaluate_untrained: false,
            patience,
        }
    }

    /// The size of a micro-batch.
    pub fn size(&self) -> BatchSize {
        match (self.batch_tokens, self.batch_size) {
            (Some(tokens), Some(examples)) => BatchSize::Within { examples, tokens },
            (Some(tokens), None) => BatchSize::Tokens(tokens),
            (None, examples) => BatchSize::Examples(examples.unwrap_or(1)),
        }
    }
}

/// `[eval]`: when to evaluate, by which metric, and when to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct TranslationEval {
    /// Steps between evaluations; the last step is always evaluated. Default 1,000.
    pub every: u64,
    /// The metric that decides which model is best: `"loss"`, `"perplexity"`, `"token_accuracy"` or `"bleu"`.
    /// Default `"loss"`.
    pub metric: String,
    /// The development set is translated for BLEU at every Nth evaluation and the last one; 0 for never.
    /// Default 1.
    pub bleu_every: u64,
    /// Beams to translate with; 1 is greedy. Default 1.
    pub beams: usize,
    /// Number of evaluations in a row without improvement after which training stops; the result is then the
    /// best model. Default none: all steps run, and the result is the last model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// Tokens per evaluation batch; only affects the last digits of results. Default 4,096.
    pub batch_tokens: usize,
}

impl Default for TranslationEval {
    fn default() -> Self {
        Self {
            every: 1_000,
            metric: "loss".into(),
            bleu_every: 1,
            beams: 1,
            patience: None,
            batch_tokens: 4_096,
        }
    }
}

/// See [`RunKind::read`](crate::runs::RunKind::read).
pub(crate) fn read(file: &ConfigFile, sets: &[String]) -> Result<TranslationConfig> {
    layered::read(file, sets, |config: &mut TranslationConfig| validate(config))
}

/// The defaults of sections that also have required keys.
mod defaults {
    pub fn max_len() -> usize {
        256
    }

    pub fn min_frequency() -> u64 {
        2
    }

    pub fn one() -> usize {
        1
    }

    pub fn prefetch() -> usize {
        4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FolderConfig;
    use crate::config::OutputSection;
    use crate::engine::Averaging;
    use crate::runs::RunKind;
    use crate::translation::vocabulary::VocabularySizes;
    use cloze_model::blocks::{PositionKind, PositionsConfig};
    use cloze_model::seq2seq::AnyEncoderDecoderConfig;

    const FILE: &str = r#"[parallel]
source = "en"
target = "de"
train = { source = ["train.en"], target = ["train.de"] }
dev = { files = ["dev.tsv"] }

[tokenizer]
kind = "train-bpe"
vocab_size = 8000

[model]
kind = "recurrent"
d_embedding = 256
d_model = 512

[train]
steps = 100
batch_tokens = 4096

[optimizer]
lr = 1e-3

[schedule]
kind = "noam"
warmup_steps = 10

[average]
kind = "last"
checkpoints = 5
every = 10
"#;

    fn load(text: &str, sets: &[&str]) -> Result<TranslationConfig> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ende.toml");
        std::fs::write(&path, text).unwrap();
        assert!(TranslationRun::is_of(&ConfigFile::open(&path).unwrap()));
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        TranslationConfig::load(&path, &sets)
    }

    #[test]
    fn a_file_is_completed_and_reads_back() {
        let config = load(FILE, &["train.label_smoothing=0.1"]).unwrap();
        assert_eq!((config.common.run.name.as_str(), config.parallel.max_len), ("ende", 256));
        assert_eq!(config.train.size(), BatchSize::Tokens(4096));
        assert_eq!(config.common.average, Some(Averaging::Last { checkpoints: 5, every: 10 }));
        assert_eq!(load(&config.to_toml(), &[]).unwrap(), config);
        let other = load(FILE, &["train.label_smoothing=0.1", "eval.every=3", "optimizer.lr=1e-4"]).unwrap();
        let differences: Vec<String> = config.differences(&other).iter().map(ToString::to_string).collect();
        assert_eq!(differences, ["optimizer.lr: 0.001 became 0.0001"]);
        let best = ["average={kind=\"best\", checkpoints=3}"];
        let other = load(FILE, &[&best[..], &["eval.every=3"]].concat()).unwrap();
        assert_eq!(load(FILE, &best).unwrap().differences(&other).len(), 1);
    }

    #[test]
    fn a_transformer_has_the_positions_that_are_asked_for() {
        let file = FILE.replace(
            "kind = \"recurrent\"\nd_embedding = 256\nd_model = 512",
            "kind = \"transformer\"\nn_layers = 1\nd_model = 16\nn_heads = 2\nd_ff = 32",
        );
        let load = |sets: &[&str]| load(&file, sets);
        let plain = load(&[]).unwrap();
        assert_eq!(load(&["model.positions=sinusoidal"]).unwrap(), plain);
        for kind in PositionKind::ALL {
            let config = load(&[&*format!("model.positions={}", kind.name())]).unwrap();
            assert_eq!(self::load(&config.to_toml(), &[]).unwrap(), config);
            let built = config.model.config(VocabularySizes::unknown(true, &OutputSection::default()), 64);
            let AnyEncoderDecoderConfig::Transformer(built) = built else { panic!("{built:?}") };
            match kind {
                // Its sines stand first, as in Marian's folders.
                PositionKind::Sinusoidal => {
                    assert!(matches!(built.positions, PositionsConfig::Sinusoidal { .. }));
                }
                kind => assert_eq!(built.positions, kind.into()),
            }
        }
        let error = |sets: &[&str]| load(sets).unwrap_err().to_string();
        let unknown = error(&["model.positions=spiral"]);
        assert!(
            unknown.contains("`model.positions` is \"spiral\"; expected one of \"learned\""),
            "{unknown}"
        );
        let odd = error(&["model.positions=rotary", "model.d_model=6", "model.n_heads=2"]);
        assert!(odd.contains("`model.n_heads` is 2; expected heads of an even width"), "{odd}");
    }

    #[test]
    fn mistakes_have_a_place() {
        let error = |sets: &[&str]| load(FILE, sets).unwrap_err().to_string();
        let of_file = |from: &str, to: &str| load(&FILE.replace(from, to), &[]).unwrap_err().to_string();
        let typo = of_file("batch_tokens", "batch_token");
        assert!(
            typo.contains("unknown key `train.batch_token`; did you mean `train.batch_tokens`?"),
            "{typo}"
        );
        for (set, expected) in [
            ("train.steps=0", "`train.steps` is 0; expected a whole number of 1 or more"),
            ("train.label_smoothing=1", "`train.label_smoothing` is 1; expected a number from 0 to below 1"),
            ("model.n_layers=0", "`model.n_layers` is 0; expected at least 1"),
            ("model.dropout=1", "`model.dropout` is 1; expected"),
            ("model.d_model=3", "`model.d_model` is 3; expected an even number"),
            ("model.kind=rnn", "`model.kind` is \"rnn\"; expected"),
            ("schedule.warmup_steps=101", "expected at most 100, the steps of the run"),
            ("average.checkpoints=0", "`average.checkpoints` is 0; expected a whole number from 1 to 1000"),
            ("average={kind=\"ema\", decay=1}", "`average.decay` is 1; expected a number from 0 to below 1"),
            ("tokenizer.vocab_size=3", "`tokenizer.vocab_size` is 3; expected a whole number of 32 or more"),
            ("eval.metric=ter", "`eval.metric` is ter; expected one of"),
            ("eval.beams=0", "`eval.beams` is 0; expected a whole number from 1 to 1000"),
            ("parallel.source=''", "`parallel.source` is \"\"; expected the language's name"),
            (
                "parallel.target=en",
                "`parallel.target` is en; expected another language than `parallel.source`",
            ),
            ("parallel.max_len=1", "`parallel.max_len` is 1; expected a whole number of 2 or more"),
            ("parallel.max_skipped=0.5", "`parallel.max_skipped` is 0.5; expected no such key without"),
            ("parallel.train.sauce=1", "unknown key `parallel.train.sauce`"),
            (
                "source_tokenizer={kind=\"load\", path=\"a\"}",
                "`source_tokenizer` is there; expected either `tokenizer`, or both `source_tokenizer` and `target_tokenizer`",
            ),
            ("eval={metric=\"bleu\", bleu_every=2}", "`eval.bleu_every` is 2; expected 1"),
        ] {
            let message = error(&[set]);
            assert!(message.contains(expected), "{set}: {message}");
        }
        let share = error(&["parallel.on_bad_pair=skip", "parallel.max_skipped=2"]);
        assert!(share.contains("`parallel.max_skipped` is 2; expected a number from 0 to 1"), "{share}");
        let sets =
            ["model={kind='transformer', n_layers=1, d_model=16, n_heads=2, d_ff=8}", "model.n_heads=3"];
        let message = load(FILE, &sets).unwrap_err().to_string();
        assert!(
            message.contains("`model.n_heads` is 3; expected a divisor of `model.d_model`, which is 16"),
            "{message}"
        );
        let sets = ["model={kind='convolutional', n_layers=2, d_embedding=8, d_model=16}", "model.kernel=0"];
        let message = load(FILE, &sets).unwrap_err().to_string();
        assert!(message.contains("`model.kernel` is 0; expected at least 1"), "{message}");
        for (sets, expected) in [
            (&["model.output={kind='sampled', samples=0}"][..], "`model.output.samples` is 0; expected"),
            (
                &["model.output={kind='adaptive', cutoffs=[40, 30]}"],
                "`model.output.cutoffs` is [40, 30]; expected ascending numbers",
            ),
            (
                &["model.output={kind='sampled', samples=9}", "train.label_smoothing=0.1"],
                "`train.label_smoothing` is 0.1; expected 0",
            ),
            (
                &["tokenizer={kind='train-words', vocab_size=4}"],
                "`tokenizer.vocab_size` is 4; expected a whole number of 5 or more",
            ),
        ] {
            let sets = [&["train.label_smoothing=0"], sets].concat();
            let message = load(FILE, &sets).unwrap_err().to_string();
            assert!(message.contains(expected), "{sets:?}: {message}");
        }
        let none = of_file("batch_tokens = 4096", "");
        assert!(none.contains("`train.batch_tokens` is absent; expected it or `train.batch_size`"), "{none}");
        let unmeasured = FILE.replace("dev = { files = [\"dev.tsv\"] }", "");
        let message = load(&unmeasured, &["eval.patience=3"]).unwrap_err().to_string();
        assert!(message.contains("it requires `parallel.dev`"), "{message}");
    }
}
