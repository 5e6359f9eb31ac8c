//! Training an ELMo: from a config and raw text to the saved model.
//!
//! [`ElmoRunConfig`] describes a run, [`train_elmo`] runs it, as a recipe of the [engine](crate::engine). Its
//! loss is [`BothDirections`], which custom loops can use too. Taggers and classifiers start from the result: a
//! [fine-tuning](crate::finetune) whose `model.path` is its folder.

mod objective;
mod pieces;
mod recipe;
mod start;

use crate::Result;
use crate::config::{self, ConfigFile, ElmoRun, ElmoRunConfig, Pace, Run};
use crate::engine::origin::{Input, inputs_of_text};
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions, train_in};
use crate::language_model::declare_special;
use crate::metrics::progress::RunProgress;
use crate::pretraining::{TokenizerRequest, tokenizer_of};
use crate::running_text::initial::InitialModel;
use crate::running_text::{TextRecipe, TextSplits};
use crate::runs::RunKind;
use burn::module::Module;
use cloze_evaluation::table;
use cloze_model::elmo::ElmoConfig;
pub use objective::BothDirections;
pub use recipe::ElmoRecipe;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Trains an ELMo as configured: tokenizer, corpus, steps, evaluations, checkpoints, export.
///
/// # Errors
/// Invalid corpus, tokenizer or run folder; a non-finite loss if the config says to stop on one.
pub fn train_elmo(
    config: &ElmoRunConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    let request = TokenizerRequest {
        section: &config.tokenizer,
        corpus: &config.corpus,
        checkpoint: config.model.path.as_deref(),
        end_of_text: true,
        sentinels: 0,
        padding: None,
    };
    let mut tokenizer = tokenizer_of(&request, &folder, options, progress)?;
    declare_special(&mut tokenizer);
    // Whatever is wrong with a tokenizer or a checkpoint is known before the corpus is prepared.
    let initial = start::initial_model(config, &tokenizer, options)?;
    let splits = TextSplits::of_both_directions(config, &tokenizer, options, progress)?;
    if options.stop.load(Ordering::Relaxed) {
        return Ok(Outcome::Stopped { step: 0 });
    }
    introduce(config, &initial, progress);
    let InitialModel { config: shape, model, .. } = initial;
    let recipe =
        TextRecipe::new(BothDirections, splits, &config.train, shape, &tokenizer, folder.tokenizer());
    train_in(&folder, &recipe, model, &config.run_settings(), options, progress)
}

impl RunKind for ElmoRun {
    const FREE_KEYS: &'static [&'static str] = &config::elmo::FREE_KEYS;

    fn is_of(file: &ConfigFile) -> bool {
        file.kind_of("objective") == Some("bidirectional-language-model")
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        config::elmo::read(file, sets)
    }

    fn pace(&self) -> Option<Pace> {
        Some(self.train.pace(self.eval.every, self.eval.patience))
    }

    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        self.model.path.as_mut()
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        inputs_of_text(&self.corpus, [self.model.path.as_deref(), self.tokenizer.path()])
    }

    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        train_elmo(run, options, progress)
    }
}

/// Prints the model before the first step.
fn introduce(config: &ElmoRunConfig, initial: &InitialModel<ElmoConfig>, progress: &mut dyn RunProgress) {
    let InitialModel { config: shape, model, report } = initial;
    let characters = &shape.characters;
    let tokens = config.train.batch_size * config.train.accumulate * config.blocks.seq_len;
    progress.note(&table::facts(
        "model",
        [
            ("filters", table::grouped(characters.n_filters() as u64)),
            ("layers, both ways", shape.n_layers.to_string()),
            ("cells → states", format!("{} → {}", shape.d_hidden, characters.d_out)),
            ("parameters", table::grouped(model.num_params() as u64)),
            ("vocabulary", table::grouped(shape.vocab_size() as u64)),
            ("tokens per step", table::grouped(tokens as u64)),
            (
                "checkpoint",
                config.model.path.as_ref().map_or(String::new(), |path| path.display().to_string()),
            ),
            ("not used", report.unexpected.join(", ")),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty()),
    ));
}
