//! The configuration of a run that trains an encoder–decoder by denoising, read as strictly as a [pretraining
//! run's](super::RunConfig).

use super::layered::ConfigFile;
use super::objective::Trained;
use super::validate::{self, Check, Complaint, at_least, ensure, within};
use super::{EvalSection, ObjectiveSection, Run, TokenizerSection, TrainSection, layered};
use crate::denoising::DenoisingModel;
use crate::error::Result;
use cloze_data::{CorpusConfig, DataError, DenoisingConfig, PairConfig, SpanCorruption};
use serde::{Deserialize, Serialize};

/// Configures a run that trains an encoder–decoder on raw text by denoising (Lewis et al. 2020; Raffel et al.
/// 2020): `objective.kind = "denoising"`.
///
/// [`DenoisingRunConfig::load`] resolves one from a file; its `[objective]` distinguishes it from other
/// runs'.
pub type DenoisingRunConfig = Run<DenoisingRun>;

/// The sections of a [`DenoisingRunConfig`] besides those common to all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DenoisingRun {
    /// `[objective]`: what is predicted; `kind` is `"denoising"`.
    pub objective: ObjectiveSection,
    /// `[corpus]`: the text.
    pub corpus: CorpusConfig,
    /// `[tokenizer]`: the vocabulary. With `denoising.kind = "t5"`, a trained one has the sentinels that
    /// texts of `examples.seq_len` tokens need, and a loaded one must have them.
    pub tokenizer: TokenizerSection,
    /// `[examples]`: the texts before noising.
    pub examples: DenoisingExamples,
    /// `[denoising]`: the noise and the form of targets. Default BART-large's.
    #[serde(default)]
    pub denoising: DenoisingConfig,
    /// `[model]`: the network.
    pub model: DenoisingModel,
    /// `[train]`: steps and batches. `recompute` is rejected.
    pub train: TrainSection,
    /// `[eval]`: held-out evaluation.
    #[serde(default)]
    pub eval: EvalSection,
}

/// `[examples]`: the texts before noising.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DenoisingExamples {
    /// Maximum tokens of a text before noise, special tokens included. A source that noise makes longer is
    /// truncated.
    pub seq_len: usize,
    /// Whether a text continues into the next document: `"full-sentences"`, or `"doc-sentences"` if it does
    /// not. Default `{ kind = "full-sentences" }`.
    #[serde(default = "full_sentences")]
    pub pairs: PairConfig,
}

fn full_sentences() -> PairConfig {
    PairConfig::FullSentences
}

/// Keys or key prefixes that do not affect the weights.
pub(crate) const FREE_KEYS: [&str; 8] = [
    "run.name",
    "train.workers",
    "train.prefetch",
    "eval.every",
    "eval.batch_size",
    "eval.max_examples",
    "checkpoint.",
    "log.",
];

/// See [`RunKind::read`](crate::runs::RunKind::read).
pub(crate) fn read(file: &ConfigFile, sets: &[String]) -> Result<DenoisingRunConfig> {
    layered::read(file, sets, |config: &mut DenoisingRunConfig| validate(config))
}

impl DenoisingRunConfig {
    /// Sentinels that the vocabulary must have: none unless spans are replaced by them.
    pub fn n_sentinels(&self) -> usize {
        match self.denoising {
            // The end piece stands behind a text.
            DenoisingConfig::T5 { density, mean_span } => {
                SpanCorruption::needed(density, mean_span, self.examples.seq_len.saturating_sub(1))
            }
            _ => 0,
        }
    }

    /// Maximum tokens of a source or a target.
    pub fn max_len(&self) -> usize {
        let [source, target] = self.denoising.longest(self.examples.seq_len);
        source.max(target)
    }
}

/// The longest text, such that twice its tokens can be indexed.
const LONGEST: usize = 1 << 24;

fn validate(config: &DenoisingRunConfig) -> Check {
    config.objective.check(Trained::EncoderDecoder)?;
    validate::corpus(&config.corpus)?;
    // The noise before what it asks of the others.
    denoising(&config.denoising)?;
    within(8..=LONGEST, "examples.seq_len", config.examples.seq_len)?;
    let kind = match config.examples.pairs {
        PairConfig::NextSentence { .. } => "\"next-sentence\"",
        _ => "\"sentence-order\"",
    };
    let expected = "\"doc-sentences\" or \"full-sentences\": noise is put on single texts";
    ensure(!config.examples.pairs.has_pairs(), "examples.pairs.kind", kind, expected)?;
    tokenizer(config)?;
    config.model.check(config.examples.seq_len, config.max_len())?;
    validate::train(&config.train, config.max_len().saturating_mul(2))?;
    let expected = "false: the layers of an encoder–decoder are not recomputed";
    ensure(!config.train.recompute, "train.recompute", true, expected)?;
    config.common.check(config.train.steps)?;
    validate::held_out(&config.eval)
}

fn denoising(denoising: &DenoisingConfig) -> Check {
    denoising.check().map_err(|error| match error {
        DataError::DenoisingSetting { key, found, expected } => {
            Complaint { key: format!("denoising.{key}"), found, expected: expected.into() }
        }
        other => {
            Complaint { key: "denoising".into(), found: "impossible".into(), expected: other.to_string() }
        }
    })
}

fn tokenizer(config: &DenoisingRunConfig) -> Check {
    let kind = config.tokenizer.kind();
    let has_none = config.tokenizer.is_for_language_models();
    ensure(
        !has_none,
        "tokenizer.kind",
        kind,
        "a tokenizer with mask and padding tokens, such as `train-wordpiece`",
    )?;
    validate::tokenizer(&config.tokenizer)?;
    validate::goes_with_the_model(&config.tokenizer, true)?;
    let sentinels = config.n_sentinels();
    match config.tokenizer {
        TokenizerSection::TrainWordpiece { vocab_size, .. } => {
            at_least(32 + sentinels, "tokenizer.vocab_size", vocab_size)
        }
        TokenizerSection::TrainByteBpe { vocab_size, .. } => {
            at_least(261 + sentinels, "tokenizer.vocab_size", vocab_size)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::config::OutputSection;
    use crate::engine::FolderConfig;
    use cloze_data::NoiseConfig;
    use cloze_model::seq2seq::AnyEncoderDecoderConfig;
    use std::path::Path;

    const FILE: &str = r#"[objective]
kind = "denoising"

[corpus]
files = ["a.txt"]

[tokenizer]
kind = "train-byte-bpe"
vocab_size = 512

[examples]
seq_len = 64

[denoising]
kind = "bart"
noises = [{ kind = "rotation" }, { kind = "masking", share = 0.2 }]

[model]
kind = "bart"
n_layers = 2
d_model = 32
n_heads = 4
d_ff = 64
max_positions = 64

[train]
steps = 100
batch_size = 8

[optimizer]
lr = 1e-3

[schedule]
kind = "linear"
warmup_steps = 10
"#;

    fn resolve(text: &str, sets: &[&str]) -> Result<DenoisingRunConfig> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        DenoisingRunConfig::parse(text, "run", &Place::file(Path::new("run.toml")), &sets)
    }

    #[test]
    fn a_file_is_completed_and_reads_back_the_same() {
        for sets in [
            vec![],
            vec!["denoising={ kind = \"t5\", density = 0.2 }", "eval.patience=3"],
            vec![
                "examples.pairs.kind=doc-sentences",
                "tokenizer={ kind = \"load\", path = \"some/folder\" }",
            ],
            vec!["model={ kind = \"transformer\", n_layers = 1, d_model = 8, n_heads = 1, d_ff = 8 }"],
            vec!["model={ kind = \"recurrent\", d_embedding = 8, d_model = 8 }"],
            vec!["model={ kind = \"convolutional\", n_layers = 1, d_embedding = 8, d_model = 8 }"],
        ] {
            let config = resolve(FILE, &sets).unwrap_or_else(|error| panic!("{sets:?}: {error}"));
            assert_eq!(resolve(&config.to_toml(), &[]).unwrap(), config);
        }
        let config = resolve(FILE, &[]).unwrap();
        assert_eq!(config.examples.pairs, PairConfig::FullSentences);
        assert_eq!((config.max_len(), config.n_sentinels()), (64, 0));
        let DenoisingConfig::Bart { noises } = &config.denoising else { panic!("{:?}", config.denoising) };
        assert_eq!(noises[0], NoiseConfig::Rotation { probability: 1.0 });
        assert_eq!(noises[1], NoiseConfig::Masking { share: 0.2, whole_words: false });
        // Without the table, BART-large's noises.
        let (before, after) = FILE.split_once("[denoising]").unwrap();
        let default = resolve(&format!("{before}[model]{}", after.split_once("[model]").unwrap().1), &[]);
        assert_eq!(default.unwrap().denoising, DenoisingConfig::default());
        // 63 tokens without the end piece: 9 of them in 3 spans, and the last sentinel.
        let t5 = resolve(FILE, &["denoising={ kind = \"t5\" }"]).unwrap();
        assert_eq!(t5.n_sentinels(), 4);
    }

    #[test]
    fn what_changes_a_weight_is_part_of_the_fingerprint() {
        let config = resolve(FILE, &[]).unwrap();
        for (set, is_free) in [
            ("eval.every=7", true),
            ("train.workers=2", true),
            ("denoising.noises=[{ kind = \"deletion\" }]", false),
            ("examples.seq_len=32", false),
            ("model.dropout=0.3", false),
        ] {
            let same = resolve(FILE, &[set]).unwrap().fingerprint() == config.fingerprint();
            assert_eq!(same, is_free, "{set}");
        }
    }

    #[test]
    fn a_bart_is_saved_as_transformers_has_it() {
        let config = resolve(FILE, &["model.n_decoder_layers=1"]).unwrap();
        let special = crate::translation::VocabularySizes::unknown(true, &OutputSection::default());
        let AnyEncoderDecoderConfig::Transformer(bart) = config.model.config(special, config.max_len(), true)
        else {
            panic!("{:?}", config.model)
        };
        assert_eq!((bart.n_encoder_layers, bart.n_decoder_layers, bart.max_positions), (2, 1, 64));
        assert!(bart.embedding_norm && !bart.scaled_embeddings);
        assert_eq!((bart.tokens.eos, bart.tokens.forced_bos), (2, Some(0)));
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        for (sets, expected) in [
            (
                &["denoising.noises=[{ kind = \"deletion\", share = 1.5 }]"][..],
                "`denoising.noises[0].share` is 1.5; expected a number from 0 to 1",
            ),
            (&["denoising.noises=[]"], "`denoising.noises` is empty; expected one noise or more"),
            (
                &[
                    "denoising.noises=[{ kind = \"masking\", share = 0 }, { kind = \"rotation\", probability = 0 }]",
                ],
                "`denoising.noises` is without effect; expected a noise whose `share` or `probability` is above 0",
            ),
            (
                &["denoising={ kind = \"t5\", density = 0 }"],
                "`denoising.density` is 0; expected a number above 0",
            ),
            (&["denoising={ kind = \"t5\", mean_span = 0.5 }"], "`denoising.mean_span` is 0.5; expected"),
            (&["denoising.kind=ul2"], "`denoising.kind` is \"ul2\"; expected one of \"bart\" or \"t5\""),
            (&["denoising.noise=[]"], "unknown key `denoising.noise`; did you mean `denoising.noises`?"),
            (&["denoising.noises=[{ kind = \"whitening\" }]"], "expected one of \"infilling\", \"masking\""),
            (
                &["examples.pairs.kind=next-sentence"],
                "`examples.pairs.kind` is \"next-sentence\"; expected \"doc-sentences\" or \"full-sentences\"",
            ),
            (&["examples.seq_len=65"], "`examples.seq_len` is 65; expected"),
            (&["examples.seq_len=7"], "`examples.seq_len` is 7; expected a whole number from 8 to"),
            (
                &["model.n_heads=5"],
                "`model.n_heads` is 5; expected a divisor of `model.d_model`, which is 32",
            ),
            (&["model.dropout=1"], "`model.dropout` is 1; expected a number from 0 to below 1"),
            (&["model.init_std=0"], "`model.init_std` is 0; expected a number above 0"),
            (&["model.kind=gpt"], "`model.kind` is \"gpt\"; expected one of \"bart\""),
            (
                &["tokenizer.kind=train-characters"],
                "`tokenizer.kind` is train-characters; expected a tokenizer with mask and padding tokens",
            ),
            (&["tokenizer.kind=checkpoint"], "`tokenizer.kind` is checkpoint; expected another one"),
            (
                &["denoising={ kind = \"t5\" }", "tokenizer.vocab_size=264"],
                "`tokenizer.vocab_size` is 264; expected a whole number of 265 or more",
            ),
            (&["train.recompute=true"], "`train.recompute` is true; expected false"),
            (&["train.steps=0"], "`train.steps` is 0; expected a whole number of 1 or more"),
            (&["schedule.warmup_steps=101"], "expected at most 100, the steps of the run"),
            (&["eval.heldout_fraction=0"], "expected a number above 0 and below 1"),
            (&["objective.kind=masked"], "`objective.kind` is \"masked\"; expected \"denoising\""),
        ] {
            let message = resolve(FILE, sets).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
