//! Exact byte-pair encoding in linear time, by longest match with backtracking, as in GitHub's `bpe`
//! crate (van Antwerpen & Neubeck 2024, "So many tokens, so little time").
//!
//! A sequence of pieces is a text's encoding if and only if every two neighbours encode their own joint
//! text: until the first merge across a boundary, the pieces on both sides grow as they would alone, so
//! that merge would also happen in the text of these two. Every prefix of the text has exactly one such
//! sequence; hence a dead end is one regardless of what precedes it, and every position is tried once.

use super::{
    super::{
        Piece,
        trie::{NONE, Trie},
    },
    pairs::Pairs,
};

/// With longer pieces, in symbols, the search might take too long at one position.
const LONGEST: u32 = 1 << 10;

/// What the search needs to know about every piece, by id.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// The pair it is made of.
    left: u32,
    right: u32,
    /// 1 + the rank of the merge that makes it, 0 for a symbol.
    rank: u32,
    /// Number of symbols.
    len: u32,
    /// The longest other piece that it begins with, or [`NONE`].
    shorter: u32,
}

/// The tables of the search.
#[derive(Debug, Clone)]
pub(super) struct Linear {
    parts: Vec<Part>,
    /// The code of a symbol in the trie, by id; [`NONE`] for symbols in no merge.
    codes: Vec<u32>,
    trie: Trie,
}

impl Linear {
    /// The tables for `merges` (pair and result, first learnt first) among ids less than `size`; `None`
    /// if the search would not be exact: if a piece is made in two ways, is made from pieces learnt
    /// after it, or may also occur in the text without a merge (`is_symbol`).
    pub fn new(
        pairs: &Pairs,
        merges: impl Iterator<Item = (u32, u32, u32)>,
        size: usize,
        is_symbol: impl Fn(u32) -> bool,
    ) -> Option<Self> {
        let symbol = Part { left: NONE, right: NONE, rank: 0, len: 1, shorter: NONE };
        let mut parts = vec![symbol; size];
        let mut used = vec![false; size];
        let mut made = Vec::new();
        for (rank, (a, b, id)) in merges.enumerate() {
            // A piece used before it is made would be taken for a symbol by what uses it.
            if used[id as usize] || parts[id as usize].rank > 0 || a == id || b == id || is_symbol(id) {
                return None;
            }
            let len = parts[a as usize].len.checked_add(parts[b as usize].len)?;
            if len > LONGEST {
                return None;
            }
            used[a as usize] = true;
            used[b as usize] = true;
            parts[id as usize] = Part { left: a, right: b, rank: rank as u32 + 1, len, shorter: NONE };
            made.push(id);
        }
        let mut linear =
            Self { parts, codes: vec![NONE; size], trie: Trie::new(Vec::<(&[u32], u32)>::new()) };
        let symbols = (0..size as u32).filter(|&id| used[id as usize] && linear.parts[id as usize].rank == 0);
        let symbols: Vec<u32> = symbols.collect();
        for (code, &id) in symbols.iter().enumerate() {
            linear.codes[id as usize] = code as u32;
        }
        // A piece whose own text becomes others is never seen.
        let mut seen = vec![true; size];
        for &id in &made {
            let Part { left, right, .. } = linear.parts[id as usize];
            seen[id as usize] =
                seen[left as usize] && seen[right as usize] && linear.stay_apart(pairs, left, right);
        }
        let keys: Vec<(Vec<u32>, u32)> = symbols
            .iter()
            .chain(made.iter().filter(|&&id| seen[id as usize]))
            .map(|&id| (linear.spelling(id), id))
            .collect();
        linear.trie = Trie::new(keys.clone());
        for (key, id) in keys {
            let mut node = Trie::ROOT;
            for &code in &key[..key.len() - 1] {
                node = linear.trie.child(node, code)?;
                match linear.trie.value(node) {
                    NONE => {}
                    shorter => linear.parts[id as usize].shorter = shorter,
                }
            }
        }
        Some(linear)
    }

    /// The codes of a piece's symbols.
    fn spelling(&self, id: u32) -> Vec<u32> {
        let mut codes = Vec::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            match self.parts[id as usize] {
                Part { rank: 0, .. } => codes.push(self.codes[id as usize]),
                Part { left, right, .. } => open.extend([right, left]),
            }
        }
        codes
    }

    /// Whether the text of `a` and `b` is encoded as these two.
    #[inline]
    fn fit(&self, pairs: &Pairs, a: u32, b: u32) -> bool {
        pairs.get(a, b).is_none() && self.stay_apart(pairs, a, b)
    }

    /// Whether no merge crosses from `a` to `b` while they are built. Undoes the merges at their common
    /// boundary, last one first, and checks whether one across it would have come earlier.
    #[inline]
    fn stay_apart(&self, pairs: &Pairs, mut a: u32, mut b: u32) -> bool {
        loop {
            let (left, right) = (self.parts[a as usize], self.parts[b as usize]);
            let before = if left.rank > right.rank {
                a = left.right;
                left.rank
            } else if right.rank > 0 {
                // Of equal pairs, the left one is merged first: the one across comes before this one.
                b = right.left;
                right.rank + 1
            } else {
                return true;
            };
            if pairs.get(a, b).is_some_and(|merge| merge.rank + 1 < before) {
                return false;
            }
        }
    }

    /// The longest piece that the symbols begin with.
    #[inline]
    fn longest(&self, symbols: &[Piece]) -> u32 {
        // Alone if it is in no merge.
        let mut best = symbols[0].id;
        let mut node = Trie::ROOT;
        for symbol in symbols {
            match self.trie.child(node, self.codes[symbol.id as usize]) {
                Some(child) => node = child,
                None => break,
            }
            match self.trie.value(node) {
                NONE => {}
                id => best = id,
            }
        }
        best
    }

    /// Merges the symbols from `first` on. Returns `false` and leaves them unchanged if the tables do
    /// not belong to `pairs`, which does not happen.
    pub fn merge(&self, pairs: &Pairs, out: &mut Vec<Piece>, first: usize) -> bool {
        let end = out.len();
        let mut dead = Dead::default();
        let mut at = first;
        let mut last = None;
        // The pieces found are kept behind the symbols.
        while at < end {
            let mut candidate = self.longest(&out[at..end]);
            loop {
                if candidate == NONE {
                    // Back to before the last piece, which must be shorter.
                    dead.insert(at - first);
                    let Some(piece) = out.pop_if(|_| last.is_some()) else {
                        return false;
                    };
                    let part = self.parts[piece.id as usize];
                    at -= part.len as usize;
                    last = (out.len() > end).then(|| out[out.len() - 1].id);
                    candidate = part.shorter;
                    continue;
                }
                let part = self.parts[candidate as usize];
                let next = at + part.len as usize;
                if !dead.contains(next - first) && last.is_none_or(|last| self.fit(pairs, last, candidate)) {
                    out.push(Piece { id: candidate, end: out[next - 1].end });
                    last = Some(candidate);
                    at = next;
                    break;
                }
                candidate = part.shorter;
            }
        }
        out.copy_within(end.., first);
        out.truncate(first + out.len() - end);
        true
    }
}

/// A set of positions; the first ones need no memory.
#[derive(Default)]
struct Dead {
    first: u64,
    rest: Vec<u64>,
}

impl Dead {
    fn insert(&mut self, place: usize) {
        if place < 64 {
            self.first |= 1 << place;
            return;
        }
        let word = place / 64;
        if word >= self.rest.len() {
            self.rest.resize(word + 1, 0);
        }
        self.rest[word] |= 1 << (place % 64);
    }

    #[inline]
    fn contains(&self, place: usize) -> bool {
        if place < 64 {
            return self.first >> place & 1 == 1;
        }
        self.rest.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::merge::by_queue, super::pairs::Merge, *};
    use rand_pcg::{
        Pcg64Mcg,
        rand_core::{Rng, SeedableRng},
    };

    /// Random merges of few symbols, hence many that overlap and many runs of equal pieces.
    #[test]
    fn the_same_as_with_a_queue() {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let mut number = |n: usize| rng.next_u32() as usize % n;
        let mut checked = 0;
        for round in 0..400 {
            let symbols = 1 + round % 3;
            let mut texts: Vec<Vec<u32>> = (0..symbols as u32).map(|id| vec![id]).collect();
            let mut merges = Vec::new();
            let mut pairs = Pairs::default();
            for _ in 0..40 {
                let (a, b) = (number(texts.len()), number(texts.len()));
                let text = [&texts[a][..], &texts[b]].concat();
                if text.len() < 12 && pairs.get(a as u32, b as u32).is_none() {
                    let id = texts.len() as u32;
                    pairs.insert(a as u32, b as u32, Merge { rank: merges.len() as u32, id });
                    merges.push((a as u32, b as u32, id));
                    texts.push(text);
                }
            }
            let linear =
                Linear::new(&pairs, merges.iter().copied(), texts.len(), |id| id < symbols as u32).unwrap();
            for _ in 0..50 {
                let len = number(100);
                let word: Vec<_> =
                    (0..len).map(|i| Piece { id: number(symbols) as u32, end: 2 * i + 2 }).collect();
                let before = [Piece { id: 9, end: 9 }];
                let mut expected = [&before[..], &word].concat();
                let mut found = expected.clone();
                by_queue(&pairs, &mut expected, 1, None);
                assert!(linear.merge(&pairs, &mut found, 1));
                assert_eq!(found, expected, "{merges:?} {word:?}");
                checked += 1;
            }
        }
        assert_eq!(checked, 20_000);
    }

    fn tables(merges: &[(u32, u32, u32)]) -> Option<Linear> {
        let mut pairs = Pairs::default();
        for (rank, &(a, b, id)) in merges.iter().enumerate() {
            pairs.insert(a, b, Merge { rank: rank as u32, id });
        }
        Linear::new(&pairs, merges.iter().copied(), 10, |id| id < 3)
    }

    #[test]
    fn merges_it_is_not_exact_for_are_refused() {
        assert!(tables(&[(0, 1, 3), (3, 2, 4)]).is_some());
        assert!(tables(&[(3, 2, 4), (0, 1, 3)]).is_none(), "used before it is made");
        assert!(tables(&[(0, 1, 3), (1, 2, 4), (3, 2, 5), (0, 4, 5)]).is_none(), "made in two ways");
        assert!(tables(&[(0, 1, 2)]).is_none(), "makes a symbol");
    }
}
