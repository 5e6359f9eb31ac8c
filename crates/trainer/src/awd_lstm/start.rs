//! What a run starts from: random weights, or a checkpoint's.

use crate::config::AwdLstmRunConfig;
use crate::engine::RunOptions;
use crate::{Result, TrainerError};
use cloze_data::{SpecialPieces, derive_seed};
use cloze_model::ParamInit;
use cloze_model::awd_lstm::{AwdLstm, AwdLstmConfig};
use cloze_model::huggingface::{load_published_as, read_published};
use cloze_tokenizer::{AddedToken, Tokenizer};

/// Tells the initial parameters' random numbers from all others that a seed gives.
const INIT_STREAM: u64 = 0xA3D1;

/// A model before its first step.
#[derive(Debug)]
pub(super) struct InitialModel {
    pub shape: AwdLstmConfig,
    pub model: AwdLstm,
    /// What of a checkpoint is not used.
    pub unused: Vec<String>,
}

impl InitialModel {
    /// The model that `config` says, for `tokenizer`.
    ///
    /// # Errors
    /// Sizes that do not do; those of the checkpoint; [`TrainerError::VocabularyMismatch`].
    pub fn new(config: &AwdLstmRunConfig, tokenizer: &Tokenizer, options: &RunOptions<'_>) -> Result<Self> {
        let device = options.device.clone().autodiff();
        let mut init = ParamInit::new(&device, derive_seed(config.run.seed, &[INIT_STREAM]));
        let section = &config.model;
        let Some(path) = &section.path else {
            let shape = section.shape(tokenizer.vocab_size());
            shape.validate()?;
            let model = shape.init(&mut init);
            return Ok(Self { shape, model, unused: Vec::new() });
        };
        let mut shape: AwdLstmConfig = read_published(path)?;
        if tokenizer.vocab_size() > shape.vocab_size {
            let (tokenizer, model) = (tokenizer.vocab_size(), shape.vocab_size);
            return Err(TrainerError::VocabularyMismatch { folder: path.clone(), tokenizer, model });
        }
        shape.dropout = section.dropout.unwrap_or(shape.dropout);
        let (model, report) = load_published_as(&shape, path, &mut init)?;
        Ok(Self { shape, model, unused: report.unexpected })
    }
}

/// Adds the piece that ends a text to the tokenizer's configuration, unless its own files name one, so that generation
/// knows where to stop.
pub(super) fn declare_special(tokenizer: &mut Tokenizer) {
    let mut config = tokenizer.config().clone();
    if config.bos_token.is_some() || config.eos_token.is_some() {
        return;
    }
    let special = SpecialPieces::find(tokenizer);
    let piece = |id: Option<u32>| id.and_then(|id| tokenizer.id_to_token(id)).map(AddedToken::special);
    (config.bos_token, config.eos_token) = (piece(special.begin), piece(special.end));
    tokenizer.set_config(config);
}
