//! Training an AWD-LSTM on streams of text: from a config and raw text to the saved model.
//!
//! [`AwdLstmRunConfig`] describes a run, [`train_awd_lstm`] runs it, as a recipe of the
//! [engine](crate::engine). ULMFiT classifiers (Howard & Ruder 2018) start from the result: a
//! [fine-tuning](crate::finetune) whose `model.path` is its folder.

mod exchange;
mod objective;
mod recipe;
mod start;

use crate::Result;
use crate::config::{self, AwdLstmRun, AwdLstmRunConfig, ConfigFile, Pace, Run};
use crate::engine::optimizer::ParamGroup;
use crate::engine::origin::{Input, inputs_of_text};
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions, train_in};
use crate::language_model::declare_special;
use crate::layer_decay::layer_decay;
use crate::metrics::progress::RunProgress;
use crate::pretraining::{TokenizerRequest, tokenizer_of};
use crate::running_text::initial::InitialModel;
use crate::runs::RunKind;
use burn::module::Module;
use cloze_evaluation::table;
use cloze_model::awd_lstm::{AwdLstmConfig, StreamMemory, StreamedAwdLstm};
pub use objective::StreamedLeftToRight;
pub use recipe::{AwdLstmRecipe, StreamSplits};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Trains an AWD-LSTM as `config` says: tokenizer, corpus, steps, evaluations, checkpoints, export.
///
/// # Errors
/// Invalid corpus, tokenizer or run folder; a non-finite loss if the config says to stop on one.
pub fn train_awd_lstm(
    config: &AwdLstmRunConfig,
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
    // Whatever is wrong with a checkpoint is known before the corpus is prepared.
    let initial = start::initial_model(config, &tokenizer, options)?;
    let splits = StreamSplits::prepare(config, &tokenizer, options, progress)?;
    if options.stop.load(Ordering::Relaxed) {
        return Ok(Outcome::Stopped { step: 0 });
    }
    introduce(config, &initial, progress);
    let InitialModel { config: shape, model, .. } = initial;
    let mut settings = config.run_settings();
    if let Some(decay) = config.model.layer_decay.filter(|decay| *decay < 1.0) {
        let groups = layer_decay(&model, decay).into_iter();
        // The run trains the model together with what it remembers.
        let groups =
            groups.map(|group| ParamGroup { parameters: format!("model.{}", group.parameters), ..group });
        settings.optimizer.groups.extend(groups);
    }
    let memory = StreamMemory::new(&shape, config.n_streams(), &options.device.clone().autodiff());
    let recipe = AwdLstmRecipe::new(config, splits, shape, &tokenizer, folder.tokenizer());
    train_in(&folder, &recipe, StreamedAwdLstm { model, memory }, &settings, options, progress)
}

impl RunKind for AwdLstmRun {
    const FREE_KEYS: &'static [&'static str] = &config::awd_lstm::FREE_KEYS;

    fn is_of(file: &ConfigFile) -> bool {
        file.has("streams")
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        config::awd_lstm::read(file, sets)
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
        train_awd_lstm(run, options, progress)
    }
}

/// Prints the model before the first step.
fn introduce(
    config: &AwdLstmRunConfig,
    initial: &InitialModel<AwdLstmConfig>,
    progress: &mut dyn RunProgress,
) {
    let InitialModel { config: shape, model, report } = initial;
    let widths: Vec<String> = shape.widths().iter().map(ToString::to_string).collect();
    let tokens = config.n_streams() * config.streams.seq_len;
    progress.note(&table::facts(
        "model",
        [
            ("embeddings", shape.d_embedding.to_string()),
            ("layers", widths.join(", ")),
            ("parameters", table::grouped(model.num_params() as u64)),
            ("vocabulary", table::grouped(shape.vocab_size as u64)),
            ("streams", table::grouped(config.n_streams() as u64)),
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
