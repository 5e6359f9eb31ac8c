//! A run's initial weights: random, or a checkpoint's.

use super::pieces::piece_bytes;
use crate::config::{ElmoRunConfig, OF_BYTES};
use crate::engine::RunOptions;
use crate::fit::check_vocabulary;
use crate::running_text::initial::InitialModel;
use crate::{Result, TrainerError};
use cloze_data::derive_seed;
use cloze_model::ParamInit;
use cloze_model::elmo::ElmoConfig;
use cloze_model::huggingface::read_published;
use cloze_tokenizer::Tokenizer;

/// Separates the random stream of the initial parameters from all others of a seed.
const INIT_STREAM: u64 = 0xE140;

/// The model configured by `config` for `tokenizer`.
///
/// # Errors
/// A tokenizer that is not byte-level; invalid sizes; checkpoint errors;
/// [`TrainerError::VocabularyMismatch`](crate::TrainerError::VocabularyMismatch).
pub(super) fn initial_model(
    config: &ElmoRunConfig,
    tokenizer: &Tokenizer,
    options: &RunOptions<'_>,
) -> Result<InitialModel<ElmoConfig>> {
    let device = options.device.clone().autodiff();
    let mut init = ParamInit::new(&device, derive_seed(config.common.run.seed, &[INIT_STREAM]));
    let section = &config.model;
    let Some(path) = &section.path else {
        let Some(pieces) = piece_bytes(tokenizer) else {
            let found = config.tokenizer.path().map(|path| path.display().to_string()).unwrap_or_default();
            return Err(TrainerError::Setting {
                key: "tokenizer.path".into(),
                found,
                expected: OF_BYTES.into(),
            });
        };
        let shape = section.shape(pieces);
        shape.validate()?;
        return Ok(InitialModel::new(shape, &mut init));
    };
    let mut shape: ElmoConfig = read_published(path)?;
    check_vocabulary(tokenizer, path, shape.vocab_size())?;
    shape.dropout = section.dropout.unwrap_or(shape.dropout);
    InitialModel::load(shape, path, &mut init)
}
