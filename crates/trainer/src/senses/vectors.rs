//! Sense vectors: means of the vectors of a sense's occurrences.

use super::sentences::{SenseData, SensePart, SenseSentence, labelled};
use super::target_vectors::TargetEmbedder;
use crate::{Result, TrainerError};
use cloze_data::DataError;
use cloze_evaluation::senses::{Inventory, SenseCounter};
use cloze_tokenizer::Error as TokenizerError;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Sentences read and embedded together. Does not affect the order in which vectors are added.
pub(super) const BATCH: usize = 128;

/// Identifies the model that made vectors, so that they are not compared with another model's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SenseModel {
    /// The model's name; not compared.
    pub name: String,
    /// A hash of its files.
    pub hash: String,
    /// The layers that vectors are made of, in the syntax of [`Layers`](crate::token_vectors::Layers).
    pub layers: String,
    /// Width of a vector.
    pub width: usize,
}

/// The training data of vectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SenseOrigin {
    /// The checksum of the file.
    pub checksum: String,
    /// The fraction of its sentences that was held out.
    pub held_out: f64,
    /// Number of sentences read.
    pub sentences: u64,
    /// Number of their words with senses.
    pub words: u64,
}

/// Words with their senses, and a vector for each sense of each word.
#[derive(Debug, Clone, PartialEq)]
pub struct SenseVectors {
    /// The model that made the vectors.
    pub model: SenseModel,
    /// The training data.
    pub origin: SenseOrigin,
    /// The words with their senses.
    pub inventory: Inventory,
    /// `[senses · width]`, by sense index. Zeros if no occurrence of the sense had a token.
    pub values: Vec<f32>,
}

/// Statistics of skipped training data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LearnReport {
    /// Occurrences of a sense without a token, and so without a vector.
    pub without_token: u64,
}

impl SenseVectors {
    /// The vector of a sense by its index; none if no occurrence had a token.
    ///
    /// # Panics
    /// If there is no such sense.
    pub fn vector(&self, number: usize) -> Option<&[f32]> {
        let width = self.model.width;
        let vector = &self.values[number * width..][..width];
        vector.iter().any(|value| *value != 0.0).then_some(vector)
    }

    /// Checks that a model is the one that made the vectors.
    ///
    /// # Errors
    /// [`TrainerError::OtherSenseModel`].
    pub fn check_model(&self, model: &SenseModel) -> Result<()> {
        let short = |model: &SenseModel| {
            let hash: String = model.hash.chars().take(12).collect();
            format!("{hash} ({})", model.name)
        };
        let (ours, theirs) = (&self.model, model);
        for (part, expected, found) in [
            ("width", ours.width.to_string(), theirs.width.to_string()),
            ("layers", ours.layers.clone(), theirs.layers.clone()),
            ("hash", ours.hash.clone(), theirs.hash.clone()),
        ] {
            if expected != found {
                let (expected, found) = match part {
                    "hash" => (short(ours), short(theirs)),
                    _ => (expected, found),
                };
                return Err(TrainerError::OtherSenseModel { part, expected, found });
            }
        }
        Ok(())
    }
}

/// Trains a vector for each sense in a file's training part, i.e. what is not held out. `model` describes the
/// embedder; its width and layers are set here. `progress` gets the number of sentences done and their total.
///
/// Vectors are added in sentence order in 64 bits, so rounding does not depend on the number of threads or the
/// batch size.
///
/// # Errors
/// Those of [`SenseData::read`] and of the embedder; a sentence that the tokenizer fails on, with file and
/// line;
/// [`TrainerError::OutputNotFinite`].
pub fn learn(
    embedder: &TargetEmbedder,
    model: SenseModel,
    data: &SenseData,
    held_out: f64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(SenseVectors, LearnReport)> {
    let part = SensePart::Training(held_out);
    let width = embedder.width();
    let mut origin = SenseOrigin { checksum: data.checksum.clone(), held_out, sentences: 0, words: 0 };
    let mut counter = SenseCounter::default();
    for sentence in data.read(part)? {
        let sentence = sentence?;
        origin.sentences += 1;
        origin.words += labelled(&sentence);
        for target in &sentence.targets {
            if let Some(sense) = &target.sense {
                counter.add(&target.lemma, target.pos, sense);
            }
        }
    }
    if origin.words == 0 {
        let reason = "no word has a sense in the part that is not held out".into();
        return Err(TrainerError::Text { path: data.path().to_owned(), reason });
    }
    let inventory = counter.finish();
    let mut sums = vec![0.0f64; inventory.n_senses() * width];
    let mut counts = vec![0u64; inventory.n_senses()];
    let mut report = LearnReport::default();
    let mut done = 0;
    let mut sentences = data.read(part)?;
    loop {
        let batch: Vec<SenseSentence> = sentences.by_ref().take(BATCH).collect::<Result<_>>()?;
        if batch.is_empty() {
            break;
        }
        let vectors = embed(embedder, &batch, data.path())?;
        for (sentence, vectors) in batch.iter().zip(vectors) {
            for (target, vector) in sentence.targets.iter().zip(vectors) {
                let Some(sense) = &target.sense else { continue };
                let senses = inventory.senses(&target.lemma, target.pos);
                let found = senses.iter().find(|known| known.sense == *sense);
                match (found, vector) {
                    (Some(found), Some(vector)) => {
                        counts[found.number] += 1;
                        let sum = &mut sums[found.number * width..][..width];
                        sum.iter_mut().zip(&vector).for_each(|(sum, value)| *sum += f64::from(*value));
                    }
                    _ => report.without_token += 1,
                }
            }
        }
        done += batch.len() as u64;
        progress(done, origin.sentences);
    }
    let mean = |(sum, n): (&[f64], &u64)| {
        let n = (*n).max(1) as f64;
        sum.iter().map(|sum| (sum / n) as f32).collect::<Vec<f32>>()
    };
    let values = sums.chunks(width).zip(&counts).flat_map(mean).collect();
    let model = SenseModel { layers: embedder.layers().to_string(), width, ..model };
    Ok((SenseVectors { model, origin, inventory, values }, report))
}

/// The vectors of the targets of a file's sentences; names the line of a sentence that the tokenizer fails on.
pub(super) fn embed(
    embedder: &TargetEmbedder,
    sentences: &[SenseSentence],
    path: &Path,
) -> Result<Vec<Vec<Option<Vec<f32>>>>> {
    embedder.embed(sentences).map_err(|error| match error {
        TrainerError::Tokenizer(TokenizerError::Batch { index, source, .. }) => {
            let line = sentences.get(index).map(|sentence| sentence.line);
            let problem = source.to_string();
            TrainerError::Data(DataError::LabelledFile { path: path.to_owned(), line, problem })
        }
        error => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_evaluation::senses::PartOfSpeech;

    #[test]
    fn another_model_is_refused() {
        let model = SenseModel { name: "a".into(), hash: "00".into(), layers: "last".into(), width: 2 };
        let mut counter = SenseCounter::default();
        counter.add("sea", PartOfSpeech::Noun, "s");
        counter.add("sea", PartOfSpeech::Noun, "t");
        let origin = SenseOrigin { checksum: "x".into(), held_out: 0.0, sentences: 1, words: 2 };
        let vectors = SenseVectors {
            model: model.clone(),
            origin,
            inventory: counter.finish(),
            values: vec![0.0, 1.0, 0.0, 0.0],
        };
        assert_eq!(vectors.vector(0), Some(&[0.0, 1.0][..]));
        assert_eq!(vectors.vector(1), None);
        vectors.check_model(&SenseModel { name: "b".into(), ..model.clone() }).unwrap();
        let refused = |model| vectors.check_model(&model).unwrap_err().to_string();
        for (other, part, found, expected) in [
            (SenseModel { width: 3, ..model.clone() }, "width", "3", "2"),
            (SenseModel { layers: "all".into(), ..model.clone() }, "layers", "all", "last"),
            (SenseModel { hash: "01".into(), ..model.clone() }, "hash", "01 (a)", "00 (a)"),
        ] {
            let message = refused(other);
            assert!(message.contains(&format!("its {part} is {found}, theirs is {expected}; ")), "{message}");
        }
    }
}
