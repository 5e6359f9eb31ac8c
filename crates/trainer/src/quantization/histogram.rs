//! The distribution of a map's inputs in a fixed amount of memory, and the ranges that it suggests.

use cloze_model::ops::TokenRange;

/// How the range of inputs is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ranges {
    /// The least and the greatest input of all texts.
    MinMax,
    /// The range that holds this percentage of the inputs, such as 99.99, with as much on either side outside of it.
    Percentile(f64),
    /// The range with the least mean squared error of rounded inputs.
    Mse,
    /// The range that the model was trained with, `quantization.inputs` = `"running"` or `"learnt"`. It is not measured.
    Trained,
}

impl Ranges {
    /// Whether texts are needed for it.
    pub fn are_measured(self) -> bool {
        self != Self::Trained
    }
}

/// Counts of numbers in bins of equal width around 0. A number that is beyond them doubles their width, so that the memory
/// does not grow with the numbers.
#[derive(Debug, Clone)]
pub struct Histogram {
    /// The magnitude at which the bins end.
    end: f32,
    counts: Vec<u64>,
    least: f32,
    most: f32,
}

/// An even number of bins on each side.
const BINS: usize = 8_192;

impl Histogram {
    pub fn new() -> Self {
        Self { end: 1.0 / 64.0, counts: vec![0; BINS], least: 0.0, most: 0.0 }
    }

    /// Counts numbers, which must be finite.
    pub fn add(&mut self, numbers: &[f32]) {
        let (least, most) = numbers.iter().fold((0f32, 0f32), |(a, b), x| (a.min(*x), b.max(*x)));
        (self.least, self.most) = (self.least.min(least), self.most.max(most));
        while self.end <= most.max(-least) {
            self.double();
        }
        let per_unit = BINS as f32 / 2.0 / self.end;
        for x in numbers {
            let bin = (x * per_unit + BINS as f32 / 2.0) as usize;
            self.counts[bin.min(BINS - 1)] += 1;
        }
    }

    fn double(&mut self) {
        let mut counts = vec![0; BINS];
        for (i, pair) in self.counts.as_chunks::<2>().0.iter().enumerate() {
            counts[BINS / 4 + i] = pair[0] + pair[1];
        }
        self.counts = counts;
        self.end *= 2.0;
    }

    /// The edges of a bin.
    fn edge(&self, bin: usize) -> f32 {
        (bin as f32 - BINS as f32 / 2.0) * (self.end / (BINS as f32 / 2.0))
    }

    /// The least and the greatest number of a range.
    pub fn range(&self, ranges: Ranges) -> (f32, f32) {
        match ranges {
            // Trained ranges are not asked for: they need no histogram.
            Ranges::MinMax | Ranges::Trained => (self.least, self.most),
            Ranges::Percentile(percentile) => {
                let n: u64 = self.counts.iter().sum();
                let outside = (n as f64 * (1.0 - percentile / 100.0) / 2.0) as u64;
                let mut sums = [0u64; 2];
                let mut is_after = |side: usize, count: u64| {
                    sums[side] += count;
                    sums[side] > outside
                };
                let low = self.counts.iter().position(|count| is_after(0, *count));
                let high = self.counts.iter().rposition(|count| is_after(1, *count));
                let least = low.map_or(self.least, |bin| self.edge(bin).max(self.least));
                (least.min(0.0), high.map_or(self.most, |bin| self.edge(bin + 1).min(self.most)).max(0.0))
            }
            Ranges::Mse => self.best(),
        }
    }

    /// The end of a range with 0 in its middle, for integers from `-greatest` to `greatest`.
    pub fn symmetric_end(&self, ranges: Ranges, greatest: f64) -> f32 {
        let (least, most) = match ranges {
            Ranges::Mse => {
                const STEPS: i32 = 200;
                let end = self.most.max(-self.least);
                let ends = (0..STEPS).map(|step| end * (1.0 - step as f32 / STEPS as f32));
                let error = |end: f32| self.error((-end, end), f64::from(end) / greatest);
                return ends.min_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap_or(end);
            }
            _ => self.range(ranges),
        };
        most.max(-least)
    }

    /// The range with the least squared error, of those that are shrunk at either end: first both, then one end alone.
    fn best(&self) -> (f32, f32) {
        const STEPS: i32 = 100;
        let shrunk = |x: f32, step: i32| x * (1.0 - step as f32 / STEPS as f32);
        let least = |candidates: &mut dyn Iterator<Item = (f32, f32)>| {
            let with_error = candidates.map(|range| (self.squared_error(range), range));
            with_error
                .min_by(|(a, _), (b, _)| a.total_cmp(b))
                .map_or((self.least, self.most), |(_, range)| range)
        };
        let both = least(&mut (0..STEPS).map(|step| (shrunk(self.least, step), shrunk(self.most, step))));
        let low = least(&mut (0..STEPS).map(|step| (shrunk(self.least, step), both.1)));
        least(&mut (0..STEPS).map(|step| (low.0, shrunk(self.most, step))))
    }

    /// The sum of squared errors of rounding in a range. A bin's numbers lie in its middle; the error of rounding itself is
    /// that of numbers that are spread evenly.
    fn squared_error(&self, (least, most): (f32, f32)) -> f64 {
        self.error((least, most), f64::from(TokenRange::of(least, most).scale))
    }

    fn error(&self, (least, most): (f32, f32), step: f64) -> f64 {
        let (least, most) = (f64::from(least), f64::from(most));
        let width = f64::from(self.end) / (BINS as f64 / 2.0);
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let errors = counts.map(|(bin, count)| {
            let x = f64::from(self.edge(bin)) + width / 2.0;
            let cut = (x - x.clamp(least, most)).powi(2);
            *count as f64 * if cut > 0.0 { cut } else { step * step / 12.0 }
        });
        errors.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 7_919 % n) as f32 / n as f32 * 2.0 - 1.0).powi(3) * 3.0).collect()
    }

    #[test]
    fn ranges_hold_what_they_promise() {
        let mut histogram = Histogram::new();
        // In parts, the first of which are small: the bins grow meanwhile.
        let numbers = numbers(10_000);
        histogram.add(&numbers.iter().map(|x| x * 1e-3).collect::<Vec<_>>());
        let mut whole = Histogram::new();
        for part in numbers.chunks(37) {
            whole.add(part);
        }
        assert_eq!(whole.counts.iter().sum::<u64>(), 10_000);
        let (least, most) = whole.range(Ranges::MinMax);
        assert_eq!((least, most), (-3.0, numbers.iter().copied().fold(0.0, f32::max)));
        let (least, most) = whole.range(Ranges::Percentile(90.0));
        let outside = |x: &&f32| **x < least || **x > most;
        let n = numbers.iter().filter(outside).count();
        assert!((900..=1_000).contains(&n), "{n} of 10,000 outside");
        assert_eq!(whole.range(Ranges::Percentile(100.0)), whole.range(Ranges::MinMax));
        histogram.add(&numbers);
        assert_eq!(histogram.range(Ranges::MinMax), whole.range(Ranges::MinMax));
    }

    #[test]
    fn the_least_error_ignores_a_single_large_number() {
        const TIMES: usize = 100;
        let mut histogram = Histogram::new();
        let numbers = numbers(100_000);
        (0..TIMES).for_each(|_| histogram.add(&numbers));
        let (least, most) = histogram.range(Ranges::Mse);
        assert!(least < -2.5 && most > 2.5, "{least} {most}");
        histogram.add(&[60.0]);
        let (least, most) = histogram.range(Ranges::Mse);
        assert!(most < 40.0 && least < -2.0, "{least} {most}");
        // Against the error of rounding every number.
        let error = |(least, most): (f32, f32)| -> f64 {
            let range = TokenRange::of(least, most);
            let squared = |x: f32| {
                let step = (x / range.scale).round() + f32::from(range.zero);
                let back = (step.clamp(0.0, 255.0) - f32::from(range.zero)) * range.scale;
                f64::from(x - back).powi(2)
            };
            TIMES as f64 * numbers.iter().map(|x| squared(*x)).sum::<f64>() + squared(60.0)
        };
        assert!(error((least, most)) < error(histogram.range(Ranges::MinMax)));
        let found = histogram.squared_error((least, most));
        assert!((found / error((least, most)) - 1.0).abs() < 0.2, "{found}");
    }

    #[test]
    fn no_number_is_a_range_of_zero() {
        for ranges in [Ranges::MinMax, Ranges::Percentile(99.0), Ranges::Mse] {
            assert_eq!(Histogram::new().range(ranges), (0.0, 0.0));
        }
    }
}
