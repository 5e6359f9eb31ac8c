//! Segments of running text, some of whose tokens are predicted in a random order (Yang et al. 2019, §2.3 and
//! A.1).

use crate::blocks::{BlockConfig, BlockDocuments, RunningText, TextBlocks, TextToken};
use crate::loader::{Assemble, Placed};
use crate::random::Random;
use crate::{DataError, Result};
use std::sync::atomic::AtomicBool;

const PREDICTED: u64 = 0x0D7A;
const HELD_OUT: u64 = 0x0D7B;

/// How segments and their predicted tokens are drawn.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OrderConfig {
    /// Tokens per segment.
    pub seq_len: usize,
    /// Tokens before each segment, available to a model's memory.
    pub memory_len: usize,
    /// One in this many tokens is predicted: *K* of Yang et al. 2019, §2.3.
    pub one_in: usize,
    /// Maximum words per predicted span; the probability of n words is proportional to 1/n.
    pub max_span: usize,
}

impl OrderConfig {
    /// Segments of `seq_len` tokens without memory; one in 6 tokens is predicted, in spans of at most 5
    /// words, as in the paper.
    pub fn new(seq_len: usize) -> Self {
        Self { seq_len, memory_len: 0, one_in: 6, max_span: 5 }
    }

    /// Number of predicted tokens per segment.
    pub fn n_predicted(&self) -> usize {
        (self.seq_len / self.one_in.max(1)).max(1)
    }
}

/// A batch of segments of equal length, as plain vectors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OrderedBatch {
    /// Segments.
    pub n: usize,
    /// `[n, memory_len]`: the tokens before each segment.
    pub before: Vec<i32>,
    /// `[n, seq_len]`: the tokens of the segments.
    pub ids: Vec<i32>,
    /// `[n, seq_len]`: each token's rank in its segment's prediction order, from 0; `None` if not predicted.
    /// All segments have the same number of predicted tokens.
    pub order: Vec<Option<u32>>,
}

impl OrderedBatch {
    /// Number of predicted tokens.
    pub fn n_predicted(&self) -> usize {
        self.order.iter().flatten().count()
    }
}

/// Running text as segments; each is a function of the seed, the epoch and its place in the epoch.
/// [`Loader`](crate::Loader) makes the batches.
#[derive(Debug)]
pub struct OrderedBlocks {
    blocks: TextBlocks,
    config: OrderConfig,
    seed: u64,
}

impl OrderedBlocks {
    /// Segments of a text.
    ///
    /// Span lengths are drawn in proportion to 1/n, as in the reference code; the paper says uniformly. The
    /// reference's segments are two texts with separators; here they are one stretch of running text.
    ///
    /// # Errors
    /// [`DataError::ShortText`] for a text shorter than a segment with its memory.
    pub fn new(text: RunningText, config: OrderConfig, seed: u64) -> Result<Self> {
        let needed = config.seq_len.max(1) + config.memory_len;
        let tokens = text.len();
        if tokens <= needed as u64 {
            return Err(DataError::ShortText { tokens, needed: needed as u64 + 1 });
        }
        let whole = BlockConfig { documents: BlockDocuments::Joined, ..BlockConfig::new(needed) };
        Ok(Self { blocks: TextBlocks::new(text, &whole, seed)?, config, seed })
    }

    /// The batches of the text from its beginning, in batches of `batch_size` segments, at most
    /// `max_segments` in total. The orders are the same each time.
    pub fn in_order(&self, batch_size: usize, max_segments: usize) -> Vec<OrderedBatch> {
        let len = (self.config.seq_len + self.config.memory_len) as u64;
        let n = ((self.blocks.text().len() - 1) / len).min(max_segments as u64);
        let numbers: Vec<u64> = (0..n).collect();
        let batch = |numbers: &[u64]| {
            let mut batch = OrderedBatch::default();
            for number in numbers {
                self.add(number * len, &mut Random::derive(self.seed, &[HELD_OUT, *number]), &mut batch);
            }
            batch
        };
        numbers.chunks(batch_size.max(1)).map(batch).collect()
    }

    /// Adds the segment whose memory begins at a place of the text.
    fn add(&self, start: u64, random: &mut Random, batch: &mut OrderedBatch) {
        let OrderConfig { seq_len, memory_len, .. } = self.config;
        let text = self.blocks.text();
        let tokens: Vec<TextToken> = text.tokens(start..start + (memory_len + seq_len) as u64).collect();
        let mut ids = tokens.iter().map(|token| token.id as i32);
        batch.before.extend(ids.by_ref().take(memory_len));
        batch.ids.extend(ids);
        batch.order.extend(order(&tokens[memory_len..], &self.config, random));
        batch.n += 1;
    }
}

impl Assemble for OrderedBlocks {
    type Plan = <TextBlocks as Assemble>::Plan;
    type Batch = OrderedBatch;

    fn plan(&self, epoch: u64, stop: &AtomicBool) -> Result<Self::Plan> {
        self.blocks.plan(epoch, stop)
    }

    fn n_examples(&self, plan: &Self::Plan) -> u64 {
        self.blocks.n_examples(plan)
    }

    fn assemble(&self, segments: &[Placed<'_, Self::Plan>]) -> Result<OrderedBatch> {
        let mut batch = OrderedBatch::default();
        for Placed { plan, epoch, place } in segments {
            let mut random = Random::derive(self.seed, &[PREDICTED, *epoch, *place]);
            self.add(self.blocks.start(plan, *epoch, *place), &mut random, &mut batch);
        }
        Ok(batch)
    }
}

/// The place of each token of a segment in the order of its predictions.
fn order(tokens: &[TextToken], config: &OrderConfig, random: &mut Random) -> Vec<Option<u32>> {
    let n_predicted = config.n_predicted();
    let mut predicted = spans(tokens, config, n_predicted, random);
    let mut missing = n_predicted - predicted.iter().filter(|is| **is).count();
    // Wherever spans found no room: single tokens, at last pieces between documents.
    for may_be_end in [false, true] {
        let mut rest: Vec<usize> = (0..tokens.len())
            .filter(|place| !predicted[*place] && (may_be_end || !tokens[*place].is_end))
            .collect();
        shuffle(&mut rest, random);
        for place in rest.into_iter().take(missing) {
            predicted[place] = true;
            missing -= 1;
        }
    }
    let mut numbers: Vec<u32> = (0..n_predicted as u32).collect();
    shuffle(&mut numbers, random);
    let mut numbers = numbers.into_iter();
    predicted.into_iter().map(|is| if is { numbers.next() } else { None }).collect()
}

/// Which tokens are in spans. From left to right, each span of whole words is placed at random in a context
/// `one_in` times its length, until enough tokens are in spans.
fn spans(tokens: &[TextToken], config: &OrderConfig, wanted: usize, random: &mut Random) -> Vec<bool> {
    let mut predicted = vec![false; tokens.len()];
    let begins = |place: usize| tokens[place].starts_word || tokens[place].is_end;
    let (mut at, mut missing) = (0, wanted);
    while at < tokens.len() && missing > 0 {
        let words = span_length(config.max_span.max(1), random).min(missing);
        let context = words * config.one_in.max(1);
        let left = random.below(context as u64) as usize;
        let first = (at + left..tokens.len()).find(|place| begins(*place) && !tokens[*place].is_end);
        let Some(first) = first else { break };
        let mut starts = 1;
        let beyond = (first + 1..tokens.len()).find(|place| {
            starts += usize::from(begins(*place));
            starts > words || tokens[*place].is_end
        });
        // The segment may end amid a word.
        let Some(beyond) = beyond else { break };
        let end = beyond.min(first + missing);
        predicted[first..end].fill(true);
        missing -= end - first;
        at = end + context - left;
    }
    predicted
}

/// A length from 1 to `most`; the probability of n is proportional to 1/n.
fn span_length(most: usize, random: &mut Random) -> usize {
    let total: f64 = (1..=most).map(|n| 1.0 / n as f64).sum();
    let mut left = random.unit() * total;
    for n in 1..most {
        left -= 1.0 / n as f64;
        if left < 0.0 {
            return n;
        }
    }
    most
}

/// A uniformly random order (Fisher and Yates).
fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorpusConfig, Cursor, Documents, Loader, PreparedCorpus, Silent, Split};
    use cloze_tokenizer::Tokenizer;
    use std::sync::Arc;

    fn token(starts_word: bool) -> TextToken {
        TextToken { id: 7, starts_word, is_end: false, begins: false }
    }

    /// Words of one, two and three pieces by turns.
    fn tokens(n: usize) -> Vec<TextToken> {
        (0..n).map(|place| token([true, true, false, true, false, false][place % 6])).collect()
    }

    #[test]
    fn as_many_as_asked_are_predicted_each_at_another_place_of_the_order() {
        let config = OrderConfig::new(60);
        for seed in 0..200 {
            let order = order(&tokens(60), &config, &mut Random::new(seed));
            let mut places: Vec<u32> = order.into_iter().flatten().collect();
            places.sort_unstable();
            assert_eq!(places, (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_order_and_every_place_comes_up() {
        let config = OrderConfig { one_in: 2, max_span: 1, ..OrderConfig::new(6) };
        let all = vec![token(true); 6];
        let mut orders = std::collections::BTreeMap::<Vec<u32>, u32>::new();
        let mut places = [0; 6];
        for seed in 0..3_000 {
            let order = order(&all, &config, &mut Random::new(seed));
            order.iter().enumerate().filter(|(_, at)| at.is_some()).for_each(|(place, _)| places[place] += 1);
            *orders.entry(order.into_iter().flatten().collect()).or_default() += 1;
        }
        // Three predicted tokens have six orders, each in about 500 of the draws: five standard deviations are 102.
        assert_eq!(orders.len(), 6);
        assert!(orders.values().all(|n| n.abs_diff(500) < 102), "{orders:?}");
        assert!(places.iter().all(|n| *n > 500), "{places:?}");
    }

    #[test]
    fn spans_are_whole_words_unless_the_last_is_cut() {
        let tokens = tokens(600);
        let config = OrderConfig::new(600);
        let (mut wholly, mut words) = (0, 0);
        for seed in 0..50 {
            let predicted = spans(&tokens, &config, 100, &mut Random::new(seed));
            for word in (0..600).filter(|place| tokens[*place].starts_word) {
                let end = (word + 1..600).find(|place| tokens[*place].starts_word).unwrap_or(600);
                let of_word = predicted[word..end].iter().filter(|is| **is).count();
                if of_word > 0 {
                    words += 1;
                    wholly += u32::from(of_word == end - word);
                }
            }
        }
        assert!(words - wholly <= 50 && words > 1_000, "{wholly} of {words}");
    }

    #[test]
    fn a_span_has_2_2_words_on_average() {
        let mut random = Random::new(3);
        let sum: usize = (0..20_000).map(|_| span_length(5, &mut random)).sum();
        // 5 / (1 + 1/2 + 1/3 + 1/4 + 1/5) = 2.19.
        assert!((sum as f64 / 20_000.0 - 2.19).abs() < 0.05, "{sum}");
    }

    #[test]
    fn pieces_between_documents_are_not_predicted() {
        let config = OrderConfig { one_in: 2, ..OrderConfig::new(40) };
        let is_end = |place: usize| place % 10 == 9;
        let tokens: Vec<TextToken> =
            (0..40).map(|place| TextToken { is_end: is_end(place), ..token(true) }).collect();
        for seed in 0..100 {
            let order = order(&tokens, &config, &mut Random::new(seed));
            assert!((0..40).all(|place| !is_end(place) || order[place].is_none()));
        }
    }

    #[test]
    fn segments_follow_what_they_remember() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (0..400).map(|i| if i % 5 == 4 { " " } else { "a" }).collect();
        std::fs::write(folder.path().join("a.txt"), text + "\n").unwrap();
        let tokenizer = Tokenizer::characters(['a', ' ', '\n'], ["<end>"], None).unwrap();
        let config = CorpusConfig { files: vec!["a.txt".into()], ..Default::default() };
        let cache = folder.path().join("cache");
        let (corpus, _) =
            PreparedCorpus::prepare_documents(&config, folder.path(), &tokenizer, &cache, &Silent).unwrap();
        let documents = Documents::new(Arc::new(corpus), Split::Train, 0.0, 1).unwrap();
        let text = || RunningText::of_documents(&documents, Some(0));
        let whole: Vec<i32> = text().tokens(0..text().len()).map(|token| token.id as i32).collect();
        let config = OrderConfig { memory_len: 7, ..OrderConfig::new(12) };

        let blocks = OrderedBlocks::new(text(), config.clone(), 5).unwrap();
        let batches = blocks.in_order(3, 100);
        let (before, ids) = (&batches[0].before, &batches[0].ids);
        assert_eq!((before.len(), ids.len(), batches[0].n), (21, 36, 3));
        assert_eq!((&before[..7], &ids[..12]), (&whole[..7], &whole[7..19]));
        assert_eq!((&before[7..14], &ids[12..24]), (&whole[19..26], &whole[26..38]));
        assert!(batches.iter().all(|batch| batch.n_predicted() == 2 * batch.n));
        assert_eq!(blocks.in_order(3, 100), batches);
        assert_eq!(blocks.in_order(3, 4).iter().map(|batch| batch.n).sum::<usize>(), 4);

        let loaded = |seed| -> Vec<OrderedBatch> {
            let blocks = Arc::new(OrderedBlocks::new(text(), config.clone(), seed).unwrap());
            let batches = Loader::new(blocks, 4).batches(Cursor::default());
            batches.take(20).map(|batch| batch.unwrap()).collect()
        };
        assert_eq!(loaded(1), loaded(1));
        assert_ne!(loaded(1), loaded(2));

        let error = OrderedBlocks::new(text(), OrderConfig::new(100_000), 5).unwrap_err().to_string();
        assert!(error.contains("100001"), "{error}");
    }
}
