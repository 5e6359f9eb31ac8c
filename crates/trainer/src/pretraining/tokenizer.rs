//! A pretraining run's tokenizer: loaded, or trained on the run's texts.

use crate::config::{NewModel, RunConfig, TokenizerSection};
use crate::engine::RunOptions;
use crate::engine::checkpoint::Checkpoints;
use crate::engine::messages::gather;
use crate::engine::origin::{Origin, PROGRAM, TokenizerOrigin};
use crate::engine::replicas::{Replicas, Share, bytes_of, words_of};
use crate::engine::run_folder::RunFolder;
use crate::engine::shared_state::computed_by_first;
use crate::metrics::progress::RunProgress;
use crate::periodic_notes::{PeriodicNotes, training_tokenizer};
use crate::{Result, TrainerError};
use cloze_data::{CorpusConfig, Sentinels, corpus_checksum, file_checksum, sampled_texts};
use cloze_evaluation::table;
use cloze_files::write_atomic;
use cloze_tokenizer::train::{BpeTrainer, WordCounts, WordLevelTrainer, WordPieceTrainer};
use cloze_tokenizer::{Normalizer, Tokenizer};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The run's tokenizer, which is saved in its folder.
///
/// An existing one there is reused if a checkpoint was trained with it, or if it was trained on the same texts
/// with the same settings, e.g. by a run that ended before its first step.
///
/// # Errors
/// Unreadable texts or tokenizer; a folder that cannot be written to.
pub fn run_tokenizer(
    config: &RunConfig,
    folder: &RunFolder,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Tokenizer> {
    let request = TokenizerRequest {
        section: &config.tokenizer,
        corpus: &config.corpus,
        checkpoint: config.model.as_pretrained().map(|model| model.path.as_path()),
        end_of_text: false,
        sentinels: 0,
        padding: config.model.as_new().and_then(NewModel::fixed_padding),
    };
    let tokenizer = tokenizer_of(&request, folder, options, progress)?;
    if let Some(padding) = request.padding
        && let found = tokenizer.special_ids().pad
        && found != Some(padding)
    {
        let found = found.map_or("none".to_owned(), |id| id.to_string());
        return Err(TrainerError::Setting {
            key: "tokenizer".into(),
            found: format!("a vocabulary whose padding piece has the id {found}"),
            expected: format!(
                "{padding}, which the model's family takes for padding whatever its config says: train a vocabulary, or \
                 put the piece there"
            ),
        });
    }
    Ok(tokenizer)
}

/// A run's tokenizer settings.
pub(crate) struct TokenizerRequest<'a> {
    pub section: &'a TokenizerSection,
    pub corpus: &'a CorpusConfig,
    /// The folder of the initial model, if the run starts from one.
    pub checkpoint: Option<&'a Path>,
    /// Whether a trained byte-level vocabulary has `<|endoftext|>` as its only special piece, like GPT-2's,
    /// instead of RoBERTa's pieces.
    pub end_of_text: bool,
    /// Number of [sentinels](cloze_data::Sentinels) in a trained vocabulary.
    pub sentinels: usize,
    /// The required id of the padding piece of a trained vocabulary, if the model fixes it.
    pub padding: Option<u32>,
}

/// [`run_tokenizer`] for any kind of run.
pub(crate) fn tokenizer_of(
    request: &TokenizerRequest<'_>,
    folder: &RunFolder,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Tokenizer> {
    let path = folder.tokenizer();
    let replicas = &*options.replicas;
    let (trained_from, origin) = (trained_from(request)?, folder.origin()?);
    // What the first replica has, all have.
    let found = computed_by_first(replicas, || is_there(folder, options.resume, &trained_from, &origin))?;
    if found {
        if replicas.size() > 1 {
            hand_out(replicas, &path)?;
        }
        return Ok(Tokenizer::load(&path)?);
    }
    let start = Instant::now();
    if trained_from.is_some() {
        progress.note("training the tokenizer");
    }
    let tokenizer = make_tokenizer(request, replicas, &PeriodicNotes::new(progress))?;
    let tokenizer = saved(&tokenizer, &path)?;
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

/// Writes the first replica's tokenizer into the other replicas' folders.
fn hand_out(replicas: &dyn Replicas, path: &Path) -> Result<()> {
    let files = [path.to_owned(), path.with_file_name("tokenizer_config.json")];
    let read = |path: &PathBuf| match path.exists() {
        true => fs::read_to_string(path).map(Some).map_err(TrainerError::io("read", path)),
        false => Ok(None),
    };
    let texts: Vec<Option<String>> = computed_by_first(replicas, || files.iter().map(read).collect())?;
    if replicas.rank() > 0 {
        for (path, text) in files.iter().zip(texts) {
            text.map_or(Ok(()), |text| write_atomic(path, text.as_bytes()))?;
        }
    }
    Ok(())
}

/// Whether the folder has the run's tokenizer.
fn is_there(
    folder: &RunFolder,
    resume: bool,
    trained_from: &Option<String>,
    origin: &Origin,
) -> Result<bool> {
    let path = folder.tokenizer();
    if !path.exists() {
        return Ok(false);
    }
    if resume && !Checkpoints::open(folder.checkpoints())?.steps()?.is_empty() {
        // The checkpoint tells whether the texts or the tokenizer have changed since.
        return Ok(true);
    }
    match (trained_from, &origin.tokenizer) {
        (Some(key), Some(before)) => {
            Ok(before.trained_from == *key && file_checksum(&path)? == before.blake3)
        }
        _ => Ok(false),
    }
}

/// Saves a run's tokenizer with the file of its special pieces' roles, and reloads both, as a resumed run does.
/// That file is written first, because an existing tokenizer is reused.
pub(crate) fn saved(tokenizer: &Tokenizer, path: &Path) -> Result<Tokenizer> {
    write_atomic(&path.with_file_name("tokenizer_config.json"), tokenizer.config_json().as_bytes())?;
    write_atomic(path, tokenizer.to_json().as_bytes())?;
    Ok(Tokenizer::load(path)?)
}

/// Identifies a trained tokenizer: the program, the settings and the texts. `None` for a loaded one.
fn trained_from(request: &TokenizerRequest<'_>) -> Result<Option<String>> {
    let TokenizerRequest { section, corpus, end_of_text, sentinels, padding, .. } = request;
    if matches!(section, TokenizerSection::Load { .. } | TokenizerSection::Checkpoint {}) {
        return Ok(None);
    }
    let section = serde_json::to_string(section).expect("a section serialises");
    let corpus = corpus_checksum(corpus, Path::new(""))?;
    let special = if *end_of_text { format!(", {END_OF_TEXT}") } else { String::new() };
    let sentinels = if *sentinels > 0 { format!(", {sentinels} sentinels") } else { String::new() };
    let padding = padding.map(|id| format!(", padding {id}")).unwrap_or_default();
    Ok(Some(format!("{PROGRAM}, {section}{special}{sentinels}{padding}, corpus {corpus}")))
}

/// The piece that begins and ends a text in GPT-2's vocabulary.
const END_OF_TEXT: &str = "<|endoftext|>";
/// The piece for characters missing from a character vocabulary.
const UNKNOWN: &str = "<unk>";

/// Gives the padding piece the id that the model requires.
fn pad_at(special: &mut [String], piece: &str, wanted: Option<u32>) {
    let wanted = wanted.map(|id| id as usize).filter(|id| *id < special.len());
    if let (Some(wanted), Some(found)) = (wanted, special.iter().position(|name| name == piece)) {
        special.swap(found, wanted);
    }
}

/// Loads a tokenizer, or trains one on the whole corpus.
fn make_tokenizer(
    request: &TokenizerRequest<'_>,
    replicas: &dyn Replicas,
    notes: &PeriodicNotes<'_>,
) -> Result<Tokenizer> {
    let TokenizerRequest { section, corpus, checkpoint, end_of_text, sentinels, padding } = *request;
    if let Some(path) = checkpoint {
        let mut tokenizer = Tokenizer::load(path)?;
        // What it was last used for may have been shorter texts than the model takes.
        tokenizer.set_truncation(None)?;
        tokenizer.set_padding(None)?;
        return Ok(tokenizer);
    }
    let mut report = |progress| notes.note(|seconds| training_tokenizer(progress, seconds));
    let texts = sampled_texts(corpus, Path::new(""))?;
    // Each replica reads all texts, and counts the words of its own.
    let share = Share::of(replicas);
    let own = |texts: Texts| {
        let texts = texts.enumerate().filter(move |(place, text)| text.is_err() || share.is_dealt(*place));
        texts.map(|(_, text)| text)
    };
    let sentinels = (0..sentinels).map(Sentinels::name);
    Ok(match *section {
        TokenizerSection::TrainWordpiece { vocab_size, lowercase, min_frequency } => {
            let mut trainer = WordPieceTrainer { vocab_size, lowercase, min_frequency, ..Default::default() };
            pad_at(&mut trainer.special_tokens, "[PAD]", padding);
            trainer.special_tokens.extend(sentinels);
            let words = merged(replicas, trainer.count(own(texts), &mut report)?)?;
            trainer.train_counted(&words, &mut report)?
        }
        TokenizerSection::TrainByteBpe { vocab_size, min_frequency } => {
            let mut trainer = BpeTrainer { vocab_size, min_frequency, ..Default::default() };
            if end_of_text {
                trainer.special_tokens = vec![END_OF_TEXT.into()];
            }
            pad_at(&mut trainer.special_tokens, "<pad>", padding);
            trainer.special_tokens.extend(sentinels);
            let words = merged(replicas, trainer.count(own(texts), &mut report)?)?;
            trainer.train_counted(&words, &mut report)?
        }
        TokenizerSection::TrainCharacters {} => {
            let mut alphabet = BTreeSet::new();
            for text in texts {
                alphabet.extend(text?.chars());
            }
            Tokenizer::characters(alphabet, [UNKNOWN, END_OF_TEXT], Some(UNKNOWN))?
        }
        TokenizerSection::TrainWords { vocab_size, lowercase, min_frequency } => {
            let trainer = WordLevelTrainer {
                vocab_size,
                min_frequency,
                special_tokens: [UNKNOWN, END_OF_TEXT].map(String::from).into(),
                unk_token: UNKNOWN.into(),
                normalizer: lowercase.then_some(Normalizer::Lowercase),
                ..Default::default()
            };
            let words = merged(replicas, trainer.count(own(texts), &mut report)?)?;
            trainer.train_counted(&words, &mut report)?
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

type Texts = Box<dyn Iterator<Item = cloze_data::Result<String>>>;

/// The words that all replicas have counted.
fn merged(replicas: &dyn Replicas, own: WordCounts) -> Result<WordCounts> {
    if replicas.size() <= 1 {
        return Ok(own);
    }
    let mut all = WordCounts::default();
    for (rank, message) in gather(replicas, words_of(&own.to_bytes()))?.iter().enumerate() {
        let words = WordCounts::from_bytes(&bytes_of(message)).ok_or_else(|| {
            let problem = format!("disagree: rank {rank} sent something else than words");
            TrainerError::Replicas { problem }
        })?;
        all = all.merge(words);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_stands_where_the_model_wants_it() {
        let mut special = ["[PAD]", "[UNK]", "[CLS]"].map(String::from);
        pad_at(&mut special, "[PAD]", None);
        assert_eq!(special, ["[PAD]", "[UNK]", "[CLS]"]);
        pad_at(&mut special, "[PAD]", Some(1));
        assert_eq!(special, ["[UNK]", "[PAD]", "[CLS]"]);
        pad_at(&mut special, "[PAD]", Some(1));
        assert_eq!(special, ["[UNK]", "[PAD]", "[CLS]"]);
    }
}
