//! Messages that go one of two ways, by their length.

use cloze_trainer::engine::replicas::Replicas;
use cloze_trainer::{Result, TrainerError};

/// A message of so many words (64 KiB) or more is long: what another way takes to begin is then little beside what it saves.
pub(crate) const LONG: usize = 16 * 1024;

/// The way of long messages.
pub(crate) trait Way {
    /// Sends `messages[r]` to each rank `r`, and receives `lengths[r]` words from it. Empty messages are not carried; the
    /// rank's own, and the length of that, are 0.
    ///
    /// # Errors
    /// [`TrainerError::Replicas`].
    fn carry(&self, messages: Vec<Vec<u32>>, lengths: Vec<usize>) -> Result<Vec<Vec<u32>>>;
}

/// An exchange as [`Replicas::exchange`] has it, whose long messages go by `way`. All else goes by `replicas`: short messages,
/// and the length of each message.
pub(crate) fn exchange(
    replicas: &dyn Replicas,
    way: &impl Way,
    mut messages: Vec<Vec<u32>>,
) -> Result<Vec<Vec<u32>>> {
    let own = replicas.rank();
    let kept = std::mem::take(&mut messages[own]);
    let mut long: Vec<Vec<u32>> = vec![Vec::new(); messages.len()];
    for (message, long) in messages.iter_mut().zip(&mut long) {
        let n = message.len() as u64;
        if message.len() >= LONG {
            *long = std::mem::take(message);
        }
        // At the end, where it moves nothing.
        message.extend([n as u32, (n >> 32) as u32]);
    }
    let mut received = replicas.exchange(messages)?;
    let mut lengths = vec![0; received.len()];
    for (rank, (message, to_come)) in received.iter_mut().zip(&mut lengths).enumerate() {
        let [high, low] = [message.pop(), message.pop()];
        let n = low.zip(high).map(|(low, high)| u64::from(low) | u64::from(high) << 32);
        match n.and_then(|n| usize::try_from(n).ok()) {
            Some(n) if n >= LONG && message.is_empty() => *to_come = n,
            Some(n) if n < LONG && message.len() == n => {}
            _ => {
                let problem = format!(
                    "stopped: {} sends messages of another kind: start all ranks with the same program and arguments",
                    replicas.name(rank)
                );
                return Err(TrainerError::Replicas { problem });
            }
        }
    }
    let is_long = |n: usize| n > 0;
    if long.iter().any(|message| is_long(message.len())) || lengths.iter().any(|n| is_long(*n)) {
        let carried = way.carry(long, lengths.clone())?;
        for ((message, carried), n) in received.iter_mut().zip(carried).zip(lengths) {
            if is_long(n) {
                *message = carried;
            }
        }
    }
    received[own] = kept;
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// One of two ranks. Both ways lead back: what is sent to the other comes from it.
    #[derive(Debug, Default)]
    struct Mirror {
        /// The lengths of messages that went by each way.
        short: Mutex<Vec<usize>>,
        long: Mutex<Vec<usize>>,
        /// Whether the other one sends its messages without their lengths.
        is_foreign: bool,
    }

    impl Replicas for Mirror {
        fn rank(&self) -> usize {
            1
        }

        fn size(&self) -> usize {
            2
        }

        fn exchange(&self, mut messages: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>> {
            self.short.lock().unwrap().push(messages[0].len());
            if self.is_foreign {
                let length = messages[0].len().saturating_sub(2);
                messages[0].truncate(length);
            }
            Ok(messages)
        }
    }

    impl Way for Mirror {
        fn carry(&self, messages: Vec<Vec<u32>>, lengths: Vec<usize>) -> Result<Vec<Vec<u32>>> {
            assert_eq!(messages.iter().map(Vec::len).collect::<Vec<_>>(), lengths);
            assert!(messages[1].is_empty(), "its own message");
            self.long.lock().unwrap().push(lengths[0]);
            Ok(messages)
        }
    }

    #[test]
    fn each_message_comes_whole_by_the_way_of_its_length() {
        for (n, goes_long) in
            [(0, false), (1, false), (2, false), (LONG - 1, false), (LONG, true), (LONG * 3 + 1, true)]
        {
            let other: Vec<u32> = (0..n as u32).map(|word| word.wrapping_mul(2_654_435_761)).collect();
            let own = vec![7; 2 * LONG];
            let ways = Mirror::default();
            let received = exchange(&ways, &ways, vec![other.clone(), own.clone()]).unwrap();
            assert!(received == [other, own], "{n} words");
            let short = if goes_long { 2 } else { n + 2 };
            assert_eq!(*ways.short.lock().unwrap(), [short], "{n} words");
            let long: &[usize] = if goes_long { &[n] } else { &[] };
            assert_eq!(*ways.long.lock().unwrap(), long, "{n} words");
        }
    }

    #[test]
    fn a_rank_that_sends_another_way_is_named() {
        for n in [0, 1, 5] {
            let ways = Mirror { is_foreign: true, ..Mirror::default() };
            let error = exchange(&ways, &ways, vec![vec![9; n], Vec::new()]).unwrap_err().to_string();
            assert!(error.contains("rank 0 sends messages of another kind"), "{n} words: {error}");
        }
    }
}
