//! A pretraining run's initial weights: random, or a checkpoint's.

use crate::config::languages::may_reset_positions;
use crate::config::{ModelSection, ObjectiveSection, PretrainedModel, RunConfig};
use crate::fit::check_fit;
use crate::memory::check_new;
use crate::pretraining::GENERATOR;
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_data::derive_seed;
use cloze_model::bert::{
    BertConfig, BertForPreTraining, Electra, ElectraConfig, MlmHead, NextSentenceHead, SpanBoundaryHead,
};
use cloze_model::huggingface::{
    Architecture, Family, LoadReport, PretrainedFolder, SaveConfig, check_floats,
};
use cloze_model::{HasBackbone, ModelError, ParamInit};
use cloze_tokenizer::Tokenizer;

/// Separates the random stream of the initial parameters from all others of a seed.
const INIT_STREAM: u64 = 0x1217;

/// Rejects a model that could not be saved at the end of its run, naming the key to change.
fn check_saving(encoder: &BertConfig, save: &SaveConfig) -> Result<()> {
    save.check(encoder).map_err(|error| match error {
        ModelError::Setting { key, found, expected } => {
            TrainerError::Setting { key: format!("model.{key}"), found, expected }
        }
        other => other.into(),
    })
}

/// Rejects a span boundary objective on examples without boundary tokens.
fn check_boundaries(config: &RunConfig, tokenizer: &Tokenizer) -> Result<()> {
    let special = config.examples.special(tokenizer)?;
    if special.begin.is_some() && special.end.is_some() {
        return Ok(());
    }
    let expected = "\"masked\", or pieces that begin and end an example: name them by `examples.begin` and \
                    `examples.end`";
    Err(refused("objective.kind", "\"span-boundary\"", expected))
}

/// A model before its first step.
#[derive(Debug)]
pub(crate) struct InitialModel<M> {
    pub encoder: BertConfig,
    pub model: M,
    /// The format it is saved in.
    pub save: SaveConfig,
    /// The parameters missing from the checkpoint, and its unused tensors.
    pub report: LoadReport,
}

/// The error for a config key.
fn refused(key: &str, found: impl Into<String>, expected: impl Into<String>) -> TrainerError {
    TrainerError::Setting { key: key.into(), found: found.into(), expected: expected.into() }
}

/// The initialiser of new parameters.
pub(crate) fn new_parameters(config: &RunConfig, device: &Device) -> ParamInit {
    ParamInit::new(device, derive_seed(config.common.run.seed, &[INIT_STREAM]))
}

impl InitialModel<BertForPreTraining> {
    /// The BERT configured by `config` for `tokenizer`, on a device with this many bytes of `memory`.
    ///
    /// # Errors
    /// Sizes that are inconsistent or too large for memory; a model that could not be saved; checkpoint errors;
    /// a config that asks for something that the checkpoint's family does not support, or for longer sequences
    /// than it accepts; [`TrainerError::VocabularyMismatch`], [`TrainerError::UnfitTokenizer`].
    pub fn new(
        config: &RunConfig,
        tokenizer: &Tokenizer,
        device: &Device,
        memory: Option<u64>,
    ) -> Result<Self> {
        let init = new_parameters(config, device);
        let boundaries = config.objective == ObjectiveSection::SpanBoundary {};
        if boundaries {
            check_boundaries(config, tokenizer)?;
        }
        match &config.model {
            ModelSection::New(section) => {
                let (encoder, save) = section.published(config, section.bert(tokenizer));
                check_saving(&encoder, &save)?;
                check_new(config, &encoder, device, memory)?;
                let init = &mut init.with_std(encoder.init_std);
                let mut model = encoder.init(init);
                model.span_boundary = boundaries.then(|| SpanBoundaryHead::new(&encoder, init));
                Ok(Self { encoder, model, save, report: LoadReport::default() })
            }
            ModelSection::Pretrained(section) => {
                Self::pretrained(config, section, tokenizer, boundaries, init)
            }
        }
    }

    /// A checkpoint's model, with a head for pairs if there are pairs, and one for span `boundaries` if
    /// requested. Heads missing from the checkpoint are new.
    fn pretrained(
        config: &RunConfig,
        section: &PretrainedModel,
        tokenizer: &Tokenizer,
        boundaries: bool,
        init: ParamInit,
    ) -> Result<Self> {
        check_floats(&section.path)?;
        let pretrained = PretrainedFolder::open(&section.path)?;
        let has_pairs = config.examples.has_pairs();
        let architecture = if has_pairs { Architecture::PreTraining } else { Architecture::MaskedLm };
        let save = SaveConfig::new(architecture).with_family(pretrained.config.family);
        let save = save.with_languages(languages(&pretrained, config));
        let encoder = encoder_of(&pretrained, config, section, tokenizer, &save)?;
        let init = &mut init.with_std(encoder.init_std).deferred();
        let model = BertForPreTraining {
            bert: encoder.init_encoder(init),
            mlm: MlmHead::new(&encoder, init),
            next_sentence: has_pairs.then(|| NextSentenceHead::new(encoder.d_model, init)),
            span_boundary: boundaries.then(|| SpanBoundaryHead::new(&encoder, init)),
        };
        let pooler = <BertForPreTraining>::path_of("pooler.*");
        let new = ["mlm.*", "next_sentence.*", "span_boundary.*", &pooler];
        let (mut model, report) = pretrained.load_into(model, architecture, &new)?;
        let Some(layers) = &section.layers else { return Ok(Self { encoder, model, save, report }) };
        let encoder = encoder.with_chosen_layers(layers).map_err(|error| match error {
            ModelError::Setting { found, expected, .. } => refused("model.layers", found, expected),
            error => error.into(),
        })?;
        model.bert = model.bert.with_layers(layers);
        Ok(Self { encoder, model, save, report })
    }
}

impl InitialModel<Electra> {
    /// The ELECTRA configured by `config`, with a generator of this size, for `tokenizer`, on a device with
    /// this many bytes of `memory`; and the configurations of both encoders.
    ///
    /// A checkpoint is a discriminator's. Its generator is in a subfolder, as saved by such runs, or else new.
    ///
    /// # Errors
    /// Those of BERT; a checkpoint of another family; a generator of another size in the checkpoint.
    pub fn electra(
        config: &RunConfig,
        generator_size: f64,
        tokenizer: &Tokenizer,
        device: &Device,
        memory: Option<u64>,
    ) -> Result<(Self, ElectraConfig)> {
        let init = new_parameters(config, device);
        match &config.model {
            ModelSection::New(section) => {
                let (encoder, save) = section.published(config, section.bert(tokenizer));
                check_saving(&encoder, &save)?;
                check_new(config, &encoder, device, memory)?;
                let electra = ElectraConfig::new(encoder.clone(), generator_size)?;
                let model = electra.init(&mut init.with_std(encoder.init_std));
                let report = LoadReport::default();
                Ok((Self { encoder, model, save, report }, electra))
            }
            ModelSection::Pretrained(section) => {
                check_floats(&section.path)?;
                let pretrained = PretrainedFolder::open(&section.path)?;
                let family = pretrained.config.family;
                if family != Family::ELECTRA {
                    let expected =
                        format!("\"masked\" or \"span-boundary\": {family} has no class of discriminators");
                    return Err(refused("objective.kind", "\"replaced-tokens\"", expected));
                }
                let save = SaveConfig::new(Architecture::ReplacedTokens).with_family(family);
                let save = save.with_languages(languages(&pretrained, config));
                let encoder = encoder_of(&pretrained, config, section, tokenizer, &save)?;
                let electra = ElectraConfig::new(encoder.clone(), generator_size)?;
                let model = electra.init(&mut init.with_std(encoder.init_std).deferred());
                let (discriminator, mut report) =
                    pretrained.load_into(model.discriminator.clone(), save.architecture, &["head.*"])?;
                let mut model = Electra { discriminator, ..model };
                let generator = section.path.join(GENERATOR);
                if generator.is_dir() {
                    let masked_lm = model.masked_lm();
                    check_floats(&generator)?;
                    let generator = PretrainedFolder::open(&generator)?;
                    let (masked_lm, of_generator) =
                        generator.load_into(masked_lm, Architecture::MaskedLm, &[])?;
                    model = model.with_masked_lm(masked_lm);
                    report.unexpected.extend(of_generator.unexpected);
                } else {
                    report.missing.push(GENERATOR.into());
                }
                Ok((Self { encoder, model, save, report }, electra))
            }
        }
    }
}

/// The language names of a checkpoint's token types after a run: those of the run's corpus if token types are
/// its languages, else unchanged.
fn languages(pretrained: &PretrainedFolder, config: &RunConfig) -> Vec<String> {
    match config.model.has_language_embeddings() {
        true => config.language_names(),
        false => pretrained.config.languages.clone(),
    }
}

/// The encoder of a checkpoint to continue pretraining from, with the config's dropout.
fn encoder_of(
    pretrained: &PretrainedFolder,
    config: &RunConfig,
    section: &PretrainedModel,
    tokenizer: &Tokenizer,
    save: &SaveConfig,
) -> Result<BertConfig> {
    let mut encoder = pretrained.encoder(save.architecture);
    let has_pairs = config.examples.has_pairs();
    if has_pairs && !encoder.pooler {
        let expected = format!("doc-sentences or full-sentences: {} has no head for pairs", save.family);
        return Err(refused("examples.pairs.kind", "of sentence pairs", expected));
    }
    if has_pairs && encoder.n_token_types == 1 {
        let expected = "doc-sentences or full-sentences: the checkpoint has only one token type, and the second \
                        sentence needs another";
        return Err(refused("examples.pairs.kind", "of sentence pairs", expected));
    }
    let seq_len = config.examples.seq_len;
    if seq_len > encoder.max_positions {
        let expected = format!("at most {}, the checkpoint's positions", encoder.max_positions);
        return Err(refused("examples.seq_len", seq_len.to_string(), expected));
    }
    check_fit(tokenizer, &encoder, &section.path, has_pairs)?;
    let (types, languages) = (encoder.n_token_types, config.corpus.languages.len());
    if section.language_embeddings && types != languages {
        let expected = format!(
            "false, or as many languages in `corpus.languages` as the checkpoint has token types: {types}, not {languages}"
        );
        return Err(refused("model.language_embeddings", "true", expected));
    }
    if !config.objective.parallel().is_empty() && !may_reset_positions(&encoder) {
        let expected = format!(
            "\"masked\": in {} positions are not added to the embeddings alone, so they cannot be restarted",
            save.family
        );
        return Err(refused("objective.kind", "\"translation-language-model\"", expected));
    }
    encoder.hidden_dropout = section.hidden_dropout.unwrap_or(encoder.hidden_dropout);
    encoder.attention_dropout = section.attention_dropout.unwrap_or(encoder.attention_dropout);
    check_saving(&encoder, save)?;
    Ok(encoder)
}
