//! The samplers of published models: sentence pairs and packed segments.

use crate::random::Random;
use crate::sampler::{Example, ExampleSampler, Room};
use crate::split::Documents;
use crate::{DataError, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How segments become examples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", from = "Strict")]
#[non_exhaustive]
pub enum PairConfig {
    /// BERT's next-sentence prediction (Devlin et al. 2019, §3.1; `create_instances_from_document`).
    ///
    /// A chunk of one sentence always has a random second segment, as in the reference, so slightly more
    /// than `random_next_prob` are random. Deviation: the random segment always comes from another
    /// document; the reference gives up after ten tries.
    NextSentence {
        /// Share of documents whose target length is a random, shorter one. Default 0.1.
        short_seq_prob: f64,
        /// Share of chunks of two sentences or more whose second segment is random. Default 0.5.
        random_next_prob: f64,
    },
    /// ALBERT's sentence-order prediction (Lan et al. 2020, §3.1): label 1 has the segments swapped.
    ///
    /// Deviation: a chunk of one sentence, which has no order, gives no example; google-research/albert
    /// pairs it with a random segment.
    SentenceOrder {
        /// Share of documents whose target length is a random, shorter one. Default 0.1.
        short_seq_prob: f64,
    },
    /// RoBERTa's `DOC-SENTENCES`: one segment of whole sentences within a document (Liu et al. 2019, §4.2).
    ///
    /// Deviation: batches do not grow when segments are shorter.
    DocSentences,
    /// RoBERTa's `FULL-SENTENCES`: the same across documents, with a separator between them.
    FullSentences,
}

/// Used to read a [`PairConfig`]: in an internally tagged enum, serde rejects unknown keys only for
/// variants with braces.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Strict {
    NextSentence {
        #[serde(default = "short_seq_prob")]
        short_seq_prob: f64,
        #[serde(default = "random_next_prob")]
        random_next_prob: f64,
    },
    SentenceOrder {
        #[serde(default = "short_seq_prob")]
        short_seq_prob: f64,
    },
    DocSentences {},
    FullSentences {},
}

impl From<Strict> for PairConfig {
    fn from(config: Strict) -> Self {
        match config {
            Strict::NextSentence { short_seq_prob, random_next_prob } => {
                Self::NextSentence { short_seq_prob, random_next_prob }
            }
            Strict::SentenceOrder { short_seq_prob } => Self::SentenceOrder { short_seq_prob },
            Strict::DocSentences {} => Self::DocSentences,
            Strict::FullSentences {} => Self::FullSentences,
        }
    }
}

fn short_seq_prob() -> f64 {
    0.1
}

fn random_next_prob() -> f64 {
    0.5
}

impl Default for PairConfig {
    fn default() -> Self {
        Self::NextSentence { short_seq_prob: short_seq_prob(), random_next_prob: random_next_prob() }
    }
}

impl PairConfig {
    /// The sampler.
    pub fn sampler(&self) -> Box<dyn ExampleSampler> {
        match *self {
            Self::NextSentence { short_seq_prob, random_next_prob } => {
                Box::new(Pairs { short_seq_prob, second: Second::RandomWith(random_next_prob) })
            }
            Self::SentenceOrder { short_seq_prob } => {
                Box::new(Pairs { short_seq_prob, second: Second::Swapped })
            }
            Self::DocSentences => Box::new(Packed { across_documents: false }),
            Self::FullSentences => Box::new(Packed { across_documents: true }),
        }
    }

    /// Its name in configs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NextSentence { .. } => "next-sentence",
            Self::SentenceOrder { .. } => "sentence-order",
            Self::DocSentences => "doc-sentences",
            Self::FullSentences => "full-sentences",
        }
    }

    /// Whether the examples are pairs with a label.
    pub fn has_pairs(&self) -> bool {
        matches!(self, Self::NextSentence { .. } | Self::SentenceOrder { .. })
    }
}

/// Alternatives to the following text as the second segment.
enum Second {
    RandomWith(f64),
    Swapped,
}

/// Segment pairs as made by google-research/bert's `create_instances_from_document`.
struct Pairs {
    short_seq_prob: f64,
    second: Second,
}

impl ExampleSampler for Pairs {
    fn has_pairs(&self) -> bool {
        true
    }

    /// Random second segments need another document; without one, the search would not end.
    fn check(&self, documents: &Documents) -> Result<()> {
        match self.second {
            Second::RandomWith(_) if documents.count() < 2 => Err(DataError::OneDocument),
            _ => Ok(()),
        }
    }

    fn examples(
        &self,
        documents: &Documents,
        room: Room,
        seed: u64,
        emit: &mut dyn FnMut(Example) -> Result<()>,
    ) -> Result<()> {
        self.check(documents)?;
        documents.iter().try_for_each(|document| {
            let mut random = Random::derive(seed, &[document]);
            self.document(documents, document, room, &mut random, emit)
        })
    }
}

impl Pairs {
    /// The examples of one document.
    fn document(
        &self,
        documents: &Documents,
        document: u64,
        room: Room,
        random: &mut Random,
        emit: &mut dyn FnMut(Example) -> Result<()>,
    ) -> Result<()> {
        let corpus = documents.corpus();
        let max = room.pair.max(2) as u64;
        // Short targets lessen the mismatch between pretraining and fine-tuning.
        let short = random.chance(self.short_seq_prob);
        let target = if short { 2 + random.below(max - 1) } else { max };
        let tokens = |from: u64, to: u64| corpus.sentence(from).start..corpus.sentence(to - 1).end;
        let length = |range: &Range<u64>| range.end - range.start;
        let Range { start: mut chunk_start, end: document_end } = corpus.document(document);
        let mut i = chunk_start;
        while i < document_end {
            let chunk_len = length(&tokens(chunk_start, i + 1));
            if i + 1 < document_end && chunk_len < target {
                i += 1;
                continue;
            }
            let n = i + 1 - chunk_start;
            let first_end = chunk_start + if n >= 2 { 1 + random.below(n - 1) } else { 1 };
            let mut first = tokens(chunk_start, first_end);
            let mut next = i + 1;
            let (second, label) = match self.second {
                Second::RandomWith(p) if n == 1 || random.chance(p) => {
                    // The sentences not used go back.
                    next = first_end;
                    (random_segment(documents, document, target.saturating_sub(length(&first)), random), 1)
                }
                Second::Swapped if n == 1 => {
                    // One sentence alone has no order.
                    chunk_start = next;
                    i = next;
                    continue;
                }
                Second::RandomWith(_) => (tokens(first_end, i + 1), 0),
                Second::Swapped => (tokens(first_end, i + 1), u8::from(random.chance(0.5))),
            };
            let mut second = second;
            let truncated = truncate_pair(&mut first, &mut second, max, random);
            if label == 1 && matches!(self.second, Second::Swapped) {
                std::mem::swap(&mut first, &mut second);
            }
            emit(Example { first, second, label, short, truncated })?;
            chunk_start = next;
            i = next;
        }
        Ok(())
    }
}

/// Sentences of another document from a random start, at least `target` tokens if it has them.
fn random_segment(documents: &Documents, not: u64, target: u64, random: &mut Random) -> Range<u64> {
    let corpus = documents.corpus();
    // The reference tries ten times and may then take the same document; with two documents or more
    // this ends at another one always, after as many draws on average as the part is rare in the corpus.
    let document = loop {
        let document = random.below(corpus.n_documents());
        if document != not && documents.contains(document) {
            break document;
        }
    };
    let sentences = corpus.document(document);
    let first = sentences.start + random.below(sentences.end - sentences.start);
    let start = corpus.sentence(first).start;
    let mut end = corpus.sentence(first).end;
    for sentence in first + 1..sentences.end {
        if end - start >= target {
            break;
        }
        end = corpus.sentence(sentence).end;
    }
    start..end
}

/// Shortens the longer segment, token by token, at a random end, until both fit into `max`
/// (`truncate_seq_pair`). Returns whether anything was cut.
fn truncate_pair(first: &mut Range<u64>, second: &mut Range<u64>, max: u64, random: &mut Random) -> bool {
    let mut truncated = false;
    loop {
        let (a, b) = (first.end - first.start, second.end - second.start);
        if a + b <= max {
            return truncated;
        }
        truncated = true;
        let longer = if a > b { &mut *first } else { &mut *second };
        // Either end, so as not to favour the starts of sentences.
        if random.chance(0.5) {
            longer.start += 1;
        } else {
            longer.end -= 1;
        }
    }
}

/// Packs as many whole sentences as fit into one segment (Liu et al. 2019, §4.2).
struct Packed {
    across_documents: bool,
}

impl ExampleSampler for Packed {
    fn examples(
        &self,
        documents: &Documents,
        room: Room,
        _seed: u64,
        emit: &mut dyn FnMut(Example) -> Result<()>,
    ) -> Result<()> {
        let corpus = documents.corpus();
        let max = room.segment.max(1) as u64;
        let mut packed = OpenSegment::default();
        for document in documents.iter() {
            if packed.tokens > 0 {
                packed.tokens += room.separator as u64;
            }
            for sentence in corpus.document(document) {
                let mut sentence = corpus.sentence(sentence);
                while packed.tokens > 0 && packed.tokens + (sentence.end - sentence.start) > max {
                    packed.emit(emit)?;
                }
                // A sentence longer than an example is cut into several: nothing is lost.
                while sentence.end - sentence.start > max {
                    let cut = sentence.start + max;
                    emit(Example { truncated: true, ..Example::segment(sentence.start..cut) })?;
                    sentence.start = cut;
                }
                packed.push(sentence);
            }
            if !self.across_documents {
                packed.emit(emit)?;
            }
        }
        packed.emit(emit)
    }
}

/// A segment with room for more sentences.
#[derive(Default)]
struct OpenSegment {
    range: Option<Range<u64>>,
    tokens: u64,
}

impl OpenSegment {
    fn push(&mut self, sentence: Range<u64>) {
        self.tokens += sentence.end - sentence.start;
        let start = self.range.take().map_or(sentence.start, |range| range.start);
        self.range = Some(start..sentence.end);
    }

    fn emit(&mut self, emit: &mut dyn FnMut(Example) -> Result<()>) -> Result<()> {
        self.tokens = 0;
        match self.range.take() {
            Some(range) => emit(Example::segment(range)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_strictly_and_back() {
        let read = |json: &str| serde_json::from_str::<PairConfig>(json);
        for config in [
            PairConfig::default(),
            PairConfig::SentenceOrder { short_seq_prob: 0.2 },
            PairConfig::DocSentences,
            PairConfig::FullSentences,
        ] {
            let json = serde_json::to_string(&config).unwrap();
            assert_eq!(read(&json).unwrap(), config);
            let error = read(&json.replace('}', ", \"colour\": 1}")).unwrap_err().to_string();
            assert!(error.contains("unknown field `colour`"), "{error}");
        }
        assert_eq!(read("{\"kind\": \"next-sentence\"}").unwrap(), PairConfig::default());
        // A key of another kind is not one of this kind.
        assert!(read("{\"kind\": \"doc-sentences\", \"short_seq_prob\": 0.1}").is_err());
    }

    #[test]
    fn a_pair_is_cut_at_both_ends_and_the_longer_segment_first() {
        let mut cuts = [0u64; 4];
        for seed in 0..2_000 {
            let mut random = Random::derive(seed, &[]);
            let (mut first, mut second) = (100..130, 500..512);
            assert!(truncate_pair(&mut first, &mut second, 24, &mut random));
            assert_eq!((first.end - first.start, second.end - second.start), (12, 12));
            let (mut first, mut second) = (100..130, 500..531);
            truncate_pair(&mut first, &mut second, 21, &mut random);
            // Equal segments: the second gives, as in the reference.
            assert_eq!((first.end - first.start, second.end - second.start), (11, 10));
            for (count, cut) in cuts.iter_mut().zip([
                first.start - 100,
                130 - first.end,
                second.start - 500,
                531 - second.end,
            ]) {
                *count += cut;
            }
        }
        // 19 and 21 cuts a time, half of them at either end; five standard deviations of the coin.
        for (count, n) in cuts.iter().zip([19.0, 19.0, 21.0, 21.0]) {
            let (mean, deviation) = (n * 1_000.0, (n * 500.0f64).sqrt());
            assert!((*count as f64 - mean).abs() < 5.0 * deviation, "{cuts:?}");
        }
        let (mut first, mut second) = (0..10, 20..30);
        assert!(!truncate_pair(&mut first, &mut second, 20, &mut Random::derive(0, &[])));
        assert_eq!((first, second), (0..10, 20..30));
    }
}
