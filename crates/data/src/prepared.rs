//! The prepared corpus: token ids with sentence and document boundaries, memory-mapped.
//!
//! ```text
//! KEY/tokens.bin     u32 little-endian a token; the top bit marks the first piece of a word
//! KEY/sentences.bin  u64 a sentence: the index after its last token
//! KEY/documents.bin  u64 a document: the index after its last sentence
//! KEY/meta.json      counts, file sizes, and the checksum that makes them valid
//! ```
//!
//! `KEY` is a hash of the inputs' contents and of every setting that shapes the result.

use crate::corpus::{CorpusConfig, Document, SkipReport, documents, input_files};
use crate::sentences::sentences;
use crate::{DataError, Progress, Result};
use cloze_tokenizer::Tokenizer;
use memmap2::Mmap;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Marks the first piece of a word in a stored token.
pub const WORD_START: u32 = 1 << 31;

/// Raised when the files' layout or the segmentation changes, so that old ones are built anew.
const FORMAT: u32 = 1;
/// Text handed to the threads at a time, in bytes: bounds memory, keeps every thread busy.
const CHUNK_BYTES: usize = 8 << 20;

/// A corpus as token ids on disk.
#[derive(Debug)]
pub struct PreparedCorpus {
    tokens: Table,
    sentences: Table,
    documents: Table,
    meta: Meta,
}

/// What preparing a corpus did.
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
    /// What was left out or cut, by reason.
    pub skipped: SkipReport,
    /// Seconds it took.
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Meta {
    format: u32,
    key: String,
    tokens: u64,
    sentences: u64,
    documents: u64,
    skipped: SkipReport,
    /// BLAKE3 of the fields above, so that a half-written file is noticed.
    checksum: String,
}

impl Meta {
    fn sum(&self) -> String {
        let fields = (self.format, &self.key, self.tokens, self.sentences, self.documents, &self.skipped);
        let json = serde_json::to_vec(&fields).expect("plain values serialise");
        blake3::hash(&json).to_hex().to_string()
    }
}

impl PreparedCorpus {
    /// The prepared form of a corpus: the one in `cache` if it is valid, else built there.
    ///
    /// It is built in a folder of its own and renamed when complete, so that an interrupted build is
    /// never taken for a whole one; two processes may build the same at once, the first to finish wins.
    ///
    /// # Errors
    /// What is wrong with the corpus under `on_error = "fail"`; an empty corpus; files that cannot be
    /// read or written.
    pub fn prepare(
        config: &CorpusConfig,
        base: &Path,
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &dyn Progress,
    ) -> Result<(Self, PrepareReport)> {
        let start = Instant::now();
        let key = key(config, base, tokenizer)?;
        let folder = cache.join(&key);
        let reused = match Self::open(&folder, &key) {
            Some(corpus) => Some(corpus),
            None => {
                build(config, base, tokenizer, cache, &key, progress)?;
                None
            }
        };
        let was_reused = reused.is_some();
        let corpus = match reused {
            Some(corpus) => corpus,
            None => Self::open(&folder, &key).ok_or_else(|| DataError::Prepared { path: folder.clone() })?,
        };
        let report = PrepareReport {
            reused: was_reused,
            documents: corpus.meta.documents,
            sentences: corpus.meta.sentences,
            tokens: corpus.meta.tokens,
            skipped: corpus.meta.skipped.clone(),
            seconds: start.elapsed().as_secs_f64(),
        };
        Ok((corpus, report))
    }

    /// Opens a prepared corpus; none if it is absent, of another key, or not whole.
    fn open(folder: &Path, key: &str) -> Option<Self> {
        let meta: Meta = serde_json::from_slice(&fs::read(folder.join("meta.json")).ok()?).ok()?;
        if meta.format != FORMAT || meta.key != key || meta.checksum != meta.sum() {
            return None;
        }
        Some(Self {
            tokens: Table::open(&folder.join("tokens.bin"), 4 * meta.tokens)?,
            sentences: Table::open(&folder.join("sentences.bin"), 8 * meta.sentences)?,
            documents: Table::open(&folder.join("documents.bin"), 8 * meta.documents)?,
            meta,
        })
    }

    /// Tokens in the corpus.
    pub fn n_tokens(&self) -> u64 {
        self.meta.tokens
    }

    /// Sentences in the corpus; none is empty.
    pub fn n_sentences(&self) -> u64 {
        self.meta.sentences
    }

    /// Documents in the corpus; none is empty.
    pub fn n_documents(&self) -> u64 {
        self.meta.documents
    }

    /// The sentences of a document.
    pub fn document(&self, document: u64) -> Range<u64> {
        self.documents.range(document)
    }

    /// The tokens of a sentence, as a range for [`tokens`](Self::tokens).
    pub fn sentence(&self, sentence: u64) -> Range<u64> {
        self.sentences.range(sentence)
    }

    /// The tokens of a range: id and whether it starts a word.
    pub fn tokens(&self, range: Range<u64>) -> impl Iterator<Item = (u32, bool)> + '_ {
        let bytes = &self.tokens.bytes()[4 * range.start as usize..4 * range.end as usize];
        bytes.as_chunks::<4>().0.iter().map(|bytes| {
            let stored = u32::from_le_bytes(*bytes);
            (stored & !WORD_START, stored & WORD_START != 0)
        })
    }

    /// The documents that a range of tokens runs through, each with its part of the range.
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

    /// A text that tells this prepared corpus from any other.
    pub fn key(&self) -> &str {
        &self.meta.key
    }
}

/// A memory-mapped file of numbers.
#[derive(Debug)]
struct Table(Option<Mmap>);

impl Table {
    fn open(path: &Path, bytes: u64) -> Option<Self> {
        let file = File::open(path).ok()?;
        if file.metadata().ok()?.len() != bytes {
            return None;
        }
        if bytes == 0 {
            return Some(Self(None));
        }
        // SAFETY: the file lies in a folder that is complete when it appears and never changed after,
        // by the cache's protocol; a reader that breaks it is outside what a mapping can promise.
        Some(Self(Some(unsafe { Mmap::map(&file) }.ok()?)))
    }

    fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// The index of the first end beyond `value`.
    fn first_beyond(&self, value: u64) -> u64 {
        let ends = self.bytes().as_chunks::<8>().0;
        ends.partition_point(|end| u64::from_le_bytes(*end) <= value) as u64
    }

    /// Entry `i − 1` to entry `i` of a table of ends.
    fn range(&self, i: u64) -> Range<u64> {
        let end = |i: u64| u64::from_le_bytes(self.bytes().as_chunks::<8>().0[i as usize]);
        let start = if i == 0 { 0 } else { end(i - 1) };
        start..end(i)
    }
}

/// A hash of everything that shapes the result.
fn key(config: &CorpusConfig, base: &Path, tokenizer: &Tokenizer) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&FORMAT.to_le_bytes());
    let settings = serde_json::to_string(&config.shaping()).expect("a config serialises");
    for part in [settings, tokenizer.to_json()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    for path in input_files(config, base)? {
        let mut file = blake3::Hasher::new();
        file.update_mmap_rayon(&path).map_err(DataError::io("read", &path))?;
        hasher.update(file.finalize().as_bytes());
    }
    Ok(hasher.finalize().to_hex()[..32].to_string())
}

/// A document's sentences as stored tokens, with the sentences' lengths.
#[derive(Default)]
struct Encoded {
    tokens: Vec<u32>,
    sentence_lengths: Vec<usize>,
}

fn encode(document: &Document, language: &str, tokenizer: &Tokenizer) -> Encoded {
    let mut encoded = Encoded::default();
    let (mut ids, mut starts) = (Vec::new(), Vec::new());
    for paragraph in document.paragraphs() {
        for sentence in sentences(paragraph, language) {
            ids.clear();
            starts.clear();
            tokenizer.encode_into(sentence, &mut ids, &mut starts);
            if ids.is_empty() {
                continue;
            }
            let stored = ids.iter().zip(&starts);
            encoded.tokens.extend(stored.map(|(id, start)| if *start { id | WORD_START } else { *id }));
            encoded.sentence_lengths.push(ids.len());
        }
    }
    encoded
}

fn build(
    config: &CorpusConfig,
    base: &Path,
    tokenizer: &Tokenizer,
    cache: &Path,
    key: &str,
    progress: &dyn Progress,
) -> Result<()> {
    fs::create_dir_all(cache).map_err(DataError::io("make", cache))?;
    let partial = tempfile::Builder::new()
        .prefix(".building-")
        .tempdir_in(cache)
        .map_err(DataError::io("make a folder in", cache))?;
    let mut tokens = Output::create(partial.path().join("tokens.bin"))?;
    let mut sentence_ends = Output::create(partial.path().join("sentences.bin"))?;
    let mut document_ends = Output::create(partial.path().join("documents.bin"))?;
    let (mut n_tokens, mut n_sentences, mut n_documents) = (0u64, 0u64, 0u64);

    let mut source = documents(config, base)?;
    let mut chunk: Vec<Document> = Vec::new();
    loop {
        chunk.clear();
        let mut bytes = 0;
        while bytes < CHUNK_BYTES {
            match source.next() {
                Some(document) => {
                    let document = document?;
                    bytes += document.len();
                    chunk.push(document);
                }
                None => break,
            }
        }
        if chunk.is_empty() {
            break;
        }
        let encoded: Vec<Encoded> =
            chunk.par_iter().map(|document| encode(document, &config.language, tokenizer)).collect();
        for document in encoded.iter().filter(|document| !document.tokens.is_empty()) {
            for token in &document.tokens {
                tokens.write(&token.to_le_bytes())?;
            }
            for length in &document.sentence_lengths {
                n_tokens += *length as u64;
                n_sentences += 1;
                sentence_ends.write(&n_tokens.to_le_bytes())?;
            }
            n_documents += 1;
            document_ends.write(&n_sentences.to_le_bytes())?;
        }
        progress.prepared(source.bytes_read(), source.bytes_total(), n_tokens);
    }
    if n_documents == 0 {
        return Err(DataError::EmptyCorpus { files: config.files.clone() });
    }
    for output in [tokens, sentence_ends, document_ends] {
        output.finish()?;
    }
    let mut meta = Meta {
        format: FORMAT,
        key: key.to_string(),
        tokens: n_tokens,
        sentences: n_sentences,
        documents: n_documents,
        skipped: source.skipped().clone(),
        checksum: String::new(),
    };
    meta.checksum = meta.sum();
    let mut json = Output::create(partial.path().join("meta.json"))?;
    json.write(&serde_json::to_vec_pretty(&meta).expect("plain values serialise"))?;
    json.finish()?;

    let folder = cache.join(key);
    if folder.exists() && PreparedCorpus::open(&folder, key).is_some() {
        return Ok(()); // another process was faster, with the same bytes
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(DataError::io("replace", &folder))?;
    }
    let partial = partial.keep();
    fs::rename(&partial, &folder).map_err(DataError::io("write", &folder))?;
    File::open(cache).and_then(|cache| cache.sync_all()).map_err(DataError::io("flush", cache))
}

/// A file being written, flushed to the disk at the end.
struct Output {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Output {
    fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).map_err(DataError::io("write", &path))?;
        Ok(Self { file: BufWriter::with_capacity(1 << 20, file), path })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(DataError::io("write", &self.path))
    }

    fn finish(self) -> Result<()> {
        let path = self.path;
        let file =
            self.file.into_inner().map_err(|error| DataError::io("write", &path)(error.into_error()))?;
        file.sync_all().map_err(DataError::io("flush", &path))
    }
}
