//! The processes that `mpirun` or `srun` has started to do one command together.

use std::process::ExitCode;
use std::sync::Arc;
#[cfg(feature = "mpi")]
use std::sync::OnceLock;
#[cfg(feature = "mpi")]
use std::time::Duration;

use anyhow::Result;
#[cfg(not(feature = "mpi"))]
use anyhow::anyhow;
#[cfg(not(feature = "mpi"))]
use cloze_mpi::Launched;
#[cfg(feature = "mpi")]
use cloze_mpi::Mpi;
use cloze_mpi::launched;
use cloze_trainer::engine::replicas::{Alone, Replicas};
#[cfg(feature = "mpi")]
use cloze_trainer::engine::replicas::{Share, bytes_of, words_of};
use cloze_trainer::metrics::standard_error;
use serde::Serialize;
use serde::de::DeserializeOwned;

#[cfg(not(feature = "mpi"))]
use crate::failure::WrongUsage;

#[cfg(feature = "mpi")]
static RANKS: OnceLock<Arc<Mpi>> = OnceLock::new();

/// How long a rank waits before it tells an error that the first one may have told already.
#[cfg(feature = "mpi")]
const AFTER_FIRST: Duration = Duration::from_secs(2);

/// Joins the other processes, if there are any and the command can do its work together with them.
///
/// # Errors
/// No way to reach the other processes: each would do all the work, and write to the same folder.
pub fn join(can_share: bool) -> Result<()> {
    let Some(launched) = launched().filter(|launched| launched.size > 1 && can_share) else { return Ok(()) };
    // One process speaks for all, also of what is wrong here.
    standard_error::mute(launched.rank > 0);
    #[cfg(feature = "mpi")]
    {
        let ranks = Arc::new(Mpi::start()?);
        standard_error::mute(ranks.rank() > 0);
        let _ = RANKS.set(ranks);
        Ok(())
    }
    #[cfg(not(feature = "mpi"))]
    {
        let Launched { launcher, size, .. } = launched;
        let told = format!(
            "{launcher} started {size} processes, but this program was built without MPI: build it with \
             `--features mpi`, or start it by itself"
        );
        Err(WrongUsage::new(anyhow!(told)).into())
    }
}

/// The processes, if there are several.
#[cfg(feature = "mpi")]
pub fn all() -> Option<Arc<Mpi>> {
    RANKS.get().cloned()
}

/// The processes; this one alone if there are no others.
pub fn replicas() -> Arc<dyn Replicas> {
    #[cfg(feature = "mpi")]
    if let Some(ranks) = all() {
        return ranks;
    }
    Arc::new(Alone)
}

/// Called when a signal asks this process to stop. A launcher that has lost a process sends it to all others, and kills
/// them a second later: a rank that is gone must be noticed before.
pub fn stopping() {
    #[cfg(feature = "mpi")]
    if let Some(ranks) = all() {
        ranks.wait_at_most(Duration::from_millis(500));
    }
}

/// The share of this process in the cores of its machine, of which it may use `allowed`: a launcher may have bound each
/// process to its own.
pub fn n_cores(allowed: usize) -> usize {
    #[cfg(feature = "mpi")]
    if let Some(ranks) = all() {
        let cores = sysinfo::System::new_with_specifics(
            sysinfo::RefreshKind::nothing().with_cpu(sysinfo::CpuRefreshKind::nothing()),
        );
        return (cores.cpus().len() / ranks.n_beside()).clamp(1, allowed);
    }
    allowed
}

/// The results of `work` for consecutive parts of `items`, one by each process, in order. None if there is one process, or if a
/// part fails: the caller then does all of it, and meets the failure itself.
pub fn shared<I: Serialize>(
    items: impl FnOnce() -> Vec<I>,
    work: impl Fn(&[I]) -> Option<Vec<u32>>,
) -> Result<Option<Vec<Vec<u32>>>> {
    #[cfg(feature = "mpi")]
    if let Some(ranks) = all() {
        let items = items();
        let (n, size) = (items.len(), ranks.size());
        let part = |rank: usize| &items[Share::part(rank, size).range(n)];
        let told = |rank: usize| Ok(words_of(&serde_json::to_vec(part(rank))?));
        let mut messages = vec![Vec::new()];
        messages.extend((1..size).map(told).collect::<Result<Vec<_>>>()?);
        ranks.exchange(messages)?;
        let own = work(part(0));
        let mut results = vec![own];
        let received = ranks.exchange(vec![Vec::new(); size])?.into_iter().skip(1);
        results.extend(received.map(|mut message| (message.pop() == Some(1)).then_some(message)));
        return Ok(results.into_iter().collect());
    }
    let _ = (items, work);
    Ok(None)
}

/// Does the parts that the first process hands out, until it has no more. Returns whether this process only helps: not the
/// first one, nor one that is alone.
pub fn helps<I: DeserializeOwned>(work: impl Fn(&[I]) -> Option<Vec<u32>>) -> Result<bool> {
    #[cfg(feature = "mpi")]
    if let Some(ranks) = all().filter(|ranks| ranks.rank() > 0) {
        let nothing = || vec![Vec::new(); ranks.size()];
        loop {
            let told = ranks.exchange(nothing())?.swap_remove(0);
            if told.is_empty() {
                return Ok(true);
            }
            let items: Vec<I> = serde_json::from_slice(&bytes_of(&told))?;
            // The last word says whether there is a result.
            let result = work(&items);
            let is_there = u32::from(result.is_some());
            let mut messages = nothing();
            messages[0] = result.unwrap_or_default();
            messages[0].push(is_there);
            ranks.exchange(messages)?;
        }
    }
    let _ = work;
    Ok(false)
}

/// Lets the other processes go, which help until then.
pub fn done() -> Result<()> {
    #[cfg(feature = "mpi")]
    if let Some(ranks) = all() {
        ranks.exchange(vec![Vec::new(); ranks.size()])?;
    }
    Ok(())
}

/// Leaves the other processes at the end of a command. The error is told here, so that many processes tell it once.
pub fn leave(result: Result<()>, tell: impl Fn(&anyhow::Error) -> u8) -> ExitCode {
    #[cfg(feature = "mpi")]
    if let Some(ranks) = all() {
        let Err(error) = result else {
            ranks.finish();
            return ExitCode::SUCCESS;
        };
        let speaks = usize::from(ranks.lost() == Some(0));
        if ranks.rank() != speaks {
            // The process that speaks ends all others when it fails of the same.
            std::thread::sleep(AFTER_FIRST);
        }
        standard_error::mute(false);
        let status = tell(&error);
        ranks.abort(status.into());
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => tell(&error).into(),
    }
}
