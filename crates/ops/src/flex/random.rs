//! Dropout masks as a function of a seed, a row and a column: redrawn wherever needed.

/// Decides which elements of a row are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    seed: u64,
    /// A draw below it drops.
    threshold: u32,
    /// `1 / (1 − p)`
    pub scale: f32,
}

impl Keep {
    pub fn new(prob: f64, seed: u64) -> Self {
        let threshold = (prob.clamp(0.0, 1.0) * 4_294_967_296.0).min(4_294_967_295.0) as u32;
        Self { seed, threshold, scale: (1.0 / (1.0 - prob)) as f32 }
    }

    /// The keys of a row.
    pub fn row(&self, row: usize) -> RowKeep {
        // SplitMix64 (Steele et al. 2014).
        let mut z = self.seed.wrapping_add((row as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        RowKeep { keys: [z as u32, (z >> 32) as u32], threshold: self.threshold, scale: self.scale }
    }
}

/// [`Keep`] in one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowKeep {
    keys: [u32; 2],
    threshold: u32,
    scale: f32,
}

impl RowKeep {
    /// The factor for the element of this column: 0 or `1 / (1 − p)`.
    #[inline(always)]
    pub fn factor(self, column: usize) -> f32 {
        let draw =
            mix(mix((column as u32).wrapping_mul(0x9E37_79B9).wrapping_add(self.keys[0])) ^ self.keys[1]);
        if draw >= self.threshold { self.scale } else { 0.0 }
    }
}

/// A bijection of 32-bit words with little bias (Wellons 2018, "lowbias32"); vectorises.
#[inline(always)]
fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7FEB_352D);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846C_A68B);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_fair_and_unlike_each_other() {
        let keep = Keep::new(0.3, 7);
        let (rows, columns) = (400, 256);
        let mask: Vec<bool> =
            (0..rows * columns).map(|i| keep.row(i / columns).factor(i % columns) == 0.0).collect();
        let share = |mut hits: usize, n: usize| {
            hits *= 10_000;
            hits / n
        };
        // Five standard deviations of a binomial of 102,400 draws are 0.7 %.
        let dropped = mask.iter().filter(|dropped| **dropped).count();
        assert!(share(dropped, mask.len()).abs_diff(3_000) < 72, "{dropped} dropped");
        // Neighbours in a row, in a column, and under another seed are independent: 9 % both dropped.
        for lag in [1, 2, 16, columns, columns + 1] {
            let both = mask.iter().zip(&mask[lag..]).filter(|(a, b)| **a && **b).count();
            assert!(share(both, mask.len() - lag).abs_diff(900) < 45, "lag {lag}: {both}");
        }
        let other = Keep::new(0.3, 8);
        let both =
            (0..mask.len()).filter(|i| mask[*i] && other.row(i / columns).factor(i % columns) == 0.0).count();
        assert!(share(both, mask.len()).abs_diff(900) < 45, "another seed: {both}");
    }

    #[test]
    fn kept_values_are_scaled() {
        let row = Keep::new(0.2, 1).row(0);
        let factors: std::collections::BTreeSet<u32> = (0..100).map(|i| row.factor(i).to_bits()).collect();
        assert_eq!(factors, [0f32.to_bits(), 1.25f32.to_bits()].into());
        assert!((0..1_000).all(|i| Keep::new(0.0, 1).row(i).factor(i) == 1.0));
    }
}
