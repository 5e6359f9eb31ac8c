//! Trains encoder–decoders by denoising: from a config and raw text to the saved model (BART, Lewis et al.
//! 2020; T5, Raffel et al. 2020).
//!
//! [`DenoisingRunConfig`] describes a run, [`train_denoising`] runs it, as a recipe of the
//! [engine](crate::engine). [`DenoisingRecipe`] takes any [`EncoderDecoder`], including your own.

mod memory;
mod model;
mod recipe;
mod samples;
mod tables;
mod tokenizer;

use crate::Result;
use crate::config::{self, ConfigFile, DenoisingRun, DenoisingRunConfig, OutputSection, Pace, Run};
use crate::engine::origin::{Input, inputs_of_text};
use crate::engine::run_folder::RunFolder;
use crate::engine::{ModelFormat, Outcome, RunOptions, train_in};
use crate::memory::n_parameters;
use crate::metrics::progress::RunProgress;
use crate::pretraining::{TokenizerRequest, tokenizer_of};
use crate::running_text::initial::check_sampled;
use crate::runs::RunKind;
use crate::translation::model::refusal;
use crate::translation::{Vocabularies, VocabularySizes};
use burn::tensor::Device;
use cloze_data::derive_seed;
use cloze_evaluation::table;
use cloze_model::ParamInit;
use cloze_model::seq2seq::{AnyEncoderDecoderConfig, EncoderDecoder};
use memory::{SHORTEST, Size};
pub use model::{BartSection, DenoisingModel, T5Section};
pub use recipe::{DenoisingRecipe, DenoisingSplits, figure};
use std::sync::atomic::Ordering;
use tokenizer::{first_piece, vocabularies};

/// Separates the random stream of the initial parameters from all others of a seed.
const INIT_STREAM: u64 = 0xDE17;

/// Trains a denoising model as configured: tokenizer, corpus, steps, evaluations, checkpoints, export.
///
/// # Errors
/// Invalid corpus, tokenizer or run folder; a non-finite loss if the config says to stop on one.
pub fn train_denoising(
    config: &DenoisingRunConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    // With the smallest vocabulary: what is too large by itself is refused before one is trained.
    let output = config.model.output();
    let smallest = config.model.config(VocabularySizes::unknown(true, output), config.max_len(), true);
    size(&smallest, output, &options.device)?.check(config, SHORTEST, options.memory)?;
    let make = |vocabularies: &Vocabularies, device: &Device| {
        let begins = first_piece(vocabularies, &config.denoising).is_some();
        let model = config.model.config(vocabularies.sizes(), config.max_len(), begins);
        let size = size(&model, output, device)?;
        size.check(config, SHORTEST, options.memory)?;
        let mut init = ParamInit::new(device, derive_seed(config.common.run.seed, &[INIT_STREAM]));
        Ok((model.init(&mut init), model, size))
    };
    train(config, make, options, progress)
}

/// The same with a custom model in place of the config's `[model]`: `make` gets the tokenizer, as source's and
/// target's, and the device, with autodiff, and returns the model and its file format.
///
/// # Errors
/// Those of [`train_denoising`] and of `make`.
pub fn train_denoising_model<M: EncoderDecoder, F: ModelFormat<M>>(
    config: &DenoisingRunConfig,
    make: impl FnOnce(&Vocabularies, &Device) -> Result<(M, F)>,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let make = |vocabularies: &Vocabularies, device: &Device| {
        let (model, format) = make(vocabularies, device)?;
        let (parameters, vocab_size) = (n_parameters(&model), vocabularies.target.vocab_size());
        let n_logits = config.model.output().n_logits(vocab_size);
        Ok((model, format, Size { parameters, vocab_size, n_logits, network: None }))
    };
    train(config, make, options, progress)
}

/// The size of a model, without allocating it.
fn size(model: &AnyEncoderDecoderConfig, output: &OutputSection, device: &Device) -> Result<Size> {
    model.check().map_err(refusal)?;
    let deferred = model.init(&mut ParamInit::new(device, 0).deferred());
    Ok(Size::new(n_parameters(&deferred), model, output))
}

fn train<M: EncoderDecoder, F: ModelFormat<M>>(
    config: &DenoisingRunConfig,
    make: impl FnOnce(&Vocabularies, &Device) -> Result<(M, F, Size)>,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    let request = TokenizerRequest {
        section: &config.tokenizer,
        corpus: &config.corpus,
        checkpoint: None,
        end_of_text: false,
        sentinels: config.n_sentinels(),
        padding: None,
    };
    let tokenizer = tokenizer_of(&request, &folder, options, progress)?;
    let mut vocabularies = vocabularies(tokenizer, &config.denoising)?;
    if config.model.begins_with_padding() {
        vocabularies.special.begin = vocabularies.special.pad;
    }
    // Whatever is wrong with the model is known before the corpus is prepared.
    check_sampled(config.model.output(), vocabularies.target.vocab_size())?;
    let (model, format, size) = make(&vocabularies, &options.device.clone().autodiff())?;
    let splits = DenoisingSplits::prepare(config, &vocabularies, options, progress)?;
    if options.stop.load(Ordering::Relaxed) {
        return Ok(Outcome::Stopped { step: 0 });
    }
    introduce(config, &size, &splits, progress);
    // Held-out texts are about as long as those of training.
    size.check(config, splits.mean_lengths().map(|len| len / 2.0), options.memory)?;
    let recipe = DenoisingRecipe::new(config, vocabularies, splits, format, folder.tokenizer());
    train_in(&folder, &recipe, model, &config.run_settings(), options, progress)
}

/// Prints the model and the run's memory estimate before the first step.
fn introduce(
    config: &DenoisingRunConfig,
    size: &Size,
    splits: &DenoisingSplits,
    progress: &mut dyn RunProgress,
) {
    let layers = size.network.as_ref().map_or(String::new(), |network| {
        format!("{} + {} × {}", network.n_encoder_layers, network.n_decoder_layers, network.d_model)
    });
    let lengths = splits.mean_lengths();
    let texts = config.train.batch_size * config.train.accumulate;
    progress.note(&table::facts(
        "model",
        [
            ("layers × width", layers),
            ("parameters", table::grouped(size.parameters)),
            ("vocabulary", table::grouped(size.vocab_size as u64)),
            ("texts per step", table::grouped(texts as u64)),
            ("tokens of a source, of a target", lengths.map(|len| format!("{len:.1}")).join(", ")),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty()),
    ));
    progress.note(&format!("memory: {}", size.estimate(&config.train, lengths)));
}

impl RunKind for DenoisingRun {
    const FREE_KEYS: &'static [&'static str] = &config::denoising::FREE_KEYS;

    fn is_of(file: &ConfigFile) -> bool {
        file.kind_of("objective") == Some("denoising")
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        config::denoising::read(file, sets)
    }

    fn pace(&self) -> Option<Pace> {
        Some(self.train.pace(self.eval.every, self.eval.patience))
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        inputs_of_text(&self.corpus, [None, self.tokenizer.path()])
    }

    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        train_denoising(run, options, progress)
    }
}
