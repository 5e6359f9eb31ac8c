//! Blocks of running text, for left-to-right language models: concatenated documents, cut regardless of where
//! they end.

use crate::loader::{Assemble, Placed};
use crate::permutation::Permutation;
use crate::prepared::PreparedCorpus;
use crate::random::Random;
use crate::seed::derive_seed;
use crate::split::Documents;
use crate::{DataError, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const SHIFT: u64 = 0x5B1F;
const ORDER: u64 = 0x04DE;
const OFFSET: u64 = 0x0FF5;
const PREFIX: u64 = 0x9EF1;

/// How running text is cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BlockConfig {
    /// Tokens per block; each predicts the next.
    pub seq_len: usize,
    /// The order of an epoch's blocks. Default `"shuffled"`.
    #[serde(default)]
    pub order: BlockOrder,
    /// Whether documents in one block see each other. Default `"joined"`.
    #[serde(default)]
    pub documents: BlockDocuments,
    /// The piece that ends each document. Default `[SEP]` or `</s>`, else `<|endoftext|>`, else none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Share of blocks with a prefix, whose tokens see one another and are not predicted (Raffel et al. 2020,
    /// §3.2.1). The prefix length is uniform from 1 to the whole block; the token after the block is always
    /// predicted. With separate documents, each has a prefix. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prefix_share: f64,
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
}

impl BlockConfig {
    /// Blocks of `seq_len` tokens, each once per epoch, whose documents see each other.
    pub fn new(seq_len: usize) -> Self {
        let (order, documents) = (BlockOrder::default(), BlockDocuments::default());
        Self { seq_len, order, documents, end: None, prefix_share: 0.0 }
    }
}

/// The order of an epoch's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BlockOrder {
    /// The text is cut into blocks at places that change every epoch; each block occurs once, in random
    /// order.
    #[default]
    Shuffled,
    /// Every block begins at a random place, as in karpathy/nanoGPT: an epoch has as many tokens as the text,
    /// but parts of the text repeat and others are missing.
    Random,
}

/// Whether documents in one block see each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BlockDocuments {
    /// A block is one sequence, with the end piece between its documents.
    #[default]
    Joined,
    /// Each document of a block is a sequence of its own, with positions from 0. The piece that ends one
    /// document begins the next.
    Apart,
}

/// A batch of blocks, as plain vectors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockBatch {
    /// `[n_tokens]`: the ids of all sequences, concatenated.
    pub ids: Vec<i32>,
    /// `[sequences]`: their lengths in tokens.
    pub lengths: Vec<usize>,
    /// `[n_tokens]`: the id that follows each token.
    pub next: Vec<i32>,
    /// `[sequences]`: the length of each prefix, whose tokens see one another; 0 for a left-to-right
    /// sequence.
    pub prefixes: Vec<usize>,
}

impl BlockBatch {
    /// `[targets]`: the ids to predict: in each sequence, those that follow the prefix's last token and every
    /// later token, or every token if there is no prefix.
    pub fn targets(&self) -> impl Iterator<Item = i32> + '_ {
        let starts = self.lengths.iter().scan(0, |start, len| Some(std::mem::replace(start, *start + len)));
        let sequences = starts.zip(&self.lengths).zip(&self.prefixes);
        sequences.flat_map(|((start, len), prefix)| {
            self.next[start + prefix.saturating_sub(1)..start + len].iter().copied()
        })
    }

    /// Number of ids to predict.
    pub fn n_targets(&self) -> usize {
        self.next.len() - self.prefixes.iter().map(|prefix| prefix.saturating_sub(1)).sum::<usize>()
    }
}

/// One part of a prepared corpus as running text.
#[derive(Debug)]
pub struct RunningText {
    corpus: Arc<PreparedCorpus>,
    /// Token range of each stretch in the corpus: a document or part of one.
    stretches: Vec<Range<u64>>,
    /// End of each stretch in the running text, including its end piece.
    ends: Vec<u64>,
    /// The piece that ends each document.
    end: Option<u32>,
}

impl RunningText {
    /// The documents of a part, concatenated, each followed by `end`.
    pub fn of_documents(documents: &Documents, end: Option<u32>) -> Self {
        let corpus = documents.corpus();
        let tokens = |document| {
            let sentences = corpus.document(document);
            corpus.sentence(sentences.start).start..corpus.sentence(sentences.end - 1).end
        };
        Self::new(corpus.clone(), documents.iter().map(tokens).collect(), end)
    }

    /// All documents, split at a token: training text and the held-out last share.
    ///
    /// A document at the cut is divided between the two.
    ///
    /// # Errors
    /// [`DataError::EmptySplit`] if either is empty.
    pub fn cut(corpus: &Arc<PreparedCorpus>, heldout_fraction: f64, end: Option<u32>) -> Result<[Self; 2]> {
        let n = corpus.n_tokens();
        let kept = ((1.0 - heldout_fraction.clamp(0.0, 1.0)) * n as f64) as u64;
        let part = |range: Range<u64>, split| {
            let stretches: Vec<_> = corpus.documents_of(range).map(|(_, tokens)| tokens).collect();
            match stretches.is_empty() {
                true => {
                    Err(DataError::EmptySplit { split, documents: corpus.n_documents(), heldout_fraction })
                }
                false => Ok(Self::new(corpus.clone(), stretches, end)),
            }
        };
        Ok([part(0..kept, "training")?, part(kept..n, "held-out")?])
    }

    fn new(corpus: Arc<PreparedCorpus>, stretches: Vec<Range<u64>>, end: Option<u32>) -> Self {
        let ends = stretches.iter().scan(0, |at, tokens| {
            *at += tokens.end - tokens.start + u64::from(end.is_some());
            Some(*at)
        });
        let ends = ends.collect();
        Self { corpus, stretches, ends, end }
    }

    /// Number of tokens, including end pieces.
    pub fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of documents or parts of documents.
    pub fn n_documents(&self) -> u64 {
        self.stretches.len() as u64
    }

    /// The tokens of a range.
    pub(crate) fn tokens(&self, range: Range<u64>) -> impl Iterator<Item = TextToken> + '_ {
        let Range { start: from, end: to } = range;
        let first = self.ends.partition_point(|end| *end <= from);
        let stretches = (first..self.stretches.len()).take_while(move |i| self.start(*i) < to);
        stretches.flat_map(move |i| {
            let (start, tokens) = (self.start(i), self.stretches[i].clone());
            let len = tokens.end - tokens.start;
            let (skipped, taken) = (from.saturating_sub(start).min(len), (to - start).min(len));
            let begins = self.end.is_none();
            let ids = self.corpus.tokens(tokens.start + skipped..tokens.start + taken);
            let ids = ids.enumerate().map(move |(at, (id, starts_word))| TextToken {
                id,
                starts_word,
                is_end: false,
                begins: begins && skipped + at as u64 == 0,
            });
            let has_end = (from..to).contains(&(start + len));
            let end = self.end.filter(|_| has_end);
            ids.chain(end.map(|id| TextToken { id, starts_word: true, is_end: true, begins: true }))
        })
    }

    /// Where a stretch begins in the running text.
    fn start(&self, stretch: usize) -> u64 {
        stretch.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

/// A token of running text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextToken {
    pub id: u32,
    /// Whether it starts a word.
    pub starts_word: bool,
    /// Whether it is the piece that ends a document.
    pub is_end: bool,
    /// Whether it begins a sequence: the end piece before a document or, without one, the document's first
    /// token.
    pub begins: bool,
}

/// Running text as blocks; each is a function of the seed, the epoch and its place in the epoch.
/// [`Loader`](crate::Loader) makes the batches.
#[derive(Debug)]
pub struct TextBlocks {
    text: RunningText,
    seq_len: u64,
    order: BlockOrder,
    documents: BlockDocuments,
    prefix_share: f64,
    seed: u64,
}

impl TextBlocks {
    /// Blocks of a text as set by `config`; if the text is shorter than a block, the block is the
    /// whole text.
    ///
    /// # Errors
    /// [`DataError::ShortText`] for a text of fewer than two tokens.
    pub fn new(text: RunningText, config: &BlockConfig, seed: u64) -> Result<Self> {
        if text.len() < 2 {
            return Err(DataError::ShortText { tokens: text.len(), needed: 2 });
        }
        let seq_len = (config.seq_len.max(1) as u64).min(text.len() - 1);
        let BlockConfig { order, documents, prefix_share, .. } = *config;
        Ok(Self { text, seq_len, order, documents, prefix_share, seed })
    }

    /// The text.
    pub fn text(&self) -> &RunningText {
        &self.text
    }

    /// The text from its beginning in batches of `batch_size` consecutive blocks, at most `max_blocks`
    /// blocks; the last block may be shorter.
    pub fn in_order(&self, batch_size: usize, max_blocks: usize) -> Vec<BlockBatch> {
        let last = self.text.len() - 1;
        let starts: Vec<u64> = (0..last).step_by(self.seq_len as usize).take(max_blocks).collect();
        let batch = |starts: &[u64]| {
            let mut batch = BlockBatch::default();
            for start in starts {
                self.add(*start..last.min(start + self.seq_len), &mut batch);
                self.draw_prefixes(0, start / self.seq_len, &mut batch);
            }
            batch
        };
        starts.chunks(batch_size.max(1)).map(batch).collect()
    }

    /// Where a block of an epoch begins in the text.
    pub(crate) fn start(&self, (shift, order): &(u64, Permutation), epoch: u64, place: u64) -> u64 {
        match self.order {
            BlockOrder::Shuffled => shift + order.get(place) * self.seq_len,
            BlockOrder::Random => {
                let places = self.text.len() - self.seq_len;
                Random::derive(self.seed, &[OFFSET, epoch, place]).below(places)
            }
        }
    }

    /// Draws the prefixes of the sequences that a block has just added.
    fn draw_prefixes(&self, epoch: u64, place: u64, batch: &mut BlockBatch) {
        let mut random = Random::derive(self.seed, &[PREFIX, epoch, place]);
        let has_prefix = random.chance(self.prefix_share);
        let added = &batch.lengths[batch.prefixes.len()..];
        batch.prefixes.extend(added.iter().map(|len| match has_prefix {
            true => 1 + random.below(*len as u64) as usize,
            false => 0,
        }));
    }

    /// Adds the tokens of a range, each with the one that follows.
    fn add(&self, range: Range<u64>, batch: &mut BlockBatch) {
        let tokens: Vec<TextToken> = self.text.tokens(range.start..range.end + 1).collect();
        let mut len = 0;
        for (at, pair) in tokens.windows(2).enumerate() {
            let [token, next] = [pair[0], pair[1]];
            let apart = self.documents == BlockDocuments::Apart;
            if apart && token.begins && at > 0 && len > 0 {
                batch.lengths.push(std::mem::take(&mut len));
            }
            // Without an end piece nothing tells that another document follows.
            if apart && next.begins && self.text.end.is_none() {
                continue;
            }
            batch.ids.push(token.id as i32);
            batch.next.push(next.id as i32);
            len += 1;
        }
        if len > 0 {
            batch.lengths.push(len);
        }
    }
}

impl Assemble for TextBlocks {
    /// Where the first block begins, and the blocks' order.
    type Plan = (u64, Permutation);
    type Batch = BlockBatch;

    fn plan(&self, epoch: u64, _stop: &AtomicBool) -> Result<Self::Plan> {
        // Of what is left over behind the last whole block, some goes before the first one.
        let spare = (self.text.len() - 1) % self.seq_len;
        let shift = Random::derive(self.seed, &[SHIFT, epoch]).below(spare + 1);
        let n = (self.text.len() - 1) / self.seq_len;
        Ok((shift, Permutation::new(n, derive_seed(self.seed, &[ORDER, epoch]))))
    }

    fn n_examples(&self, _: &Self::Plan) -> u64 {
        (self.text.len() - 1) / self.seq_len
    }

    fn assemble(&self, blocks: &[Placed<'_, Self::Plan>]) -> Result<BlockBatch> {
        let mut batch = BlockBatch::default();
        for Placed { plan, epoch, place } in blocks {
            let start = self.start(plan, *epoch, *place);
            self.add(start..start + self.seq_len, &mut batch);
            self.draw_prefixes(*epoch, *place, &mut batch);
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorpusConfig, Cursor, Loader, Silent, Split};
    use cloze_tokenizer::Tokenizer;
    use std::collections::BTreeMap;

    const TEXTS: [&str; 4] = ["abcdefghij\n", "klm\n", "n\n", "opqrstuvwxyz\n"];

    fn corpus(folder: &std::path::Path) -> (Arc<PreparedCorpus>, Tokenizer) {
        std::fs::write(folder.join("a.txt"), TEXTS.join("\n")).unwrap();
        let tokenizer = Tokenizer::characters(('a'..='z').chain(['\n']), ["<end>"], None).unwrap();
        let config = CorpusConfig { files: vec!["a.txt".into()], ..Default::default() };
        let cache = folder.join("cache");
        let (corpus, _) =
            PreparedCorpus::prepare_documents(&config, folder, &tokenizer, &cache, &Silent).unwrap();
        (Arc::new(corpus), tokenizer)
    }

    fn all(corpus: &Arc<PreparedCorpus>, end: Option<u32>) -> RunningText {
        RunningText::of_documents(&Documents::new(corpus.clone(), Split::Train, 0.0, 1).unwrap(), end)
    }

    /// A batch's sequences as text; a bar precedes the token after the last one.
    fn shown(batch: &BlockBatch, tokenizer: &Tokenizer) -> Vec<String> {
        assert_eq!(batch.ids.len(), batch.next.len());
        assert_eq!(batch.lengths.iter().sum::<usize>(), batch.ids.len());
        let text = |ids: &[i32]| -> String {
            let name = |id: &i32| tokenizer.id_to_token(*id as u32).unwrap().replace("<end>", "|");
            ids.iter().map(name).collect::<String>().replace('\n', "_")
        };
        let mut start = 0;
        let sequence = |len: &usize| {
            let (ids, next) = (&batch.ids[start..start + len], &batch.next[start..start + len]);
            start += len;
            assert_eq!(ids[1..], next[..len - 1], "what follows is the next token");
            format!("{} {}", text(ids), text(&next[len - 1..]))
        };
        batch.lengths.iter().map(sequence).collect()
    }

    #[test]
    fn documents_follow_each_other_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (corpus, tokenizer) = corpus(folder.path());
        let in_order = |config: BlockConfig, end| {
            let blocks = TextBlocks::new(all(&corpus, end), &config, 1).unwrap();
            shown(&blocks.in_order(100, 100)[0], &tokenizer)
        };
        let joined = BlockConfig::new(9);
        let apart = BlockConfig { documents: BlockDocuments::Apart, ..joined.clone() };
        let expected = ["abcdefghi j", "j_|klm_|n _", "_|opqrstu v", "vwxyz_ |"];
        assert_eq!(in_order(joined.clone(), Some(0)), expected);
        let expected = ["abcdefghi j", "j_ |", "|klm_ |", "|n _", "_ |", "|opqrstu v", "vwxyz_ |"];
        assert_eq!(in_order(apart.clone(), Some(0)), expected);
        assert_eq!(in_order(joined, None), ["abcdefghi j", "j_klm_n_o p", "pqrstuvwx y", "yz _"]);
        // What follows a document's last token is of another one, and is not predicted.
        assert_eq!(
            in_order(apart, None),
            ["abcdefghi j", "j _", "klm _", "n _", "o p", "pqrstuvwx y", "yz _"]
        );
    }

    #[test]
    fn an_epoch_has_each_block_once_and_another_order_than_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let (corpus, _) = corpus(folder.path());
        let blocks = Arc::new(TextBlocks::new(all(&corpus, Some(0)), &BlockConfig::new(4), 3).unwrap());
        let n = (blocks.text.len() - 1) / 4;
        let mut batches = Loader::new(blocks.clone(), 1).batches(Cursor::default());
        let mut epoch =
            || -> Vec<i32> { (0..n).flat_map(|_| batches.next().unwrap().unwrap().ids).collect() };
        let (first, second) = (epoch(), epoch());
        assert_ne!(first, second);
        // No letter comes twice in the text, and so none in an epoch.
        for ids in [first, second] {
            let mut seen = BTreeMap::new();
            ids.iter().filter(|id| **id > 1).for_each(|id| *seen.entry(*id).or_insert(0) += 1);
            assert!(seen.values().all(|n| *n == 1), "{seen:?}");
        }
    }

    #[test]
    fn random_places_are_fair() {
        let folder = tempfile::tempdir().unwrap();
        let (corpus, _) = corpus(folder.path());
        let config = BlockConfig { order: BlockOrder::Random, ..BlockConfig::new(4) };
        let blocks = Arc::new(TextBlocks::new(all(&corpus, None), &config, 3).unwrap());
        let places = blocks.text.len() - 4;
        let mut firsts = BTreeMap::<Vec<i32>, u32>::new();
        for batch in Loader::new(blocks, 1).batches(Cursor::default()).take(places as usize * 100) {
            *firsts.entry(batch.unwrap().ids).or_default() += 1;
        }
        assert_eq!(firsts.len() as u64, places, "every place");
        // Five standard deviations of a count around 100.
        assert!(firsts.values().all(|n| n.abs_diff(100) < 50), "{firsts:?}");
    }

    #[test]
    fn prefixes_are_drawn_for_their_share_of_the_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let (corpus, _) = corpus(folder.path());
        let blocks = |prefix_share, documents| {
            let config = BlockConfig { prefix_share, documents, ..BlockConfig::new(4) };
            Arc::new(TextBlocks::new(all(&corpus, Some(0)), &config, 3).unwrap())
        };
        let mut lengths = [0u32; 5];
        for batch in
            Loader::new(blocks(0.75, BlockDocuments::Joined), 1).batches(Cursor::default()).take(8_000)
        {
            let batch = batch.unwrap();
            let prefix = batch.prefixes[0];
            assert_eq!((batch.prefixes.len(), &batch.lengths[..]), (1, &[4][..]));
            // The prefix's last token predicts the first one behind it.
            let targets: Vec<i32> = batch.targets().collect();
            assert_eq!((&targets[..], targets.len()), (&batch.next[prefix.max(1) - 1..], batch.n_targets()));
            lengths[prefix] += 1;
        }
        // Five standard deviations of a binomial of 8,000 draws: of a quarter 194, of three sixteenths 175.
        assert!(lengths[0].abs_diff(2_000) < 194, "{lengths:?}");
        assert!(lengths[1..].iter().all(|n| n.abs_diff(1_500) < 175), "{lengths:?}");
        // A document apart has a prefix of its own, and the held-out text is cut likewise.
        let apart = blocks(1.0, BlockDocuments::Apart);
        for batch in apart.in_order(3, 100) {
            assert_eq!(batch.prefixes.len(), batch.lengths.len());
            let fit =
                batch.prefixes.iter().zip(&batch.lengths).all(|(prefix, len)| (1..=*len).contains(prefix));
            assert!(fit, "{batch:?}");
        }
        assert_eq!(apart.in_order(3, 100), apart.in_order(3, 100));
        let none = blocks(0.0, BlockDocuments::Joined).in_order(100, 100).remove(0);
        assert!(
            none.prefixes.iter().all(|prefix| *prefix == 0) && none.targets().eq(none.next.iter().copied())
        );
    }

    #[test]
    fn the_end_of_the_text_may_be_held_out() {
        let folder = tempfile::tempdir().unwrap();
        let (corpus, tokenizer) = corpus(folder.path());
        let [train, held_out] = RunningText::cut(&corpus, 0.25, None).unwrap();
        assert_eq!((train.len() + held_out.len(), train.len()), (corpus.n_tokens(), 22));
        let whole = |text| {
            let blocks = TextBlocks::new(text, &BlockConfig::new(100), 1).unwrap();
            shown(&blocks.in_order(1, 1)[0], &tokenizer)
        };
        assert_eq!(whole(train), ["abcdefghij_klm_n_opqr s"]);
        assert_eq!(whole(held_out), ["tuvwxyz _"]);
        let message = RunningText::cut(&corpus, 0.0, None).unwrap_err().to_string();
        assert!(message.contains("held-out"), "{message}");
    }

    #[test]
    fn a_block_is_cut_out_of_the_whole_text_at_any_place() {
        let folder = tempfile::tempdir().unwrap();
        let (corpus, _) = corpus(folder.path());
        for end in [None, Some(0)] {
            let text = all(&corpus, end);
            let whole: Vec<_> = text.tokens(0..text.len()).collect();
            assert_eq!(whole.len() as u64, text.len());
            for start in 0..text.len() {
                for stop in start + 1..=text.len() {
                    let found: Vec<_> = text.tokens(start..stop).collect();
                    assert_eq!(found, whole[start as usize..stop as usize], "{start}..{stop}");
                }
            }
        }
    }

    #[test]
    fn a_file_is_kept_as_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let text = "one\n\n\n  two  three\nfour\n\nfive";
        std::fs::write(folder.path().join("a.txt"), text).unwrap();
        let tokenizer = Tokenizer::characters(text.chars(), Vec::<String>::new(), None).unwrap();
        // In parts of few bytes, which are one document all the same.
        for max_document_bytes in [1 << 20, 8] {
            let config = CorpusConfig {
                files: vec!["a.txt".into()],
                format: crate::Format::Whole,
                max_document_bytes,
                ..Default::default()
            };
            let cache = folder.path().join("cache");
            let (corpus, _) =
                PreparedCorpus::prepare_documents(&config, folder.path(), &tokenizer, &cache, &Silent)
                    .unwrap();
            assert_eq!(corpus.n_documents(), 1);
            let ids: Vec<u32> = corpus.tokens(0..corpus.n_tokens()).map(|(id, _)| id).collect();
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), format!("{text}\n"));
        }
    }

    #[test]
    fn a_text_without_a_token_to_predict_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "a").unwrap();
        let tokenizer = Tokenizer::characters(['a'], Vec::<String>::new(), None).unwrap();
        let config = CorpusConfig { files: vec!["a.txt".into()], ..Default::default() };
        let (corpus, _) = PreparedCorpus::prepare_documents(
            &config,
            folder.path(),
            &tokenizer,
            &folder.path().join("cache"),
            &Silent,
        )
        .unwrap();
        let error = TextBlocks::new(all(&Arc::new(corpus), None), &BlockConfig::new(8), 1).unwrap_err();
        assert_eq!(error.to_string(), "the text has 1 token, but a language model needs at least 2");
    }
}
