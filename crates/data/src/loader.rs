//! Batches ahead of their use, on worker threads, in order.

use crate::batch::{Cursor, PretrainingBatch, PretrainingData};
use crate::pairs::Example;
use crate::plan::Plan;
use crate::{DataError, Result};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

/// An endless sequence of batches over epoch after epoch.
///
/// One thread reads the plans and says which examples make which batch; workers assemble them; the
/// iterator hands them out in order, so the batches do not depend on the number of workers. Dropping
/// it ends the threads.
#[derive(Debug)]
pub struct Batches {
    done: Receiver<(u64, Result<PretrainingBatch>)>,
    early: BTreeMap<u64, Result<PretrainingBatch>>,
    next: u64,
}

/// One batch to assemble: its number, its examples, and where the next one starts.
type Order = (u64, Result<Vec<(u64, u64, Example)>>, Cursor);

impl PretrainingData {
    /// Batches of `batch_size` examples from a position on, made by `workers` threads, up to `ahead`
    /// of them waiting. A batch runs on across the end of an epoch: nothing is dropped.
    pub fn batches(
        self: &Arc<Self>,
        batch_size: usize,
        from: Cursor,
        workers: usize,
        ahead: usize,
    ) -> Batches {
        let (orders, work) = bounded::<Order>(ahead.max(1));
        let (finished, done) = bounded(ahead.max(1));
        let data = self.clone();
        thread::spawn(move || sequence(&data, batch_size.max(1), from, &orders));
        for _ in 0..workers.max(1) {
            let (data, work, finished) = (self.clone(), work.clone(), finished.clone());
            thread::spawn(move || {
                for (number, examples, next) in work {
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
        Batches { done, early: BTreeMap::new(), next: 0 }
    }

    /// The first `max_examples` examples of the first epoch in batches: the same every time.
    ///
    /// # Errors
    /// A plan that cannot be made.
    pub fn one_pass(&self, batch_size: usize, max_examples: u64) -> Result<Vec<PretrainingBatch>> {
        let plan = self.plan(0)?;
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

impl Iterator for Batches {
    type Item = Result<PretrainingBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.early.remove(&self.next) {
                self.next += 1;
                return Some(batch);
            }
            let (number, batch) = self.done.recv().ok()?;
            self.early.insert(number, batch);
        }
    }
}

/// Hands out the examples of batch after batch until nobody listens.
fn sequence(data: &Arc<PretrainingData>, batch_size: usize, from: Cursor, orders: &Sender<Order>) {
    let build = |epoch: u64| {
        let data = data.clone();
        thread::spawn(move || data.plan(epoch))
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
        if orders.send((number, examples, cursor)).is_err() || failed {
            return;
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_string()
}
