//! Work of an evaluation that replicas share.

use super::messages::gather;
use super::replicas::{Replicas, Share, bytes_of, words_of};
use crate::{Result, TrainerError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

thread_local! {
    /// The replicas that all make the evaluation which runs on this thread.
    static REPLICAS: RefCell<Option<Arc<dyn Replicas>>> = const { RefCell::new(None) };
}

/// Runs an evaluation that all replicas make, whose work is [shared out](share_out).
pub(super) fn together<R>(replicas: &Arc<dyn Replicas>, evaluation: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<dyn Replicas>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            REPLICAS.set(self.0.take());
        }
    }
    let several = (replicas.size() > 1).then(|| replicas.clone());
    let _restore = Restore(REPLICAS.replace(several));
    evaluation()
}

/// The results of `work` for each of `n` items in order, such as the batches of an evaluation. In
/// [`Recipe::evaluate`](super::Recipe::evaluate), replicas share the work: each works on a range of the items, and all receive all
/// results. Everywhere else, the range is `0..n`.
///
/// All replicas must call this alike, on the thread that evaluates. Results that do not depend on how items are divided are
/// the bits of one process.
///
/// # Errors
/// Those of `work`; [`TrainerError::Replicas`] if another replica cannot be reached.
pub fn share_out<R: Serialize + DeserializeOwned>(
    n: usize,
    work: impl FnOnce(Range<usize>) -> Result<Vec<R>>,
) -> Result<Vec<R>> {
    let Some(replicas) = REPLICAS.with_borrow(Clone::clone) else { return work(0..n) };
    let own = work(Share::of(&*replicas).range(n))?;
    let problem = |problem: String| TrainerError::Replicas { problem };
    let mut bytes = Vec::new();
    ciborium::into_writer(&own, &mut bytes)
        .map_err(|error| problem(format!("cannot send results: {error}")))?;
    let mut all = Vec::with_capacity(n);
    for (rank, message) in gather(&*replicas, words_of(&bytes))?.iter().enumerate() {
        let results: Vec<R> = ciborium::from_reader(&bytes_of(message)[..])
            .map_err(|error| problem(format!("disagree: rank {rank} sent other results: {error}")))?;
        all.extend(results);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replica of two, whose messages come from both.
    #[derive(Debug)]
    struct Second;

    impl Replicas for Second {
        fn rank(&self) -> usize {
            1
        }
        fn size(&self) -> usize {
            2
        }
        fn exchange(&self, messages: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>> {
            let mut first = Vec::new();
            ciborium::into_writer(&vec![0.0, f64::NAN], &mut first).unwrap();
            Ok(vec![words_of(&first), messages[0].clone()])
        }
    }

    #[test]
    fn a_replica_does_its_part_and_has_all_results() {
        let work = |range: Range<usize>| Ok(range.map(|item| item as f64).collect());
        assert_eq!(share_out(5, work).unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0]);
        let replicas: Arc<dyn Replicas> = Arc::new(Second);
        let all = together(&replicas, || share_out(5, work)).unwrap();
        assert!(all[1].is_nan());
        assert_eq!([all[0], all[2], all[3], all[4]], [0.0, 2.0, 3.0, 4.0]);
        assert_eq!(share_out(2, work).unwrap(), [0.0, 1.0], "the evaluation is over");
    }
}
