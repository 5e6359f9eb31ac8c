//! The prepared corpus: token ids with sentence and document boundaries, memory-mapped.
//!
//! ```text
//! KEY/tokens.bin     u32 little-endian a token; the top bit marks the first piece of a word
//! KEY/sentences.bin  u64 a sentence: the index after its last token
//! KEY/documents.bin  u64 a document: the index after its last sentence
//! KEY/meta.json      counts, the three files' checksums, and one of itself
//! ```
//!
//! `KEY` is a hash of the inputs' contents and of every setting that affects the result. A folder named by
//! its key is complete, see [`store`](crate::store).

use crate::checksum::{hash_corpus_files, settings};
use crate::corpus::{CorpusConfig, Document, SkipReport, documents};
use crate::sentences::sentences;
use crate::store::{self, Meta, Output, Table};
use crate::{DataError, Progress, Result};
use cloze_tokenizer::Tokenizer;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

/// Marks the first piece of a word in a stored token.
pub const WORD_START: u32 = 1 << 31;

/// Incremented when the files' layout or the segmentation changes, so that old ones are rebuilt.
const FORMAT: u32 = 3;
/// Bytes of text passed to the threads at a time: bounds memory and keeps every thread busy.
pub(crate) const CHUNK_BYTES: usize = 8 << 20;
/// Overhead per text of a chunk in bytes, including its encoding, so that many short texts also fill a
/// chunk.
pub(crate) const TEXT_COST: usize = 256;

/// A corpus as token ids on disk.
#[derive(Debug)]
pub struct PreparedCorpus {
    tokens: Table,
    sentences: Table,
    documents: Table,
    meta: Meta<Counts>,
}

/// Report on the preparation of a corpus.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrepareReport {
    /// Whether an earlier preparation was valid and reused.
    pub reused: bool,
    /// Documents in the corpus.
    pub documents: u64,
    /// Sentences in them.
    pub sentences: u64,
    /// Tokens in them.
    pub tokens: u64,
    /// What was skipped or cut, by reason.
    pub skipped: SkipReport,
    /// Time taken, in seconds.
    pub seconds: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Counts {
    tokens: u64,
    sentences: u64,
    documents: u64,
    skipped: SkipReport,
}

impl PreparedCorpus {
    /// The prepared form of a corpus: the one in `cache` if valid, else built there.
    ///
    /// It is built in a temporary folder that is renamed when complete, so an interrupted build is
    /// never mistaken for a complete one. Two processes may build the same corpus at once; the first to
    /// finish wins.
    ///
    /// # Errors
    /// Problems in the corpus, with `on_error = "fail"`; [`DataError::EmptyCorpus`]; files that cannot be
    /// read or written; [`DataError::VocabHole`] for a tokenizer whose ids are not `0..vocab_size`.
    pub fn prepare(
        config: &CorpusConfig,
        base: &Path,
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &dyn Progress,
    ) -> Result<(Self, PrepareReport)> {
        Self::prepare_in(Unit::Sentence, config, base, tokenizer, cache, progress)
    }

    /// [`prepare`](Self::prepare) without sentence segmentation: a document's text is tokenised unchanged,
    /// including white space, and counts as one sentence. A text longer than
    /// [`max_document_bytes`](CorpusConfig::max_document_bytes) is one document of several such sentences.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_documents(
        config: &CorpusConfig,
        base: &Path,
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &dyn Progress,
    ) -> Result<(Self, PrepareReport)> {
        Self::prepare_in(Unit::Document, config, base, tokenizer, cache, progress)
    }

    fn prepare_in(
        unit: Unit,
        config: &CorpusConfig,
        base: &Path,
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &dyn Progress,
    ) -> Result<(Self, PrepareReport)> {
        let start = Instant::now();
        without_holes(tokenizer)?;
        let key = key(unit, config, base, tokenizer)?;
        let (corpus, reused) = match Self::open(&cache.join(&key), &key) {
            Some(corpus) => (corpus, true),
            None => (build(unit, config, base, tokenizer, cache, &key, progress)?, false),
        };
        let Counts { tokens, sentences, documents, skipped } = corpus.meta.counts.clone();
        let seconds = start.elapsed().as_secs_f64();
        let report = PrepareReport { reused, documents, sentences, tokens, skipped, seconds };
        Ok((corpus, report))
    }

    /// Opens a prepared corpus; `None` if it is missing, corrupt, or has another key.
    fn open(folder: &Path, key: &str) -> Option<Self> {
        let meta = Meta::<Counts>::read(folder, FORMAT, key)?;
        let Counts { tokens, sentences, documents, .. } = meta.counts;
        let [of_tokens, of_sentences, of_documents] = meta.files.as_slice() else { return None };
        let corpus = Self {
            tokens: Table::open(&folder.join("tokens.bin"), 4 * tokens, of_tokens)?,
            sentences: Table::open(&folder.join("sentences.bin"), 8 * sentences, of_sentences)?,
            documents: Table::open(&folder.join("documents.bin"), 8 * documents, of_documents)?,
            meta,
        };
        (corpus.sentences.last() == tokens && corpus.documents.last() == sentences && documents > 0)
            .then_some(corpus)
    }

    /// Tokens in the corpus.
    pub fn n_tokens(&self) -> u64 {
        self.meta.counts.tokens
    }

    /// Sentences in the corpus; none is empty.
    pub fn n_sentences(&self) -> u64 {
        self.meta.counts.sentences
    }

    /// Documents in the corpus; none is empty.
    pub fn n_documents(&self) -> u64 {
        self.meta.counts.documents
    }

    /// The sentences of a document.
    pub fn document(&self, document: u64) -> Range<u64> {
        self.documents.range(document)
    }

    /// The tokens of a sentence, as a range for [`tokens`](Self::tokens).
    pub fn sentence(&self, sentence: u64) -> Range<u64> {
        self.sentences.range(sentence)
    }

    /// The tokens of a range: each id, and whether it starts a word.
    pub fn tokens(&self, range: Range<u64>) -> impl Iterator<Item = (u32, bool)> + '_ {
        let bytes = &self.tokens.bytes()[4 * range.start as usize..4 * range.end as usize];
        bytes.as_chunks::<4>().0.iter().map(|bytes| {
            let stored = u32::from_le_bytes(*bytes);
            (stored & !WORD_START, stored & WORD_START != 0)
        })
    }

    /// The documents that a range of tokens covers, each with its part of the range.
    pub fn documents_of(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + '_ {
        let sentence = self.sentences.first_beyond(range.start);
        let first = self.documents.first_beyond(sentence);
        (first..self.n_documents()).map_while(move |document| {
            let sentences = self.document(document);
            let start = self.sentence(sentences.start).start.max(range.start);
            let end = self.sentence(sentences.end - 1).end.min(range.end);
            (start < end).then_some((document, start..end))
        })
    }

    /// The sentences that a range of tokens covers, each with its part of the range.
    pub fn sentences_of(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + '_ {
        (self.sentences.first_beyond(range.start)..self.n_sentences()).map_while(move |number| {
            let sentence = self.sentence(number);
            let part = sentence.start.max(range.start)..sentence.end.min(range.end);
            (part.start < part.end).then_some((number, part))
        })
    }

    /// A string that identifies this prepared corpus.
    pub fn key(&self) -> &str {
        &self.meta.key
    }
}

/// Checks that the ids are `0..vocab_size`, as counts and embeddings assume.
pub(crate) fn without_holes(tokenizer: &Tokenizer) -> Result<()> {
    let vocab_size = tokenizer.vocab_size();
    match (0..vocab_size as u32).find(|id| tokenizer.id_to_token(*id).is_none()) {
        Some(missing) => Err(DataError::VocabHole { vocab_size, missing }),
        None => Ok(()),
    }
}

/// The unit of tokenisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// A sentence of a paragraph.
    Sentence,
    /// An unchanged document.
    Document,
}

/// A hash of everything that affects the result.
fn key(unit: Unit, config: &CorpusConfig, base: &Path, tokenizer: &Tokenizer) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&FORMAT.to_le_bytes());
    if unit == Unit::Document {
        hasher.update(b"documents");
    }
    for part in [settings(config), tokenizer.to_json()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hash_corpus_files(&mut hasher, config, base)?;
    Ok(hasher.finalize().to_hex()[..32].to_string())
}

/// Characters of a document shown in an error.
const SHOWN: usize = 60;

/// A document's sentences as stored tokens, with the sentences' lengths.
#[derive(Default)]
struct Encoded {
    tokens: Vec<u32>,
    sentence_lengths: Vec<usize>,
}

fn encode(
    unit: Unit,
    document: &Document,
    language: &str,
    tokenizer: &Tokenizer,
) -> cloze_tokenizer::Result<Encoded> {
    let mut encoded = Encoded::default();
    let (mut ids, mut starts) = (Vec::new(), Vec::new());
    let mut add = |text: &str| {
        ids.clear();
        starts.clear();
        tokenizer.encode_into(text, &mut ids, &mut starts)?;
        if !ids.is_empty() {
            let stored = ids.iter().zip(&starts);
            encoded.tokens.extend(stored.map(|(id, start)| if *start { id | WORD_START } else { *id }));
            encoded.sentence_lengths.push(ids.len());
        }
        Ok::<(), cloze_tokenizer::Error>(())
    };
    match unit {
        Unit::Document => add(document.text())?,
        Unit::Sentence => {
            for paragraph in document.paragraphs() {
                sentences(paragraph, language).try_for_each(&mut add)?;
            }
        }
    }
    Ok(encoded)
}

fn build(
    unit: Unit,
    config: &CorpusConfig,
    base: &Path,
    tokenizer: &Tokenizer,
    cache: &Path,
    key: &str,
    progress: &dyn Progress,
) -> Result<PreparedCorpus> {
    let partial = store::begin(cache)?;
    let mut tokens = Output::create(partial.path().join("tokens.bin"))?;
    let mut sentence_ends = Output::create(partial.path().join("sentences.bin"))?;
    let mut document_ends = Output::create(partial.path().join("documents.bin"))?;
    let (mut n_tokens, mut n_sentences, mut n_documents, mut n_read) = (0u64, 0u64, 0u64, 0u64);

    // Whether a document has tokens, and is not at its end.
    let mut is_open = false;
    let mut source = documents(config, base)?;
    let mut chunk: Vec<Document> = Vec::new();
    loop {
        chunk.clear();
        let mut bytes = 0;
        while bytes < CHUNK_BYTES {
            match source.next() {
                Some(document) => {
                    let document = document?;
                    bytes += document.len() + TEXT_COST;
                    chunk.push(document);
                }
                None => break,
            }
        }
        if chunk.is_empty() {
            break;
        }
        let encoded: Vec<_> =
            chunk.par_iter().map(|document| encode(unit, document, &config.language, tokenizer)).collect();
        for (document, encoded) in chunk.iter().zip(encoded) {
            n_read += 1;
            let continues = unit == Unit::Document && document.continues();
            let document = encoded.map_err(|source| {
                let beginning = document.text().chars().take(SHOWN).collect();
                DataError::Document { number: n_read, beginning, source }
            })?;
            is_open |= !document.tokens.is_empty();
            for token in &document.tokens {
                tokens.write(&token.to_le_bytes())?;
            }
            for length in &document.sentence_lengths {
                n_tokens += *length as u64;
                n_sentences += 1;
                sentence_ends.write(&n_tokens.to_le_bytes())?;
            }
            if is_open && !continues {
                is_open = false;
                n_documents += 1;
                document_ends.write(&n_sentences.to_le_bytes())?;
            }
        }
        progress.prepared(source.bytes_read(), source.bytes_total(), n_tokens);
    }
    if is_open {
        // What was to go on has gone wrong, and was left out.
        n_documents += 1;
        document_ends.write(&n_sentences.to_le_bytes())?;
    }
    if n_documents == 0 {
        let (files, skipped) = (config.files.clone(), source.skipped().clone());
        return Err(DataError::EmptyCorpus { files, skipped });
    }
    let files = vec![tokens.finish()?, sentence_ends.finish()?, document_ends.finish()?];
    let skipped = source.skipped().clone();
    let counts = Counts { tokens: n_tokens, sentences: n_sentences, documents: n_documents, skipped };
    Meta::new(FORMAT, key, counts, files).write(partial.path())?;
    store::publish(partial, cache, key, |folder| PreparedCorpus::open(folder, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;
    use cloze_tokenizer::train::WordPieceTrainer;
    use std::fs;

    #[test]
    fn any_change_on_disk_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let text = "The old sea.\n\nOld boats sink. Boats sail.\n";
        fs::write(folder.path().join("a.txt"), text).unwrap();
        let tokenizer = WordPieceTrainer { vocab_size: 40, ..Default::default() }.train([text]).unwrap();
        let config = CorpusConfig { files: vec!["a.txt".into()], ..Default::default() };
        let cache = folder.path().join("cache");
        let (corpus, _) =
            PreparedCorpus::prepare(&config, folder.path(), &tokenizer, &cache, &Silent).unwrap();
        let (folder, key) = (cache.join(corpus.key()), corpus.key().to_string());
        drop(corpus);
        for name in ["tokens.bin", "sentences.bin", "documents.bin", "meta.json"] {
            let path = folder.join(name);
            let whole = fs::read(&path).unwrap();
            // Shorter, longer, empty, and one bit flipped in each byte.
            let mut damaged = vec![whole[..whole.len() - 1].to_vec(), [&whole[..], b" 1"].concat(), vec![]];
            damaged.extend((0..whole.len()).map(|at| {
                let mut bytes = whole.clone();
                bytes[at] ^= 1;
                bytes
            }));
            for bytes in damaged {
                fs::write(&path, bytes).unwrap();
                assert!(PreparedCorpus::open(&folder, &key).is_none(), "{name}");
            }
            fs::write(&path, &whole).unwrap();
            assert!(PreparedCorpus::open(&folder, &key).is_some());
        }
    }
}
