//! Trains XLNets: from a config and raw text to the saved model.
//!
//! [`PermutationConfig`] describes a run, [`train_xlnet`] runs it, as a recipe of the [engine](crate::engine).
//! Its loss is [`Permutation`], which custom loops can use too.

mod objective;
mod recipe;
mod start;

use crate::Result;
use crate::config::{self, ConfigFile, Pace, PermutationConfig, PermutationRun, Run, XlnetSection};
use crate::engine::origin::{Input, inputs_of_text};
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions, train_in};
use crate::metrics::progress::RunProgress;
use crate::pretraining::{TokenizerRequest, tokenizer_of};
pub use crate::running_text::figure;
use crate::running_text::initial::InitialModel;
use crate::running_text::{TextRecipe, TextSplits};
use crate::runs::RunKind;
use burn::module::Module;
use cloze_evaluation::table;
use cloze_model::xlnet::XlnetConfig;
pub use objective::Permutation;
pub use recipe::PermutationRecipe;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Trains an XLNet as configured: tokenizer, corpus, steps, evaluations, checkpoints, export.
///
/// # Errors
/// Invalid corpus, tokenizer or run folder; a non-finite loss if the config says to stop on one.
pub fn train_xlnet(
    config: &PermutationConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    if let XlnetSection::New(section) = &config.model {
        // With the smallest vocabulary: what is too large by itself is refused before one is trained.
        start::check_memory(config, &section.xlnet(1), options)?;
    }
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    let request = TokenizerRequest {
        section: &config.tokenizer,
        corpus: &config.corpus,
        checkpoint: config.model.checkpoint(),
        end_of_text: false,
        sentinels: 0,
        padding: None,
    };
    let tokenizer = tokenizer_of(&request, &folder, options, progress)?;
    // Whatever is wrong with a checkpoint is known before the corpus is prepared.
    let initial = start::initial_model(config, &tokenizer, options)?;
    let splits = TextSplits::of_segments(config, &tokenizer, options, progress)?;
    if options.stop.load(Ordering::Relaxed) {
        return Ok(Outcome::Stopped { step: 0 });
    }
    introduce(config, &initial, progress);
    progress.note(&format!("memory: {}", start::memory(config, &initial.config, &options.device)));
    start::check_memory(config, &initial.config, options)?;
    let InitialModel { config: xlnet, model, .. } = initial;
    let recipe = TextRecipe::new(Permutation, splits, &config.train, xlnet, &tokenizer, folder.tokenizer());
    train_in(&folder, &recipe, model, &config.run_settings(), options, progress)
}

impl RunKind for PermutationRun {
    const FREE_KEYS: &'static [&'static str] = &config::permutation::FREE_KEYS;

    fn is_of(file: &ConfigFile) -> bool {
        file.kind_of("objective") == Some("permutation")
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        config::permutation::read(file, sets)
    }

    fn pace(&self) -> Option<Pace> {
        Some(self.train.pace(self.eval.every, self.eval.patience))
    }

    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        match &mut self.model {
            XlnetSection::New(_) => None,
            XlnetSection::Pretrained(model) => Some(&mut model.path),
        }
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        inputs_of_text(&self.corpus, [self.model.checkpoint(), self.tokenizer.path()])
    }

    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        train_xlnet(run, options, progress)
    }
}

/// Prints the model before the first step.
fn introduce(
    config: &PermutationConfig,
    initial: &InitialModel<XlnetConfig>,
    progress: &mut dyn RunProgress,
) {
    let InitialModel { config: xlnet, model, report } = initial;
    let checkpoint = config.model.checkpoint().map_or(String::new(), |path| path.display().to_string());
    let segments = config.train.batch_size * config.train.accumulate;
    let order = config.segments.order();
    progress.note(&table::facts(
        "model",
        [
            ("layers × width", format!("{} × {}", xlnet.n_layers, xlnet.d_model)),
            ("parameters", table::grouped(model.num_params() as u64)),
            ("vocabulary", table::grouped(xlnet.vocab_size as u64)),
            ("tokens per step", table::grouped((segments * order.seq_len) as u64)),
            ("  predicted", table::grouped((segments * order.n_predicted()) as u64)),
            ("  remembered before them", table::grouped((segments * order.memory_len) as u64)),
            ("checkpoint", checkpoint),
            ("not used", report.unexpected.join(", ")),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty()),
    ));
}
