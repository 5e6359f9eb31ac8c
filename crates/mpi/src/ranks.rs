//! The processes of an MPI job as replicas.

use crate::launcher::launched;
#[cfg(feature = "nccl")]
use crate::nccl::Told;
use crate::wire::{self, Command, Limit};
use cloze_trainer::engine::replicas::Replicas;
use cloze_trainer::{Result, TrainerError};
#[cfg(feature = "nccl")]
use crossbeam_channel::{Receiver, never};
use crossbeam_channel::{Sender, bounded, unbounded};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a rank may give no sign of life, unless [`Replicas::wait_at_most`] says otherwise.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Why there are no ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// MPI is already in use in this process.
    #[error("MPI was started in this process before")]
    Started,
    /// Another MPI's launcher.
    #[error(
        "{launcher} started {size} processes, and each believes itself alone: this program is linked to another MPI \
         ({library}); use that one's mpirun"
    )]
    OtherLauncher {
        /// The launcher.
        launcher: &'static str,
        /// Its processes.
        size: usize,
        /// The MPI library that the program is linked to.
        library: String,
    },
    /// The thread that talks to MPI could not be started, or is gone.
    #[error("the thread for MPI cannot be started")]
    Thread,
}

/// The processes that an MPI launcher has started, this one among them.
///
/// One thread talks to MPI (`MPI_THREAD_FUNNELED`). It also tells other ranks that this one is alive, so that a rank that
/// computes for long is told from one that is stopped or gone.
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    hosts: Vec<String>,
    commands: Sender<Command>,
    limit: Arc<Limit>,
    /// The rank that was lost, if any.
    lost: OnceLock<usize>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Mpi {
    /// Joins the other processes. Every process of the job must do so, once.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start() -> std::result::Result<Self, StartError> {
        let (commands, receiver) = unbounded();
        let (started, world) = bounded(1);
        let thread = thread::Builder::new().name("mpi".into());
        let limit = Arc::new(Limit::new(TIMEOUT));
        let own = Arc::clone(&limit);
        let thread = thread.spawn(move || wire::run(&own, &started, &receiver));
        let thread = thread.map_err(|_| StartError::Thread)?;
        let world = world.recv().map_err(|_| StartError::Thread)?.ok_or(StartError::Started)?;
        let size = world.hosts.len();
        if let Some(launched) = launched().filter(|launched| launched.size > 1 && size == 1) {
            let (launcher, library) = (launched.launcher, world.library);
            return Err(StartError::OtherLauncher { launcher, size: launched.size, library });
        }
        let thread = Mutex::new(Some(thread));
        Ok(Self { rank: world.rank, hosts: world.hosts, commands, limit, lost: OnceLock::new(), thread })
    }

    /// The name of each rank's machine.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// How many ranks run on this one's machine.
    pub fn n_beside(&self) -> usize {
        self.hosts.iter().filter(|host| **host == self.hosts[self.rank]).count()
    }

    /// How many ranks with lower numbers run on this one's machine.
    #[cfg(feature = "nccl")]
    pub(crate) fn n_before(&self) -> usize {
        self.hosts[..self.rank].iter().filter(|host| **host == self.hosts[self.rank]).count()
    }

    /// The rank that gives no sign of life, if an exchange has failed.
    pub fn lost(&self) -> Option<usize> {
        self.lost.get().copied()
    }

    /// The error of a rank that gives no sign of life.
    fn lose(&self, rank: usize) -> TrainerError {
        let _ = self.lost.set(rank);
        TrainerError::Replicas { problem: format!("stopped: {} gives no sign of life", self.name(rank)) }
    }

    /// Waits for an answer that depends on other ranks, but does not come through MPI. Each thing that is told in the
    /// meantime shows that something moves; without any, the wait ends after the time that a rank may be silent for, and
    /// not before `at_least`: then the result is None.
    ///
    /// # Errors
    /// A rank that gives no sign of life.
    #[cfg(feature = "nccl")]
    pub(crate) fn watched<T>(
        &self,
        told: &Receiver<Told<T>>,
        at_least: Duration,
    ) -> Result<Option<std::result::Result<T, String>>> {
        // Closed at the end of this function, which ends the watch.
        let (_over, is_over) = bounded(0);
        let (lost, of_lost) = bounded(1);
        let watch = Command::Watch { over: is_over, lost };
        self.commands.send(watch).map_err(|_| Self::gone())?;
        let mut watching = of_lost;
        loop {
            crossbeam_channel::select! {
                recv(told) -> told => match told {
                    Ok(Told::Moves) => {}
                    Ok(Told::Done(result)) => return Ok(Some(result)),
                    // A panic of that thread was printed.
                    Err(_) => return Ok(Some(Err("its thread is gone".into()))),
                },
                recv(watching) -> rank => match rank {
                    Ok(rank) => return Err(self.lose(rank)),
                    Err(_) => watching = never(),
                },
                default(self.limit.get().max(at_least)) => return Ok(None),
            }
        }
    }

    fn gone() -> TrainerError {
        TrainerError::Replicas { problem: "ended: the thread for MPI is gone".into() }
    }

    /// Leaves the job when all ranks do.
    pub fn finish(&self) {
        let _ = self.commands.send(Command::Finish);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic of that thread was printed.
        thread.map(JoinHandle::join);
    }

    /// Ends all processes of the job now, this one with exit status `code`; this one alone if it has left the job.
    pub fn abort(&self, code: i32) -> ! {
        let _ = self.commands.send(Command::Abort(code));
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.map(JoinHandle::join);
        std::process::exit(code)
    }
}

impl Replicas for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.hosts.len()
    }

    fn exchange(&self, messages: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>> {
        let (answer, answered) = bounded(1);
        self.commands.send(Command::Exchange { messages, answer }).map_err(|_| Self::gone())?;
        let received = answered.recv().map_err(|_| Self::gone())?;
        received.map_err(|rank| self.lose(rank))
    }

    fn name(&self, rank: usize) -> String {
        format!("rank {rank} on {}", self.hosts[rank])
    }

    fn wait_at_most(&self, limit: Duration) {
        self.limit.set(limit);
    }
}
