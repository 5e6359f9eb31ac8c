//! Checks that a tokenizer and a model match.

use crate::{Result, TrainerError};
use cloze_model::bert::BertConfig;
use cloze_tokenizer::Tokenizer;
use std::path::{Path, PathBuf};

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

/// Checks that an ensemble's models have the same pieces in the same places, the first of which has `first`.
///
/// # Errors
/// [`TrainerError::DifferentPieces`] with the first piece that differs.
pub(crate) fn check_same_pieces(first: (&Tokenizer, &Path), other: (&Tokenizer, &Path)) -> Result<()> {
    let n = first.0.vocab_size().max(other.0.vocab_size());
    for id in 0..n as u32 {
        let [expected, found] = [first.0, other.0].map(|tokenizer| tokenizer.id_to_token(id));
        if expected != found {
            let folders = Box::new([first.1, other.1].map(PathBuf::from));
            let pieces = Box::new([expected, found].map(|piece| piece.map(str::to_owned)));
            return Err(TrainerError::DifferentPieces { folders, id, pieces });
        }
    }
    Ok(())
}

/// Checks that an ensemble's models end texts with the same pieces.
///
/// # Errors
/// [`TrainerError::DifferentEnds`].
pub(crate) fn check_same_ends(
    tokenizer: &Tokenizer,
    first: (&[i32], &Path),
    other: (&[i32], &Path),
) -> Result<()> {
    let names = |ids: &[i32]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let name = |id: &i32| {
            u32::try_from(*id)
                .ok()
                .and_then(|id| tokenizer.id_to_token(id))
                .map_or_else(|| id.to_string(), |piece| format!("{piece:?}"))
        };
        ids.iter().map(name).collect::<Vec<String>>().join(", ")
    };
    let ends = [first.0, other.0].map(names);
    match ends[0] == ends[1] {
        true => Ok(()),
        false => {
            let folders = Box::new([first.1, other.1].map(PathBuf::from));
            Err(TrainerError::DifferentEnds { folders, ends: Box::new(ends) })
        }
    }
}
