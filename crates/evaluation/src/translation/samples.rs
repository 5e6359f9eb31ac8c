//! Scores of samples of a corpus's lines, and sacreBLEU's statistics of them, bit for bit.

use super::generator::Generator;
use super::lines::Lines;
use super::number::Single;
use super::{Confidence, Metric};

/// The scores of samples, as sacreBLEU's NumPy array.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Samples {
    values: Vec<f64>,
    /// Whether the array is of `float32`. A result in that arithmetic is the one in `float64`, rounded once more.
    single: bool,
}

impl Samples {
    /// Scores of `n` samples with replacement, each with as many lines as there are.
    ///
    /// sacreBLEU sums the statistics of a sample in `float32`, in the order drawn.
    pub(crate) fn bootstrap(metric: &impl Metric, lines: &Lines, n: usize, seed: u64) -> Self {
        let width = metric.width();
        let lines = lines.singles();
        // Statistics of more than 2^32 lines do not fit into any memory.
        let n_lines = u32::try_from(lines.len() / width).unwrap_or(u32::MAX);
        let mut generator = Generator::new(seed);
        let mut sums = vec![0.0; width];
        let mut single = true;
        let values = (0..n).map(|_| {
            sums.fill(0.0);
            for _ in 0..n_lines {
                let start = width * generator.below(n_lines) as usize;
                sums.iter_mut().zip(&lines[start..start + width]).for_each(|(sum, value)| *sum += value);
            }
            let numbers: Vec<Single> = sums.iter().copied().map(Single::Numpy).collect();
            let value = metric.value(&numbers);
            single &= matches!(value, Single::Numpy(_));
            value.into()
        });
        Self { values: values.collect(), single }
    }

    fn rounded(&self, value: f64) -> f64 {
        if self.single { f64::from(value as f32) } else { value }
    }

    /// The confidence of a score with these sample scores, with the mean of Python's `statistics`.
    pub(crate) fn confidence(&self) -> Confidence {
        Confidence { mean: self.rounded(exact_mean(&self.values)), half_width: self.half_width() }
    }

    /// The same with NumPy's mean, which sacreBLEU uses in paired tests.
    pub(crate) fn confidence_of_paired(&self) -> Confidence {
        let sorted = Self { values: self.sorted(), single: self.single };
        Confidence { mean: sorted.mean(), half_width: self.half_width() }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// Half the width of the range without the highest and lowest fortieth.
    fn half_width(&self) -> f64 {
        let sorted = self.sorted();
        let lower = sorted.len() / 40;
        let upper = (sorted.len() - lower).saturating_sub(1);
        let at = |place: usize| sorted.get(place).copied().unwrap_or(0.0);
        self.rounded(0.5 * self.rounded(at(upper) - at(lower)))
    }

    fn mean(&self) -> f64 {
        self.rounded(self.pairwise_sum(&self.values) / self.values.len() as f64)
    }

    /// NumPy's sum, in an order that keeps rounding errors small.
    fn pairwise_sum(&self, values: &[f64]) -> f64 {
        let add = |sum: f64, value: &f64| self.rounded(sum + value);
        match values.len() {
            0..8 => values.iter().fold(0.0, add),
            8..=128 => {
                let (first, rest) = values.split_at(8);
                let mut sums: Vec<f64> = first.to_vec();
                let eights = rest.chunks_exact(8);
                let last = eights.remainder();
                eights.for_each(|eight| {
                    sums.iter_mut().zip(eight).for_each(|(sum, value)| *sum = add(*sum, value))
                });
                while sums.len() > 1 {
                    sums = sums.chunks_exact(2).map(|pair| add(pair[0], &pair[1])).collect();
                }
                last.iter().fold(sums[0], add)
            }
            n => {
                let (left, right) = values.split_at(n / 2 - n / 2 % 8);
                add(self.pairwise_sum(left), &self.pairwise_sum(right))
            }
        }
    }

    /// The p-value of two systems' difference: how often the difference of their sample scores, minus its
    /// mean, is larger than `difference`.
    pub(crate) fn p_value(&self, other: &Self, difference: f64) -> f64 {
        let single = self.single && other.single;
        let mut differences = Self { values: Vec::new(), single };
        let pairs = self.values.iter().zip(&other.values);
        differences.values = pairs.map(|(a, b)| differences.rounded(a - b).abs()).collect();
        let mean = differences.mean();
        let difference = differences.rounded(difference);
        let larger =
            differences.values.iter().filter(|value| differences.rounded(*value - mean) > difference);
        share_of_chance(larger.count(), differences.values.len())
    }
}

/// The p-value of a test in which `larger` of `n` samples had a larger difference; the systems themselves
/// count as one more sample.
pub(crate) fn share_of_chance(larger: usize, n: usize) -> f64 {
    (larger + 1) as f64 / (n + 1) as f64
}

/// The mean of finite non-negative numbers, rounded only once.
fn exact_mean(values: &[f64]) -> f64 {
    // The sum as a whole number of times 2^-1074, the smallest number there is, above a word for what division leaves of
    // it: 2^1024 is the largest, and 64 bits more hold a sum of as many as there can be.
    let mut sum = [0_u64; 1 + (1074 + 1024 + 64) / 64 + 1];
    for value in values {
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as usize;
        let fraction = bits & ((1 << 52) - 1);
        let mantissa = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        let shift = 64 + exponent.saturating_sub(1);
        let mut carried = u128::from(mantissa) << (shift % 64);
        for word in &mut sum[shift / 64..] {
            carried += u128::from(*word);
            *word = carried as u64;
            carried >>= 64;
            if carried == 0 {
                break;
            }
        }
    }
    // Long division from the highest word down.
    let n = values.len().max(1) as u128;
    let mut rest = 0;
    for word in sum.iter_mut().rev() {
        let dividend = rest << 64 | u128::from(*word);
        *word = (dividend / n) as u64;
        rest = dividend % n;
    }
    rounded_to_even(&sum, rest > 0)
}

/// A whole number of times 2^-1138 as the nearest `f64`; `more` says that there is a fraction beyond the last bit.
fn rounded_to_even(words: &[u64], more: bool) -> f64 {
    let bit = |place: usize| words[place / 64] >> (place % 64) & 1;
    let highest = words.iter().rposition(|word| *word > 0);
    let n_bits = highest.map_or(0, |at| 64 * (at + 1) - words[at].leading_zeros() as usize);
    // A mantissa has 53 bits, but those of the smallest numbers, which end with 2^-1074 in any case.
    let dropped = n_bits.saturating_sub(53).max(64);
    let mantissa = (dropped..n_bits).rev().fold(0, |value, place| value << 1 | bit(place));
    let below = more || (0..dropped - 1).any(|place| bit(place) == 1);
    let up = bit(dropped - 1) == 1 && (below || mantissa & 1 == 1);
    // Adding the exponent to a mantissa with its leading bit, or one that rounding has carried, gives the format.
    f64::from_bits(mantissa + u64::from(up) + ((dropped as u64 - 64) << 52))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_exact() {
        // statistics.mean of Python.
        assert_eq!(exact_mean(&[0.1, 0.2, 0.3]), 0.2);
        assert_eq!(exact_mean(&[1e300, 1.0, 1e300]), 6.666_666_666_666_667e299);
        assert_eq!(exact_mean(&[5e-324, 0.0, 5e-324]), 5e-324);
        assert_eq!(exact_mean(&[f64::MIN_POSITIVE, 5e-324]), f64::MIN_POSITIVE / 2.0);
        assert_eq!(exact_mean(&[f64::MAX, f64::MAX, f64::MAX]), f64::MAX);
        assert_eq!(exact_mean(&[0.0]), 0.0);
        // Halves go to the even neighbour: of 1 and the next number it is 1, of the next two the second.
        let next = |times: u32| 1.0 + f64::from(times) * f64::EPSILON;
        assert_eq!(exact_mean(&[1.0, next(1)]), 1.0);
        assert_eq!(exact_mean(&[next(1), next(2)]), next(2));
        for value in [36.2, 1e-9, 99.999_999, 3.0, 2e-310] {
            assert_eq!(exact_mean(&[value; 7]), value);
        }
    }

    #[test]
    fn sums_go_in_pairs() {
        let values: Vec<f64> = (0..1_000).map(|n| f64::from(n % 7) + 0.25).collect();
        let samples = Samples { values, single: true };
        // Exact in any order.
        assert_eq!(samples.mean(), f64::from(3.247_f32));
        let one = Samples { values: vec![2.5], single: false };
        assert_eq!(one.confidence(), Confidence { mean: 2.5, half_width: 0.0 });
        assert_eq!(one.p_value(&one, 0.0), 0.5);
    }
}
