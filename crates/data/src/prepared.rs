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
use crate::corpus::{CorpusConfig, Document, documents};
use crate::crew::{part, writes};
use crate::sentences::sentences;
use crate::store::{self, Meta, Output, Table};
use crate::{Alone, Crew, DataError, Progress, Result, Silent, SkipReport};
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

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Counts {
    tokens: u64,
    sentences: u64,
    documents: u64,
    skipped: SkipReport,
}

impl PreparedCorpus {
    /// The prepared form of a corpus: the one in `cache` if valid, else built there. See [`Preparation`].
    ///
    /// # Errors
    /// Those of [`Preparation::sentences`].
    pub fn prepare(
        config: &CorpusConfig,
        base: &Path,
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &dyn Progress,
    ) -> Result<(Self, PrepareReport)> {
        Preparation::new(config, base, tokenizer, cache).tells(progress).sentences()
    }

    /// [`prepare`](Self::prepare) without sentence segmentation: see [`Preparation::documents`].
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
        Preparation::new(config, base, tokenizer, cache).tells(progress).documents()
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

/// How a corpus is prepared: from which texts, with which tokenizer, where, and together with whom.
///
/// It is built in a temporary folder that is renamed when complete, so an interrupted build is never mistaken for a
/// complete one. Two processes may build the same corpus at once; the first to finish wins.
#[derive(Clone, Copy)]
pub struct Preparation<'a> {
    config: &'a CorpusConfig,
    base: &'a Path,
    tokenizer: &'a Tokenizer,
    cache: &'a Path,
    progress: &'a dyn Progress,
    crew: &'a dyn Crew,
}

impl<'a> Preparation<'a> {
    /// The preparation of a corpus, whose paths are relative to `base`, in the folder `cache`.
    pub fn new(config: &'a CorpusConfig, base: &'a Path, tokenizer: &'a Tokenizer, cache: &'a Path) -> Self {
        Self { config, base, tokenizer, cache, progress: &Silent, crew: &Alone }
    }

    /// Tells its progress.
    pub fn tells(self, progress: &'a dyn Progress) -> Self {
        Self { progress, ..self }
    }

    /// Shares the work with other processes. Each reads all texts, tokenises its part of them, and gets the others' ids. Of
    /// processes with the same `cache`, one writes.
    pub fn with(self, crew: &'a dyn Crew) -> Self {
        Self { crew, ..self }
    }

    /// The corpus, cut into sentences: the one in the cache if valid, else built there.
    ///
    /// # Errors
    /// Problems in the corpus, with `on_error = "fail"`; [`DataError::EmptyCorpus`]; files that cannot be read or written;
    /// [`DataError::VocabHole`] for a tokenizer whose ids are not `0..vocab_size`; [`DataError::Crew`].
    pub fn sentences(self) -> Result<(PreparedCorpus, PrepareReport)> {
        self.run(Unit::Sentence)
    }

    /// The corpus without sentence segmentation: a document's text is tokenised unchanged, including white space, and counts
    /// as one sentence. A text longer than [`max_document_bytes`](CorpusConfig::max_document_bytes) is one document of several
    /// such sentences.
    ///
    /// # Errors
    /// Those of [`sentences`](Self::sentences).
    pub fn documents(self) -> Result<(PreparedCorpus, PrepareReport)> {
        self.run(Unit::Document)
    }

    fn run(self, unit: Unit) -> Result<(PreparedCorpus, PrepareReport)> {
        let start = Instant::now();
        without_holes(self.tokenizer)?;
        let key = key(unit, self.config, self.base, self.tokenizer)?;
        let found = PreparedCorpus::open(&self.cache.join(&key), &key);
        let all_have = self.agree(&key, found.is_some())?;
        let (corpus, made) = match found {
            Some(corpus) if all_have => (corpus, None),
            _ => self.build(unit, &key).map(|(corpus, skipped)| (corpus, Some(skipped)))?,
        };
        let Counts { tokens, sentences, documents, skipped } = corpus.meta.counts.clone();
        // Only what was just read has places.
        let (reused, skipped) = (made.is_none(), made.unwrap_or(skipped));
        let seconds = start.elapsed().as_secs_f64();
        let report = PrepareReport { reused, documents, sentences, tokens, skipped, seconds };
        Ok((corpus, report))
    }

    /// Checks that all processes prepare the same texts. Returns whether all have found them prepared.
    fn agree(self, key: &str, found: bool) -> Result<bool> {
        let message = [u32::from(found)].into_iter().chain(key.bytes().map(u32::from)).collect();
        let all = self.crew.gather(message)?;
        let key = |rank: usize| all[rank].get(1..);
        match (1..all.len()).find(|rank| key(*rank) != key(0)) {
            Some(other) => {
                let problem = format!("process {other} has other texts or another tokenizer than process 0");
                Err(DataError::Crew { problem })
            }
            None => Ok(all.iter().all(|message| message.first() == Some(&1))),
        }
    }

    /// Builds the corpus. Returns what was left out too, with its places, which are not stored.
    fn build(self, unit: Unit, key: &str) -> Result<(PreparedCorpus, SkipReport)> {
        let Self { config, cache, .. } = self;
        let partial = store::begin(cache)?;
        let writes = writes(cache, self.crew)?;
        let mut files = writes.then(|| Files::create(partial.path())).transpose()?;
        let mut counts = Counts::default();
        let mut n_read = 0;
        // Whether a document has tokens, and is not at its end.
        let mut is_open = false;
        let mut source = documents(config, self.base)?;
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
            for (document, encoded) in chunk.iter().zip(self.encoded(unit, &chunk)?) {
                n_read += 1;
                let continues = unit == Unit::Document && document.continues();
                let encoded = encoded.map_err(|source| {
                    let beginning = document.text().chars().take(SHOWN).collect();
                    DataError::Document { number: n_read, beginning, source }
                })?;
                is_open |= !encoded.tokens.is_empty();
                let ends = is_open && !continues;
                is_open &= continues;
                counts.tokens += encoded.tokens.len() as u64;
                counts.sentences += encoded.sentence_lengths.len() as u64;
                counts.documents += u64::from(ends);
                if let Some(files) = &mut files {
                    files.write(&encoded)?;
                    if ends {
                        files.end_document()?;
                    }
                }
            }
            self.progress.prepared(source.bytes_read(), source.bytes_total(), counts.tokens);
        }
        if is_open {
            // What was to go on has gone wrong, and was left out.
            counts.documents += 1;
            files.as_mut().map_or(Ok(()), Files::end_document)?;
        }
        let skipped = source.skipped().clone();
        counts.skipped = skipped.clone();
        if counts.documents == 0 {
            return Err(DataError::EmptyCorpus { files: config.files.clone(), skipped: counts.skipped });
        }
        let open = |folder: &Path| PreparedCorpus::open(folder, key);
        let written = files.map(|files| {
            Meta::new(FORMAT, key, counts, files.finish()?).write(partial.path())?;
            store::publish(partial, cache, key, open)
        });
        let written = written.transpose()?;
        // The others read what is written now.
        self.crew.gather(Vec::new())?;
        let corpus = match written {
            Some(written) => written,
            None => store::appeared(&cache.join(key), open)?,
        };
        Ok((corpus, skipped))
    }

    /// The tokens of each document, of which this process makes its part.
    fn encoded(self, unit: Unit, chunk: &[Document]) -> Result<Vec<cloze_tokenizer::Result<Encoded>>> {
        let encode = |document: &Document| encode(unit, document, &self.config.language, self.tokenizer);
        let (rank, size) = (self.crew.rank(), self.crew.size());
        if size == 1 {
            return Ok(chunk.par_iter().map(encode).collect());
        }
        let costs: Vec<usize> = chunk.iter().map(|document| document.len() + TEXT_COST).collect();
        let own: Vec<_> = chunk[part(&costs, rank, size)].par_iter().map(encode).collect();
        let mut message = Vec::new();
        own.into_iter().for_each(|encoded| encoded.unwrap_or_else(|_| Encoded::failed()).put(&mut message));
        let mut received = Vec::with_capacity(chunk.len());
        for (other, message) in self.crew.gather(message)?.iter().enumerate() {
            let mut words = message.as_slice();
            for document in &chunk[part(&costs, other, size)] {
                let encoded = Encoded::take(&mut words).ok_or_else(|| {
                    let problem = format!("process {other} sent something else");
                    DataError::Crew { problem }
                })?;
                // A document that fails does so everywhere, with the same error.
                received.push(if encoded.has_failed() { encode(document) } else { Ok(encoded) });
            }
        }
        Ok(received)
    }
}

/// The files of a corpus that is being prepared.
struct Files {
    tokens: Output,
    sentence_ends: Output,
    document_ends: Output,
    n_tokens: u64,
    n_sentences: u64,
}

impl Files {
    fn create(folder: &Path) -> Result<Self> {
        let file = |name| Output::create(folder.join(name));
        let (tokens, sentence_ends, document_ends) =
            (file("tokens.bin")?, file("sentences.bin")?, file("documents.bin")?);
        Ok(Self { tokens, sentence_ends, document_ends, n_tokens: 0, n_sentences: 0 })
    }

    fn write(&mut self, document: &Encoded) -> Result<()> {
        for token in &document.tokens {
            self.tokens.write(&token.to_le_bytes())?;
        }
        for length in &document.sentence_lengths {
            self.n_tokens += u64::from(*length);
            self.n_sentences += 1;
            self.sentence_ends.write(&self.n_tokens.to_le_bytes())?;
        }
        Ok(())
    }

    fn end_document(&mut self) -> Result<()> {
        self.document_ends.write(&self.n_sentences.to_le_bytes())
    }

    /// The files' checksums.
    fn finish(self) -> Result<Vec<String>> {
        Ok(vec![self.tokens.finish()?, self.sentence_ends.finish()?, self.document_ends.finish()?])
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
    sentence_lengths: Vec<u32>,
}

impl Encoded {
    /// Stands for a document that cannot be encoded.
    const FAILED: u32 = u32::MAX;

    fn failed() -> Self {
        Self { tokens: Vec::new(), sentence_lengths: vec![Self::FAILED] }
    }

    fn has_failed(&self) -> bool {
        self.sentence_lengths == [Self::FAILED]
    }

    /// Appends it to a message.
    fn put(&self, message: &mut Vec<u32>) {
        message.extend([self.tokens.len() as u32, self.sentence_lengths.len() as u32]);
        message.extend(&self.tokens);
        message.extend(&self.sentence_lengths);
    }

    /// The next one of a message.
    fn take(words: &mut &[u32]) -> Option<Self> {
        let mut next = |n: u32| {
            let (taken, rest) = words.split_at_checked(n as usize)?;
            *words = rest;
            Some(taken.to_vec())
        };
        let counts = next(2)?;
        Some(Self { tokens: next(counts[0])?, sentence_lengths: next(counts[1])? })
    }
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
            encoded.sentence_lengths.push(ids.len() as u32);
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

    /// Every process of several, with caches of their own or a common one, ends with the files of one alone.
    #[test]
    fn processes_prepare_a_corpus_together() {
        use crate::crew::tests::Threads;
        let folder = tempfile::tempdir().unwrap();
        let line = |i: usize| {
            format!("The old sea {i}. Boats sail {}.\n{}", "on ".repeat(i % 7), "\n".repeat(i % 3))
        };
        let text: String = (0..400).map(line).collect();
        fs::write(folder.path().join("a.txt"), &text).unwrap();
        let tokenizer = WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([&text]).unwrap();
        let config = CorpusConfig { files: vec!["a.txt".into()], ..Default::default() };
        let alone = folder.path().join("alone");
        let (expected, _) =
            PreparedCorpus::prepare(&config, folder.path(), &tokenizer, &alone, &Silent).unwrap();
        let files = |cache: &Path| {
            let file = |name| fs::read(cache.join(expected.key()).join(name)).unwrap();
            ["tokens.bin", "sentences.bin", "documents.bin", "meta.json"].map(file)
        };
        let (threads, caches) = (Threads::new(3), ["own", "common", "common"]);
        for reused in [false, true] {
            std::thread::scope(|scope| {
                for (rank, cache) in caches.into_iter().enumerate() {
                    let (threads, tokenizer, config, folder) = (&threads, &tokenizer, &config, folder.path());
                    scope.spawn(move || {
                        let (crew, cache) = (threads.of_rank(rank), folder.join(cache));
                        let preparation = Preparation::new(config, folder, tokenizer, &cache).with(&crew);
                        let (_, report) = preparation.sentences().unwrap();
                        assert_eq!(report.reused, reused);
                    });
                }
            });
            for cache in caches {
                assert_eq!(files(&folder.path().join(cache)), files(&alone));
            }
        }
        // Who has other texts is told.
        fs::write(folder.path().join("b.txt"), "Other texts.\n").unwrap();
        let other = CorpusConfig { files: vec!["b.txt".into()], ..Default::default() };
        let two = Threads::new(2);
        std::thread::scope(|scope| {
            for (rank, config) in [&config, &other].into_iter().enumerate() {
                let (two, tokenizer, folder) = (&two, &tokenizer, folder.path());
                scope.spawn(move || {
                    let (crew, cache) = (two.of_rank(rank), folder.join("other"));
                    let preparation = Preparation::new(config, folder, tokenizer, &cache).with(&crew);
                    let error = preparation.sentences().unwrap_err();
                    assert!(
                        error.to_string().contains("process 1 has other texts or another tokenizer"),
                        "{error}"
                    );
                });
            }
        });
    }
}
