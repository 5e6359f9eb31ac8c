//! Sense accuracy, with the most-frequent-sense baseline.

use super::sentences::{SenseData, SensePart, SenseSentence};
use super::tagger::SenseTagger;
use super::target_vectors::TargetEmbedder;
use super::vectors::{BATCH, embed};
use crate::Result;
use cloze_evaluation::senses::{Instance, SenseScores};

/// The baseline: the most frequent sense of the lemma, else the first one in WordNet.
pub const MOST_FREQUENT: &str = "most frequent";
/// The nearest of the labelled senses of the lemma, else the baseline.
pub const NEAREST: &str = "nearest";
/// The nearest of the labelled senses of the lemma, with the tagger's [frequency
/// weight](SenseTagger::with_prior), else the baseline.
pub const WEIGHED: &str = "nearest by frequency";
/// The nearest of the lemma's senses in the labelled sentences and WordNet, with the same weight, else the
/// baseline.
pub const RELATED: &str = "nearest or related";

/// The result of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenseReport {
    /// The scores of [`MOST_FREQUENT`] and [`NEAREST`]; of [`WEIGHED`] if the frequency weight is set; and with
    /// WordNet, of [`RELATED`].
    pub scores: SenseScores,
    /// Words without a token, and so without a vector; they get the baseline's answer.
    pub without_token: u64,
}

/// Evaluates on the words with known senses in a part of a file. `progress` gets the number of sentences done.
///
/// # Errors
/// Those of [`SenseData::read`] and of the embedder; a sentence that the tokenizer fails on, with file and
/// line.
pub fn evaluate(
    tagger: &SenseTagger<'_>,
    embedder: &TargetEmbedder,
    data: &SenseData,
    part: SensePart,
    progress: &mut dyn FnMut(u64),
) -> Result<SenseReport> {
    let is_weighed = tagger.prior() != 0.0;
    let systems = [MOST_FREQUENT, NEAREST].into_iter();
    let systems = systems.chain(is_weighed.then_some(WEIGHED)).chain(tagger.has_wordnet().then_some(RELATED));
    let mut report = SenseReport { scores: SenseScores::new(systems), without_token: 0 };
    let inventory = &tagger.vectors().inventory;
    let mut sentences = data.read(part)?;
    let mut done = 0;
    loop {
        let batch: Vec<SenseSentence> = sentences.by_ref().take(BATCH).collect::<Result<_>>()?;
        if batch.is_empty() {
            return Ok(report);
        }
        let vectors = embed(embedder, &batch, data.path())?;
        for (sentence, vectors) in batch.iter().zip(vectors) {
            for (target, vector) in sentence.targets.iter().zip(vectors) {
                let Some(gold) = &target.sense else { continue };
                let (lemma, pos) = (target.lemma.as_str(), target.pos);
                report.without_token += u64::from(vector.is_none());
                let senses = inventory.senses(lemma, pos);
                let instance = Instance {
                    pos,
                    n_senses: senses.len(),
                    has_sense: senses.iter().any(|sense| sense.sense == *gold),
                    is_most_frequent: senses.first().is_some_and(|sense| sense.sense == *gold),
                };
                let mut answers = vec![
                    tagger.most_frequent(lemma, pos),
                    tagger.choose_with(0.0, lemma, pos, vector.as_deref(), false),
                ];
                if is_weighed {
                    answers.push(tagger.choose(lemma, pos, vector.as_deref(), false));
                }
                if tagger.has_wordnet() {
                    answers.push(tagger.choose(lemma, pos, vector.as_deref(), true));
                }
                let is_right =
                    answers.iter().map(|answer| answer.as_ref().map(|choice| choice.sense == *gold));
                report.scores.add(&instance, &is_right.collect::<Vec<_>>());
            }
        }
        done += batch.len() as u64;
        progress(done);
    }
}
