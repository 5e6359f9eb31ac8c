//! NumPy's random number generator, `numpy.random.default_rng(seed)`, from which sacreBLEU draws its samples.

/// PCG64 (O'Neill 2014: XSL-RR with 128 bits of state), seeded as NumPy's `SeedSequence` does, with NumPy's
/// sampling methods.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    state: u128,
    increment: u128,
    /// The unused half of the last 64 bits.
    half: Option<u32>,
}

const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;

impl Generator {
    /// The generator for a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let [state, stream] = seeds(seed);
        let increment = (stream << 1) | 1;
        let mut generator = Self { state: increment.wrapping_add(state), increment, half: None };
        generator.step();
        generator
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    fn next_u64(&mut self) -> u64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// Every 64 bits give two numbers, lower half first.
    fn next_u32(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        let next = self.next_u64();
        self.half = Some((next >> 32) as u32);
        next as u32
    }

    /// A number below `n`, as drawn by `integers(n)` and `choice(n)` (Lemire 2019).
    ///
    /// # Panics
    /// If `n` is 0.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        assert!(n > 0, "nothing to draw from");
        if n == 1 {
            return 0;
        }
        loop {
            let product = u64::from(self.next_u32()) * u64::from(n);
            let low = product as u32;
            if low >= n || low >= n.wrapping_neg() % n {
                return (product >> 32) as u32;
            }
        }
    }

    /// Booleans as drawn by `integers(2, dtype=bool)`: the bits of successive numbers, lowest first.
    pub(crate) fn bits(mut self) -> impl Iterator<Item = bool> {
        std::iter::repeat_with(move || self.next_u32())
            .flat_map(|bits| (0..32).map(move |at| bits >> at & 1 == 1))
    }
}

/// State and stream of a seed, as in `SeedSequence(seed).generate_state(4, numpy.uint64)` (after O'Neill's
/// `seed_seq_fe`).
fn seeds(seed: u64) -> [u128; 2] {
    let hash = |value: u32, constant: &mut u32, multiplier: u32| {
        let value = value ^ *constant;
        *constant = constant.wrapping_mul(multiplier);
        let value = value.wrapping_mul(*constant);
        value ^ (value >> 16)
    };
    let mut constant = 0x43b0_d7e5;
    let mut mixed = |value| hash(value, &mut constant, 0x931e_8875);
    let mut pool = [seed as u32, (seed >> 32) as u32, 0, 0].map(&mut mixed);
    for source in 0..4 {
        for target in (0..4).filter(|target| *target != source) {
            let product = pool[target].wrapping_mul(0xca01_f9dd);
            let value = product.wrapping_sub(mixed(pool[source]).wrapping_mul(0x4973_f715));
            pool[target] = value ^ (value >> 16);
        }
    }
    let mut constant = 0x8b51_f9dd;
    let mut words = pool.into_iter().cycle().map(|word| u128::from(hash(word, &mut constant, 0x58f3_8ded)));
    // Of four words each the first pair is the upper half, and in a pair the first word is the lower one.
    let mut seed = || [64, 96, 0, 32].iter().fold(0, |seed, at| seed | words.next().unwrap_or(0) << at);
    [seed(), seed()]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Of NumPy 2.4: `default_rng(seed)`, each with a new generator.

    #[test]
    fn numbers_are_numpys() {
        // bit_generator.random_raw(3)
        let raw = |seed| {
            let mut generator = Generator::new(seed);
            [0; 3].map(|_| generator.next_u64())
        };
        assert_eq!(
            raw(12345),
            [4_193_609_425_186_963_869, 5_843_160_025_838_961_886, 14_708_796_524_633_321_433]
        );
        assert_eq!(raw(0), [11_749_869_230_777_074_271, 4_976_686_463_289_251_617, 755_828_109_848_996_024]);
        assert_eq!(
            raw((1 << 40) + 7),
            [15_307_346_044_642_009_514, 4_709_548_916_763_817_589, 2_836_937_976_252_648_324]
        );
    }

    #[test]
    fn draws_are_numpys() {
        // choice(n, size=…); a third of the draws below 3,000,000,000 are drawn again.
        let draws = |seed, n, size| {
            let mut generator = Generator::new(seed);
            (0..size).map(|_| generator.below(n)).collect::<Vec<u32>>()
        };
        assert_eq!(draws(12345, 10, 8), [6, 2, 7, 3, 2, 7, 6, 6]);
        assert_eq!(draws(12345, 3_000_000_000, 4), [2_097_645_094, 682_008_066, 2_365_940_964, 950_275_018]);
        assert_eq!(draws(0, 3_000_000_000, 4), [2_551_872_677, 1_910_885_061, 1_533_409_439, 809_360_140]);
        assert_eq!(draws(1, 1, 2), [0, 0]);
        // integers(2, size=40, dtype=bool)
        let bits: String = Generator::new(0).bits().take(40).map(|bit| if bit { '1' } else { '0' }).collect();
        assert_eq!(bits, "1111101001000001010000111001101111110011");
    }
}
