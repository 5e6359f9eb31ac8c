//! Which block of which sequence each cube works on, and what of it is met: made on the host, once a call.

use crate::attention_mask::COUNTS;
use crate::{AttentionMask, Queries, Sight};

/// Queries or keys in a block.
pub(super) const TILE: usize = 32;

/// Numbers that describe a block.
pub(super) const ITEM: usize = 11;

/// The blocks of all sequences' queries, and of their keys, [`ITEM`] numbers each:
/// - the row on the batch axis, the block's first token on its axis, and how many it has;
/// - the sequence's first token on the other axis, and which of its tokens there the block is compared with: the first,
///   and the one behind the last, counted from the sequence's first;
/// - the block's first token, counted from the sequence's first;
/// - the position of the sequence's first query;
/// - how many keys before its own position and after it a query sees at most, and how many of the sequence's first keys
///   it sees even if they are after it.
///
/// Blocks that no query sees anything of are left out, unless a query might see nothing at all: then all of its
/// sequence's keys count as the same score, and all of them have to be met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub queries: Vec<i32>,
    pub keys: Vec<i32>,
}

/// Queries and keys that are compared.
struct Sequence {
    row: usize,
    /// The first query and how many there are, likewise of keys.
    query: usize,
    q_len: i32,
    key: usize,
    k_len: i32,
    /// As in the [`Plan`].
    before: i32,
    after: i32,
    prefix: i32,
    /// Whether every block meets all others.
    all: bool,
}

impl Plan {
    /// Of `[batch, q_len, k_len]`.
    ///
    /// # Panics
    /// If the mask does not fit the sizes.
    pub fn new(mask: &AttentionMask, [batch, q_len, k_len]: [usize; 3]) -> Self {
        mask.check_sights(batch);
        let mut spans: Vec<[usize; 5]> = Vec::new();
        match &mask.packing {
            Some(packing) => {
                mask.check_packing(packing, [batch, q_len, k_len]);
                let mut query = 0;
                let counts = mask.query_counts(packing);
                for ((key, k_len), q_len) in packing.starts().zip(packing.lengths()).zip(counts.iter()) {
                    spans.push([0, query, *q_len, key, *k_len]);
                    query += q_len;
                }
            }
            None => {
                assert!(!matches!(mask.queries, Queries::Counts(_)), "{COUNTS}");
                spans.extend((0..batch).map(|row| [row, 0, q_len, 0, k_len]));
            }
        }
        let mut plan = Self::default();
        for (number, [row, query, q_len, key, k_len]) in spans.into_iter().enumerate() {
            // No distance is greater.
            let far = q_len + k_len;
            let window = mask.window.map_or(far, |window| window.min(far));
            let (mut before, mut prefix) = (window, k_len);
            match mask.sights.as_ref().map_or(Sight::All, |sights| sights[number]) {
                Sight::All => {}
                Sight::Prefix(first) => prefix = first.min(k_len),
                Sight::RightToLeft => before = 0,
            }
            let sequence = Sequence {
                row,
                query,
                q_len: signed(q_len),
                key,
                k_len: signed(k_len),
                before: signed(before),
                after: if mask.causal { 0 } else { signed(window) },
                prefix: signed(prefix),
                // A query that is one of the keys sees itself.
                all: mask.pad_mask.is_some() || q_len > k_len,
            };
            sequence.add_queries(&mut plan.queries);
            sequence.add_keys(&mut plan.keys);
        }
        plan
    }
}

/// The blocks of this many tokens: the first token and how many there are.
fn blocks(len: i32) -> impl Iterator<Item = [i32; 2]> {
    (0..len).step_by(TILE).map(move |start| [start, (len - start).min(TILE as i32)])
}

fn signed(n: usize) -> i32 {
    i32::try_from(n).expect("fewer than 2^31 tokens")
}

impl Sequence {
    /// The position of the first query.
    fn offset(&self) -> i32 {
        self.k_len - self.q_len
    }

    fn add_queries(&self, items: &mut Vec<i32>) {
        for [start, count] in blocks(self.q_len) {
            let [first, last] = [start, start + count - 1].map(|query| query + self.offset());
            let from = (first - self.before).max(0);
            let end = self.k_len.min(last + self.after + 1).min(self.prefix.max(last + 1));
            let met = if self.all { [0, self.k_len] } else { [from, end] };
            items.extend(self.item(signed(self.query) + start, count, self.key, met, start));
        }
    }

    fn add_keys(&self, items: &mut Vec<i32>) {
        for [start, count] in blocks(self.k_len) {
            // The positions that see the block's first key and its last, or some between.
            let own = if start < self.prefix { start - self.after } else { start };
            let first = own.max(start - self.after) - self.offset();
            let last = start + count - 1 + self.before - self.offset();
            let from = first.clamp(0, self.q_len);
            let met = if self.all { [0, self.q_len] } else { [from, (last + 1).clamp(from, self.q_len)] };
            items.extend(self.item(signed(self.key) + start, count, self.query, met, start));
        }
    }

    fn item(&self, first: i32, count: i32, other: usize, [from, to]: [i32; 2], start: i32) -> [i32; ITEM] {
        let Self { before, after, prefix, .. } = *self;
        let (row, other) = (signed(self.row), signed(other));
        [row, first, count, other, from, to, start, self.offset(), before, after, prefix]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packing;
    use proptest::prelude::*;

    /// Whether a query at a position sees a key, by what masks say.
    fn sees(mask: &AttentionMask, sight: Sight, position: i32, key: i32, len: i32) -> bool {
        sight.keys(position as isize, len as usize).contains(&(key as usize))
            && (!mask.causal || key <= position)
            && mask.window.is_none_or(|window| key.abs_diff(position) as usize <= window)
    }

    fn mask() -> impl Strategy<Value = AttentionMask> {
        let sight =
            prop_oneof![Just(Sight::All), Just(Sight::RightToLeft), (0..90usize).prop_map(Sight::Prefix)];
        // Of keys, and how many of them are queries.
        let lengths = prop::collection::vec((1..80usize, 0..80usize), 1..4);
        (lengths, any::<bool>(), prop::option::of(0..70usize), prop::option::of(sight)).prop_map(
            |(lengths, causal, window, sight)| {
                let counts: Vec<usize> = lengths.iter().map(|(keys, queries)| *queries.min(keys)).collect();
                let packing = Packing::new(lengths.iter().map(|(keys, _)| *keys).collect::<Vec<_>>());
                let sights = sight.map(|sight| vec![sight; counts.len()].into());
                let queries = Queries::Counts(counts.into());
                let mask = AttentionMask::default().with_packing(packing).with_queries(queries);
                AttentionMask { causal, window, sights, ..mask }
            },
        )
    }

    proptest! {
        #[test]
        fn blocks_meet_what_they_see_and_nothing_else(mask in mask()) {
            let packing = mask.packing.clone().unwrap();
            let counts = mask.query_counts(&packing).to_vec();
            let plan = Plan::new(&mask, [1, counts.iter().sum(), packing.n_tokens()]);
            let mut queries = plan.queries.chunks(ITEM);
            let mut keys = plan.keys.chunks(ITEM);
            let mut first_query = 0;
            let starts = packing.starts().map(signed);
            for (number, (first_key, (k_len, q_len))) in
                starts.zip(packing.lengths().iter().zip(&counts)).enumerate()
            {
                let (k_len, q_len) = (signed(*k_len), signed(*q_len));
                let sight = mask.sights.as_ref().map_or(Sight::All, |sights| sights[number]);
                let sees = |query: i32, key: i32| sees(&mask, sight, query + k_len - q_len, key, k_len);
                for (start, item) in (0..q_len).step_by(TILE).zip(&mut queries) {
                    let &[row, first, count, other, from, to, own, offset, before, after, prefix] = item else {
                        panic!("an item")
                    };
                    prop_assert_eq!([row, first, other, own], [0, first_query + start, first_key, start]);
                    prop_assert_eq!([count, offset], [(q_len - start).min(TILE as i32), k_len - q_len]);
                    let seen = |key: i32| (start..start + count).any(|query| sees(query, key));
                    for key in 0..k_len {
                        prop_assert!(!seen(key) || (from..to).contains(&key));
                        for query in start..start + count {
                            // As the kernels have it.
                            let position = query + offset;
                            let last = (position + after).min(position.max(prefix - 1));
                            prop_assert_eq!(key >= position - before && key <= last, sees(query, key));
                        }
                    }
                    prop_assert!(seen(from) && seen(to - 1));
                }
                for (start, item) in (0..k_len).step_by(TILE).zip(&mut keys) {
                    let &[row, first, count, other, from, to, own, offset, ..] = item else {
                        panic!("an item")
                    };
                    prop_assert_eq!([row, first, other, own], [0, first_key + start, first_query, start]);
                    prop_assert_eq!([count, offset], [(k_len - start).min(TILE as i32), k_len - q_len]);
                    let seen = |query: i32| (start..start + count).any(|key| sees(query, key));
                    for query in 0..q_len {
                        prop_assert!(!seen(query) || (from..to).contains(&query));
                    }
                    prop_assert!(from == to || (seen(from) && seen(to - 1)));
                }
                first_query += q_len;
            }
            prop_assert!(queries.next().is_none() && keys.next().is_none());
        }
    }

    #[test]
    fn who_might_see_nothing_meets_everything() {
        // The first two of three queries stand before the only key.
        let causal = AttentionMask::default().with_causal();
        let plan = Plan::new(&causal, [2, 3, 1]);
        assert_eq!([&plan.queries, &plan.keys].map(|items| items.len() / ITEM), [2, 2]);
        assert_eq!(plan.queries[ITEM..][..8], [1, 0, 3, 0, 0, 1, 0, -2]);
        assert_eq!(plan.keys[ITEM..][..8], [1, 0, 1, 0, 0, 3, 0, -2]);
    }
}
