//! A run's vocabulary: loaded, or trained on the training captions.

use super::config::{CaptionModelSection, CaptionRunConfig};
use super::data::CaptionTexts;
use crate::engine::checkpoint::Checkpoints;
use crate::engine::run_folder::RunFolder;
use crate::metrics::progress::RunProgress;
use crate::periodic_notes::{PeriodicNotes, training_tokenizer};
use crate::pretraining::saved;
use crate::translation::Vocabularies;
use crate::translation::vocabulary::{load, train_on};
use crate::{Result, TrainerError};
use cloze_evaluation::table;
use cloze_model::seq2seq::SpecialTokens;
use cloze_tokenizer::Tokenizer;
use std::sync::Arc;
use std::time::Instant;

/// A tokenizer, and the pieces around captions.
#[derive(Debug, Clone)]
pub struct CaptionVocabulary {
    /// The tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// The special pieces.
    pub tokens: SpecialTokens,
}

impl CaptionVocabulary {
    /// A tokenizer that says itself which pieces begin and end texts.
    ///
    /// # Errors
    /// One whose texts do not end with a piece of their own, or that has no padding.
    pub fn new(tokenizer: Tokenizer) -> Result<Self> {
        let vocabularies = Vocabularies::joint(tokenizer)?;
        let special = vocabularies.special;
        let mut tokens = SpecialTokens::new(special.pad as usize, special.end as usize);
        tokens.bos = special.bos.map(|id| id as usize);
        tokens.decoder_start = special.begin as usize;
        Ok(Self { tokenizer: vocabularies.target, tokens })
    }

    /// A caption's ids, without the pieces around it.
    ///
    /// # Errors
    /// A text that the tokenizer fails on.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        Ok(self.tokenizer.encode_ids(text, false)?.into_iter().map(|id| id as i32).collect())
    }

    /// The text of ids.
    ///
    /// # Errors
    /// A tokenizer that cannot decode.
    pub fn decode(&self, ids: &[i32]) -> Result<String> {
        let ids: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
        Ok(self.tokenizer.decode(&ids, true)?.trim().to_owned())
    }
}

/// The vocabulary of a run, which is saved in its folder if it is trained. The one there is used again if a checkpoint was
/// trained with it.
///
/// # Errors
/// An unreadable or unsuitable tokenizer; a folder that cannot be written to.
pub(super) fn run_vocabulary(
    config: &CaptionRunConfig,
    texts: &CaptionTexts,
    folder: &RunFolder,
    resume: bool,
    progress: &mut dyn RunProgress,
) -> Result<CaptionVocabulary> {
    if let CaptionModelSection::Pretrained(section) = &config.model {
        let tokens = cloze_model::huggingface::read_published::<cloze_model::captions::CaptionerConfig>(
            &section.path,
        )?
        .tokens;
        return Ok(CaptionVocabulary { tokenizer: Arc::new(load(&section.path)?), tokens });
    }
    let section = config.tokenizer.as_ref().ok_or_else(|| TrainerError::Setting {
        key: "tokenizer".into(),
        found: "absent".into(),
        expected: "where the vocabulary of the new decoder comes from".into(),
    })?;
    let path = folder.tokenizer();
    let has_checkpoint = resume && !Checkpoints::open(folder.checkpoints())?.steps()?.is_empty();
    if section.path().is_none() && has_checkpoint && path.exists() {
        return CaptionVocabulary::new(Tokenizer::load(&path)?);
    }
    let start = Instant::now();
    let tokenizer = {
        let notes = PeriodicNotes::new(progress);
        let mut report = |progress| notes.note(|seconds| training_tokenizer(progress, seconds));
        train_on(section, texts.training().map(|text| Ok(text.to_owned())), &mut report)?
    };
    if section.path().is_some() {
        return CaptionVocabulary::new(tokenizer);
    }
    let tokenizer = saved(&tokenizer, &path)?;
    let (pieces, seconds) = (tokenizer.vocab_size() as u64, start.elapsed().as_secs_f64());
    progress.note(&format!("tokenizer: {} pieces, {}", table::grouped(pieces), table::duration(seconds)));
    CaptionVocabulary::new(tokenizer)
}
