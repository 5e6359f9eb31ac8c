//! Worker threads prefetch batches, which are returned in order.

use crate::{DataError, Result, panic_message};
use crossbeam_channel::{Receiver, bounded, unbounded};
use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// The position in the data: its entire state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Cursor {
    /// Number of completed passes over the data.
    pub epoch: u64,
    /// Number of examples used in the current pass.
    pub example: u64,
}

/// Data for a [`Loader`]: the examples of each epoch, in order, and how they form batches.
///
/// A batch depends only on the data and its examples' places. Nothing may depend on earlier batches, or a
/// resumed run would get different ones: derive random numbers from a seed, the epoch and the place
/// ([`Random::derive`](crate::Random::derive)).
///
/// # Examples
/// Rows in memory, reshuffled every epoch:
/// ```
/// use cloze_data::{Assemble, Cursor, Loader, Permutation, Placed, Result, TokenBatch, derive_seed};
/// use std::sync::{Arc, atomic::AtomicBool};
///
/// struct Rows {
///     ids: Vec<Vec<i32>>,
///     seed: u64,
/// }
///
/// impl Assemble for Rows {
///     type Plan = Permutation;
///     type Batch = TokenBatch;
///
///     fn plan(&self, epoch: u64, _stop: &AtomicBool) -> Result<Permutation> {
///         Ok(Permutation::new(self.ids.len() as u64, derive_seed(self.seed, &[epoch])))
///     }
///
///     fn n_examples(&self, _: &Permutation) -> u64 {
///         self.ids.len() as u64
///     }
///
///     fn assemble(&self, examples: &[Placed<'_, Permutation>]) -> Result<TokenBatch> {
///         let mut batch = TokenBatch::new();
///         for Placed { plan, place, .. } in examples {
///             let row = &self.ids[plan.get(*place) as usize];
///             batch.push(row, &vec![0; row.len()]);
///         }
///         Ok(batch)
///     }
/// }
///
/// let rows = Arc::new(Rows { ids: (1..8).map(|len| vec![5; len]).collect(), seed: 3 });
/// let loader = Loader::new(rows, 2).with_workers(2);
/// let mut batches = loader.batches(Cursor::default());
/// let first = batches.next().unwrap()?;
/// assert_eq!(first.n_sequences(), 2);
/// // Another run goes on from there with the same batches.
/// let mut resumed = loader.batches(batches.cursor());
/// assert_eq!(resumed.next().unwrap()?, batches.next().unwrap()?);
/// # Ok::<_, cloze_data::DataError>(())
/// ```
pub trait Assemble: Send + Sync + 'static {
    /// The examples of an epoch and their order.
    type Plan: Send + Sync + 'static;
    /// A batch of examples.
    type Batch: Send + 'static;

    /// The plan of an epoch, made on its own thread while the previous epoch is used.
    ///
    /// # Errors
    /// Any; it ends the batches. [`DataError::Stopped`] soon after `stop` is set, when the plan is no longer
    /// needed.
    fn plan(&self, epoch: u64, stop: &AtomicBool) -> Result<Self::Plan>;

    /// Number of examples in an epoch, at least one.
    fn n_examples(&self, plan: &Self::Plan) -> u64;

    /// The batch of these examples, which may span epochs.
    ///
    /// # Errors
    /// Any; it ends the batches.
    fn assemble(&self, examples: &[Placed<'_, Self::Plan>]) -> Result<Self::Batch>;
}

/// An example's place.
#[derive(Debug)]
#[non_exhaustive]
pub struct Placed<'a, P> {
    /// The plan of its epoch.
    pub plan: &'a P,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The place in the epoch's order, from 0.
    pub place: u64,
}

/// Makes batches of consecutive examples of an [`Assemble`] ahead of their use.
#[derive(Debug)]
pub struct Loader<A> {
    data: Arc<A>,
    batch_size: usize,
    workers: usize,
    ahead: usize,
}

impl<A: Assemble> Loader<A> {
    /// Batches of `batch_size` examples, at least 1, made by one thread, prefetching one.
    pub fn new(data: Arc<A>, batch_size: usize) -> Self {
        Self { data, batch_size: batch_size.max(1), workers: 1, ahead: 1 }
    }

    /// Makes batches on `workers` threads, at least 1. The batches do not depend on it.
    pub fn with_workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Prefetches up to `ahead` batches, at least 1, besides one in each worker.
    pub fn with_ahead(mut self, ahead: usize) -> Self {
        self.ahead = ahead.max(1);
        self
    }

    /// Batches from a position on. A batch may span two epochs: nothing is dropped.
    pub fn batches(&self, from: Cursor) -> Batches<A::Batch> {
        self.batches_of_groups(from, 1, 0..1)
    }

    /// Batches in groups of `size`, at least 1, from a position on. Of each group only the batches of `own` places are
    /// made, such as one process's of several.
    pub fn groups(&self, from: Cursor, size: usize, own: Range<usize>) -> Groups<A::Batch> {
        let n = own.len();
        Groups { batches: self.batches_of_groups(from, size.max(1), own), n }
    }

    fn batches_of_groups(&self, from: Cursor, size: usize, own: Range<usize>) -> Batches<A::Batch> {
        let (orders, work) = bounded::<Order<A::Plan>>(self.ahead);
        let (finished, done) = unbounded();
        let (begun, under_way) = bounded(self.ahead.saturating_add(self.workers));
        let stop = Arc::new(AtomicBool::new(false));
        let (data, batch_size, stopped) = (self.data.clone(), self.batch_size, stop.clone());
        let send = move |order| begun.send(()).is_ok() && orders.send(order).is_ok();
        thread::spawn(move || sequence(&data, batch_size, from, (size, own), send, &stopped));
        for _ in 0..self.workers {
            let (data, work, finished) = (self.data.clone(), work.clone(), finished.clone());
            thread::spawn(move || {
                for Order { number, parts, next } in work {
                    let _batch = tracing::trace_span!("make a batch").entered();
                    let batch = parts.map(|parts| {
                        parts.and_then(|parts| {
                            catch_unwind(AssertUnwindSafe(|| data.assemble(&placed(&parts))))
                                .unwrap_or_else(|panic| Err(failed(&*panic)))
                        })
                    });
                    if finished.send(Done { number, batch, next }).is_err() {
                        return;
                    }
                }
            });
        }
        Batches { done, under_way, early: BTreeMap::new(), number: 0, cursor: from, stop }
    }

    /// The first `max_examples` examples of the first epoch in batches, made on this thread: the same every time.
    ///
    /// # Errors
    /// Those of plans and batches.
    pub fn one_pass(&self, max_examples: u64) -> Result<Vec<A::Batch>> {
        let plan = Arc::new(self.data.plan(0, &AtomicBool::new(false))?);
        let n = self.data.n_examples(&plan).min(max_examples);
        let starts = (0..n).step_by(self.batch_size);
        let part = |start: u64| Part {
            plan: plan.clone(),
            epoch: 0,
            places: start..n.min(start.saturating_add(self.batch_size as u64)),
        };
        starts.map(|start| self.data.assemble(&placed(&[part(start)]))).collect()
    }
}

/// Endless iterator over batches, epoch after epoch, returned by [`Loader::batches`].
///
/// One thread makes the plans and assigns examples to batches; workers assemble them; the iterator
/// returns them in order, so the batches do not depend on the number of workers. It ends after the first
/// error. Dropping it soon ends the threads, even one making a plan.
#[derive(Debug)]
pub struct Batches<B> {
    done: Receiver<Done<B>>,
    /// One entry per batch in progress or waiting: bounds their number even if one takes long.
    under_way: Receiver<()>,
    early: BTreeMap<u64, Done<B>>,
    /// The number of the next batch to return.
    number: u64,
    cursor: Cursor,
    /// Ends a plan that is being made.
    stop: Arc<AtomicBool>,
}

impl<B> Batches<B> {
    /// Start of the next batch, to save in a checkpoint.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// What is next; none after the end.
    fn next_done(&mut self) -> Option<Option<Result<B>>> {
        loop {
            if let Some(done) = self.early.remove(&self.number) {
                self.number += 1;
                self.cursor = done.next;
                let _ = self.under_way.try_recv();
                return Some(done.batch);
            }
            let done = self.done.recv().ok()?;
            self.early.insert(done.number, done);
        }
    }
}

/// Endless iterator over groups of batches, as [`Loader::groups`] returns it: for each group, the own batches.
#[derive(Debug)]
pub struct Groups<B> {
    batches: Batches<B>,
    /// Own batches of each group.
    n: usize,
}

impl<B> Groups<B> {
    /// Start of the next group, to save in a checkpoint.
    pub fn cursor(&self) -> Cursor {
        self.batches.cursor
    }
}

impl<B> Iterator for Groups<B> {
    type Item = Result<Vec<B>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut own = Vec::with_capacity(self.n);
        for _ in 0..self.n.max(1) {
            match self.batches.next_done()? {
                Some(Ok(batch)) => own.push(batch),
                Some(Err(error)) => return Some(Err(error)),
                None => {}
            }
        }
        Some(Ok(own))
    }
}

/// One batch to assemble: its number, its examples, and where the next one starts. A group without own batches has
/// one order without examples.
struct Order<P> {
    number: u64,
    parts: Option<Result<Vec<Part<P>>>>,
    next: Cursor,
}

/// One assembled batch, or an error; nothing for a group without own batches.
#[derive(Debug)]
struct Done<B> {
    number: u64,
    batch: Option<Result<B>>,
    next: Cursor,
}

/// Consecutive examples of one epoch.
struct Part<P> {
    plan: Arc<P>,
    epoch: u64,
    places: Range<u64>,
}

fn placed<P>(parts: &[Part<P>]) -> Vec<Placed<'_, P>> {
    let of_part = |part| {
        let Part { plan, epoch, places }: &Part<P> = part;
        places.clone().map(|place| Placed { plan: &**plan, epoch: *epoch, place })
    };
    parts.iter().flat_map(of_part).collect()
}

impl<B> Drop for Batches<B> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl<B> Iterator for Batches<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_done().flatten()
    }
}

/// The plan of an epoch and its number of examples.
type Planned<P> = (Arc<P>, u64);

fn plan<A: Assemble>(data: &A, epoch: u64, stop: &AtomicBool) -> Result<Planned<A::Plan>> {
    let plan = data.plan(epoch, stop)?;
    match data.n_examples(&plan) {
        0 => Err(DataError::EmptyEpoch { epoch }),
        n => Ok((Arc::new(plan), n)),
    }
}

/// Sends out the examples of each own batch of groups until the receivers are gone.
fn sequence<A: Assemble>(
    data: &Arc<A>,
    batch_size: usize,
    from: Cursor,
    (size, own): (usize, Range<usize>),
    send: impl Fn(Order<A::Plan>) -> bool,
    stop: &Arc<AtomicBool>,
) {
    let mut examples = Examples::new(data, from, stop);
    let mut number = 0..;
    loop {
        let mut orders = Vec::new();
        let mut has_failed = false;
        for place in 0..size {
            let parts = examples.next(batch_size);
            has_failed = parts.is_err();
            if own.contains(&place) || has_failed {
                orders.push((Some(parts), examples.cursor));
            }
            if has_failed {
                break;
            }
        }
        if orders.is_empty() {
            orders.push((None, examples.cursor));
        }
        if let Some((_, next)) = orders.last_mut() {
            *next = examples.cursor;
        }
        for ((parts, next), number) in orders.into_iter().zip(&mut number) {
            if !send(Order { number, parts, next }) {
                return;
            }
        }
        if has_failed {
            return;
        }
    }
}

/// The examples of all epochs, in order.
struct Examples<'a, A: Assemble> {
    data: &'a Arc<A>,
    stop: &'a Arc<AtomicBool>,
    cursor: Cursor,
    current: Option<Planned<A::Plan>>,
    /// The plan of the epoch after the current one, which is made while that is used.
    ahead: JoinHandle<Result<Planned<A::Plan>>>,
}

impl<'a, A: Assemble> Examples<'a, A> {
    fn new(data: &'a Arc<A>, cursor: Cursor, stop: &'a Arc<AtomicBool>) -> Self {
        Self { data, stop, cursor, current: None, ahead: planning(data, cursor.epoch, stop) }
    }

    /// The next `n` examples.
    fn next(&mut self, n: usize) -> Result<Vec<Part<A::Plan>>> {
        let mut parts = Vec::new();
        let mut missing = n as u64;
        while missing > 0 {
            let (plan, n) = match &self.current {
                Some(planned) if self.cursor.example < planned.1 => planned,
                finished => {
                    if finished.is_some() {
                        self.cursor = Cursor { epoch: self.cursor.epoch + 1, example: 0 };
                    }
                    let following = planning(self.data, self.cursor.epoch + 1, self.stop);
                    let made = std::mem::replace(&mut self.ahead, following).join();
                    self.current.insert(made.unwrap_or_else(|panic| Err(failed(&*panic)))?)
                }
            };
            let end = self.cursor.example.saturating_add(missing).min(*n);
            if self.cursor.example < end {
                let places = self.cursor.example..end;
                missing -= end - self.cursor.example;
                self.cursor.example = end;
                parts.push(Part { plan: plan.clone(), epoch: self.cursor.epoch, places });
            }
        }
        Ok(parts)
    }
}

/// Makes the plan of an epoch on a thread of its own.
fn planning<A: Assemble>(
    data: &Arc<A>,
    epoch: u64,
    stop: &Arc<AtomicBool>,
) -> JoinHandle<Result<Planned<A::Plan>>> {
    let (data, stop) = (data.clone(), stop.clone());
    thread::spawn(move || plan(&*data, epoch, &stop))
}

fn failed(panic: &(dyn Any + Send)) -> DataError {
    DataError::Worker { message: panic_message(panic).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CorpusConfig, CorpusExamples, Corruption, Documents, Edits, Example, ExampleConfig, ExampleSampler,
        Original, PairConfig, PreparedCorpus, PretrainingBatch, PretrainingData, Random, Room, Silent, Split,
        UnigramCounts,
    };
    use cloze_tokenizer::train::WordPieceTrainer;
    use std::path::Path;
    use std::time::{Duration, Instant};

    /// Examples of a small text with custom parts.
    fn data_of(
        folder: &Path,
        sampler: Box<dyn ExampleSampler>,
        corruption: Option<Box<dyn Corruption>>,
        held_out: f64,
    ) -> Arc<PretrainingData> {
        let text: String = (0..200).map(|i| format!("Text {i} begins. It goes on, no. {i}.\n\n")).collect();
        std::fs::write(folder.join("a.txt"), &text).unwrap();
        let tokenizer = WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([text]).unwrap();
        let corpus = CorpusConfig { files: vec!["a.txt".into()], ..Default::default() };
        let (corpus, _) =
            PreparedCorpus::prepare(&corpus, folder, &tokenizer, &folder.join("cache"), &Silent).unwrap();
        let documents = Documents::new(Arc::new(corpus), Split::Train, held_out, 1).unwrap();
        let unigram = Arc::new(UnigramCounts::new(&documents, tokenizer.vocab_size()));
        let config = ExampleConfig::new(30);
        let special = config.special(&tokenizer).unwrap();
        let corruption = corruption.unwrap_or_else(|| {
            config.masking.corruption(special.mask.unwrap(), special.all(), unigram.clone())
        });
        let plans = folder.join("plans");
        let examples = CorpusExamples::new(documents, sampler, special, 30, 1, plans).unwrap();
        Arc::new(PretrainingData::from_parts(examples, corruption))
    }

    fn data(folder: &Path, pairs: PairConfig, held_out: f64) -> Arc<PretrainingData> {
        data_of(folder, pairs.sampler(), None, held_out)
    }

    fn loader(
        data: &Arc<PretrainingData>,
        batch_size: usize,
        workers: usize,
        ahead: usize,
    ) -> Loader<PretrainingData> {
        Loader::new(data.clone(), batch_size).with_workers(workers).with_ahead(ahead)
    }

    fn plan_of(data: &PretrainingData, epoch: u64) -> crate::Plan {
        data.plan(epoch, &AtomicBool::new(false)).unwrap()
    }

    /// Waits for the threads to let go of the data.
    #[track_caller]
    fn assert_threads_end(data: &Arc<PretrainingData>) {
        let start = Instant::now();
        while Arc::strong_count(data) > 1 {
            assert!(start.elapsed() < Duration::from_secs(20), "threads live on");
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn dropping_the_iterator_ends_the_threads() {
        let folder = tempfile::tempdir().unwrap();
        let data = data(folder.path(), PairConfig::default(), 0.0);
        for taken in [0, 1, 50] {
            let mut batches = loader(&data, 4, 3, 2).batches(Cursor::default());
            assert_eq!(batches.by_ref().take(taken).count(), taken);
            drop(batches);
            assert_threads_end(&data);
        }
    }

    #[test]
    fn dropping_the_iterator_ends_a_plan_that_is_being_made() {
        struct Endless;
        impl ExampleSampler for Endless {
            fn examples(
                &self,
                _: &Documents,
                _: Room,
                _: u64,
                emit: &mut dyn FnMut(Example) -> Result<()>,
            ) -> Result<()> {
                loop {
                    emit(Example::segment(0..1))?;
                    thread::sleep(Duration::from_micros(100));
                }
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let data = data_of(folder.path(), Box::new(Endless), None, 0.0);
        let batches = loader(&data, 4, 3, 2).batches(Cursor::default());
        thread::sleep(Duration::from_millis(20));
        drop(batches);
        assert_threads_end(&data);
    }

    #[test]
    fn no_more_is_made_than_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let data = data(folder.path(), PairConfig::default(), 0.0);
        let mut batches = loader(&data, 1, 2, 3).batches(Cursor::default());
        for _ in 0..20 {
            batches.next().unwrap().unwrap();
            thread::sleep(Duration::from_millis(5));
            assert!(batches.done.len() + batches.early.len() <= 3 + 2);
        }
    }

    #[test]
    fn an_error_in_a_plan_reaches_the_consumer_and_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let data = data(folder.path(), PairConfig::DocSentences, 0.0);
        let n = plan_of(&data, 0).len();
        std::fs::remove_dir_all(folder.path().join("plans")).unwrap();
        std::fs::write(folder.path().join("plans"), "a file in the way").unwrap();
        let mut batches = loader(&data, 4, 2, 2).batches(Cursor { epoch: 0, example: n - 1 });
        let message = batches.next().unwrap().unwrap_err().to_string();
        assert_eq!(message, format!("cannot make {}", folder.path().join("plans").display()));
        assert!(batches.next().is_none());
        assert_threads_end(&data);
    }

    /// A sampler that a user may write.
    struct Broken;

    impl ExampleSampler for Broken {
        fn examples(
            &self,
            documents: &Documents,
            _: Room,
            seed: u64,
            emit: &mut dyn FnMut(Example) -> Result<()>,
        ) -> Result<()> {
            let end = documents.corpus().n_tokens();
            // Beyond the corpus' end in the first epoch, a panic in later ones.
            assert!(seed == crate::derive_seed(1, &[0xE8A1, 0]), "a sampler that panics");
            emit(Example::pair(end - 1..end + 5, end - 1..end, 0))?;
            emit(Example::segment(0..90))
        }
    }

    #[test]
    fn a_panic_of_a_sampler_is_an_error_of_the_batch() {
        let folder = tempfile::tempdir().unwrap();
        let data = data_of(folder.path(), Box::new(Broken), None, 0.0);
        let results: Vec<_> = loader(&data, 2, 2, 2).batches(Cursor::default()).collect();
        // Too long a range is the strategy's own affair: it is there as it is.
        assert_eq!(results[0].as_ref().unwrap().tokens.n_sequences(), 2);
        assert_eq!(
            results[1].as_ref().unwrap_err().to_string(),
            "a data worker failed: a sampler that panics"
        );
        assert_eq!(results.len(), 2);
        assert_threads_end(&data);
    }

    /// Takes longest for the first batches.
    struct Slow(std::sync::atomic::AtomicU64);

    impl Corruption for Slow {
        fn corrupt(&self, original: &Original<'_>, _: &mut Random) -> crate::Corrupted {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(40u64.saturating_sub(10 * number)));
            Edits::new(original.ids).finish()
        }
    }

    #[test]
    fn batches_come_in_order_also_when_they_are_finished_in_another() {
        let folder = tempfile::tempdir().unwrap();
        let slow = Box::new(Slow(0.into()));
        let data = data_of(folder.path(), PairConfig::default().sampler(), Some(slow), 0.0);
        let mut batches = loader(&data, 1, 4, 8).batches(Cursor::default());
        let plan = plan_of(&data, 0);
        for place in 0..8 {
            let batch = batches.next().unwrap().unwrap();
            let tokens = data.examples().tokens(&plan.example(place));
            assert!(tokens.ids.iter().map(|id| *id as i32).eq(batch.tokens.input_ids().iter().copied()));
            assert_eq!(batches.cursor(), Cursor { epoch: 0, example: place + 1 });
        }
    }

    /// The sequences, masks undone.
    fn rows(batch: &PretrainingBatch) -> Vec<Vec<i32>> {
        let mut ids = batch.tokens.input_ids().to_vec();
        for (position, label) in batch.masked_positions.iter().zip(&batch.masked_labels) {
            ids[*position as usize] = *label;
        }
        let lengths = batch.tokens.starts().zip(batch.tokens.lengths());
        lengths.map(|(start, len)| ids[start..start + len].to_vec()).collect()
    }

    #[test]
    fn groups_have_their_own_batches_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let data = data(folder.path(), PairConfig::default(), 0.2);
        let (size, n_groups) = (4, 12);
        let all: Vec<_> = loader(&data, 7, 2, 3)
            .batches(Cursor::default())
            .map(|batch| rows(&batch.unwrap()))
            .take(48)
            .collect();
        for own in [0..4, 0..2, 2..4, 1..2, 3..3] {
            let mut groups = loader(&data, 7, 2, 3).groups(Cursor::default(), size, own.clone());
            let mut resumed = loader(&data, 7, 1, 1).batches(Cursor::default());
            for expected in all.chunks(size).take(n_groups) {
                let group = groups.next().unwrap().unwrap();
                let found: Vec<_> = group.iter().map(rows).collect();
                assert_eq!(found, expected[own.clone()], "{own:?}");
                resumed.by_ref().take(size).for_each(drop);
                assert_eq!(groups.cursor(), resumed.cursor(), "{own:?}");
            }
        }
    }

    #[test]
    fn every_epoch_has_each_example_once_whatever_the_batch_size() {
        let folder = tempfile::tempdir().unwrap();
        let data = data(folder.path(), PairConfig::default(), 0.2);
        let sorted = |mut rows: Vec<Vec<i32>>| {
            rows.sort();
            rows
        };
        let epochs: Vec<Vec<Vec<i32>>> = (0..3)
            .map(|epoch| {
                let plan = plan_of(&data, epoch);
                let examples: Vec<_> =
                    (0..plan.len()).map(|place| Placed { plan: &plan, epoch, place }).collect();
                sorted(rows(&data.assemble(&examples).unwrap()))
            })
            .collect();
        assert_ne!(epochs[0], epochs[1], "pairs are sampled anew");
        let n: usize = epochs.iter().map(Vec::len).sum();
        for batch_size in [1, 7, 1_000] {
            let batches = loader(&data, batch_size, 2, 3).batches(Cursor::default()).map(Result::unwrap);
            let all: Vec<_> = batches.take(n.div_ceil(batch_size)).flat_map(|batch| rows(&batch)).collect();
            let mut start = 0;
            for epoch in &epochs {
                assert_eq!(sorted(all[start..start + epoch.len()].to_vec()), *epoch);
                start += epoch.len();
            }
        }
    }

    #[test]
    fn full_sentences_are_the_text_with_separators_and_nothing_held_out() {
        let folder = tempfile::tempdir().unwrap();
        let data = data(folder.path(), PairConfig::FullSentences, 0.4);
        let batch = loader(&data, 100_000, 1, 1).one_pass(u64::MAX).unwrap().remove(0);
        let plan = plan_of(&data, 0);
        let mut in_order: Vec<(u64, Vec<i32>)> = rows(&batch)
            .into_iter()
            .enumerate()
            .map(|(i, row)| (plan.example(i as u64).first.start, row))
            .collect();
        in_order.sort();
        let (cls, sep) = (in_order[0].1[0], *in_order[0].1.last().unwrap());
        assert!(batch.tokens.token_type_ids().iter().all(|id| *id == 0) && batch.pair_labels.is_empty());
        let documents = data.examples().documents();
        let corpus = documents.corpus();
        assert!(documents.count() > 100 && documents.count() < 140);
        let mut separators = 0;
        let mut packed: Vec<i32> = Vec::new();
        for (_, row) in &in_order {
            assert_eq!((row[0], row[row.len() - 1]), (cls, sep));
            let inner = &row[1..row.len() - 1];
            separators += inner.iter().filter(|id| **id == sep).count();
            packed.extend(inner.iter().filter(|id| **id != sep));
        }
        let mut expected = Vec::new();
        for document in documents.iter() {
            for sentence in corpus.document(document) {
                expected.extend(corpus.tokens(corpus.sentence(sentence)).map(|(id, _)| id as i32));
            }
        }
        assert_eq!(packed, expected, "all of the part, nothing else");
        // A document's end is a separator, or the end of an example.
        let ends = in_order.len() + separators;
        assert!(separators > 20 && ends >= documents.count() as usize, "{separators} in {}", in_order.len());
    }

    #[test]
    fn pairs_have_their_special_tokens_and_types() {
        let folder = tempfile::tempdir().unwrap();
        let data = data(folder.path(), PairConfig::default(), 0.0);
        let batch = loader(&data, 50, 1, 1).batches(Cursor::default()).next().unwrap().unwrap();
        let plan = plan_of(&data, 0);
        let padded = batch.tokens.padded();
        assert!(padded.seq_len <= 30);
        for (place, row) in rows(&batch).into_iter().enumerate() {
            let example = plan.example(place as u64);
            let tokens = |range| data.examples().documents().corpus().tokens(range).map(|(id, _)| id as i32);
            let (cls, sep) = (row[0], row[row.len() - 1]);
            let mut expected = vec![cls];
            expected.extend(tokens(example.first.clone()));
            expected.push(sep);
            let first = expected.len();
            expected.extend(tokens(example.second.clone()));
            expected.push(sep);
            assert_eq!(row, expected);
            let types = &padded.token_type_ids[place * padded.seq_len..(place + 1) * padded.seq_len];
            let ones = types.iter().enumerate().filter(|(_, id)| **id == 1).map(|(at, _)| at);
            assert!(ones.eq(first..row.len()));
            assert_eq!(batch.pair_labels[place], i32::from(example.label));
        }
        let padding = padded.pad_mask.iter().filter(|pad| **pad).count() as u64;
        assert_eq!(batch.stats.padding, padding);
        assert_eq!(batch.stats.tokens + padding, padded.input_ids.len() as u64);
    }
}
