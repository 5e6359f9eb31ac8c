//! Multilingual pretraining data: several languages and their translations, from files to examples.

use super::recipe::{HELD_OUT_STREAM, PretrainingSplits, Training};
use super::tables::{self, Language};
use crate::config::RunConfig;
use crate::engine::RunOptions;
use crate::metrics::progress::RunProgress;
use crate::periodic_notes::PeriodicNotes;
use crate::{Result, TrainerError};
use cloze_data::{
    DataError, Documents, LanguageSampling, LanguageStream, Loader, MultilingualData, Preparation,
    PreparedCorpus, PretrainingBatch, PretrainingData, Split, Translations, UnigramCounts, check_languages,
    derive_seed,
};
use cloze_tokenizer::Tokenizer;
use std::path::Path;
use std::sync::Arc;

/// Separate the random streams of each language and each language pair from all others of a seed.
const LANGUAGE: u64 = 0x1A46;
const TRANSLATIONS: u64 = 0x75A3;

/// Prepares the corpus of each language, and the translations if the objective uses any.
///
/// # Errors
/// Errors in a corpus or in parallel text; a language without text.
pub(super) fn prepare(
    config: &RunConfig,
    tokenizer: &Tokenizer,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<PretrainingSplits> {
    check_languages(&config.corpus, Path::new(""))?;
    let seed = config.common.run.seed;
    let mut parts = Vec::new();
    for corpus in config.corpus.parts() {
        let name = corpus.language.clone();
        let prepared = {
            let (notes, crew) = (PeriodicNotes::new(progress), options.crew());
            let preparation = Preparation::new(&corpus, Path::new(""), tokenizer, &options.cache);
            preparation.tells(&notes).with(&crew).sentences()
        };
        let (prepared, report) = prepared.map_err(|error| without_text(&name, error))?;
        if !report.skipped.is_empty() {
            progress.note(&format!("{name}: skipped or cut {}", report.skipped.with_places()));
        }
        let prepared = Arc::new(prepared);
        let part = |split| {
            let documents = Documents::new(prepared.clone(), split, config.eval.heldout_fraction, seed);
            documents.map_err(|error| without_text(&name, error))
        };
        let (train, held_out) = (part(Split::Train)?, part(Split::HeldOut)?);
        parts.push(Part { name, prepared, train, held_out });
    }
    let documents = parts.iter().map(|part| &part.train);
    let unigram = Arc::new(UnigramCounts::of_all(documents, tokenizer.vocab_size()));
    let alpha = config.corpus.sampling_alpha.unwrap_or(LanguageSampling::ALPHA);
    let has_embeddings = config.model.has_language_embeddings();
    let examples = |number: usize, documents: Documents, seed: u64| {
        let (config, unigram, cache) = (config.examples.clone(), unigram.clone(), options.cache.clone());
        let seed = derive_seed(seed, &[LANGUAGE, number as u64]);
        let data = PretrainingData::new(documents, config, tokenizer, unigram, seed, cache)?;
        Ok::<_, DataError>(if has_embeddings { data.with_language(number as i32) } else { data })
    };

    let (mut streams, mut held_out, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    let mut key: Vec<String> = Vec::new();
    let n = parts.len() as u64;
    for (number, Part { name, prepared, train, held_out: part }) in parts.into_iter().enumerate() {
        key.push(format!("{name} {}", prepared.key()));
        rows.push(Language {
            name: name.clone(),
            documents: prepared.n_documents(),
            held_out: part.count(),
            sentences: prepared.n_sentences(),
            tokens: prepared.n_tokens(),
        });
        let data = examples(number, part, derive_seed(seed, &[HELD_OUT_STREAM]))?;
        held_out.extend(measured(config, data, n)?);
        let sentences = prepared.n_sentences();
        streams.push(LanguageStream::new(name, examples(number, train, seed)?, sentences));
    }
    let mut data = MultilingualData::new(streams, alpha, config.train.batch_size, seed);
    progress.note(&tables::languages(&rows, data.sampling()));
    if !config.objective.parallel().is_empty() {
        let translations = translations(config, tokenizer, &options.cache, progress)?;
        key.extend(translations.iter().map(|translations| translations.key().to_owned()));
        let special = config.examples.special(tokenizer)?;
        let mask = special.mask.ok_or(DataError::NoSpecial { name: "mask ([MASK] or <mask>)" })?;
        let corruption = config.examples.masking.corruption(mask, special.all(), unigram.clone());
        data = data.with_translations(translations, corruption);
    }
    let train = Training::Several(Arc::new(data));
    Ok(PretrainingSplits { train, held_out, unigram, key: key.join(", ") })
}

/// A language's corpus.
struct Part {
    name: String,
    prepared: Arc<PreparedCorpus>,
    train: Documents,
    held_out: Documents,
}

/// A language's part of the held-out batches, one of `n`.
fn measured(config: &RunConfig, data: PretrainingData, n: u64) -> Result<Vec<PretrainingBatch>> {
    let most = (config.eval.max_examples as u64).div_ceil(n);
    Ok(Loader::new(Arc::new(data), config.eval.batch_size).one_pass(most)?)
}

/// Names the language whose files have too little text.
fn without_text(language: &str, error: DataError) -> TrainerError {
    match error {
        DataError::EmptyCorpus { .. } | DataError::EmptySplit { .. } => {
            DataError::NoLanguageText { language: language.into(), reason: error.to_string() }.into()
        }
        other => other.into(),
    }
}

/// Prepares the translations.
fn translations(
    config: &RunConfig,
    tokenizer: &Tokenizer,
    cache: &Path,
    progress: &mut dyn RunProgress,
) -> Result<Vec<Translations>> {
    let seq_len = config.examples.seq_len;
    // As many tokens as a batch of one language has, if its examples are full.
    let batch_tokens = config.train.batch_size.saturating_mul(seq_len);
    let (mut all, mut rows) = (Vec::new(), Vec::new());
    for (number, files) in config.objective.parallel().iter().enumerate() {
        let special = config.examples.special(tokenizer)?;
        let seed = derive_seed(config.common.run.seed, &[TRANSLATIONS, number as u64]);
        let (translations, report) = {
            let notes = PeriodicNotes::new(progress);
            Translations::prepare(files, tokenizer, special, seq_len, batch_tokens, seed, cache, &notes)?
        };
        let number_of = |name: &String| {
            let place = config.corpus.languages.iter().position(|language| language.name == *name);
            place.unwrap_or_default() as i32
        };
        all.push(match config.model.has_language_embeddings() {
            true => translations.with_languages(files.languages.each_ref().map(number_of)),
            false => translations,
        });
        let names = files.languages.join("-");
        if !report.skipped.is_empty() {
            progress.note(&format!("{names}: skipped {}", report.skipped.with_places()));
        }
        rows.push((names, report));
    }
    progress.note(&tables::translations(&rows));
    Ok(all)
}
