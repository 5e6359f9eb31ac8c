//! Whether a tokenizer and a model belong together.

use crate::{Result, TrainerError};
use cloze_model::bert::BertConfig;
use cloze_tokenizer::Tokenizer;
use std::path::Path;

/// Fails unless the model takes whatever the tokenizer makes of a text, or of `pairs` of texts too.
///
/// # Errors
/// [`TrainerError::VocabularyMismatch`], [`TrainerError::UnfitTokenizer`], which name the model's `folder`.
pub(crate) fn check_fit(
    tokenizer: &Tokenizer,
    encoder: &BertConfig,
    folder: &Path,
    pairs: bool,
) -> Result<()> {
    let vocab_size = encoder.vocab_size;
    if tokenizer.vocab_size() > vocab_size {
        return Err(TrainerError::VocabularyMismatch {
            folder: folder.into(),
            tokenizer: tokenizer.vocab_size(),
            model: vocab_size,
        });
    }
    let check = |pair| tokenizer.check_inputs(vocab_size, encoder.n_token_types, pair);
    check(false)
        .and_then(|()| if pairs { check(true) } else { Ok(()) })
        .map_err(|source| TrainerError::UnfitTokenizer { folder: folder.into(), source })
}
