//! Trains left-to-right language models: from a config and raw text to the saved model.
//!
//! [`LanguageModelConfig`] describes a run, [`train_language_model`] runs it, as a recipe of the
//! [engine](crate::engine).

mod recipe;
mod start;

use crate::config::{
    self, ConfigFile, LanguageModelConfig, LanguageModelRun, LanguageModelSection, Pace, Run,
};
use crate::engine::origin::{Input, inputs_of_text};
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions, train_in};
use crate::metrics::progress::RunProgress;
use crate::pretraining::{TokenizerRequest, tokenizer_of};
pub use crate::running_text::figure;
use crate::running_text::initial::InitialModel;
use crate::running_text::{TextRecipe, TextSplits};
use crate::runs::RunKind;
use crate::{Result, recompute};
use burn::module::Module;
use cloze_data::{BlockBatch, SpecialPieces};
use cloze_evaluation::table;
use cloze_model::Sequences;
use cloze_model::gpt::GptConfig;
use cloze_tokenizer::{AddedToken, Tokenizer};
pub use recipe::{LanguageModelRecipe, LeftToRight};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Trains a language model as configured: tokenizer, corpus, steps, evaluations, checkpoints, export.
///
/// # Errors
/// Invalid corpus, tokenizer or run folder; a non-finite loss if the config says to stop on one.
pub fn train_language_model(
    config: &LanguageModelConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    recompute::check(config.train.recompute, &options.device)?;
    if let LanguageModelSection::New(section) = &config.model {
        // With the smallest vocabulary: what is too large by itself is refused before one is trained.
        let smallest = section.gpt(section.output.smallest_vocabulary());
        start::check_memory(config, &smallest, options)?;
    }
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    let request = TokenizerRequest {
        section: &config.tokenizer,
        corpus: &config.corpus,
        checkpoint: config.model.checkpoint(),
        end_of_text: true,
        sentinels: 0,
        padding: None,
    };
    let mut tokenizer = tokenizer_of(&request, &folder, options, progress)?;
    declare_special(&mut tokenizer);
    // Whatever is wrong with a checkpoint is known before the corpus is prepared.
    let initial = start::initial_model(config, &tokenizer, options)?;
    let splits = TextSplits::of_blocks(config, &tokenizer, options, progress)?;
    if options.stop.load(Ordering::Relaxed) {
        return Ok(Outcome::Stopped { step: 0 });
    }
    introduce(config, &initial, progress);
    progress.note(&format!("memory: {}", start::memory(config, &initial.config, &options.device)));
    start::check_memory(config, &initial.config, options)?;
    let InitialModel { config: gpt, mut model, .. } = initial;
    model.recompute = config.train.recompute;
    let sampled = match &config.model {
        LanguageModelSection::New(section) => section.output.sampled(),
        LanguageModelSection::Pretrained(_) => None,
    };
    let objective = LeftToRight { sampled };
    let recipe = TextRecipe::new(objective, splits, &config.train, gpt, &tokenizer, folder.tokenizer());
    train_in(&folder, &recipe, model, &config.run_settings(), options, progress)
}

impl RunKind for LanguageModelRun {
    const FREE_KEYS: &'static [&'static str] = &config::language_model::FREE_KEYS;

    fn is_of(file: &ConfigFile) -> bool {
        file.kind_of("objective") == Some("left-to-right") && !file.has("streams")
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        config::language_model::read(file, sets)
    }

    fn pace(&self) -> Option<Pace> {
        Some(self.train.pace(self.eval.every, self.eval.patience))
    }

    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        match &mut self.model {
            LanguageModelSection::New(_) => None,
            LanguageModelSection::Pretrained(model) => Some(&mut model.path),
        }
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        inputs_of_text(&self.corpus, [self.model.checkpoint(), self.tokenizer.path()])
    }

    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        train_language_model(run, options, progress)
    }
}

/// Adds the begin-of-text and end-of-text pieces to the tokenizer's configuration, unless its own files set
/// them.
pub(crate) fn declare_special(tokenizer: &mut Tokenizer) {
    let mut config = tokenizer.config().clone();
    if config.bos_token.is_some() || config.eos_token.is_some() {
        return;
    }
    let special = SpecialPieces::find(tokenizer);
    let piece = |id: Option<u32>| id.and_then(|id| tokenizer.id_to_token(id)).map(AddedToken::special);
    (config.bos_token, config.eos_token) = (piece(special.begin), piece(special.end));
    config.unk_token = config.unk_token.or_else(|| piece(tokenizer.token_to_id("<unk>")));
    tokenizer.set_config(config);
}

/// Prints the model before the first step.
fn introduce(
    config: &LanguageModelConfig,
    initial: &InitialModel<GptConfig>,
    progress: &mut dyn RunProgress,
) {
    let InitialModel { config: gpt, model, report } = initial;
    let checkpoint = config.model.checkpoint().map_or(String::new(), |path| path.display().to_string());
    let tokens = config.train.batch_size * config.train.accumulate * config.blocks.seq_len;
    progress.note(&table::facts(
        "model",
        [
            ("layers × width", format!("{} × {}", gpt.n_layers, gpt.d_model)),
            ("parameters", table::grouped(model.num_params() as u64)),
            ("vocabulary", table::grouped(gpt.vocab_size as u64)),
            ("tokens per step", table::grouped(tokens as u64)),
            ("checkpoint", checkpoint),
            ("not used", report.unexpected.join(", ")),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty()),
    ));
}

/// The model's input from a batch.
pub(crate) fn sequences(batch: &BlockBatch) -> Sequences {
    let mut sequences = Sequences::new();
    let mut start = 0;
    for len in &batch.lengths {
        sequences.push(&batch.ids[start..start + len]);
        start += len;
    }
    sequences
}
