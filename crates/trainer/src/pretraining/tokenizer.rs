//! The tokenizer of a pretraining run: loaded, or trained on the run's texts.

use super::pulse::Pulse;
use crate::config::{ModelSection, RunConfig, TokenizerSection};
use crate::engine::checkpoint::Checkpoints;
use crate::engine::origin::{Origin, PROGRAM, TokenizerOrigin};
use crate::engine::run_folder::RunFolder;
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use cloze_data::{corpus_checksum, file_checksum};
use cloze_evaluation::table;
use cloze_evaluation::whole_file::write_whole;
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::{BpeTrainer, TrainProgress, WordPieceTrainer};
use std::path::Path;
use std::time::Instant;

/// The run's tokenizer, which is in its folder from then on.
///
/// The one that is there already is used if a checkpoint was trained with it, or if it was trained from the same texts
/// with the same settings, as by a run that ended before its first step.
///
/// # Errors
/// Texts or a tokenizer that cannot be read; a folder that cannot be written to.
pub fn run_tokenizer(
    config: &RunConfig,
    folder: &RunFolder,
    resume: bool,
    progress: &mut dyn RunProgress,
) -> Result<Tokenizer> {
    let path = folder.tokenizer();
    if resume && path.exists() && !Checkpoints::open(folder.checkpoints())?.steps()?.is_empty() {
        // The checkpoint tells whether the texts or the tokenizer have changed since.
        return Ok(Tokenizer::load(&path)?);
    }
    let start = Instant::now();
    let trained_from = trained_from(config)?;
    let origin = folder.origin()?;
    if let (Some(key), Some(before)) = (&trained_from, &origin.tokenizer)
        && before.trained_from == *key
        && path.exists()
        && file_checksum(&path)? == before.blake3
    {
        return Ok(Tokenizer::load(&path)?);
    }
    if trained_from.is_some() {
        progress.note("training the tokenizer");
    }
    let tokenizer = make_tokenizer(config, &Pulse::new(progress))?;
    write_whole(&path, tokenizer.to_json().as_bytes())?;
    let tokenizer_origin = trained_from
        .map(|trained_from| {
            Ok::<_, TrainerError>(TokenizerOrigin { trained_from, blake3: file_checksum(&path)? })
        })
        .transpose()?;
    Origin { tokenizer: tokenizer_origin, ..origin }.write(folder.path())?;
    progress.note(&format!(
        "tokenizer: {} pieces, {}",
        table::grouped(tokenizer.vocab_size() as u64),
        table::duration(start.elapsed().as_secs_f64())
    ));
    Ok(tokenizer)
}

/// What tells a trained tokenizer from any other: the program, the settings and the texts. `None` for one that is
/// loaded.
fn trained_from(config: &RunConfig) -> Result<Option<String>> {
    if matches!(config.tokenizer, TokenizerSection::Load { .. } | TokenizerSection::Checkpoint {}) {
        return Ok(None);
    }
    let section = serde_json::to_string(&config.tokenizer).expect("a section serialises");
    let corpus = corpus_checksum(&config.corpus, Path::new(""))?;
    Ok(Some(format!("{PROGRAM}, {section}, corpus {corpus}")))
}

/// Loads a tokenizer, or trains one on the whole corpus.
fn make_tokenizer(config: &RunConfig, pulse: &Pulse<'_>) -> Result<Tokenizer> {
    let RunConfig { tokenizer: section, corpus, .. } = config;
    if let ModelSection::Pretrained(model) = &config.model {
        let mut tokenizer = Tokenizer::load(&model.path)?;
        // What it was last used for may have been shorter texts than the model takes.
        tokenizer.set_truncation(None)?;
        tokenizer.set_padding(None)?;
        return Ok(tokenizer);
    }
    let mut report = |progress| pulse.beat(|seconds| training_tokenizer(progress, seconds));
    let texts = cloze_data::documents(corpus, Path::new(""))?
        .map(|document| document.map(|document| document.text().to_string()));
    Ok(match *section {
        TokenizerSection::TrainWordpiece { vocab_size, lowercase, min_frequency } => {
            WordPieceTrainer { vocab_size, lowercase, min_frequency, ..Default::default() }
                .train_with(texts, &mut report)?
        }
        TokenizerSection::TrainByteBpe { vocab_size, min_frequency } => {
            BpeTrainer { vocab_size, min_frequency, ..Default::default() }.train_with(texts, &mut report)?
        }
        TokenizerSection::Load { ref path } => Tokenizer::load(path)?,
        TokenizerSection::Checkpoint {} => {
            return Err(TrainerError::Setting {
                key: "tokenizer.kind".into(),
                found: "checkpoint".into(),
                expected: "another one: a new model has no checkpoint".into(),
            });
        }
    })
}

/// How far training a tokenizer is, as a note.
fn training_tokenizer(progress: TrainProgress, seconds: f64) -> String {
    match progress {
        TrainProgress::Counting { bytes, words, .. } => format!(
            "training the tokenizer: {} distinct words in {} MB · {:.1} MB/s",
            table::grouped(words as u64),
            table::grouped(bytes / 1_000_000),
            bytes as f64 / seconds / 1e6,
        ),
        TrainProgress::Merging { done, total } => format!(
            "training the tokenizer: {} of {} pieces",
            table::grouped(done as u64),
            table::grouped(total as u64),
        ),
        _ => "training the tokenizer".into(),
    }
}
