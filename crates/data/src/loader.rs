//! Batches ahead of their use, on worker threads, in order.

use crate::batch::{Cursor, PretrainingBatch, PretrainingData};
use crate::pairs::Example;
use crate::plan::Plan;
use crate::{DataError, Result};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// An endless sequence of batches over epoch after epoch.
///
/// One thread reads the plans and says which examples make which batch; workers assemble them; the
/// iterator hands them out in order, so the batches do not depend on the number of workers. It ends after
/// the first error. Dropping it ends the threads soon, also one that makes a plan.
#[derive(Debug)]
pub struct Batches {
    done: Receiver<(u64, Result<PretrainingBatch>)>,
    /// One entry a batch under way or waiting: bounds their number, also when one of them takes long.
    under_way: Receiver<()>,
    early: BTreeMap<u64, Result<PretrainingBatch>>,
    next: u64,
    /// Ends a plan that is being made.
    stop: Arc<AtomicBool>,
}

/// One batch to assemble: its number, its examples, and where the next one starts.
type Order = (u64, Result<Vec<(u64, u64, Example)>>, Cursor);

impl PretrainingData {
    /// Batches of `batch_size` examples from a position on, made by `workers` threads, up to `ahead`
    /// of them waiting, besides one in each worker. A batch runs on across the end of an epoch: nothing is dropped.
    pub fn batches(
        self: &Arc<Self>,
        batch_size: usize,
        from: Cursor,
        workers: usize,
        ahead: usize,
    ) -> Batches {
        let workers = workers.max(1);
        let (orders, work) = bounded::<Order>(ahead.max(1));
        let (finished, done) = unbounded();
        let (begun, under_way) = bounded(ahead.max(1).saturating_add(workers));
        let stop = Arc::new(AtomicBool::new(false));
        let (data, stopped) = (self.clone(), stop.clone());
        thread::spawn(move || sequence(&data, batch_size.max(1), from, &orders, &begun, &stopped));
        for _ in 0..workers {
            let (data, work, finished) = (self.clone(), work.clone(), finished.clone());
            thread::spawn(move || {
                for (number, examples, next) in work {
                    let _batch = tracing::trace_span!("make a batch").entered();
                    let batch = examples.and_then(|examples| {
                        catch_unwind(AssertUnwindSafe(|| data.assemble(&examples, next)))
                            .map_err(|panic| DataError::Worker { message: message(&*panic) })
                    });
                    if finished.send((number, batch)).is_err() {
                        return;
                    }
                }
            });
        }
        Batches { done, under_way, early: BTreeMap::new(), next: 0, stop }
    }

    /// The first `max_examples` examples of the first epoch in batches: the same every time.
    ///
    /// # Errors
    /// A plan that cannot be made.
    pub fn one_pass(&self, batch_size: usize, max_examples: u64) -> Result<Vec<PretrainingBatch>> {
        let plan = self.plan(0, &AtomicBool::new(false))?;
        let places: Vec<u64> = (0..plan.len().min(max_examples)).collect();
        Ok(places
            .chunks(batch_size.max(1))
            .map(|places| {
                let examples: Vec<_> = places.iter().map(|place| (0, *place, plan.example(*place))).collect();
                self.assemble(&examples, Cursor::default())
            })
            .collect())
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Iterator for Batches {
    type Item = Result<PretrainingBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.early.remove(&self.next) {
                self.next += 1;
                let _ = self.under_way.try_recv();
                return Some(batch);
            }
            let (number, batch) = self.done.recv().ok()?;
            self.early.insert(number, batch);
        }
    }
}

/// Hands out the examples of batch after batch until nobody listens.
fn sequence(
    data: &Arc<PretrainingData>,
    batch_size: usize,
    from: Cursor,
    orders: &Sender<Order>,
    begun: &Sender<()>,
    stop: &Arc<AtomicBool>,
) {
    let build = |epoch: u64| {
        let (data, stop) = (data.clone(), stop.clone());
        thread::spawn(move || data.plan(epoch, &stop))
    };
    let mut cursor = from;
    let mut plan: Option<Plan> = None;
    let mut ahead = build(cursor.epoch);
    for number in 0.. {
        let mut examples = Vec::with_capacity(batch_size);
        let mut failure = None;
        while examples.len() < batch_size {
            let current = match &plan {
                Some(plan) if cursor.example < plan.len() => plan,
                finished => {
                    if finished.is_some() {
                        cursor = Cursor { epoch: cursor.epoch + 1, example: 0 };
                    }
                    // The next epoch's plan is made while this one is used.
                    let following = build(cursor.epoch + 1);
                    let made = std::mem::replace(&mut ahead, following).join();
                    match made.unwrap_or_else(|panic| Err(DataError::Worker { message: message(&*panic) })) {
                        Ok(made) => plan.insert(made),
                        Err(error) => {
                            failure = Some(error);
                            break;
                        }
                    }
                }
            };
            if cursor.example < current.len() {
                examples.push((cursor.epoch, cursor.example, current.example(cursor.example)));
                cursor.example += 1;
            }
        }
        let failed = failure.is_some();
        let examples = failure.map_or(Ok(examples), Err);
        if begun.send(()).is_err() || orders.send((number, examples, cursor)).is_err() || failed {
            return;
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CorpusConfig, Documents, ExampleConfig, MaskingConfig, PairConfig, PreparedCorpus, Silent, Split,
        UnigramCounts,
    };
    use cloze_tokenizer::train::WordPieceTrainer;
    use std::path::Path;
    use std::time::{Duration, Instant};

    fn data(folder: &Path, pairs: PairConfig, held_out: f64) -> PretrainingData {
        let text: String = (0..200).map(|i| format!("Text {i} begins. It goes on, no. {i}.\n\n")).collect();
        std::fs::write(folder.join("a.txt"), &text).unwrap();
        let tokenizer = WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([text]).unwrap();
        let corpus = CorpusConfig { files: vec!["a.txt".into()], ..Default::default() };
        let (corpus, _) =
            PreparedCorpus::prepare(&corpus, folder, &tokenizer, &folder.join("cache"), &Silent).unwrap();
        let documents = Documents::new(Arc::new(corpus), Split::Train, held_out, 1).unwrap();
        let unigram = Arc::new(UnigramCounts::new(&documents, tokenizer.vocab_size()));
        let config = ExampleConfig { seq_len: 30, pairs, masking: MaskingConfig::default() };
        PretrainingData::new(documents, config, &tokenizer, unigram, 1, folder.join("plans")).unwrap()
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
        let data = Arc::new(data(folder.path(), PairConfig::default(), 0.0));
        for taken in [0, 1, 50] {
            let mut batches = data.batches(4, Cursor::default(), 3, 2);
            assert_eq!(batches.by_ref().take(taken).count(), taken);
            drop(batches);
            assert_threads_end(&data);
        }
    }

    #[test]
    fn dropping_the_iterator_ends_a_plan_that_is_being_made() {
        struct Endless;
        impl crate::PairSampler for Endless {
            fn examples(
                &self,
                _: &Documents,
                _: usize,
                _: u64,
                emit: &mut dyn FnMut(Example) -> Result<()>,
            ) -> Result<()> {
                loop {
                    emit(Example { first: 0..1, ..Example::default() })?;
                    thread::sleep(Duration::from_micros(100));
                }
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let mut data = data(folder.path(), PairConfig::DocSentences, 0.0);
        data.sampler = Box::new(Endless);
        let data = Arc::new(data);
        let batches = data.batches(4, Cursor::default(), 3, 2);
        thread::sleep(Duration::from_millis(20));
        drop(batches);
        assert_threads_end(&data);
    }

    #[test]
    fn no_more_is_made_than_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let data = Arc::new(data(folder.path(), PairConfig::default(), 0.0));
        let mut batches = data.batches(1, Cursor::default(), 2, 3);
        for _ in 0..20 {
            batches.next().unwrap().unwrap();
            thread::sleep(Duration::from_millis(5));
            assert!(batches.done.len() + batches.early.len() <= 3 + 2);
        }
    }

    #[test]
    fn an_error_in_a_plan_reaches_the_consumer_and_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let data = Arc::new(data(folder.path(), PairConfig::DocSentences, 0.0));
        let n = data.plan(0, &AtomicBool::new(false)).unwrap().len();
        std::fs::remove_dir_all(folder.path().join("plans")).unwrap();
        std::fs::write(folder.path().join("plans"), "a file in the way").unwrap();
        let mut batches = data.batches(4, Cursor { epoch: 0, example: n - 1 }, 2, 2);
        let message = batches.next().unwrap().unwrap_err().to_string();
        assert_eq!(message, format!("cannot make {}", folder.path().join("plans").display()));
        assert!(batches.next().is_none());
        assert_threads_end(&data);
    }

    /// A sampler that a user may write.
    struct Broken;

    impl crate::PairSampler for Broken {
        fn examples(
            &self,
            documents: &Documents,
            _: usize,
            seed: u64,
            emit: &mut dyn FnMut(Example) -> Result<()>,
        ) -> Result<()> {
            let end = documents.corpus().n_tokens();
            // Beyond the corpus' end in the first epoch, a panic in later ones.
            assert!(seed == crate::derive_seed(1, &[0xE8A1, 0]), "a sampler that panics");
            emit(Example { first: end - 1..end + 5, second: end - 1..end, ..Example::default() })?;
            emit(Example { first: 0..90, ..Example::default() })
        }
    }

    #[test]
    fn a_panic_of_a_sampler_is_an_error_of_the_batch() {
        let folder = tempfile::tempdir().unwrap();
        let mut data = data(folder.path(), PairConfig::DocSentences, 0.0);
        data.sampler = Box::new(Broken);
        let data = Arc::new(data);
        let results: Vec<_> = data.batches(2, Cursor::default(), 2, 2).collect();
        // Too long a range is the strategy's own affair: it is there as it is.
        assert_eq!(results[0].as_ref().unwrap().batch_size, 2);
        assert_eq!(
            results[1].as_ref().unwrap_err().to_string(),
            "a data worker failed: a sampler that panics"
        );
        assert_eq!(results.len(), 2);
        assert_threads_end(&data);
    }

    /// Takes longest for the first batches.
    struct Slow(std::sync::atomic::AtomicU64);

    impl crate::MaskingStrategy for Slow {
        fn mask(
            &self,
            _: crate::Masked<'_>,
            _: &mut rand_pcg::Pcg64Mcg,
            stats: &mut crate::MaskStats,
        ) -> Vec<crate::Prediction> {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(40u64.saturating_sub(10 * number)));
            stats.predicted += 1;
            Vec::new()
        }
    }

    #[test]
    fn batches_come_in_order_also_when_they_are_finished_in_another() {
        let folder = tempfile::tempdir().unwrap();
        let mut data = data(folder.path(), PairConfig::default(), 0.0);
        data.masking = Box::new(Slow(0.into()));
        let batches: Vec<_> = Arc::new(data).batches(1, Cursor::default(), 4, 8).take(8).collect();
        let at: Vec<u64> = batches.into_iter().map(|batch| batch.unwrap().next.example).collect();
        assert_eq!(at, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    /// What stands between `[CLS]` and padding, masks undone.
    fn rows(batch: &PretrainingBatch) -> Vec<Vec<i32>> {
        let mut ids = batch.input_ids.clone();
        for (position, label) in batch.masked_positions.iter().zip(&batch.masked_labels) {
            ids[*position as usize] = *label;
        }
        let rows = ids.chunks(batch.seq_len).zip(batch.pad_mask.chunks(batch.seq_len));
        rows.map(|(ids, pad)| ids.iter().zip(pad).filter(|(_, pad)| !**pad).map(|(id, _)| *id).collect())
            .collect()
    }

    #[test]
    fn every_epoch_has_each_example_once_whatever_the_batch_size() {
        let folder = tempfile::tempdir().unwrap();
        let data = Arc::new(data(folder.path(), PairConfig::default(), 0.2));
        let sorted = |mut rows: Vec<Vec<i32>>| {
            rows.sort();
            rows
        };
        let epochs: Vec<Vec<Vec<i32>>> = (0..3)
            .map(|epoch| {
                let plan = data.plan(epoch, &AtomicBool::new(false)).unwrap();
                let examples: Vec<_> =
                    (0..plan.len()).map(|place| (epoch, place, plan.example(place))).collect();
                sorted(rows(&data.assemble(&examples, Cursor::default())))
            })
            .collect();
        assert_ne!(epochs[0], epochs[1], "pairs are sampled anew");
        let n: usize = epochs.iter().map(Vec::len).sum();
        for batch_size in [1, 7, 1_000] {
            let batches = data.batches(batch_size, Cursor::default(), 2, 3).map(Result::unwrap);
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
        let data = Arc::new(data(folder.path(), PairConfig::FullSentences, 0.4));
        let batch = data.one_pass(100_000, u64::MAX).unwrap().remove(0);
        let plan = data.plan(0, &AtomicBool::new(false)).unwrap();
        let mut in_order: Vec<(u64, Vec<i32>)> = rows(&batch)
            .into_iter()
            .enumerate()
            .map(|(i, row)| (plan.example(i as u64).first.start, row))
            .collect();
        in_order.sort();
        let (cls, sep) = (in_order[0].1[0], *in_order[0].1.last().unwrap());
        assert!(batch.token_type_ids.iter().all(|id| *id == 0) && batch.pair_labels.is_empty());
        let documents = &data.documents;
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
        let data = Arc::new(data(folder.path(), PairConfig::default(), 0.0));
        let batch = data.batches(50, Cursor::default(), 1, 1).next().unwrap().unwrap();
        let plan = data.plan(0, &AtomicBool::new(false)).unwrap();
        assert!(batch.seq_len <= 30);
        for (place, row) in rows(&batch).into_iter().enumerate() {
            let example = plan.example(place as u64);
            let tokens = |range| data.documents.corpus().tokens(range).map(|(id, _)| id as i32);
            let (cls, sep) = (row[0], row[row.len() - 1]);
            let mut expected = vec![cls];
            expected.extend(tokens(example.first.clone()));
            expected.push(sep);
            let first = expected.len();
            expected.extend(tokens(example.second.clone()));
            expected.push(sep);
            assert_eq!(row, expected);
            let types = &batch.token_type_ids[place * batch.seq_len..(place + 1) * batch.seq_len];
            let ones = types.iter().enumerate().filter(|(_, id)| **id == 1).map(|(at, _)| at);
            assert!(ones.eq(first..row.len()));
            assert_eq!(batch.pair_labels[place], i32::from(example.label));
        }
        let padding = batch.pad_mask.iter().filter(|pad| **pad).count() as u64;
        assert_eq!(batch.stats.padding, padding);
        assert_eq!(batch.stats.tokens + padding, batch.input_ids.len() as u64);
    }
}
