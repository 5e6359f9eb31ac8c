//! Training texts for a tokenizer of several languages.

use crate::corpus::{CorpusConfig, Document, OnError, documents};
use crate::random::Random;
use crate::sentences::sentences;
use crate::{DataError, LanguageSampling, Result};
use std::path::Path;

/// Random stream of these draws.
const TEXTS: u64 = 0x7E87;

/// The texts of a corpus's documents, to train a tokenizer. With several languages, each gets its share `q_i`
/// of [`LanguageSampling`]: a document is repeated `q_i / p_i` times, rounded at random. The total amount of
/// text stays the same.
///
/// The choice depends on document numbers and not on a seed, so runs that differ only in their seeds have the
/// same vocabulary.
///
/// # Errors
/// Those of [`documents`]; [`DataError::NoLanguageText`]. Problems inside the files are reported while
/// iterating.
pub fn sampled_texts(config: &CorpusConfig, base: &Path) -> Result<Box<dyn Iterator<Item = Result<String>>>> {
    let text = |document: Result<Document>| document.map(|document| document.text().to_owned());
    if config.languages.is_empty() {
        return Ok(Box::new(documents(config, base)?.map(text)));
    }
    check_languages(config, base)?;
    let parts = config.parts();
    let counts = parts.iter().map(|part| n_sentences(part, base)).collect::<Result<Vec<u64>>>()?;
    let sampling = LanguageSampling::new(&counts, config.sampling_alpha.unwrap_or(LanguageSampling::ALPHA));
    let repetitions: Vec<f64> = sampling.repetitions().collect();
    let streams = parts.iter().map(|part| documents(part, base)).collect::<Result<Vec<_>>>()?;
    let of_language = move |(language, stream): (usize, crate::DocumentStream)| {
        let times = repetitions[language];
        (0u64..).zip(stream).flat_map(move |(number, document)| {
            let broken = Random::derive(0, &[TEXTS, language as u64, number]).chance(times.fract());
            let times = if document.is_ok() { times as usize + usize::from(broken) } else { 1 };
            let text = document.map(|document| document.text().to_owned());
            match text {
                Ok(text) => (0..times).map(|_| Ok(text.clone())).collect(),
                error => vec![error],
            }
        })
    };
    Ok(Box::new(streams.into_iter().enumerate().flat_map(of_language)))
}

/// Checks that each language of a multilingual corpus has some text; other corpora always pass. Problems
/// inside the files are ignored.
///
/// # Errors
/// [`DataError::NoLanguageText`]; [`DataError::NoLanguageFiles`], [`DataError::Pattern`].
pub fn check_languages(config: &CorpusConfig, base: &Path) -> Result<()> {
    if config.languages.is_empty() {
        return Ok(());
    }
    // Says which language a missing file is of.
    crate::input_files(config, base)?;
    for part in config.parts() {
        let part = CorpusConfig { on_error: OnError::Skip, ..part };
        let mut stream = documents(&part, base)?;
        let has_text =
            |document: Result<Document>| document.is_ok_and(|text| text.paragraphs().next().is_some());
        if !stream.any(has_text) {
            let reason = match stream.skipped().is_empty() {
                true => "its files have none".into(),
                false => format!("its files have {}", stream.skipped()),
            };
            return Err(DataError::NoLanguageText { language: part.language, reason });
        }
    }
    Ok(())
}

/// Number of sentences of a language.
fn n_sentences(part: &CorpusConfig, base: &Path) -> Result<u64> {
    let mut n = 0;
    for document in documents(part, base)? {
        let document = document?;
        let of = |paragraph| sentences(paragraph, &part.language).count() as u64;
        n += document.paragraphs().map(of).sum::<u64>();
    }
    match n {
        0 => {
            let (language, reason) = (part.language.clone(), "its files have no sentence".into());
            Err(DataError::NoLanguageText { language, reason })
        }
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn languages_have_their_shares_of_the_texts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, n: usize| {
            let text: String = (0..n).map(|i| format!("{name} {i}.\n\n")).collect();
            fs::write(folder.path().join(name), text).unwrap();
        };
        write("large", 9_000);
        write("small", 1_000);
        fs::write(folder.path().join("empty"), "\n\n").unwrap();
        let texts = |second: &str, alpha: Option<f64>| -> Result<Vec<String>> {
            let config = serde_json::json!({ "languages": [
                { "name": "en", "files": ["large"] },
                { "name": "de", "files": [second] },
            ], "sampling_alpha": alpha });
            let config: CorpusConfig = serde_json::from_value(config).unwrap();
            sampled_texts(&config, folder.path())?.collect()
        };
        let n = |texts: &[String], name: &str| texts.iter().filter(|text| text.starts_with(name)).count();
        let all = texts("small", Some(1.0)).unwrap();
        assert_eq!((n(&all, "large"), n(&all, "small")), (9_000, 1_000));
        // √0.9 / (√0.9 + √0.1) = 0.75: every second small text is there three times, and five of six large ones.
        let sampled = texts("small", Some(0.5)).unwrap();
        let (large, small) = (n(&sampled, "large"), n(&sampled, "small"));
        // Five standard deviations of the broken numbers' draws.
        assert!(large.abs_diff(7_500) < 180 && small.abs_diff(2_500) < 80, "{large}, {small}");
        assert_eq!(texts("small", Some(0.5)).unwrap(), sampled);
        let message = texts("empty", None).unwrap_err().to_string();
        assert_eq!(
            message,
            "\"de\" of `corpus.languages` has no text: its files have 1 × empty file; give it files with text, or leave the \
             language out"
        );
    }
}
