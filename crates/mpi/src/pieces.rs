//! Long messages in pieces, so that the memory they pass through is bounded.

use std::ops::Range;

/// The words that all pieces of a round have together at most, in each direction: 64 MiB.
pub(crate) const ROUND: usize = 16 * 1024 * 1024;

/// Carries pieces between ranks.
pub(crate) trait Link {
    /// Sends each piece to the rank before it, and receives each from the rank before it, all at once. Between two ranks,
    /// pieces come in the order in which they were sent.
    ///
    /// # Errors
    /// What is wrong.
    fn carry(&mut self, sent: &[(usize, &[u32])], received: &mut [(usize, &mut [u32])])
    -> Result<(), String>;
}

/// The longest piece of a message, if each of `size` ranks sends one to each: it is the same for all ranks.
pub(crate) fn piece(size: usize) -> usize {
    (ROUND / size.max(1)).max(1)
}

/// Sends `messages[r]` to each rank `r` and receives `lengths[r]` words from it, in rounds, after each of which it calls
/// `moves`. Empty messages are not carried.
///
/// The n-th piece of each message goes in the n-th round. So two ranks meet in the same rounds, whatever they exchange with
/// others, and none waits for a rank that waits for it.
///
/// # Errors
/// The link's.
pub(crate) fn carry(
    link: &mut impl Link,
    messages: &[Vec<u32>],
    lengths: &[usize],
    piece: usize,
    mut moves: impl FnMut(),
) -> Result<Vec<Vec<u32>>, String> {
    let mut all: Vec<Vec<u32>> = lengths.iter().map(|n| vec![0; *n]).collect();
    let longest = messages.iter().map(Vec::len).chain(lengths.iter().copied()).max().unwrap_or(0);
    for round in 0..longest.div_ceil(piece) {
        let sent: Vec<(usize, &[u32])> = (messages.iter().enumerate())
            .map(|(rank, message)| (rank, &message[part(round, piece, message.len())]))
            .filter(|(_, words)| !words.is_empty())
            .collect();
        let mut received: Vec<(usize, &mut [u32])> = (all.iter_mut().enumerate())
            .map(|(rank, message)| {
                let part = part(round, piece, message.len());
                (rank, &mut message[part])
            })
            .filter(|(_, words)| !words.is_empty())
            .collect();
        link.carry(&sent, &mut received)?;
        moves();
    }
    Ok(all)
}

/// The part of a message of `n` words that goes in a round.
fn part(round: usize, piece: usize, n: usize) -> Range<usize> {
    (round * piece).min(n)..((round + 1) * piece).min(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{Receiver, Sender, bounded};
    use std::thread;
    use std::time::Duration;

    /// A rank's ends of a channel to and from each. None of them holds anything: as between GPUs, a piece is sent when it is
    /// received.
    struct Channels {
        to: Vec<Sender<Vec<u32>>>,
        from: Vec<Receiver<Vec<u32>>>,
        /// The words that it has held at once.
        most: usize,
    }

    impl Link for Channels {
        fn carry(
            &mut self,
            sent: &[(usize, &[u32])],
            received: &mut [(usize, &mut [u32])],
        ) -> Result<(), String> {
            let n_sent: usize = sent.iter().map(|(_, words)| words.len()).sum();
            let n_received: usize = received.iter().map(|(_, words)| words.len()).sum();
            self.most = self.most.max(n_sent).max(n_received);
            const LIMIT: Duration = Duration::from_secs(20);
            thread::scope(|scope| {
                let sending: Vec<_> = (sent.iter())
                    .map(|(rank, words)| {
                        let to = &self.to[*rank];
                        scope.spawn(move || to.send_timeout(words.to_vec(), LIMIT).map_err(|e| e.to_string()))
                    })
                    .collect();
                for (rank, words) in received {
                    let piece = self.from[*rank].recv_timeout(LIMIT).map_err(|e| e.to_string())?;
                    assert_eq!(piece.len(), words.len(), "from rank {rank}");
                    words.copy_from_slice(&piece);
                }
                sending.into_iter().try_for_each(|sending| sending.join().unwrap())
            })
        }
    }

    fn channels(size: usize) -> Vec<Channels> {
        let ends: Vec<Vec<_>> = (0..size).map(|_| (0..size).map(|_| bounded(0)).collect()).collect();
        (0..size)
            .map(|rank| Channels {
                to: (0..size).map(|to| ends[rank][to].0.clone()).collect(),
                from: (0..size).map(|from| ends[from][rank].1.clone()).collect(),
                most: 0,
            })
            .collect()
    }

    /// The message from one rank to another, all of them different.
    fn message(from: usize, to: usize, n: usize) -> Vec<u32> {
        (0..n).map(|place| (from * 1_000_000 + to * 10_000 + place) as u32).collect()
    }

    /// Each rank exchanges messages of other lengths with each other one, in pieces of four words.
    #[test]
    fn messages_of_any_lengths_come_whole() {
        const PIECE: usize = 4;
        let lengths = [[0, 9, 0, 1], [3, 0, 8, 4], [0, 17, 0, 0], [5, 0, 12, 0]];
        let ranks: Vec<_> = (channels(4).into_iter().enumerate())
            .map(|(own, mut link)| {
                thread::spawn(move || {
                    let messages: Vec<_> = (0..4).map(|to| message(own, to, lengths[own][to])).collect();
                    let expected: Vec<usize> = (0..4).map(|from| lengths[from][own]).collect();
                    let mut rounds = 0;
                    let received = carry(&mut link, &messages, &expected, PIECE, || rounds += 1).unwrap();
                    for (from, received) in received.iter().enumerate() {
                        assert_eq!(*received, message(from, own, lengths[from][own]), "{from} to {own}");
                    }
                    let longest = lengths[own].into_iter().chain(expected).max().unwrap();
                    assert_eq!(rounds, longest.div_ceil(PIECE), "rank {own}");
                    assert!(link.most <= 3 * PIECE, "rank {own} held {} words", link.most);
                })
            })
            .collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
    }

    #[test]
    fn a_round_is_bounded() {
        for size in [1, 2, 3, 1000] {
            assert!(piece(size) * size <= ROUND && piece(size) > 0, "{size} ranks");
        }
        assert_eq!(piece(usize::MAX), 1);
    }

    #[test]
    fn an_error_of_the_link_ends_the_exchange() {
        struct Broken;
        impl Link for Broken {
            fn carry(&mut self, _: &[(usize, &[u32])], _: &mut [(usize, &mut [u32])]) -> Result<(), String> {
                Err("the cable is cut".into())
            }
        }
        let carried = carry(&mut Broken, &[vec![1], Vec::new()], &[0, 0], 4, || panic!("nothing moves"));
        assert_eq!(carried, Err("the cable is cut".into()));
    }
}
