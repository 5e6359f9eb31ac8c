//! Running text as parallel streams, for models with state: each batch continues where the previous one
//! ended.

use crate::blocks::{BlockBatch, RunningText};
use crate::loader::{Assemble, Placed};
use crate::random::Random;
use crate::{DataError, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::AtomicBool;

const FIRST: u64 = 0x57F1;

/// How streams are cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StreamConfig {
    /// Tokens of each stream in a batch, through which gradients flow.
    pub seq_len: usize,
    /// The piece that ends each document. Default `[SEP]` or `</s>`, else `<|endoftext|>`, else none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

impl StreamConfig {
    /// Streams with `seq_len` tokens per batch.
    pub fn new(seq_len: usize) -> Self {
        Self { seq_len, end: None }
    }
}

/// The next stretch of some streams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamBatch {
    /// The tokens, one sequence per stream, all of equal length.
    pub tokens: BlockBatch,
    /// The first of the streams.
    pub first: usize,
    /// Whether the streams begin here, so that state must be reset.
    pub begins: bool,
}

/// A text cut into streams of equal length; an epoch reads each once from its beginning.
///
/// To a [`Loader`](crate::Loader), a stretch of one stream is an example; its batch size must divide
/// [`n_streams`](Self::n_streams). The first stretch's length, at least half of `seq_len`, changes every
/// epoch so that the text is cut elsewhere; it is a function of the seed and the epoch. Merity et al. (2018,
/// §3.1) instead draw the length of every stretch.
#[derive(Debug)]
pub struct TextStreams {
    text: RunningText,
    n_streams: u64,
    seq_len: u64,
    seed: u64,
}

impl TextStreams {
    /// `n_streams` streams of a text. The remainder at its end, fewer tokens than streams, is not read.
    ///
    /// # Errors
    /// [`DataError::ShortText`] for a text with fewer than two tokens per stream.
    pub fn new(text: RunningText, n_streams: usize, config: &StreamConfig, seed: u64) -> Result<Self> {
        let n_streams = n_streams.max(1) as u64;
        if text.len() <= n_streams {
            return Err(DataError::ShortText { tokens: text.len(), needed: n_streams + 1 });
        }
        Ok(Self { text, n_streams, seq_len: config.seq_len.max(1) as u64, seed })
    }

    /// The text.
    pub fn text(&self) -> &RunningText {
        &self.text
    }

    /// Number of streams.
    pub fn n_streams(&self) -> usize {
        self.n_streams as usize
    }

    /// Number of tokens predicted in a stream.
    fn stream_len(&self) -> u64 {
        (self.text.len() - 1) / self.n_streams
    }

    /// The batches of all streams from their beginnings, at most `most` stretches; the last may be shorter.
    pub fn in_order(&self, most: usize) -> Vec<StreamBatch> {
        let stretches = self.n_stretches(self.seq_len).min(most as u64);
        let streams = 0..self.n_streams;
        let batch = |stretch| self.batch(streams.clone(), self.stretch(self.seq_len, stretch), stretch == 0);
        (0..stretches).map(batch).collect()
    }

    /// Number of stretches in a stream if the first has `first` tokens.
    fn n_stretches(&self, first: u64) -> u64 {
        1 + self.stream_len().saturating_sub(first).div_ceil(self.seq_len)
    }

    /// The tokens of a stretch in its stream.
    fn stretch(&self, first: u64, stretch: u64) -> Range<u64> {
        let end = first + stretch * self.seq_len;
        let start = if stretch == 0 { 0 } else { end - self.seq_len };
        start..end.min(self.stream_len())
    }

    fn batch(&self, streams: Range<u64>, tokens: Range<u64>, begins: bool) -> StreamBatch {
        let first = streams.start as usize;
        let mut of_all = BlockBatch::default();
        for stream in streams {
            let start = stream * self.stream_len();
            let range = start + tokens.start..start + tokens.end + 1;
            let ids: Vec<i32> = self.text.tokens(range).map(|token| token.id as i32).collect();
            of_all.ids.extend(&ids[..ids.len() - 1]);
            of_all.next.extend(&ids[1..]);
            of_all.lengths.push(ids.len() - 1);
            of_all.prefixes.push(0);
        }
        StreamBatch { tokens: of_all, first, begins }
    }
}

impl Assemble for TextStreams {
    /// Length of the first stretch in tokens.
    type Plan = u64;
    type Batch = StreamBatch;

    fn plan(&self, epoch: u64, _stop: &AtomicBool) -> Result<u64> {
        let shorter = Random::derive(self.seed, &[FIRST, epoch]).below(self.seq_len / 2 + 1);
        Ok((self.seq_len - shorter).min(self.stream_len()))
    }

    fn n_examples(&self, first: &u64) -> u64 {
        self.n_streams * self.n_stretches(*first)
    }

    /// # Panics
    /// If the examples are not streams of one stretch: the loader's batch size does not divide the number of streams.
    fn assemble(&self, examples: &[Placed<'_, u64>]) -> Result<StreamBatch> {
        let Some(Placed { plan, place, .. }) = examples.first() else { return Ok(StreamBatch::default()) };
        let (stretch, stream) = (place / self.n_streams, place % self.n_streams);
        let streams = stream..stream + examples.len() as u64;
        assert!(streams.end <= self.n_streams, "the batch size divides the number of streams");
        Ok(self.batch(streams, self.stretch(**plan, stretch), stretch == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorpusConfig, Cursor, Documents, Loader, PreparedCorpus, Silent, Split};
    use cloze_tokenizer::Tokenizer;
    use std::sync::Arc;

    /// `n` letters of the alphabet as a text; the ids of the letters follow each other.
    fn text(folder: &std::path::Path, n: usize) -> RunningText {
        let letters: String = ('a'..='z').cycle().take(n).collect();
        std::fs::write(folder.join("a.txt"), letters).unwrap();
        let tokenizer = Tokenizer::characters(('a'..='z').chain(['\n']), Vec::<String>::new(), None).unwrap();
        let config = CorpusConfig { files: vec!["a.txt".into()], ..Default::default() };
        let cache = folder.join("cache");
        let (corpus, _) =
            PreparedCorpus::prepare_documents(&config, folder, &tokenizer, &cache, &Silent).unwrap();
        RunningText::of_documents(&Documents::new(Arc::new(corpus), Split::Train, 0.0, 1).unwrap(), None)
    }

    #[test]
    fn a_stream_goes_on_from_batch_to_batch_and_has_all_of_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let whole = text(folder.path(), 101);
        let all: Vec<i32> = whole.tokens(0..whole.len()).map(|token| token.id as i32).collect();
        let streams = Arc::new(TextStreams::new(whole, 6, &StreamConfig::new(4), 3).unwrap());
        let len = (all.len() - 1) / 6;
        let mut batches = Loader::new(streams.clone(), 3).batches(Cursor::default());
        let mut firsts = Vec::new();
        for epoch in 0..8 {
            let n = streams.n_examples(&streams.plan(epoch, &AtomicBool::new(false)).unwrap()) / 3;
            let mut read = vec![Vec::<i32>::new(); 6];
            let mut next = vec![Vec::<i32>::new(); 6];
            for batch in 0..n {
                let StreamBatch { tokens, first, begins } = batches.next().unwrap().unwrap();
                assert_eq!((first, begins), ((batch % 2) as usize * 3, batch < 2));
                assert_eq!(tokens.lengths.len(), 3);
                assert!(tokens.lengths.iter().all(|len| *len == tokens.lengths[0] && *len <= 4));
                if batch == 0 {
                    firsts.push(tokens.lengths[0]);
                }
                let rows = tokens.ids.chunks(tokens.lengths[0]).zip(tokens.next.chunks(tokens.lengths[0]));
                for (stream, (ids, following)) in (first..).zip(rows) {
                    read[stream].extend(ids);
                    next[stream].extend(following);
                }
            }
            for stream in 0..6 {
                assert_eq!(read[stream], all[stream * len..(stream + 1) * len]);
                assert_eq!(next[stream], all[stream * len + 1..(stream + 1) * len + 1]);
            }
        }
        // The first stretch has from half of the length to all of it.
        assert!(firsts.iter().all(|first| (2..=4).contains(first)), "{firsts:?}");
        assert!(firsts.iter().any(|first| *first != firsts[0]), "{firsts:?}");
    }

    #[test]
    fn a_batch_is_a_function_of_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let streams =
            Arc::new(TextStreams::new(text(folder.path(), 60), 4, &StreamConfig::new(5), 3).unwrap());
        let loader = Loader::new(streams, 2).with_workers(2);
        let mut batches = loader.batches(Cursor::default());
        let first: Vec<_> = (0..13).map(|_| batches.next().unwrap().unwrap()).collect();
        let mut again = loader.batches(Cursor::default());
        again.by_ref().take(5).for_each(drop);
        let resumed = loader.batches(again.cursor()).take(8).map(|batch| batch.unwrap());
        assert_eq!(resumed.collect::<Vec<_>>(), first[5..]);
    }

    #[test]
    fn held_out_text_is_read_from_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let streams = TextStreams::new(text(folder.path(), 25), 2, &StreamConfig::new(5), 3).unwrap();
        let batches = streams.in_order(100);
        let lengths: Vec<_> = batches.iter().map(|batch| batch.tokens.lengths.clone()).collect();
        // Of 25 letters and the end of their line all but the first are predicted, in two streams of 12.
        assert_eq!(lengths, [[5, 5], [5, 5], [2, 2]]);
        assert_eq!(batches.iter().map(|batch| batch.begins).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(streams.in_order(2), batches[..2]);
    }

    #[test]
    fn a_text_too_short_for_its_streams_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        // Five letters, and the end of their line.
        let error = TextStreams::new(text(folder.path(), 5), 8, &StreamConfig::new(5), 3).unwrap_err();
        let expected = "the text has 6 tokens, but a language model needs at least 9";
        assert_eq!(error.to_string(), expected);
    }
}
