//! A run's initial weights: random, or a checkpoint's.

use crate::Result;
use crate::config::AwdLstmRunConfig;
use crate::engine::RunOptions;
use crate::fit::check_vocabulary;
use crate::running_text::initial::{InitialModel, check, check_sampled};
use cloze_data::derive_seed;
use cloze_model::ParamInit;
use cloze_model::awd_lstm::AwdLstmConfig;
use cloze_model::huggingface::read_published;
use cloze_tokenizer::Tokenizer;

/// Separates the random stream of the initial parameters from all others of a seed.
const INIT_STREAM: u64 = 0xA3D1;

/// The model configured by `config` for `tokenizer`.
///
/// # Errors
/// Invalid sizes; checkpoint errors;
/// [`TrainerError::VocabularyMismatch`](crate::TrainerError::VocabularyMismatch).
pub(super) fn initial_model(
    config: &AwdLstmRunConfig,
    tokenizer: &Tokenizer,
    options: &RunOptions<'_>,
) -> Result<InitialModel<AwdLstmConfig>> {
    let device = options.device.clone().autodiff();
    let mut init = ParamInit::new(&device, derive_seed(config.common.run.seed, &[INIT_STREAM]));
    let section = &config.model;
    let Some(path) = &section.path else {
        let shape = section.shape(tokenizer.vocab_size());
        check(&shape)?;
        check_sampled(&section.output, shape.vocab_size)?;
        return Ok(InitialModel::new(shape, &mut init));
    };
    let mut shape: AwdLstmConfig = read_published(path)?;
    check_vocabulary(tokenizer, path, shape.vocab_size)?;
    shape.dropout = section.dropout.unwrap_or(shape.dropout);
    InitialModel::load(shape, path, &mut init)
}
