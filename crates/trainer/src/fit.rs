//! Checks that a tokenizer and a model match.

use crate::{Result, TrainerError};
use cloze_model::bert::BertConfig;
use cloze_tokenizer::Tokenizer;
use std::path::Path;

/// Checks that the model accepts whatever the tokenizer outputs for a text, and for `pairs` of texts.
///
/// # Errors
/// [`TrainerError::VocabularyMismatch`], [`TrainerError::UnfitTokenizer`], naming the model's `folder`.
pub(crate) fn check_fit(
    tokenizer: &Tokenizer,
    encoder: &BertConfig,
    folder: &Path,
    pairs: bool,
) -> Result<()> {
    let vocab_size = encoder.vocab_size;
    check_vocabulary(tokenizer, folder, vocab_size)?;
    let check = |pair| tokenizer.check_inputs(vocab_size, encoder.n_token_types, pair);
    check(false)
        .and_then(|()| if pairs { check(true) } else { Ok(()) })
        .map_err(|source| TrainerError::UnfitTokenizer { folder: folder.into(), source })
}

/// Checks that a model with `vocab_size` pieces has an embedding for each of the tokenizer's.
///
/// # Errors
/// [`TrainerError::VocabularyMismatch`], [`TrainerError::UnfitTokenizer`], naming the model's `folder`.
pub(crate) fn check_vocabulary(tokenizer: &Tokenizer, folder: &Path, vocab_size: usize) -> Result<()> {
    let found = tokenizer.vocab_size();
    if found > vocab_size {
        let folder = folder.into();
        return Err(TrainerError::VocabularyMismatch { folder, tokenizer: found, model: vocab_size });
    }
    tokenizer
        .check_ids(vocab_size)
        .map_err(|source| TrainerError::UnfitTokenizer { folder: folder.into(), source })
}
