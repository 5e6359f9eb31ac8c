//! Words already encoded.

use std::sync::{Mutex, PoisonError};

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use crate::models::Piece;

/// Words longer than this are rare and not kept.
const LONGEST: usize = 64;
/// At most this many words; a full cache takes no more, since the frequent words come early.
const WORDS: usize = 1 << 15;

/// The pieces of words, in one arena. Bounded: at most 32,768 words of at most 64 bytes, some 6 MB.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    table: HashTable<Word>,
    hasher: DefaultHashBuilder,
    text: String,
    pieces: Vec<Piece>,
    /// For words that are not kept.
    scratch: Vec<Piece>,
}

#[derive(Debug, Clone, Copy)]
struct Word {
    text: u32,
    len: u32,
    first: u32,
    count: u32,
}

impl Cache {
    /// The pieces of `word`, which `make` appends if they are not known.
    #[inline]
    pub fn pieces(&mut self, word: &str, make: impl FnOnce(&str, &mut Vec<Piece>)) -> &[Piece] {
        if word.len() <= LONGEST {
            let hash = self.hasher.hash_one(word.as_bytes());
            let text = &self.text;
            let same =
                |w: &Word| &text.as_bytes()[w.text as usize..(w.text + w.len) as usize] == word.as_bytes();
            if let Some(found) = self.table.find(hash, same) {
                return &self.pieces[found.first as usize..(found.first + found.count) as usize];
            }
            if self.table.len() < WORDS {
                let first = self.pieces.len();
                make(word, &mut self.pieces);
                let entry = Word {
                    text: self.text.len() as u32,
                    len: word.len() as u32,
                    first: first as u32,
                    count: (self.pieces.len() - first) as u32,
                };
                self.text.push_str(word);
                let (text, hasher) = (&self.text, &self.hasher);
                self.table.insert_unique(hash, entry, |w| {
                    hasher.hash_one(&text.as_bytes()[w.text as usize..(w.text + w.len) as usize])
                });
                return &self.pieces[first..];
            }
        }
        self.scratch.clear();
        make(word, &mut self.scratch);
        &self.scratch
    }
}

/// The caches of a tokenizer: one for each thread that is encoding at the moment, so that nobody waits
/// for another's look-up.
#[derive(Debug, Default)]
pub(crate) struct Caches(Mutex<Vec<Cache>>);

impl Caches {
    /// Runs `work` with a cache that no other thread uses meanwhile.
    pub fn with<T>(&self, work: impl FnOnce(&mut Cache) -> T) -> T {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cache = lock().pop().unwrap_or_default();
        let result = work(&mut cache);
        lock().push(cache);
        result
    }
}

/// A clone starts with empty caches.
impl Clone for Caches {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_once_and_bounded() {
        let mut cache = Cache::default();
        let mut made = 0;
        for i in 0..2 * (WORDS + 10) {
            let i = i % (WORDS + 10);
            let pieces = cache.pieces(&format!("w{i}"), |_, out| {
                made += 1;
                out.push(Piece { id: i as u32, end: 1 });
            });
            assert_eq!(pieces, [Piece { id: i as u32, end: 1 }]);
        }
        assert_eq!(made, WORDS + 20);
    }
}
