//! A double-array trie that finds the longest piece at a position (Aoe 1989, "An Efficient Digital
//! Search Algorithm by Using a Double-Array Structure").

/// No node, or no value.
pub(crate) const NONE: u32 = u32::MAX;

/// Sequences of small codes, each with a value. Following one code is one look-up: the child of a node
/// by `code` is at `base + code`, if the node there has it as parent.
#[derive(Debug, Clone)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    base: u32,
    parent: u32,
    value: u32,
}

const FREE: Node = Node { base: 0, parent: NONE, value: NONE };

/// Number of free slots tried for a node's children before new ones are added.
const TRIES: usize = 64;

impl Trie {
    /// The node of the empty sequence.
    pub const ROOT: u32 = 0;

    /// A trie of `keys`; of equal keys, one value is kept. `value`s must be less than [`NONE`].
    pub fn new<C: Copy + Ord + Into<u32>, K: AsRef<[C]>>(mut keys: Vec<(K, u32)>) -> Self {
        keys.sort_unstable_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        let mut trie = Self { nodes: vec![FREE] };
        let mut free = FreeList::default();
        free.grow(1);
        free.take(0);
        // Nodes whose children are to be made: the node, its keys, and how long they are so far.
        let mut open = std::collections::VecDeque::from([(Self::ROOT, 0..keys.len(), 0)]);
        let mut codes = Vec::new();
        while let Some((node, mut range, depth)) = open.pop_front() {
            while range.start < range.end && keys[range.start].0.as_ref().len() == depth {
                trie.nodes[node as usize].value = keys[range.start].1;
                range.start += 1;
            }
            codes.clear();
            let first = open.len();
            while range.start < range.end {
                let code = keys[range.start].0.as_ref()[depth];
                let same = keys[range.clone()].partition_point(|(key, _)| key.as_ref()[depth] == code);
                open.push_back((NONE, range.start..range.start + same, depth + 1));
                codes.push(code.into());
                range.start += same;
            }
            if codes.is_empty() {
                continue;
            }
            let base = free.place(&codes);
            trie.nodes[node as usize].base = base as u32;
            trie.nodes.resize(free.len(), FREE);
            for (child, &code) in open.range_mut(first..).zip(&codes) {
                let slot = base + code as usize;
                free.take(slot);
                trie.nodes[slot].parent = node;
                child.0 = slot as u32;
            }
        }
        trie
    }

    /// The node reached from `node` by `code`.
    #[inline]
    pub fn child(&self, node: u32, code: u32) -> Option<u32> {
        let slot = self.nodes[node as usize].base.wrapping_add(code);
        (self.nodes.get(slot as usize)?.parent == node).then_some(slot)
    }

    /// The value of the sequence that leads to `node`, or [`NONE`].
    #[inline]
    pub fn value(&self, node: u32) -> u32 {
        self.nodes[node as usize].value
    }
}

/// The free slots, linked in order.
#[derive(Default)]
struct FreeList {
    /// For every slot, the free ones before and after it.
    links: Vec<(u32, u32)>,
    taken: Vec<bool>,
    first: u32,
    last: u32,
}

impl FreeList {
    fn len(&self) -> usize {
        self.taken.len()
    }

    fn grow(&mut self, len: usize) {
        for place in self.len() as u32..len as u32 {
            let before = if self.links.is_empty() || self.last == NONE { NONE } else { self.last };
            match before {
                NONE => self.first = place,
                before => self.links[before as usize].1 = place,
            }
            self.links.push((before, NONE));
            self.taken.push(false);
            self.last = place;
        }
    }

    fn take(&mut self, place: usize) {
        self.taken[place] = true;
        let (before, after) = self.links[place];
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].1 = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].0 = before,
        }
    }

    /// A base at which all of `codes`, in ascending order, have free slots; adds slots if
    /// necessary.
    fn place(&mut self, codes: &[u32]) -> usize {
        let (low, high) = (codes[0] as usize, codes[codes.len() - 1] as usize);
        let mut place = self.first;
        let mut base = None;
        for _ in 0..TRIES {
            if place == NONE {
                break;
            }
            if let Some(start) = (place as usize).checked_sub(low) {
                let free = |&code: &u32| !self.taken.get(start + code as usize).is_some_and(|&taken| taken);
                if codes.iter().all(free) {
                    base = Some(start);
                    break;
                }
            }
            place = self.links[place as usize].1;
        }
        let base = base.unwrap_or_else(|| self.len().saturating_sub(low).max(1));
        self.grow(self.len().max(base + high + 1));
        base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(trie: &Trie, key: &[u32]) -> u32 {
        let node = key.iter().try_fold(Trie::ROOT, |node, &code| trie.child(node, code));
        node.map_or(NONE, |node| trie.value(node))
    }

    #[test]
    fn finds_what_was_put_in() {
        let mut state = 7u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let mut keys = std::collections::BTreeMap::new();
        for i in 0..5000u32 {
            let wide = if i % 7 == 0 { 3000 } else { 5 };
            let key: Vec<u32> = (0..next(9)).map(|_| next(wide) as u32).collect();
            keys.insert(key, i);
        }
        let trie = Trie::new(keys.clone().into_iter().collect());
        for (key, value) in &keys {
            assert_eq!(find(&trie, key), *value);
        }
        for _ in 0..5000 {
            let key: Vec<u32> = (0..next(9)).map(|_| next(6) as u32).collect();
            assert_eq!(find(&trie, &key), keys.get(&key).copied().unwrap_or(NONE), "{key:?}");
        }
        assert_eq!(find(&trie, &[u32::MAX]), NONE);
    }

    #[test]
    fn empty() {
        let trie = Trie::new(Vec::<(&[u8], u32)>::new());
        assert_eq!((trie.child(Trie::ROOT, 0), trie.value(Trie::ROOT)), (None, NONE));
    }
}
