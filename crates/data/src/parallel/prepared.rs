//! Training pairs as token ids, memory-mapped.
//!
//! ```text
//! KEY/tokens.bin  u32 little-endian a token: each pair's source, then its target
//! KEY/ends.bin    u64, two a pair: the index after the source's last token, and after the target's
//! KEY/meta.json   counts, the two files' checksums, and one of itself
//! ```
//!
//! `KEY` is a hash of the files' contents, the tokenizers, and every setting that affects the result. A
//! folder named by its key is complete, see [`store`](crate::store).

use super::files::{BadPairs, EMPTY, Located, OnBadPair, Pairs, ParallelFiles, SIDES, TextPair, no_pairs};
use crate::checksum::file_checksum;
use crate::prepared::{CHUNK_BYTES, TEXT_COST, without_holes};
use crate::store::{self, Meta, Output, Table};
use crate::{DataError, Progress, Result, Silent, SkipReport};
use cloze_tokenizer::Tokenizer;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

/// Incremented when the files' layout changes, so that old ones are rebuilt.
const FORMAT: u32 = 1;

/// How pairs become token ids.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PairSettings<'a> {
    /// The source and target languages: the default column names.
    pub languages: [&'a str; 2],
    /// The tokenizers of source and target, often the same one. The special tokens they add, such as a final
    /// `</s>`, are part of the ids.
    pub tokenizers: [&'a Tokenizer; 2],
    /// Maximum tokens of a source or target, including special ones.
    pub max_len: usize,
    /// What to do with unusable pairs.
    bad: BadPairs,
    /// Whether the ids include the tokenizers' special tokens.
    around: bool,
}

impl<'a> PairSettings<'a> {
    /// Pairs of at most `max_len` tokens per side; an unusable pair is an error.
    pub fn new(languages: [&'a str; 2], tokenizers: [&'a Tokenizer; 2], max_len: usize) -> Self {
        Self { languages, tokenizers, max_len, bad: BadPairs::default(), around: true }
    }

    /// Sets what to do with unusable pairs, and the largest share of the pairs that may be left out, from 0 to 1 (default
    /// 0.05); one pair may always be.
    pub fn on_bad_pair(self, on_bad_pair: OnBadPair, max_skipped: Option<f64>) -> Self {
        Self { bad: BadPairs { on_bad_pair, max_skipped }, ..self }
    }

    /// Omits the tokenizers' special tokens: the ids are those of the text alone.
    pub fn without_special(self) -> Self {
        Self { around: false, ..self }
    }

    /// The ids of both sides of each pair.
    fn encode(&self, pairs: &[Located]) -> Vec<cloze_tokenizer::Result<[Vec<u32>; 2]>> {
        let [source, target] = self.tokenizers;
        let encode = |pair: &TextPair| {
            Ok([source.encode_ids(&pair.source, self.around)?, target.encode_ids(&pair.target, self.around)?])
        };
        pairs.par_iter().map(|at| encode(&at.pair)).collect()
    }

    /// Number of special tokens each tokenizer adds to a text.
    fn around(&self) -> Result<[usize; 2]> {
        let [source, target] = self.tokenizers.map(|tokenizer| tokenizer.encode_ids("", self.around));
        Ok([source?.len(), target?.len()])
    }
}

/// Pairs in memory: texts and ids.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LoadedPairs {
    /// The texts.
    pub texts: Vec<TextPair>,
    /// Each pair's line in its file, counted from 1.
    pub lines: Vec<u64>,
    /// The ids of each pair's source and target, with the tokenizers' special tokens.
    pub ids: Vec<[Vec<u32>; 2]>,
    /// The pairs skipped, by reason.
    pub skipped: SkipReport,
}

/// Reads all pairs of a split, such as a development set, into memory.
///
/// # Errors
/// Those of [`PreparedPairs::prepare`].
pub fn load_pairs(from: &ParallelFiles, base: &Path, settings: &PairSettings<'_>) -> Result<LoadedPairs> {
    let mut loaded = LoadedPairs::default();
    loaded.skipped = each_pair(from, base, settings, &Silent, |at, ids| {
        loaded.texts.push(at.pair.clone());
        loaded.lines.push(at.line);
        loaded.ids.push(ids);
        Ok(())
    })?;
    Ok(loaded)
}

/// Reads the pairs of a split and passes on the usable ones, in order. Returns the counts of skipped ones.
fn each_pair(
    from: &ParallelFiles,
    base: &Path,
    settings: &PairSettings<'_>,
    progress: &dyn Progress,
    mut take: impl FnMut(&Located, [Vec<u32>; 2]) -> Result<()>,
) -> Result<SkipReport> {
    let around = settings.around()?;
    let mut pairs = Pairs::open(from, base, settings.languages, settings.bad)?;
    let (mut n_read, mut n_taken, mut n_tokens) = (0, 0, 0);
    let mut chunk: Vec<Located> = Vec::new();
    loop {
        chunk.clear();
        let mut bytes = 0;
        while bytes < CHUNK_BYTES
            && let Some(at) = pairs.next()
        {
            let at = at?;
            bytes += at.pair.source.len() + at.pair.target.len() + 2 * TEXT_COST;
            chunk.push(at);
        }
        if chunk.is_empty() {
            break;
        }
        for (at, encoded) in chunk.iter().zip(settings.encode(&chunk)) {
            n_read += 1;
            let sides = encoded.map_err(|source| DataError::Example { number: n_read, source })?;
            if let Some((side, kind, problem)) = unusable(&sides, around, settings.max_len) {
                pairs.bad(at, side, kind, problem)?;
                continue;
            }
            n_taken += 1;
            n_tokens += sides.iter().map(Vec::len).sum::<usize>() as u64;
            take(at, sides)?;
        }
        progress.prepared(pairs.bytes_read(), pairs.bytes_total, n_tokens);
    }
    match n_taken {
        0 => Err(no_pairs(&pairs)),
        _ => {
            pairs.check_skipped(n_taken)?;
            Ok(pairs.skipped)
        }
    }
}

/// Pairs of sentences as token ids on disk.
#[derive(Debug)]
pub struct PreparedPairs {
    tokens: Table,
    ends: Table,
    meta: Meta<Counts>,
}

/// Report on the preparation of pairs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PairReport {
    /// Whether an earlier preparation was valid and reused.
    pub reused: bool,
    /// Pairs.
    pub pairs: u64,
    /// Tokens of the sources and of the targets.
    pub tokens: [u64; 2],
    /// The pairs skipped, by reason.
    pub skipped: SkipReport,
    /// Time taken, in seconds.
    pub seconds: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Counts {
    pairs: u64,
    /// Tokens of the sources and of the targets.
    tokens: [u64; 2],
    skipped: SkipReport,
}

impl PreparedPairs {
    /// The prepared form of a split: the one in `cache` if valid, else built there, in a temporary folder
    /// that is renamed when complete. Relative paths start at `base`.
    ///
    /// # Errors
    /// Files that cannot be read or written, or are not aligned; unusable pairs, with [`OnBadPair::Error`], or too many of
    /// them;
    /// [`DataError::NoPairs`]; [`DataError::VocabHole`] for a tokenizer whose ids are not `0..vocab_size`.
    pub fn prepare(
        from: &ParallelFiles,
        base: &Path,
        settings: &PairSettings<'_>,
        cache: &Path,
        progress: &dyn Progress,
    ) -> Result<(Self, PairReport)> {
        let start = Instant::now();
        settings.tokenizers.into_iter().try_for_each(without_holes)?;
        let key = key(from, base, settings)?;
        let (pairs, made) = match Self::open(&cache.join(&key), &key) {
            Some(pairs) => (pairs, None),
            None => {
                let (pairs, skipped) = build(from, base, settings, cache, &key, progress)?;
                (pairs, Some(skipped))
            }
        };
        let Counts { pairs: n_pairs, tokens, skipped } = pairs.meta.counts.clone();
        // Only what was just read has places.
        let (reused, skipped) = (made.is_none(), made.unwrap_or(skipped));
        let seconds = start.elapsed().as_secs_f64();
        let report = PairReport { reused, pairs: n_pairs, tokens, skipped, seconds };
        Ok((pairs, report))
    }

    /// Opens prepared pairs; `None` if they are missing, corrupt, or have another key.
    fn open(folder: &Path, key: &str) -> Option<Self> {
        let meta = Meta::<Counts>::read(folder, FORMAT, key)?;
        let (n_pairs, n_tokens) = (meta.counts.pairs, meta.counts.tokens.iter().sum::<u64>());
        let [of_tokens, of_ends] = meta.files.as_slice() else { return None };
        let tokens = Table::open(&folder.join("tokens.bin"), 4 * n_tokens, of_tokens)?;
        let ends = Table::open(&folder.join("ends.bin"), 16 * n_pairs, of_ends)?;
        (ends.last() == n_tokens && n_pairs > 0).then_some(Self { tokens, ends, meta })
    }

    /// Number of pairs, at least one.
    pub fn len(&self) -> usize {
        self.meta.counts.pairs as usize
    }

    /// Always `false`.
    pub fn is_empty(&self) -> bool {
        self.meta.counts.pairs == 0
    }

    /// Tokens of the sources and of the targets.
    pub fn n_tokens(&self) -> [u64; 2] {
        self.meta.counts.tokens
    }

    /// Tokens of a pair's source and target.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn lengths(&self, pair: usize) -> [usize; 2] {
        [0, 1].map(|side| {
            let Range { start, end } = self.ends.range(2 * pair as u64 + side);
            (end - start) as usize
        })
    }

    /// The ids of a pair's source.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn source(&self, pair: usize) -> impl Iterator<Item = u32> + '_ {
        self.ids(2 * pair as u64)
    }

    /// The ids of a pair's target.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn target(&self, pair: usize) -> impl Iterator<Item = u32> + '_ {
        self.ids(2 * pair as u64 + 1)
    }

    fn ids(&self, place: u64) -> impl Iterator<Item = u32> + '_ {
        let Range { start, end } = self.ends.range(place);
        let bytes = &self.tokens.bytes()[4 * start as usize..4 * end as usize];
        bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// A string that identifies these prepared pairs.
    pub fn key(&self) -> &str {
        &self.meta.key
    }
}

/// A hash of everything that affects the result.
fn key(from: &ParallelFiles, base: &Path, settings: &PairSettings<'_>) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &str| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    };
    // Where the files lie does not matter, what they are called does: by it their format is known.
    let read_as = ParallelFiles { source: Vec::new(), target: Vec::new(), files: Vec::new(), ..from.clone() };
    add(&format!("pairs {FORMAT}{}", if settings.around { "" } else { ", texts alone" }));
    add(&serde_json::to_string(&(read_as, settings.languages, settings.max_len, settings.bad))
        .expect("plain values serialise"));
    for tokenizer in settings.tokenizers {
        add(&tokenizer.to_json());
    }
    for path in from.paths(base)? {
        add(&path.file_name().unwrap_or_default().to_string_lossy());
        add(&file_checksum(&path)?);
    }
    Ok(hasher.finalize().to_hex()[..32].to_string())
}

/// Builds the pairs. Returns what was left out too, with its places, which are not stored.
fn build(
    from: &ParallelFiles,
    base: &Path,
    settings: &PairSettings<'_>,
    cache: &Path,
    key: &str,
    progress: &dyn Progress,
) -> Result<(PreparedPairs, SkipReport)> {
    let partial = store::begin(cache)?;
    let mut tokens = Output::create(partial.path().join("tokens.bin"))?;
    let mut ends = Output::create(partial.path().join("ends.bin"))?;
    let (mut n_pairs, mut n_tokens) = (0u64, [0u64; 2]);
    let skipped = each_pair(from, base, settings, progress, |_, sides| {
        for (ids, n_tokens) in sides.iter().zip(&mut n_tokens) {
            *n_tokens += ids.len() as u64;
            for id in ids {
                tokens.write(&id.to_le_bytes())?;
            }
        }
        n_pairs += 1;
        let end = n_tokens[0] + n_tokens[1];
        ends.write(&(end - sides[1].len() as u64).to_le_bytes())?;
        ends.write(&end.to_le_bytes())
    })?;
    let files = vec![tokens.finish()?, ends.finish()?];
    let counts = Counts { pairs: n_pairs, tokens: n_tokens, skipped: skipped.clone() };
    Meta::new(FORMAT, key, counts, files).write(partial.path())?;
    let pairs = store::publish(partial, cache, key, |folder| PreparedPairs::open(folder, key))?;
    Ok((pairs, skipped))
}

/// The side, kind and details of a problem with a pair's ids; `around` is the number of special tokens.
fn unusable(
    sides: &[Vec<u32>; 2],
    around: [usize; 2],
    max_len: usize,
) -> Option<(usize, &'static str, String)> {
    if let Some(side) = (0..2).find(|side| sides[*side].len() <= around[*side]) {
        return Some((side, EMPTY[side], format!("the tokenizer makes no tokens of the {}", SIDES[side])));
    }
    let side = (0..2).find(|side| sides[*side].len() > max_len)?;
    let (name, found) = (SIDES[side], sides[side].len());
    let problem = format!("the {name} has {found} tokens, expected at most {max_len} (`parallel.max_len`)");
    Some((side, ["over-long source", "over-long target"][side], problem))
}
