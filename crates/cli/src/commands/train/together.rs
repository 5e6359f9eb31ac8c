//! Training by the processes of a launcher.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use cloze_mpi::Mpi;
#[cfg(feature = "nccl")]
use cloze_mpi::Nccl;
use cloze_trainer::engine::replicas::Replicas;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::metrics::progress::{Silent, StderrProgress};
use cloze_trainer::runs::AnyPlan;

use super::{Args, Transport, once, print, stopped};
use crate::failure::WrongUsage;
use crate::output::say;

/// Trains with the other processes. The first one's folder is the run's; what the others write is not needed later.
pub fn run(args: &Args, plan: &AnyPlan, options: RunOptions<'_>, ranks: Arc<Mpi>) -> Result<()> {
    if !args.seeds.is_empty() {
        return Err(
            WrongUsage::new(anyhow!("--seeds runs in one process: start it once for each seed")).into()
        );
    }
    let is_first = ranks.rank() == 0;
    say(format_args!("{} ranks on {}", ranks.size(), machines(ranks.hosts())));
    let mut options = options.replicas(replicas(args.transport, &ranks)?);
    let outcome = if is_first {
        once(args, plan, &options, StderrProgress::new())?
    } else {
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        options = options.resume(false);
        options.folder = scratch.path().join("run");
        plan.run(&options, &mut Silent)?
    };
    // A rank that was stopped before its first step leaves alone: the others would wait for it.
    if outcome == (Outcome::Stopped { step: 0 }) {
        return Err(stopped(0));
    }
    // All end here, whether the run is done or stopped.
    ranks.finish();
    match outcome {
        Outcome::Done { model, .. } if is_first => print(&model),
        Outcome::Stopped { step } if is_first => Err(stopped(step)),
        _ => Ok(()),
    }
}

/// The ranks, with the way in which they exchange messages.
fn replicas(transport: Transport, ranks: &Arc<Mpi>) -> Result<Arc<dyn Replicas>> {
    match transport {
        #[cfg(feature = "nccl")]
        Transport::Nccl => Ok(Arc::new(Nccl::over(ranks.clone())?)),
        // Refused before where it is not built in.
        _ => Ok(ranks.clone()),
    }
}

/// The machines of ranks, with the number of ranks on each.
fn machines(hosts: &[String]) -> String {
    let mut counts = BTreeMap::new();
    hosts.iter().for_each(|host| *counts.entry(host).or_insert(0) += 1);
    let named: Vec<String> = counts.into_iter().map(|(host, n)| format!("{host} ({n})")).collect();
    named.join(", ")
}
