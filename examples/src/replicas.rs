//! Replicas: two threads that make each step together, each with half of its micro-batches. They end with the bits of one
//! process that has them all, as the sum of two numbers does not depend on their order.
//!
//! What [`Threads`] does with a lock, another crate does over a network: the engine asks for sums, and for nothing else.

use crate::neural_lm;
use cloze_trainer::engine::replicas::Replicas;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::metrics::progress::{RunProgress, Silent};
use cloze_trainer::{Result, TrainerError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Micro-batches of a step, of all replicas together.
pub const ACCUMULATE: usize = 2;

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

/// A sum under way.
#[derive(Debug)]
struct Round {
    number: u64,
    /// What each thread has brought.
    parts: Vec<Option<Vec<f64>>>,
    /// The sum of the round before.
    sum: Vec<f64>,
    is_broken: bool,
}

impl Threads {
    /// So many, in the order of their ranks.
    pub fn new(size: usize) -> Vec<Self> {
        let round = Round { number: 0, parts: vec![None; size], sum: Vec::new(), is_broken: false };
        let meeting = Arc::new(Meeting { round: Mutex::new(round), turned: Condvar::new() });
        (0..size).map(|rank| Self { rank, meeting: meeting.clone() }).collect()
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.meeting.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all threads' values, and adds them in the order of ranks.
    fn meet(&self, values: Vec<f64>, add: fn(f64, f64) -> f64) -> Result<Vec<f64>> {
        let mut round = self.round();
        let number = round.number;
        round.parts[self.rank] = Some(values);
        if round.parts.iter().all(Option::is_some) {
            let parts = round.parts.iter_mut().filter_map(Option::take);
            let sum = parts.reduce(|sum, part| sum.into_iter().zip(part).map(|(a, b)| add(a, b)).collect());
            round.sum = sum.unwrap_or_default();
            round.number += 1;
            self.meeting.turned.notify_all();
        }
        while round.number == number && !round.is_broken {
            round = self.meeting.turned.wait(round).unwrap_or_else(PoisonError::into_inner);
        }
        match round.number == number {
            true => Err(TrainerError::Replicas { problem: "ended: another thread is gone".into() }),
            false => Ok(round.sum.clone()),
        }
    }
}

impl Replicas for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.round().parts.len()
    }

    fn sum(&self, values: &mut [f64]) -> Result<()> {
        values.copy_from_slice(&self.meet(values.to_vec(), |a, b| a + b)?);
        Ok(())
    }

    fn sum_gradients(&self, values: &mut [f32]) -> Result<()> {
        let wide = values.iter().map(|x| f64::from(*x)).collect();
        // Rounded after each addition, as a sum of 32-bit numbers is.
        let sum = self.meet(wide, |a, b| f64::from(a as f32 + b as f32))?;
        values.iter_mut().zip(sum).for_each(|(value, sum)| *value = sum as f32);
        Ok(())
    }
}

impl Drop for Threads {
    /// Nobody waits for a thread that is gone.
    fn drop(&mut self) {
        self.round().is_broken = true;
        self.meeting.turned.notify_all();
    }
}

/// Trains the [neural language model](neural_lm) in two threads. The second has a folder beside the first one's.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    let [first, second] = <[Threads; 2]>::try_from(Threads::new(2)).expect("two");
    let mut beside = options.folder.clone().into_os_string();
    beside.push("-replica-1");
    let mut other = options.clone().replicas(Arc::new(second));
    other.folder = beside.into();
    let options = options.clone().replicas(Arc::new(first));
    thread::scope(|scope| {
        let other = scope.spawn(move || neural_lm::train_with(steps, ACCUMULATE, &other, &mut Silent));
        let outcome = neural_lm::train_with(steps, ACCUMULATE, &options, progress);
        match other.join() {
            Ok(other) => other.and(outcome),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
