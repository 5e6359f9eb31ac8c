//! The merges of neighbouring pieces.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

/// A pair's rank among the merges and the resulting piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge {
    pub rank: u32,
    pub id: u32,
}

impl Merge {
    pub const NONE: Self = Self { rank: u32::MAX, id: 0 };
}

/// The merges by pair of ids.
#[derive(Debug, Clone, Default)]
pub(super) struct Pairs(HashMap<u64, Merge, BuildHasherDefault<Mix>>);

impl Pairs {
    pub fn with_capacity(capacity: usize) -> Self {
        Self(HashMap::with_capacity_and_hasher(capacity, BuildHasherDefault::default()))
    }

    pub fn insert(&mut self, a: u32, b: u32, merge: Merge) {
        self.0.insert(key(a, b), merge);
    }

    #[inline]
    pub fn get(&self, a: u32, b: u32) -> Option<Merge> {
        self.0.get(&key(a, b)).copied()
    }
}

#[inline]
fn key(a: u32, b: u32) -> u64 {
    u64::from(a) << 32 | u64::from(b)
}

/// A folded multiplication: sufficient for pairs of ids, and faster than hashing bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}
