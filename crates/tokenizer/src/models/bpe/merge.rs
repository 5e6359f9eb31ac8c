//! Merges symbols pair by pair, in the order learnt: works for any merges, and with dropout.

use std::{cmp::Reverse, collections::BinaryHeap};

use rand_pcg::rand_core::Rng;

use super::{
    super::Piece,
    pairs::{Merge, Pairs},
};

/// Words up to this many symbols are merged by scanning, longer ones with a queue.
pub(super) const SCAN: usize = 32;

/// Leaves out merges at random (Provilkov et al. 2020, "BPE-Dropout").
pub(super) struct Dropout<'a> {
    pub probability: f32,
    pub rng: &'a mut dyn Rng,
}

impl Dropout<'_> {
    fn drops(&mut self) -> bool {
        // The 24 bits that a float in [0, 1) has.
        ((self.rng.next_u32() >> 8) as f32) / ((1 << 24) as f32) < self.probability
    }
}

/// Joins the lowest-ranked, leftmost pair until there is none. Quadratic, and fast for at most [`SCAN`]
/// symbols; `known` is the merge of the symbol in a place with the next one, given their ids.
#[inline]
pub(super) fn by_scan(
    pairs: &Pairs,
    known: impl Fn(usize, u32, u32) -> Merge,
    out: &mut Vec<Piece>,
    first: usize,
) {
    // The merge of every symbol with the next one.
    let mut merges = [Merge::NONE; SCAN];
    let mut count = out.len() - first;
    let merge = |out: &[Piece], i: usize| match out.get(first + i..first + i + 2) {
        Some([a, b]) => pairs.get(a.id, b.id).unwrap_or(Merge::NONE),
        _ => Merge::NONE,
    };
    for (i, pair) in out[first..].windows(2).enumerate() {
        merges[i] = known(i, pair[0].id, pair[1].id);
    }
    while count > 1 {
        let mut best = 0;
        for i in 1..count - 1 {
            if merges[i].rank < merges[best].rank {
                best = i;
            }
        }
        if merges[best] == Merge::NONE {
            break;
        }
        let at = first + best;
        out[at] = Piece { id: merges[best].id, end: out[at + 1].end };
        out.remove(at + 1);
        merges.copy_within(best + 1..count - 1, best);
        count -= 1;
        merges[best] = merge(out, best);
        if best > 0 {
            merges[best - 1] = merge(out, best - 1);
        }
    }
}

/// With a queue of pairs: `n log n`. The queue, its stale entries and the return of dropped entries
/// follow the reference, which affects the possible results of dropout.
pub(super) fn by_queue(pairs: &Pairs, out: &mut Vec<Piece>, first: usize, mut dropout: Option<Dropout>) {
    let symbols = &mut out[first..];
    let count = symbols.len();
    // Of every symbol, the next and the previous one; `count` is none.
    let mut next: Vec<usize> = (1..=count).collect();
    let mut previous: Vec<usize> = (0..count).map(|i| i.checked_sub(1).unwrap_or(count)).collect();
    let mut gone = vec![false; count];
    let entry = |symbols: &[Piece], a: usize, b: usize| {
        let merge = pairs.get(symbols[a].id, symbols[b].id)?;
        Some(Reverse((merge.rank, a, merge.id)))
    };
    let mut queue: BinaryHeap<_> = (1..count).filter_map(|b| entry(symbols, b - 1, b)).collect();
    let mut dropped = Vec::new();
    while let Some(Reverse((rank, a, id))) = queue.pop() {
        if dropout.as_mut().is_some_and(Dropout::drops) {
            dropped.push(Reverse((rank, a, id)));
            continue;
        }
        queue.extend(dropped.drain(..));
        let b = next[a];
        if gone[a] || b >= count {
            continue;
        }
        // The pair has changed since if it becomes something else.
        if pairs.get(symbols[a].id, symbols[b].id).is_none_or(|merge| merge.id != id) {
            continue;
        }
        symbols[a] = Piece { id, end: symbols[b].end };
        gone[b] = true;
        next[a] = next[b];
        if next[b] < count {
            previous[next[b]] = a;
        }
        if previous[a] < count {
            queue.extend(entry(symbols, previous[a], a));
        }
        if next[a] < count {
            queue.extend(entry(symbols, a, next[a]));
        }
    }
    let mut kept = first;
    let mut i = 0;
    while i < count {
        out[kept] = out[first + i];
        kept += 1;
        i = next[i];
    }
    out.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::{Pcg64Mcg, rand_core::SeedableRng};

    fn symbols(ids: &[u32]) -> Vec<Piece> {
        ids.iter().enumerate().map(|(i, &id)| Piece { id, end: i + 1 }).collect()
    }

    /// `bc` = 4 first, then `ab` = 3, `abc` = 5.
    fn pairs() -> Pairs {
        let mut pairs = Pairs::default();
        for (rank, (a, b, id)) in [(1, 2, 4), (0, 1, 3), (0, 4, 5)].into_iter().enumerate() {
            pairs.insert(a, b, Merge { rank: rank as u32, id });
        }
        pairs
    }

    #[test]
    fn scan_and_queue_agree() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for len in 0..SCAN {
            let ids: Vec<u32> = (0..len).map(|_| rng.next_u32() % 3).collect();
            let (mut scan, mut queue) = (symbols(&ids), symbols(&ids));
            let pairs = pairs();
            by_scan(&pairs, |_, a, b| pairs.get(a, b).unwrap_or(Merge::NONE), &mut scan, 0);
            by_queue(&pairs, &mut queue, 0, None);
            assert_eq!(scan, queue, "{ids:?}");
        }
    }

    #[test]
    fn dropout_leaves_out_as_many_as_it_says() {
        let mut rng = Pcg64Mcg::seed_from_u64(2);
        let mut merged = |probability| {
            (0..2000)
                .filter(|_| {
                    let mut out = symbols(&[1, 2]);
                    by_queue(&pairs(), &mut out, 0, Some(Dropout { probability, rng: &mut rng }));
                    out.len() == 1
                })
                .count()
        };
        assert_eq!((merged(0.0), merged(1.0)), (2000, 0));
        let some = merged(0.3);
        assert!((1300..1500).contains(&some), "{some} of 2,000 with probability 0.7");
    }
}
