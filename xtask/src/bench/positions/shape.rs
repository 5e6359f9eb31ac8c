//! How close positions are to one another, and three properties of that (Wang et al. 2021, §3).

use serde::{Deserialize, Serialize};

/// Distances up to this one are near: all of Shaw et al.'s relative positions that have their own vectors.
pub const NEAR: usize = 16;

/// How close each position is to each other, such as the products of their vectors.
#[derive(Debug, Clone, PartialEq)]
pub struct Proximity {
    n: usize,
    /// `[from · to]`
    values: Vec<f64>,
}

/// How far properties hold. A property of what is everywhere the same is none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    pub invariance: Option<f64>,
    pub monotonicity: Option<f64>,
    /// Monotonicity at distances up to [`NEAR`].
    pub near: Option<f64>,
    pub symmetry: Option<f64>,
}

impl Proximity {
    /// `values` of all pairs, a position's to all others after those of the one before it.
    pub fn new(n: usize, values: Vec<f64>) -> Option<Self> {
        (values.len() == n * n).then_some(Self { n, values })
    }

    /// The products of vectors.
    pub fn of_vectors(vectors: &[Vec<f64>]) -> Self {
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum();
        let values = vectors.iter().flat_map(|a| vectors.iter().map(move |b| product(a, b))).collect();
        Self { n: vectors.len(), values }
    }

    /// The mean of several of the same size, of which there is at least one.
    pub fn mean(all: &[Self]) -> Option<Self> {
        let n = all.first()?.n;
        let mean = |at: usize| {
            Some(all.iter().map(|one| one.values.get(at)).sum::<Option<f64>>()? / all.len() as f64)
        };
        Some(Self { n, values: (0..n * n).map(mean).collect::<Option<_>>()? })
    }

    /// Without the first and the last position, which are special tokens.
    pub fn within(&self) -> Self {
        let inner = 1..self.n.saturating_sub(1);
        let values = inner.clone().flat_map(|from| inner.clone().map(move |to| (from, to)));
        Self { n: inner.len(), values: values.map(|(from, to)| self.at(from, to)).collect() }
    }

    pub fn shape(&self) -> Shape {
        let varies = self.deviations().is_some();
        let monotonicity = |farthest| self.monotonicity(farthest).filter(|_| varies);
        Shape {
            invariance: self.invariance(),
            monotonicity: monotonicity(self.n),
            near: monotonicity(NEAR),
            symmetry: self.symmetry(),
        }
    }

    fn at(&self, from: usize, to: usize) -> f64 {
        self.values[from * self.n + to]
    }

    /// How each pair of two positions differs from the mean, with the distance from one to the other and the difference of
    /// the reverse pair; none where nothing differs by more than rounding.
    fn deviations(&self) -> Option<Vec<(isize, f64, f64)>> {
        let pairs = || (0..self.n).flat_map(|i| (0..self.n).map(move |j| (i, j))).filter(|(i, j)| i != j);
        let count = pairs().count() as f64;
        let mean = pairs().map(|(i, j)| self.at(i, j)).sum::<f64>() / count;
        let deviations: Vec<_> = pairs()
            .map(|(i, j)| (j as isize - i as isize, self.at(i, j) - mean, self.at(j, i) - mean))
            .collect();
        let variance = deviations.iter().map(|(_, own, _)| own * own).sum::<f64>() / count;
        (variance > 1e-10 * mean * mean).then_some(deviations)
    }

    /// Translation invariance: `φ(x, x + m)` is the same for all `x`. The share of the variance that the distance explains:
    /// 1 if it holds.
    fn invariance(&self) -> Option<f64> {
        let deviations = self.deviations()?;
        let n = self.n as isize;
        let mut sums = vec![(0.0, 0.0); 2 * self.n];
        for (distance, own, _) in &deviations {
            let sum = &mut sums[(distance + n) as usize];
            *sum = (sum.0 + own, sum.1 + 1.0);
        }
        let explained: f64 =
            sums.iter().filter(|sum| sum.1 > 0.0).map(|(sum, count)| sum * sum / count).sum();
        Some(explained / deviations.iter().map(|(_, own, _)| own * own).sum::<f64>())
    }

    /// Symmetry: `φ(x, y) = φ(y, x)`. The share of the variance that is the same in both directions: 1 if it holds, and ½ if
    /// the directions know nothing of one another.
    fn symmetry(&self) -> Option<f64> {
        let deviations = self.deviations()?;
        let same: f64 = deviations.iter().map(|(_, own, reverse)| ((own + reverse) / 2.0).powi(2)).sum();
        Some(same / deviations.iter().map(|(_, own, _)| own * own).sum::<f64>())
    }

    /// Monotonicity: `φ(x, x + m) < φ(x, x + n)` for all `m > n`, and likewise to the left. The share of such pairs of
    /// distances, equal ones by half: 1 if it holds, and ½ by chance.
    fn monotonicity(&self, farthest: usize) -> Option<f64> {
        let (mut held, mut all) = (0.0, 0.0);
        for from in 0..self.n {
            let right: Vec<f64> = (from + 1..self.n).map(|to| self.at(from, to)).collect();
            let left: Vec<f64> = (0..from).rev().map(|to| self.at(from, to)).collect();
            for side in [right, left] {
                let side = &side[..side.len().min(farthest)];
                for (at, near) in side.iter().enumerate() {
                    for far in &side[at + 1..] {
                        held += match near.total_cmp(far) {
                            std::cmp::Ordering::Greater => 1.0,
                            std::cmp::Ordering::Equal => 0.5,
                            std::cmp::Ordering::Less => 0.0,
                        };
                        all += 1.0;
                    }
                }
            }
        }
        (all > 0.0).then(|| held / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the distance from one position to another.
    fn by_distance(n: isize, of: impl Fn(isize) -> f64) -> Proximity {
        let values = (0..n).flat_map(|i| (0..n).map(move |j| j - i)).map(of).collect();
        Proximity::new(n as usize, values).unwrap()
    }

    fn close(found: Option<f64>, expected: f64) {
        assert!((found.unwrap() - expected).abs() < 1e-12, "{found:?}, expected {expected}");
    }

    #[test]
    fn a_penalty_of_distances_has_all_three() {
        let shape = by_distance(20, |r| -(r.abs() as f64)).shape();
        for found in [shape.invariance, shape.monotonicity, shape.near, shape.symmetry] {
            close(found, 1.0);
        }
    }

    #[test]
    fn each_property_may_be_without_the_others() {
        // One direction is the other's negative.
        let one_way = by_distance(20, |r| -(r as f64)).shape();
        close(one_way.invariance, 1.0);
        close(one_way.symmetry, 0.0);
        // It falls to the right, and rises to the left.
        close(one_way.monotonicity, 0.5);
        // Rising away from every position.
        close(by_distance(20, |r| r.abs() as f64).shape().monotonicity, 0.0);
        // Some positions are larger than others: [0, 0, 1] of each with each.
        let shape = Proximity::new(3, vec![9.0, 0.0, 1.0, 0.0, 9.0, 1.0, 1.0, 1.0, 9.0]).unwrap().shape();
        close(shape.symmetry, 1.0);
        // Deviations from 2/3 are −2/3, 1/3 and 1/3 in each direction; by distance 1: −1/6 twice, by 2: 1/3.
        close(shape.invariance, (2.0 * (2.0 / 36.0 + 1.0 / 9.0)) / (12.0 / 9.0));
        // From the first: 0 < 1; from the last, leftwards: 1 = 1.
        close(shape.monotonicity, 0.25);
    }

    #[test]
    fn far_distances_may_be_alike() {
        let clipped = by_distance(60, |r| -(r.abs().min(NEAR as isize) as f64)).shape();
        close(clipped.near, 1.0);
        let far = clipped.monotonicity.unwrap();
        assert!(far > 0.5 && far < 1.0, "{far}");
    }

    #[test]
    fn what_is_everywhere_the_same_has_no_property() {
        let shape = by_distance(9, |r| 0.25 + 1e-9 * r as f64).shape();
        assert_eq!(shape, Shape { invariance: None, monotonicity: None, near: None, symmetry: None });
    }

    #[test]
    fn sinusoids_depend_on_the_distance_alone() {
        let wave = |i: usize| {
            (0..8).flat_map(move |f| {
                let angle = i as f64 / 10_000f64.powf(f as f64 / 8.0);
                [angle.sin(), angle.cos()]
            })
        };
        let shape = Proximity::of_vectors(&(0..30).map(|i| wave(i).collect()).collect::<Vec<_>>()).shape();
        close(shape.invariance, 1.0);
        close(shape.symmetry, 1.0);
        assert!(shape.monotonicity.unwrap() > 0.5);
    }

    #[test]
    fn means_and_parts() {
        let [a, b] = [1.0, 3.0].map(|first| by_distance(4, |r| first + r as f64));
        let mean = Proximity::mean(&[a, b.clone()]).unwrap();
        assert_eq!(mean, by_distance(4, |r| 2.0 + r as f64));
        assert_eq!(b.within(), by_distance(2, |r| 3.0 + r as f64));
        assert_eq!(Proximity::mean(&[]), None);
        assert_eq!(Proximity::new(2, vec![1.0]), None);
    }
}
