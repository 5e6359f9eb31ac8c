//! Validates the config of multilingual runs.

use super::validate::{Check, corpus_bounds, ensure};
use super::{ModelSection, ObjectiveSection, RunConfig};
use cloze_data::{CorpusConfig, MaskUnit, TranslationFiles};
use cloze_model::bert::BertConfig;
use std::collections::BTreeSet;

/// The objective with translations, as named in messages.
const TRANSLATIONS: &str = "`objective.kind` = \"translation-language-model\"";

/// Checks `[corpus]` and its consistency with the rest.
pub(super) fn check(config: &RunConfig) -> Check {
    let corpus = &config.corpus;
    texts(corpus)?;
    corpus_bounds(corpus)?;
    let has_embeddings = config.model.has_language_embeddings();
    let embeddings = |fits: bool, expected: &str| {
        ensure(fits || !has_embeddings, "model.language_embeddings", has_embeddings, expected)
    };
    embeddings(!corpus.languages.is_empty(), "false, or several languages in `corpus.languages`")?;
    let expected = "false with pairs of segments (`examples.pairs.kind`), whose token types are the segments";
    embeddings(!config.examples.has_pairs(), expected)?;
    if let ModelSection::New(model) = &config.model
        && model.family.adapted(model.with_vocabulary(1, 0).with_n_token_types(2)).n_token_types == 0
    {
        let family = model.family.model_type();
        embeddings(
            false,
            &format!("false: `model.family` = \"{family}\" has no token types, which they are"),
        )?;
    }
    let copies = config.examples.masking.static_copies;
    let expected = "0 with `corpus.languages`, whose examples come as often as they are drawn";
    let is_fresh = corpus.languages.is_empty() || copies == 0;
    ensure(is_fresh, "examples.masking.static_copies", copies, expected)?;
    match &config.objective {
        ObjectiveSection::TranslationLanguageModel { parallel } => translations(config, parallel),
        _ => Ok(()),
    }
}

/// Checks the files: those of one corpus, or of each language.
fn texts(corpus: &CorpusConfig) -> Check {
    let CorpusConfig { files, languages, sampling_alpha, language, .. } = corpus;
    if languages.is_empty() {
        let expected = "at least one file, folder or glob, or texts in `corpus.languages`";
        ensure(!files.is_empty(), "corpus.files", "[]", expected)?;
        let alpha = sampling_alpha.unwrap_or_default();
        let expected = "no such key without `corpus.languages`";
        return ensure(sampling_alpha.is_none(), "corpus.sampling_alpha", alpha, expected);
    }
    let expected = "it to be absent: each of `corpus.languages` has its own `files`";
    ensure(files.is_empty(), "corpus.files", format!("{files:?}"), expected)?;
    let expected = "it to be absent: the names of `corpus.languages` choose the sentence rules";
    ensure(*language == CorpusConfig::default().language, "corpus.language", language, expected)?;
    let mut names = BTreeSet::new();
    for language in languages {
        let (name, refuse) = (&language.name, |fits, found: String, expected: &str| {
            ensure(fits, "corpus.languages", found, expected)
        });
        refuse(!name.trim().is_empty(), "a language without a name".into(), "a `name` for each language")?;
        let expected = "a unique name for each language";
        refuse(names.insert(name), format!("\"{name}\" twice"), expected)?;
        let expected = "`files` with its text, or no such language";
        refuse(!language.files.is_empty(), format!("\"{name}\" without `files`"), expected)?;
    }
    let alpha = sampling_alpha.unwrap_or_default();
    let expected = "a number from 0, which draws the languages of `corpus.languages` alike, to 1, which draws them by how \
                    much text they have";
    ensure((0.0..=1.0).contains(&alpha), "corpus.sampling_alpha", alpha, expected)
}

/// Checks the translations, and that the model can tell where the second sentence begins.
fn translations(config: &RunConfig, parallel: &[TranslationFiles]) -> Check {
    let names: Vec<&str> = config.corpus.languages.iter().map(|language| language.name.as_str()).collect();
    let expected = "\"masked\", or texts of two languages or more in `corpus.languages`";
    ensure(names.len() > 1, "objective.kind", format!("\"{}\"", config.objective.kind()), expected)?;
    let otherwise = "or `objective.kind` = \"masked\", which needs none";
    let refuse = |fits, found: String, expected: String| ensure(fits, "objective.parallel", found, expected);
    refuse(!parallel.is_empty(), "[]".into(), format!("parallel text, {otherwise}"))?;
    for TranslationFiles { languages, text, .. } in parallel {
        let [source, target] = languages;
        let pair = languages.join("-");
        let are_two = source != target && languages.iter().all(|name| names.contains(&name.as_str()));
        let expected = format!("two languages of `corpus.languages` ({})", names.join(", "));
        refuse(are_two, pair.clone(), expected)?;
        let expected = format!("`text` with `source` and `target`, or with `files`, {otherwise}");
        refuse(!text.is_empty(), format!("{pair} without files"), expected)?;
    }
    let unit = config.examples.masking.unit;
    let found = serde_json::to_string(&unit).unwrap_or_default();
    let expected = format!("\"token\" with {TRANSLATIONS}: word starts are unknown in translations");
    ensure(unit == MaskUnit::Token, "examples.masking.unit", found, expected)?;
    let ModelSection::New(model) = &config.model else { return Ok(()) };
    let is_fit = may_reset_positions(&model.with_vocabulary(1, 0));
    if let Some(kind) = model.positions {
        let expected = format!(
            "\"learned\" or \"sinusoidal\": {TRANSLATIONS} counts positions anew in the second sentence"
        );
        return ensure(is_fit, "model.positions", format!("\"{}\"", kind.name()), expected);
    }
    let expected = format!(
        "\"bert\", \"xlm-roberta\" or another family whose positions are added to the embeddings: {TRANSLATIONS} counts \
         them anew in the second sentence"
    );
    let found = format!("\"{}\"", model.family.model_type());
    ensure(is_fit, "model.family", found, expected)
}

/// Whether positions are added to the embeddings and used nowhere else.
pub(crate) fn may_reset_positions(encoder: &BertConfig) -> bool {
    (encoder.absolute_positions || encoder.sinusoidal.is_some())
        && encoder.relative.is_none()
        && !encoder.alibi
        && encoder.rotary.is_none()
        && encoder.relative_bias.is_none()
        && encoder.disentangled.is_none()
}
