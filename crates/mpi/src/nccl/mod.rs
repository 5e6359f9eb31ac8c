//! Ranks whose long messages go by NCCL.

mod gpu;

use crate::by_length::{self, Way};
use crate::launcher::launched;
use crate::pieces;
use crate::ranks::Mpi;
use cloze_trainer::engine::replicas::{Replicas, bytes_of, words_of};
use cloze_trainer::{Result, TrainerError};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use gpu::{Gpu, ID};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// NCCL may move nothing for so long, where ranks may be silent for less: a signal to stop makes that short.
const AT_LEAST: Duration = Duration::from_secs(60);

/// The ranks of an MPI job, each with an NVIDIA GPU of its own.
///
/// Messages of 64 KiB or more go from GPU to GPU by NCCL, over NVLink, PCIe or the network, as it finds best; they are copied
/// to the GPU before and from it after. MPI carries the others, the lengths of all, and the signs of life of ranks. What
/// arrives is the same.
///
/// A rank's GPU is that of its number among the ranks of its machine, of those that the process sees.
///
/// One thread talks to NCCL, because its calls wait for other ranks; while this one waits for the thread, MPI notices a rank
/// that is lost.
#[derive(Debug)]
pub struct Nccl {
    ranks: Arc<Mpi>,
    asked: Sender<Asked>,
    told: Receiver<Told<Vec<Vec<u32>>>>,
    /// Why nothing more can be carried, if anything went wrong: the thread may wait in NCCL for ever.
    broken: OnceLock<String>,
}

/// What the thread is asked for: messages to ranks, and the lengths of those from them.
type Asked = (Vec<Vec<u32>>, Vec<usize>);

/// What the thread tells.
pub(crate) enum Told<T> {
    /// It is still at it.
    Moves,
    /// The result, or what is wrong.
    Done(std::result::Result<T, String>),
}

/// What ranks tell each other of their GPUs before they join: 16 bytes that no other GPU has, and of the first rank those that
/// identify the job.
type Introduction = std::result::Result<Vec<u8>, String>;

impl Nccl {
    /// Joins the GPUs of all ranks. Every rank of the job must do so, once.
    ///
    /// # Errors
    /// [`TrainerError::Replicas`]: on all ranks the same for a rank without an NVIDIA driver, libnccl or a GPU, and for two with
    /// the same GPU; otherwise what NCCL says, or the rank that is lost meanwhile.
    pub fn over(ranks: Arc<Mpi>) -> Result<Self> {
        let local_rank = launched().and_then(|launched| launched.local_rank);
        let local_rank = local_rank.unwrap_or_else(|| ranks.n_before());
        let (rank, size) = (ranks.rank(), ranks.size());
        let (asked, requests) = unbounded();
        let (answers, told) = unbounded();
        let (introduced, introduction) = bounded(1);
        let (join, joins) = bounded(1);
        let (at_start, started) = bounded(1);
        let thread = thread::Builder::new().name("nccl".into());
        let run = move || {
            let opened = Gpu::open(local_rank).and_then(|gpu| {
                let id = if rank == 0 { Gpu::new_id()?.to_vec() } else { Vec::new() };
                Ok((introduce(gpu.uuid()?, &id), gpu))
            });
            let (introduction, gpu) =
                opened.map_or_else(|problem| (Err(problem), None), |(own, gpu)| (Ok(own), Some(gpu)));
            let _ = introduced.send(introduction);
            if let (Some(gpu), Ok(id)) = (gpu, joins.recv()) {
                carry(gpu.join(rank, size, id), &at_start, size, &requests, &answers);
            }
        };
        // All ranks hear of what went wrong in one: none waits for it.
        let own: Introduction = match thread.spawn(run) {
            // A panic of that thread was printed.
            Ok(_) => introduction.recv().unwrap_or_else(|_| Err("the thread for NCCL is gone".into())),
            Err(error) => Err(format!("the thread for NCCL cannot be started: {error}")),
        };
        let all = ranks.exchange(vec![words(&own); size])?;
        let id = agreed(&all, |rank| ranks.name(rank)).map_err(unusable)?;
        let _ = join.send(id);
        match ranks.watched(&started, AT_LEAST)? {
            Some(Ok(())) => Ok(Self { ranks, asked, told, broken: OnceLock::new() }),
            Some(Err(problem)) => Err(unusable(format_args!("{}: {problem}", ranks.name(rank)))),
            None => {
                Err(unusable("not all ranks have joined, though all are alive (NCCL_DEBUG=INFO tells more)"))
            }
        }
    }

    /// The ranks, with their machines.
    pub fn ranks(&self) -> &Arc<Mpi> {
        &self.ranks
    }

    /// Carries long messages, or says what is wrong.
    fn asked(&self, asked: Asked) -> Result<Vec<Vec<u32>>> {
        if let Some(problem) = self.broken.get() {
            return Err(stopped(problem));
        }
        let broken = |problem: String| {
            let error = stopped(&problem);
            let _ = self.broken.set(problem);
            error
        };
        // One whose thread is gone is told of below.
        let _ = self.asked.send(asked);
        match self.ranks.watched(&self.told, AT_LEAST) {
            Ok(Some(Ok(received))) => Ok(received),
            Ok(Some(Err(problem))) => {
                Err(broken(format!("{}: {problem}", self.ranks.name(self.ranks.rank()))))
            }
            Ok(None) => {
                let problem = "NCCL moves nothing, though all ranks are alive (NCCL_DEBUG=INFO tells more)";
                Err(broken(problem.into()))
            }
            Err(lost) => {
                let _ = self.broken.set("a rank was lost".into());
                Err(lost)
            }
        }
    }
}

impl Replicas for Nccl {
    fn rank(&self) -> usize {
        self.ranks.rank()
    }

    fn size(&self) -> usize {
        self.ranks.size()
    }

    fn exchange(&self, messages: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>> {
        by_length::exchange(&*self.ranks, self, messages)
    }

    fn name(&self, rank: usize) -> String {
        self.ranks.name(rank)
    }

    fn wait_at_most(&self, limit: Duration) {
        self.ranks.wait_at_most(limit);
    }
}

impl Way for Nccl {
    fn carry(&self, messages: Vec<Vec<u32>>, lengths: Vec<usize>) -> Result<Vec<Vec<u32>>> {
        self.asked((messages, lengths))
    }
}

fn unusable(problem: impl std::fmt::Display) -> TrainerError {
    TrainerError::Replicas { problem: format!("cannot use NCCL: {problem}") }
}

fn stopped(problem: &str) -> TrainerError {
    TrainerError::Replicas { problem: format!("stopped: {problem}") }
}

/// The thread, after its rank has joined: carries messages until there are no more.
fn carry(
    joined: std::result::Result<gpu::Joined, String>,
    started: &Sender<Told<()>>,
    size: usize,
    requests: &Receiver<Asked>,
    answers: &Sender<Told<Vec<Vec<u32>>>>,
) {
    let mut joined = match joined {
        Ok(joined) => joined,
        Err(problem) => {
            let _ = started.send(Told::Done(Err(problem)));
            return;
        }
    };
    let _ = started.send(Told::Done(Ok(())));
    let piece = pieces::piece(size);
    for (messages, lengths) in requests {
        let moves = || {
            let _ = answers.send(Told::Moves);
        };
        let result = pieces::carry(&mut joined, &messages, &lengths, piece, moves);
        let _ = answers.send(Told::Done(result));
    }
    // The end of the process frees them. To close the communicator would cut off what a slower rank still receives, and here,
    // beside a process that ends, it would use a driver that is going away.
    std::mem::forget(joined);
}

fn introduce(uuid: [u8; 16], id: &[u8]) -> Vec<u8> {
    [&uuid[..], id].concat()
}

/// An introduction as a message.
fn words(introduction: &Introduction) -> Vec<u32> {
    let (is_well, bytes) = match introduction {
        Ok(bytes) => (1, &bytes[..]),
        Err(problem) => (0, problem.as_bytes()),
    };
    [vec![is_well], words_of(bytes)].concat()
}

/// What identifies the job, if all ranks have GPUs and no two the same.
///
/// # Errors
/// Who has none, or the same as another.
fn agreed(all: &[Vec<u32>], name: impl Fn(usize) -> String) -> std::result::Result<[u8; ID], String> {
    let mut introductions = Vec::with_capacity(all.len());
    for (rank, message) in all.iter().enumerate() {
        let (is_well, bytes) =
            message.split_first().map_or((0, Vec::new()), |(first, rest)| (*first, bytes_of(rest)));
        if is_well != 1 {
            return Err(format!("{}: {}", name(rank), String::from_utf8_lossy(&bytes)));
        }
        introductions.push(bytes);
    }
    let uuid = |rank: usize| introductions[rank].get(..16);
    for rank in 1..introductions.len() {
        if let Some(other) = (0..rank).find(|other| uuid(*other) == uuid(rank)) {
            return Err(format!(
                "{} and {} have the same GPU: start no more ranks on a machine than it has GPUs",
                name(other),
                name(rank)
            ));
        }
    }
    let id = introductions.first().and_then(|first| first.get(16..)).and_then(|id| id.try_into().ok());
    id.ok_or_else(|| format!("{} has not told what identifies the job", name(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(rank: usize) -> String {
        format!("rank {rank} on host")
    }

    #[test]
    fn ranks_agree_on_the_first_ones_job() {
        let id: [u8; ID] = std::array::from_fn(|place| place as u8);
        let all = [words(&Ok(introduce([1; 16], &id))), words(&Ok(introduce([2; 16], &[])))];
        assert_eq!(agreed(&all, name), Ok(id));
        let lacks_it = [words(&Ok(introduce([1; 16], &[])))];
        assert_eq!(
            agreed(&lacks_it, name),
            Err("rank 0 on host has not told what identifies the job".into())
        );
    }

    #[test]
    fn ranks_without_a_gpu_of_their_own_are_named() {
        let with = |uuid: u8| words(&Ok(introduce([uuid; 16], &[0; ID])));
        let without = words(&Err("it has no NVIDIA GPU".into()));
        let found = agreed(&[with(1), without], name);
        assert_eq!(found, Err("rank 1 on host: it has no NVIDIA GPU".into()));
        let found = agreed(&[with(1), with(2), with(1)], name).unwrap_err();
        assert!(found.starts_with("rank 0 on host and rank 2 on host have the same GPU"), "{found}");
    }
}
