//! Whether replicas have as much to do as one another, and are as fast.

use super::messages::gather_numbers;
use super::replicas::Replicas;
use crate::{Result, TrainerError};
use std::time::Duration;

/// How much longer than the others a replica may compute before it is named.
const SLOW: f64 = 1.5;

/// Checks that every replica has micro-batches of a step, of which this one has `own`. Returns a note if some have fewer than
/// others, for which they wait.
///
/// # Errors
/// [`TrainerError::Replicas`] if a replica has none.
pub(super) fn of_shards(replicas: &dyn Replicas, own: usize) -> Result<Option<String>> {
    let counts: Vec<usize> =
        gather_numbers(replicas, &[own as f64])?.into_iter().flatten().map(|n| n as usize).collect();
    let (all, size) = (counts.iter().sum::<usize>(), counts.len());
    let (fewest, most) =
        (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    if fewest == 0 {
        let problem = format!(
            "needs at least {size} shards of a step for {size} ranks, and there are {all}: raise `train.shards`, or start fewer"
        );
        return Err(TrainerError::Replicas { problem });
    }
    Ok((fewest < most).then(|| {
        format!(
            "warning: {size} ranks do not divide the {all} shards of a step: some wait {:.0} % of the time; make `train.shards` a \
             multiple of the ranks",
            100.0 * (1.0 - fewest as f64 / most as f64)
        )
    }))
}

/// A note on the replicas that compute much longer than most, of which this one has computed for `own`.
pub(super) fn of_speed(replicas: &dyn Replicas, own: Duration) -> Result<Option<String>> {
    let times: Vec<f64> = gather_numbers(replicas, &[own.as_secs_f64()])?.into_iter().flatten().collect();
    Ok(slow(&times).map(|(rank, ratio)| {
        format!(
            "warning: {} computes {ratio:.1} times as long as the others, which wait",
            replicas.name(rank)
        )
    }))
}

/// The slowest of several times, if it is much longer than their median, and how much longer.
fn slow(times: &[f64]) -> Option<(usize, f64)> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The lower one of two: one slow replica of two is seen too.
    let median = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    let (rank, longest) = times.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
    (median > 0.0 && longest / median > SLOW).then_some((rank, longest / median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_is_found_where_it_is_slow() {
        assert_eq!(slow(&[]), None);
        assert_eq!(slow(&[0.0, 0.0]), None);
        assert_eq!(slow(&[1.0, 1.2, 1.1]), None);
        assert_eq!(slow(&[1.0, 2.0]), Some((1, 2.0)));
        assert_eq!(slow(&[1.0, 1.0, 3.0, 1.0]), Some((2, 3.0)));
    }
}
