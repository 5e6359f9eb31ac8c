//! A translation run from the config to the saved model.

use super::config::{self, TranslationConfig, TranslationRun};
use super::memory::Size;
use super::model::refusal;
use super::recipe::{TranslationData, TranslationRecipe};
use super::vocabulary::{Vocabularies, run_vocabularies};
use crate::Result;
use crate::config::{ConfigFile, Pace, Run};
use crate::engine::origin::{self, Input};
use crate::engine::run_folder::RunFolder;
use crate::engine::{ModelFormat, Outcome, Plan, RunOptions, train_in};
use crate::memory::n_parameters;
use crate::metrics::progress::RunProgress;
use crate::running_text::initial::check_sampled;
use crate::runs::RunKind;
use burn::tensor::Device;
use cloze_data::parallel::PairReport;
use cloze_evaluation::table;
use cloze_model::ParamInit;
use cloze_model::seq2seq::EncoderDecoder;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Trains a translation model as configured: tokenizers, pairs, steps, evaluations, checkpoints, export.
///
/// # Errors
/// Invalid data, tokenizers or run folder; a non-finite loss if the config says to stop on one.
pub fn train_translation(
    config: &TranslationConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let make = |vocabularies: &Vocabularies, device: &Device| {
        let model = config.model.config(vocabularies.sizes(), config.parallel.max_len);
        model.check().map_err(refusal)?;
        let deferred = model.init(&mut ParamInit::new(device, 0).deferred());
        size(config, vocabularies, n_parameters(&deferred)).check(&config.train, None, options.memory)?;
        Ok((model.init(&mut ParamInit::new(device, config.common.run.seed)), model))
    };
    train_translation_model(config, make, options, progress)
}

/// The same with a custom model in place of the config's `[model]`: `make` gets the tokenizers and the device,
/// with autodiff, and returns the model and its file format.
///
/// # Errors
/// Those of [`train_translation`] and of `make`.
pub fn train_translation_model<M: EncoderDecoder, F: ModelFormat<M>>(
    config: &TranslationConfig,
    make: impl FnOnce(&Vocabularies, &Device) -> Result<(M, F)>,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    folder.check_inputs(config.inputs()?)?;
    let vocabularies = run_vocabularies(config, &folder, options.resume, progress)?;
    // Whatever is wrong with the model is known before the pairs are prepared.
    check_sampled(config.model.output(), vocabularies.target.vocab_size())?;
    let (model, format) = make(&vocabularies, &options.device.clone().autodiff())?;
    let (data, report) = TranslationData::prepare(config, &vocabularies, &options.cache, progress)?;
    if options.stop.load(Ordering::Relaxed) {
        return Ok(Outcome::Stopped { step: 0 });
    }
    let parameters = model.num_params();
    size(config, &vocabularies, parameters as u64).check(
        &config.train,
        Some((&report).into()),
        options.memory,
    )?;
    let recipe = TranslationRecipe::new(config, vocabularies.clone(), data, format);
    introduce(config, &vocabularies, &report, parameters, recipe.batches_an_epoch(), progress);
    train_in(&folder, &recipe, model, &config.run_settings(), options, progress)
}

/// The size of a run with this many parameters.
fn size(config: &TranslationConfig, vocabularies: &Vocabularies, parameters: u64) -> Size {
    let vocab_size = vocabularies.target.vocab_size();
    Size { parameters, vocab_size, n_logits: config.model.output().n_logits(vocab_size) }
}

/// Prints information about the run before the first step.
fn introduce(
    config: &TranslationConfig,
    vocabularies: &Vocabularies,
    report: &PairReport,
    parameters: usize,
    batches: usize,
    progress: &mut dyn RunProgress,
) {
    let [source, target] = config.parallel.languages();
    let [source_tokens, target_tokens] = report.tokens;
    let mean = |tokens: u64| format!("{:.1}", tokens as f64 / report.pairs.max(1) as f64);
    let skipped = if report.skipped.is_empty() { "none".into() } else { report.skipped.to_string() };
    let mut rows = vec![
        ("languages", format!("{source} → {target}")),
        ("pairs", table::grouped(report.pairs)),
        ("left out", skipped),
    ];
    let places = report.skipped.first_places();
    if !places.is_empty() {
        rows.push(("  the first at", places));
    }
    rows.extend([
        ("source tokens", format!("{} ({} a pair)", table::grouped(source_tokens), mean(source_tokens))),
        ("target tokens", format!("{} ({} a pair)", table::grouped(target_tokens), mean(target_tokens))),
    ]);
    progress.note(&table::facts("pairs", rows));
    let pieces = match vocabularies.is_joint() {
        true => format!("{}, shared", table::grouped(vocabularies.target.vocab_size() as u64)),
        false => [&vocabularies.source, &vocabularies.target]
            .map(|tokenizer| table::grouped(tokenizer.vocab_size() as u64))
            .join(" and "),
    };
    progress.note(&table::facts(
        "model",
        [
            ("vocabulary", pieces),
            ("parameters", table::grouped(parameters as u64)),
            ("steps per epoch", table::grouped(batches.div_ceil(config.train.accumulate) as u64)),
        ],
    ));
    if config.parallel.dev.is_empty() {
        let measured = if config.parallel.test.is_empty() { "nothing is measured, and " } else { "" };
        progress.note(&format!("no development data: {measured}the last model is saved, good or bad"));
    }
}

impl RunKind for TranslationRun {
    const FREE_KEYS: &'static [&'static str] =
        &["run.name", "train.workers", "train.prefetch", "parallel.test.", "eval.", "checkpoint.", "log."];

    fn is_of(file: &ConfigFile) -> bool {
        file.has("parallel")
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        config::read(file, sets)
    }

    fn pace(&self) -> Option<Pace> {
        Some(self.train.pace(self.eval.every, self.eval.patience))
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        let section = &self.parallel;
        let mut paths = Vec::new();
        for (split, files) in [("train", &section.train), ("dev", &section.dev), ("test", &section.test)] {
            if split == "train" || !files.is_empty() {
                paths.extend(files.paths(Path::new(""))?);
            }
        }
        let tokenizers = [&self.tokenizer, &self.source_tokenizer, &self.target_tokenizer];
        for path in tokenizers.into_iter().flatten().filter_map(|section| section.path()) {
            paths.extend(origin::model_files(path)?);
        }
        Input::of(paths)
    }

    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        train_translation(run, options, progress)
    }
}
