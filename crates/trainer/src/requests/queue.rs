use super::Respond;
use crate::{Result, TrainerError};
use cloze_ops::{Precision, with_precision};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// A model that answers requests of any number of threads, with a thread of its own that computes. When it is dropped, it ends
/// after what was asked before.
#[derive(Debug)]
pub struct Queue<R: Respond> {
    model: Arc<R>,
    /// None once the queue is being dropped.
    units: Option<Sender<Asked<R>>>,
    worker: Option<JoinHandle<()>>,
}

/// A unit, and where its answer is waited for.
#[derive(Debug)]
struct Asked<R: Respond> {
    unit: R::Unit,
    answer: Sender<Result<R::Answer>>,
}

impl<R: Respond> Queue<R> {
    /// A queue that computes units of `budget` tokens at a time, or one unit that has more.
    ///
    /// # Panics
    /// If the system gives no thread.
    pub fn new(model: R, budget: usize) -> Self {
        Self::in_precision(model, budget, Precision::Fp32)
    }

    /// The same with matrix products in this precision.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn in_precision(model: R, budget: usize, precision: Precision) -> Self {
        let model = Arc::new(model);
        let (units, waiting) = channel();
        let worker = Worker { model: model.clone(), budget, waiting };
        let worker = Builder::new()
            .name("cloze-queue".into())
            .spawn(move || with_precision(precision, || worker.work()))
            .expect("the system has a thread");
        Self { model, units: Some(units), worker: Some(worker) }
    }

    /// The model.
    pub fn model(&self) -> &R {
        &self.model
    }

    /// The answer to a request. It is encoded on this thread, which then waits.
    ///
    /// # Errors
    /// Whatever is wrong with the request or its answer; [`TrainerError::Panicked`].
    pub fn ask(&self, request: R::Request) -> Result<R::Answer> {
        let encoded = catch_unwind(AssertUnwindSafe(|| self.model.encode(request)));
        let unit = encoded.unwrap_or_else(|panic| Err(panicked(&*panic)))?;
        let (answer, receiver) = channel();
        let asked = Asked { unit, answer };
        self.units.as_ref().expect("not dropped").send(asked).expect("the worker outlives the queue");
        receiver.recv().expect("every unit is answered")
    }
}

impl<R: Respond> Drop for Queue<R> {
    fn drop(&mut self) {
        self.units = None;
        if let Some(worker) = self.worker.take() {
            // It catches what panics.
            let _ = worker.join();
        }
    }
}

/// What computes.
struct Worker<R: Respond> {
    model: Arc<R>,
    budget: usize,
    waiting: Receiver<Asked<R>>,
}

impl<R: Respond> Worker<R> {
    /// Computes what waits, until no more is asked.
    fn work(self) {
        let mut next = None;
        while let Some(first) = next.take().or_else(|| self.waiting.recv().ok()) {
            let mut tokens = self.model.cost(&first.unit);
            let (mut units, mut answers) = (vec![first.unit], vec![first.answer]);
            while let Ok(asked) = self.waiting.try_recv() {
                tokens += self.model.cost(&asked.unit);
                if tokens > self.budget {
                    next = Some(asked);
                    break;
                }
                units.push(asked.unit);
                answers.push(asked.answer);
            }
            for (answer, result) in answers.into_iter().zip(self.answers(&units)) {
                // Whoever asked may have gone.
                let _ = answer.send(result);
            }
        }
    }

    /// An answer for each unit. Where some panic together, each is computed alone.
    fn answers(&self, units: &[R::Unit]) -> Vec<Result<R::Answer>> {
        match catch_unwind(AssertUnwindSafe(|| self.model.answer(units))) {
            Ok(answers) if answers.len() == units.len() => answers,
            Ok(answers) => {
                let reason = format!("{} answers to {} requests", answers.len(), units.len());
                units.iter().map(|_| Err(TrainerError::Panicked { reason: reason.clone() })).collect()
            }
            Err(panic) if units.len() == 1 => vec![Err(panicked(&*panic))],
            Err(_) => units.chunks(1).flat_map(|unit| self.answers(unit)).collect(),
        }
    }
}

/// The error of a panic, with its message.
fn panicked(panic: &(dyn std::any::Any + Send)) -> TrainerError {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
    TrainerError::Panicked { reason: message.unwrap_or("no message").into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    /// Answers a number's square; 13 panics, and numbers from 1,000 on are refused.
    #[derive(Debug, Default)]
    struct Squares {
        most: AtomicUsize,
    }

    impl Respond for Squares {
        type Request = usize;
        type Unit = usize;
        type Answer = usize;

        fn encode(&self, request: usize) -> Result<usize> {
            match request {
                0..1_000 => Ok(request),
                _ => Err(TrainerError::BadInput { problem: "too large".into() }),
            }
        }

        fn cost(&self, unit: &usize) -> usize {
            unit % 7 + 1
        }

        fn answer(&self, units: &[usize]) -> Vec<Result<usize>> {
            assert!(!units.contains(&13), "unlucky");
            let tokens = units.iter().map(|unit| self.cost(unit)).sum();
            self.most.fetch_max(tokens, Ordering::Relaxed);
            units.iter().map(|unit| Ok(unit * unit)).collect()
        }
    }

    #[test]
    fn each_thread_gets_its_answer_and_bad_ones_fail_alone() {
        let queue = Queue::new(Squares::default(), 40);
        let answers: Vec<(usize, Result<usize>)> = thread::scope(|scope| {
            let ask = |thread: usize| {
                let queue = &queue;
                let of_thread = (0..30).map(move |i| thread * 30 + i);
                scope.spawn(move || of_thread.map(|n| (n, queue.ask(n))).collect::<Vec<_>>())
            };
            let threads: Vec<_> = (0..64).map(ask).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(answers.len(), 64 * 30);
        for (n, answer) in answers {
            match (n, answer) {
                (13, answer) => assert!(answer.unwrap_err().to_string().contains("unlucky")),
                (1_000.., answer) => assert!(answer.unwrap_err().to_string().contains("too large")),
                (n, answer) => assert_eq!(answer.unwrap(), n * n),
            }
        }
        let most = queue.model().most.load(Ordering::Relaxed);
        assert!(most <= 40, "{most}");
    }
}
