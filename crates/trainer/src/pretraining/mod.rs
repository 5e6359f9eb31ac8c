//! Pretrains encoders: from a config and raw text to the saved model.
//!
//! [`RunConfig`] describes a run, [`pretrain`] runs it, as a recipe of the [engine](crate::engine). Its losses
//! are [`BertPretraining`] or [`ReplacedTokenPretraining`], which custom loops can use too; pass a custom
//! [`EncoderObjective`] to [`PretrainingRecipe::with_objective`].

mod encoder_objective;
mod languages;
mod objective;
mod recipe;
mod replaced_tokens;
pub(crate) mod tables;
mod teacher;
mod tokenizer;

use crate::config::{self, ConfigFile, ModelSection, ObjectiveSection, Pace, Pretraining, RunConfig};
use crate::engine::origin::{Input, inputs_of_text, model_files};
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions, train_in};
use crate::initial_model::{InitialModel, new_parameters};
use crate::metrics::progress::RunProgress;
use crate::runs::RunKind;
use crate::{Result, memory, recompute};
use burn::module::Module;
use cloze_evaluation::table;
use cloze_model::huggingface::SentenceConfig;
use cloze_tokenizer::Tokenizer;
pub use encoder_objective::EncoderObjective;
pub use objective::{BertPretraining, HeldOutSums, figure};
pub use recipe::{PretrainingRecipe, PretrainingSplits};
pub(crate) use replaced_tokens::GENERATOR;
pub use replaced_tokens::{ReplacedTokenPretraining, ReplacedTokenSums};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use teacher::Teacher;
pub use tokenizer::run_tokenizer;
pub(crate) use tokenizer::{TokenizerRequest, saved, tokenizer_of};

/// Pretrains an encoder as configured: tokenizer, corpus, steps, evaluations, checkpoints, export.
///
/// # Errors
/// Invalid corpus, tokenizer or run folder; a non-finite loss if the config says to stop on one.
pub fn pretrain(
    config: &RunConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    recompute::check(config.train.recompute, &options.device)?;
    if let ModelSection::New(section) = &config.model {
        // With the smallest vocabulary: what is too large by itself is refused before one is trained.
        let (encoder, _) = section.published(config, section.with_vocabulary(1, 0));
        memory::check_new(config, &encoder, &options.device, options.memory)?;
    }
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    let tokenizer = run_tokenizer(config, &folder, options, progress)?;
    // Whatever is wrong with a checkpoint is known before the corpus is prepared.
    let (device, memory) = (options.device.clone().autodiff(), options.memory);
    let run = Run { config, folder: &folder, tokenizer: &tokenizer, options };
    match config.objective {
        ObjectiveSection::ReplacedTokens { generator_size, weight } => {
            let (mut initial, electra) =
                InitialModel::electra(config, generator_size, &tokenizer, &device, memory)?;
            recompute::set(&mut initial.model.discriminator.bert.encoder, config.train.recompute);
            recompute::set(&mut initial.model.generator.encoder, config.train.recompute);
            let objective = <ReplacedTokenPretraining>::new(weight).published(electra, initial.save.clone());
            run.carry_out(initial, objective, progress)
        }
        _ => {
            let mut initial = InitialModel::new(config, &tokenizer, &device, memory)?;
            recompute::set(&mut initial.model.bert.encoder, config.train.recompute);
            let (encoder, save) = (initial.encoder.clone(), initial.save.clone());
            let teacher = Teacher::open(config, &encoder, &tokenizer, &options.device)?;
            if let Some(teacher) = &teacher {
                progress.note(&format!("teacher: {}", teacher.origin));
                initial.model.bert.teacher_maps = teacher.maps(&mut new_parameters(config, &device));
            }
            let sentence = sentence_modules(config, progress)?;
            let objective = <BertPretraining>::new(config).published(encoder, save).of_sentences(sentence);
            let objective = objective.taught_by(teacher);
            run.carry_out(initial, objective, progress)
        }
    }
}

/// The sentence-transformers modules of the checkpoint, which stay with the model.
fn sentence_modules(config: &RunConfig, progress: &mut dyn RunProgress) -> Result<Option<SentenceConfig>> {
    let Some(path) = config.model.checkpoint() else { return Ok(None) };
    let Some(sentence) = SentenceConfig::load(path)? else { return Ok(None) };
    let kept = sentence.check_trained().is_ok() && sentence.pooling().is_ok();
    let modules = if kept {
        "Its pooling and normalisation are kept"
    } else {
        "Its modules beside pooling and normalisation cannot be kept: the result is an encoder alone"
    };
    progress.note(&format!(
        "warning: the checkpoint makes embeddings of sentences, which get worse by pretraining. {modules}; train embeddings \
         with the result again (`task.kind = \"embedding\"`)"
    ));
    Ok(kept.then_some(sentence))
}

/// A run with its folder and tokenizer.
struct Run<'a> {
    config: &'a RunConfig,
    folder: &'a RunFolder,
    tokenizer: &'a Tokenizer,
    options: &'a RunOptions<'a>,
}

impl Run<'_> {
    /// Prepares the corpus and trains.
    fn carry_out<O: EncoderObjective>(
        self,
        initial: InitialModel<O::Model>,
        objective: O,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        let Self { config, folder, tokenizer, options } = self;
        let splits = PretrainingSplits::prepare(config, tokenizer, options, progress)?;
        if options.stop.load(Ordering::Relaxed) {
            return Ok(Outcome::Stopped { step: 0 });
        }
        introduce(config, &initial, progress);
        check_memory(config, &initial, &splits, options, progress)?;
        let recipe =
            PretrainingRecipe::with_objective(config, splits, objective).published(tokenizer, folder);
        train_in(folder, &recipe, initial.model, &config.run_settings(), options, progress)
    }
}

impl RunKind for Pretraining {
    const FREE_KEYS: &'static [&'static str] = &config::FREE_KEYS;

    fn is_of(file: &ConfigFile) -> bool {
        let encoders = ["masked", "span-boundary", "replaced-tokens", "translation-language-model"].map(Some);
        let objective = file.kind_of("objective");
        let is_other = file.has("task") || file.has("parallel");
        !is_other && (objective.is_none() || encoders.contains(&objective))
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<config::Run<Self>> {
        config::read(file, sets)
    }

    fn pace(&self) -> Option<Pace> {
        Some(self.train.pace(self.eval.every, self.eval.patience))
    }

    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        self.model.as_pretrained_mut().map(|model| &mut model.path)
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        let mut inputs = inputs_of_text(&self.corpus, [self.model.checkpoint(), self.tokenizer.path()])?;
        if let Some(section) = &self.distillation {
            inputs.extend(Input::of(model_files(&section.teacher)?)?);
        }
        for translations in self.objective.parallel() {
            inputs.extend(Input::of(translations.text.paths(Path::new(""))?)?);
        }
        Ok(inputs)
    }

    fn train(
        run: &config::Run<Self>,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome> {
        pretrain(run, options, progress)
    }
}

/// Prints the model before the first step.
fn introduce<M: Module>(config: &RunConfig, initial: &InitialModel<M>, progress: &mut dyn RunProgress) {
    let InitialModel { encoder: bert, model, report, .. } = initial;
    let checkpoint = config.model.checkpoint().map_or(String::new(), |path| path.display().to_string());
    let sequences = config.train.batch_size * config.train.accumulate;
    progress.note(&table::facts(
        "model",
        [
            ("layers × width", format!("{} × {}", bert.n_layers, bert.d_model)),
            ("parameters", table::grouped(model.num_params() as u64)),
            ("vocabulary", table::grouped(bert.vocab_size as u64)),
            ("sequences per step", table::grouped(sequences as u64)),
            ("checkpoint", checkpoint),
            ("newly initialised", report.missing.join(", ")),
            ("not used", report.unexpected.join(", ")),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty()),
    ));
}

/// Prints the run's memory estimate, and rejects the run if it certainly needs more than available.
fn check_memory<M: Module>(
    config: &RunConfig,
    initial: &InitialModel<M>,
    splits: &PretrainingSplits,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<()> {
    let (bert, parameters) = (&initial.encoder, memory::n_parameters(&initial.model));
    let mean_len = splits.mean_len();
    let estimate = memory::pretraining(config, bert, parameters, mean_len);
    progress.note(&format!("memory: {estimate}"));
    // Held-out examples are about as long as those of training.
    let least = memory::pretraining(config, bert, parameters, mean_len / 2.0);
    memory::check(&least, options.memory, &memory::pretraining_keys(config, bert, &options.device))
}
