//! Random numbers that a case of the campaign is a function of.

/// SplitMix64 (Steele et al. 2014): every seed is as good as any other.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of case `index` of the kind `kind`.
    pub fn of(seed: u64, kind: &str, index: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(&index.to_le_bytes()).update(kind.as_bytes());
        let first = hasher.finalize().as_bytes().first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        Self(first)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where there is none.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.next() % end as u64) as usize }
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of `items`, of which there is at least one.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Between 0 and 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_its_own_numbers_and_always_the_same() {
        let first = |seed, kind, index| Random::of(seed, kind, index).next();
        assert_eq!(first(1, "texts", 7), first(1, "texts", 7));
        let others = [first(1, "texts", 7), first(2, "texts", 7), first(1, "disks", 7), first(1, "texts", 8)];
        for (i, a) in others.iter().enumerate() {
            assert!(others[i + 1..].iter().all(|b| a != b));
        }
        let mut random = Random::of(1, "texts", 0);
        assert!((0..1000).all(|_| random.below(3) < 3 && (0.0..1.0).contains(&random.share())));
        assert_eq!(random.below(0), 0);
    }
}
