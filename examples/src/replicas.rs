//! Replicas: two threads that make each step together, each with half of its six micro-batches. They end with the bits of one
//! process that has them all.
//!
//! What [`Threads`] does with a lock, another crate does over a network: the engine asks for messages to be carried, and
//! for nothing else.

use crate::neural_lm;
use cloze_trainer::engine::replicas::Replicas;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::metrics::progress::{RunProgress, Silent};
use cloze_trainer::{Result, TrainerError};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Micro-batches of a step, of all replicas together.
pub const ACCUMULATE: usize = 6;

/// One of several replicas in threads of this process.
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    meeting: Arc<Meeting>,
}

/// Where the threads meet.
#[derive(Debug)]
struct Meeting {
    round: Mutex<Round>,
    /// A round is over, or a thread is gone.
    turned: Condvar,
}

/// An exchange under way.
#[derive(Debug)]
struct Round {
    number: u64,
    /// What each thread sends to each.
    sent: Vec<Option<Vec<Vec<u32>>>>,
    /// What each thread has got in the round before.
    received: Vec<Vec<Vec<u32>>>,
    is_broken: bool,
}

impl Threads {
    /// So many, in the order of their ranks.
    pub fn new(size: usize) -> Vec<Self> {
        let round = Round { number: 0, sent: vec![None; size], received: Vec::new(), is_broken: false };
        let meeting = Arc::new(Meeting { round: Mutex::new(round), turned: Condvar::new() });
        (0..size).map(|rank| Self { rank, meeting: meeting.clone() }).collect()
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.meeting.round.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replicas for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.round().sent.len()
    }

    fn exchange(&self, messages: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>> {
        let mut round = self.round();
        let number = round.number;
        round.sent[self.rank] = Some(messages);
        if round.sent.iter().all(Option::is_some) {
            // The last one hands out what all have sent.
            let size = round.sent.len();
            let sent: Vec<Vec<Vec<u32>>> = round.sent.iter_mut().filter_map(Option::take).collect();
            round.received = vec![Vec::with_capacity(size); size];
            for messages in sent {
                for (received, message) in round.received.iter_mut().zip(messages) {
                    received.push(message);
                }
            }
            round.number += 1;
            self.meeting.turned.notify_all();
        }
        while round.number == number && !round.is_broken {
            round = self.meeting.turned.wait(round).unwrap_or_else(PoisonError::into_inner);
        }
        match round.number == number {
            true => Err(TrainerError::Replicas { problem: "ended: another thread is gone".into() }),
            false => Ok(std::mem::take(&mut round.received[self.rank])),
        }
    }
}

impl Drop for Threads {
    /// Nobody waits for a thread that is gone.
    fn drop(&mut self) {
        self.round().is_broken = true;
        self.meeting.turned.notify_all();
    }
}

/// Trains the [neural language model](neural_lm) in two threads.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    run_with(2, steps, options, progress)
}

/// Trains it in so many threads. All but the first have folders beside the run's, which are removed at the end.
pub fn run_with(
    size: usize,
    steps: u64,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let train = |replica: Threads, folder: PathBuf, progress: &mut dyn RunProgress| {
        // The first one resumes for all.
        let resume = options.resume && replica.rank == 0;
        let mut options = options.clone().resume(resume).replicas(Arc::new(replica));
        options.folder = folder;
        neural_lm::train_with(steps, ACCUMULATE, &options, progress)
    };
    thread::scope(|scope| {
        let mut replicas = Threads::new(size).into_iter();
        let first = replicas.next();
        let others: Vec<_> = replicas
            .map(|replica| {
                let folder = options.folder.with_extension(format!("replica-{}", replica.rank));
                scope.spawn(move || {
                    let outcome = train(replica, folder.clone(), &mut Silent);
                    // Nothing in it is needed.
                    let _ = std::fs::remove_dir_all(folder);
                    outcome
                })
            })
            .collect();
        let outcome = match first {
            Some(first) => train(first, options.folder.clone(), progress),
            None => Err(TrainerError::Replicas { problem: "are none".into() }),
        };
        let others = others.into_iter().map(|other| match other.join() {
            Ok(other) => other.map(drop),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        others.collect::<Result<()>>().and(outcome)
    })
}
