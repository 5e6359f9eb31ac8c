//! Cache of encoded words.

use std::{
    cell::Cell,
    sync::{
        Mutex, PoisonError, TryLockError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::models::Piece;

/// Longer words, and words with more pieces, are rare and not cached.
const LONGEST: usize = 24;
const PIECES: usize = 7;

/// Default number of words cached per thread: 1 MB, which fits the processor's cache.
pub(crate) const WORDS: usize = 1 << 14;
/// Initial capacity of a cache.
const FIRST: usize = 1 << 8;

/// A word and its pieces, in one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Entry {
    bytes: [u64; LONGEST / 8],
    ids: [u32; PIECES],
    ends: [u8; PIECES],
    /// Of the word in bytes, 0 in an empty entry.
    len: u8,
    count: u8,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// The bytes of a word, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    bytes: [u64; LONGEST / 8],
    len: u8,
}

const EMPTY: Entry = Entry { bytes: [0; LONGEST / 8], ids: [0; PIECES], ends: [0; PIECES], len: 0, count: 0 };

impl Entry {
    #[inline]
    fn is(&self, key: &Key) -> bool {
        self.bytes == key.bytes && self.len == key.len
    }
}

impl Key {
    /// The key of `text[start..end]`.
    #[inline]
    fn new(text: &[u8], start: usize, end: usize) -> Option<Self> {
        let len = end - start;
        if len > LONGEST {
            return None;
        }
        let mut bytes = [0; LONGEST / 8];
        if let Some(window) = text.get(start..start + LONGEST) {
            // Whole reads, then what lies behind the word is cleared: faster than copying `len` bytes.
            for (i, (word, chunk)) in bytes.iter_mut().zip(window.as_chunks::<8>().0).enumerate() {
                let keep = len.saturating_sub(8 * i).min(8) as u32;
                let mask = u64::MAX.checked_shr(64 - 8 * keep).unwrap_or(0);
                *word = u64::from_le_bytes(*chunk) & mask;
            }
        } else {
            let mut copy = [0; LONGEST];
            copy[..len].copy_from_slice(&text[start..end]);
            for (word, chunk) in bytes.iter_mut().zip(copy.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*chunk);
            }
        }
        Some(Self { bytes, len: len as u8 })
    }

    /// A hash: folded products with odd constants. Collisions cost speed, not correctness.
    #[inline]
    fn hash(&self) -> usize {
        let [a, b, c] = self.bytes;
        let fold = |x: u64, y: u64| {
            let product = u128::from(x) * u128::from(y);
            product as u64 ^ (product >> 64) as u64
        };
        let front = fold(a ^ 0x9E37_79B9_7F4A_7C15, b ^ 0xD1B5_4A32_D192_ED03);
        fold(front ^ c ^ u64::from(self.len), 0xA24B_AED4_963E_E407) as usize
    }
}

/// The pieces of words. On a hash collision, the older word is evicted: frequent words return at once,
/// and the cache adapts to its text.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// A power of two, or none yet.
    entries: Vec<Entry>,
    /// Words inserted since the cache last grew.
    entered: usize,
    scratch: Vec<Piece>,
}

/// Pieces, cached or just made.
pub(crate) enum Pieces<'a> {
    /// The first `count` of these.
    Kept {
        ids: &'a [u32; PIECES],
        ends: &'a [u8; PIECES],
        count: usize,
    },
    Made(&'a [Piece]),
}

impl Pieces<'_> {
    /// Appends the ids; returns their number.
    #[inline]
    pub fn ids(&self, out: &mut Vec<u32>) -> usize {
        match self {
            Self::Kept { ids, count, .. } => {
                // A copy of a known length, shortened afterwards, is faster than one of any length.
                let len = out.len() + count;
                out.extend_from_slice(*ids);
                out.truncate(len);
                *count
            }
            Self::Made(pieces) => {
                out.extend(pieces.iter().map(|piece| piece.id));
                pieces.len()
            }
        }
    }

    /// Calls `each` with every piece.
    #[inline]
    pub fn for_each(&self, mut each: impl FnMut(Piece)) {
        match self {
            Self::Kept { ids, ends, count } => {
                let pieces = ids.iter().zip(*ends).take(*count);
                pieces.for_each(|(&id, &end)| each(Piece { id, end: end.into() }));
            }
            Self::Made(pieces) => pieces.iter().copied().for_each(each),
        }
    }
}

impl Cache {
    /// The pieces of `text[start..end]`; `make` appends them if not cached. At most `words` are cached.
    #[inline]
    pub fn pieces(
        &mut self,
        (text, start, end): (&str, usize, usize),
        words: usize,
        make: impl FnOnce(&str, &mut Vec<Piece>),
    ) -> Pieces<'_> {
        let key = Key::new(text.as_bytes(), start, end).filter(|_| words > 0);
        let Some(key) = key else {
            self.scratch.clear();
            make(&text[start..end], &mut self.scratch);
            return Pieces::Made(&self.scratch);
        };
        if 2 * self.entered >= self.entries.len() && self.entries.len() < words {
            self.grow();
        }
        let first = key.hash() & (self.entries.len() - 1);
        let slot = match first {
            first if self.entries[first].is(&key) => first,
            first if self.entries[first ^ 1].is(&key) => first ^ 1,
            first => {
                self.scratch.clear();
                make(&text[start..end], &mut self.scratch);
                let count = self.scratch.len();
                if count > PIECES {
                    return Pieces::Made(&self.scratch);
                }
                let Key { bytes, len } = key;
                let mut entry = Entry { bytes, len, count: count as u8, ..EMPTY };
                for (i, piece) in self.scratch.iter().enumerate() {
                    entry.ids[i] = piece.id;
                    // Within the word, which has at most 24 bytes.
                    entry.ends[i] = piece.end as u8;
                }
                self.entries[first ^ 1] = self.entries[first];
                self.entries[first] = entry;
                self.entered += 1;
                first
            }
        };
        let entry = &self.entries[slot];
        Pieces::Kept { ids: &entry.ids, ends: &entry.ends, count: entry.count.into() }
    }

    #[cold]
    fn grow(&mut self) {
        let len = (4 * self.entries.len()).max(FIRST);
        let old = std::mem::replace(&mut self.entries, vec![EMPTY; len]);
        self.entered = 0;
        for entry in old.into_iter().filter(|entry| entry.len > 0) {
            let slot = Key { bytes: entry.bytes, len: entry.len }.hash() & (len - 1);
            self.entries[slot ^ 1] = self.entries[slot];
            self.entries[slot] = entry;
        }
    }

    fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.scratch.capacity() * size_of::<Piece>()
    }
}

/// The caches of a tokenizer: a thread takes the one with its number, or the next free one, so that
/// no thread waits.
#[derive(Debug)]
pub(crate) struct Caches {
    slots: Box<[Slot]>,
    /// Maximum words per cache: a power of two, or 0.
    pub words: usize,
}

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(Mutex<Cache>);

/// Concurrent threads beyond this number have no cache.
const SLOTS: usize = 64;

impl Caches {
    /// Caches of `words` words each, rounded up.
    pub fn new(words: usize) -> Self {
        let words = if words == 0 { 0 } else { words.max(FIRST).next_power_of_two() };
        // Each size is four times the one before.
        let words = if words.trailing_zeros() % 2 == 1 { 2 * words } else { words };
        Self { slots: (0..SLOTS).map(|_| Slot::default()).collect(), words }
    }

    /// Runs `work` with a cache that no other thread uses meanwhile.
    pub fn with<T>(&self, work: impl FnOnce(&mut Cache) -> T) -> T {
        let number = thread_number();
        for i in 0..SLOTS {
            match self.slots[(number + i) % SLOTS].0.try_lock() {
                Ok(mut cache) => return work(&mut cache),
                Err(TryLockError::Poisoned(cache)) => return work(&mut cache.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        work(&mut Cache::default())
    }

    /// Bytes in use.
    pub fn memory(&self) -> usize {
        let lock = |slot: &Slot| slot.0.lock().unwrap_or_else(PoisonError::into_inner).memory();
        self.slots.iter().map(lock).sum()
    }
}

impl Default for Caches {
    fn default() -> Self {
        Self::new(WORDS)
    }
}

/// A clone starts with empty caches.
impl Clone for Caches {
    fn clone(&self) -> Self {
        Self::new(self.words)
    }
}

/// A number for every thread, in order of first use.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<Option<usize>> = const { Cell::new(None) });
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let new = NEXT.fetch_add(1, Ordering::Relaxed);
            number.set(Some(new));
            new
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids and ends of a word, which are made from its length.
    fn look_up(
        cache: &mut Cache,
        text: &str,
        start: usize,
        end: usize,
        made: &mut usize,
    ) -> Vec<(u32, usize)> {
        let mut found = Vec::new();
        let pieces = cache.pieces((text, start, end), 1 << 10, |word, out| {
            *made += 1;
            assert_eq!(word, &text[start..end]);
            let sum = word.bytes().map(u32::from).sum();
            out.push(Piece { id: sum, end: word.len() });
        });
        pieces.for_each(|piece| found.push((piece.id, piece.end)));
        found
    }

    #[test]
    fn words_at_every_place_of_a_text() {
        let text: String = (0..400).map(|i| char::from(b'!' + (i * i % 90) as u8)).collect();
        let mut cache = Cache::default();
        let mut made = 0;
        let mut before = 0;
        for round in 0..2 {
            before = made;
            for len in 1..30 {
                for start in (0..text.len() - len).step_by(1 + 10 * len) {
                    let end = start + len;
                    let sum = text[start..end].bytes().map(u32::from).sum();
                    assert_eq!(look_up(&mut cache, &text, start, end, &mut made), [(sum, len)]);
                }
            }
            assert!(made > before, "round {round}: longer ones are not kept");
        }
        assert!(made < 2 * before, "{before} made, then {made} in all");
    }

    #[test]
    fn frequent_words_stay_and_memory_is_bounded() {
        let mut cache = Cache::default();
        let mut made = 0;
        for i in 0..50_000 {
            for word in ["the", &format!("w{i}")] {
                look_up(&mut cache, word, 0, word.len(), &mut made);
            }
        }
        assert!((50_000..51_500).contains(&made), "{made}: `the` is made again now and then");
        assert!(cache.memory() < 70_000, "{}", cache.memory());
    }

    #[test]
    fn sizes() {
        assert_eq!([0, 1, 256, 257, 1 << 15].map(|n| Caches::new(n).words), [0, 256, 256, 1024, 1 << 16]);
        let mut made = 0;
        for _ in 0..2 {
            let mut cache = Cache::default();
            cache.pieces(("abc", 0, 3), 0, |_, _| made += 1);
            assert_eq!(cache.memory(), 0);
        }
        assert_eq!(made, 2);
    }
}
