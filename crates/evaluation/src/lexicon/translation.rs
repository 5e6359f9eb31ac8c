//! Translation of words between the vectors of two languages.

use rayon::prelude::*;

use super::dot::dot;
use super::words::scale_to_one;
use crate::vectors::svd;

/// Neighbours that a word's mean similarity is taken over (Conneau et al. 2018).
const NEIGHBOURS: usize = 10;

/// Vectors, `[n · width]`, scaled to length 1, centred on their mean and scaled to length 1 again, as Artetxe et al.
/// (2018, "A robust self-learning method", §3.1) do before an orthogonal map.
///
/// # Panics
/// If `values` are not of this width.
pub fn normalized(values: &[f32], width: usize) -> Vec<f32> {
    assert!(width > 0 && values.len().is_multiple_of(width), "vectors of another width");
    let mut values = values.to_vec();
    values.chunks_exact_mut(width).for_each(scale_to_one);
    let n = values.len() / width;
    let mut mean = vec![0.0_f64; width];
    for vector in values.chunks_exact(width) {
        mean.iter_mut().zip(vector).for_each(|(mean, x)| *mean += f64::from(*x) / n as f64);
    }
    for vector in values.chunks_exact_mut(width) {
        vector.iter_mut().zip(&mean).for_each(|(x, mean)| *x = (f64::from(*x) - mean) as f32);
        scale_to_one(vector);
    }
    values
}

/// An orthogonal map from one language's vectors to another's.
#[derive(Debug, Clone, PartialEq)]
pub struct OrthogonalMap {
    /// `[width · width]`: row `i` is the image of axis `i`.
    matrix: Vec<f64>,
    width: usize,
}

impl OrthogonalMap {
    /// The orthogonal `W` that minimises `Σ |x_i·W − y_i|²` over pairs of vectors (Procrustes; Schönemann 1966, Xing et al.
    /// 2015): `W = U·Vᵀ` for the singular value decomposition `Xᵀ·Y = U·Σ·Vᵀ`. `scipy.linalg.orthogonal_procrustes(X, Y)`
    /// gives the same.
    ///
    /// `sources` and `targets` are `[pairs · width]`.
    ///
    /// # Panics
    /// If the two differ in size, or are not of this width.
    pub fn fit(sources: &[f32], targets: &[f32], width: usize) -> Self {
        assert_eq!(sources.len(), targets.len(), "a target for each source");
        assert!(width > 0 && sources.len().is_multiple_of(width), "vectors of another width");
        let rows: Vec<Vec<f64>> = (0..width)
            .into_par_iter()
            .map(|row| {
                let mut sums = vec![0.0; width];
                for (x, y) in sources.chunks_exact(width).zip(targets.chunks_exact(width)) {
                    let x = f64::from(x[row]);
                    sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += x * f64::from(*y));
                }
                sums
            })
            .collect();
        let found = svd(&rows.concat(), width);
        let mut matrix = vec![0.0; width * width];
        for (left, right) in found.left.chunks_exact(width).zip(found.right.chunks_exact(width)) {
            for (row, left) in matrix.chunks_exact_mut(width).zip(left) {
                row.iter_mut().zip(right).for_each(|(sum, right)| *sum += left * right);
            }
        }
        Self { matrix, width }
    }

    /// `[width · width]`: row `i` is the image of axis `i`.
    pub fn matrix(&self) -> &[f64] {
        &self.matrix
    }

    /// The images of vectors, `[n · width]`.
    ///
    /// # Panics
    /// If the vectors are of another width.
    pub fn apply(&self, vectors: &[f32]) -> Vec<f32> {
        let width = self.width;
        assert!(vectors.len().is_multiple_of(width), "vectors of another width");
        let mut images = vec![0.0_f32; vectors.len()];
        images.par_chunks_exact_mut(width).zip(vectors.par_chunks_exact(width)).for_each(
            |(image, vector)| {
                let mut sums = vec![0.0_f64; width];
                for (x, row) in vector.iter().zip(self.matrix.chunks_exact(width)) {
                    sums.iter_mut().zip(row).for_each(|(sum, w)| *sum += f64::from(*x) * w);
                }
                image.iter_mut().zip(sums).for_each(|(x, sum)| *x = sum as f32);
            },
        );
        images
    }
}

/// The place of the best right translation of each query, from 1, among all target words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslationRanks {
    /// By cosine.
    pub cosine: Vec<usize>,
    /// By CSLS.
    pub csls: Vec<usize>,
}

/// Figures of ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TranslationScores {
    /// The share of queries whose nearest target is right.
    pub p_at_1: f64,
    /// The share of queries with a right target among the nearest five.
    pub p_at_5: f64,
    /// The mean of one over the rank.
    pub mrr: f64,
}

impl TranslationScores {
    /// The figures of ranks from 1; NaN without any.
    pub fn of(ranks: &[usize]) -> Self {
        let n = ranks.len() as f64;
        let within = |k: usize| ranks.iter().filter(|rank| **rank <= k).count() as f64 / n;
        let mrr = ranks.iter().map(|rank| 1.0 / *rank as f64).sum::<f64>() / n;
        Self { p_at_1: within(1), p_at_5: within(5), mrr }
    }
}

/// Ranks right translations among all target words, by cosine and by cross-domain similarity local scaling (CSLS):
/// `2·cos(x, y) − r_T(x) − r_S(y)`, where `r_T(x)` is the mean cosine of `x` and its 10 nearest targets, and `r_S(y)`
/// that of `y` and its 10 nearest sources (Conneau et al. 2018, "Word Translation Without Parallel Data", §2.3). Of
/// targets with equal scores, the first one is nearer.
///
/// `sources`, already mapped, and `targets` are `[n · width]`, of length 1. A query is the number of a source word and
/// those of its right translations. `step_done` is called with the number of target words that are done; time is
/// proportional to sources · targets.
///
/// # Panics
/// If a query has no translation, a number is out of range, or there are no sources.
pub fn translation_ranks(
    sources: &[f32],
    targets: &[f32],
    width: usize,
    queries: &[(usize, Vec<usize>)],
    step_done: &mut dyn FnMut(usize),
) -> TranslationRanks {
    /// Target words between two reports of progress.
    const TOGETHER: usize = 1024;
    let mean_nearest = |vector: &[f32], others: &[f32]| {
        let mut nearest = Nearest::default();
        others.chunks_exact(width).for_each(|other| nearest.add(dot(vector, other)));
        nearest.mean()
    };
    let mut of_targets = Vec::with_capacity(targets.len() / width);
    for part in targets.chunks(TOGETHER * width) {
        let means: Vec<f32> =
            part.par_chunks_exact(width).map(|target| mean_nearest(target, sources)).collect();
        of_targets.extend(means);
        step_done(of_targets.len());
    }
    // r_T(x) is the same for all targets of a query, so it changes no rank.
    let ranks = |(source, gold): &(usize, Vec<usize>)| {
        let source = &sources[source * width..][..width];
        let cosines: Vec<f32> = targets.chunks_exact(width).map(|target| dot(source, target)).collect();
        let scaled: Vec<f32> =
            cosines.iter().zip(&of_targets).map(|(cosine, mean)| 2.0 * cosine - mean).collect();
        (best_rank(&cosines, gold), best_rank(&scaled, gold))
    };
    let (cosine, csls) = queries.par_iter().map(ranks).collect::<Vec<_>>().into_iter().unzip();
    TranslationRanks { cosine, csls }
}

/// The best rank of these among all scores, from 1.
fn best_rank(scores: &[f32], gold: &[usize]) -> usize {
    let is_nearer = |a: usize, b: usize| scores[a] > scores[b] || scores[a] == scores[b] && a < b;
    let best = gold.iter().copied().reduce(|best, new| if is_nearer(new, best) { new } else { best });
    let best = best.expect("a query has a right translation");
    (0..scores.len()).filter(|at| is_nearer(*at, best)).count() + 1
}

/// The greatest of the numbers added.
#[derive(Default)]
struct Nearest {
    /// Descending.
    found: [f32; NEIGHBOURS],
    n: usize,
}

impl Nearest {
    fn add(&mut self, cosine: f32) {
        if self.n == NEIGHBOURS && cosine <= self.found[NEIGHBOURS - 1] {
            return;
        }
        let at = self.found[..self.n].partition_point(|found| *found >= cosine);
        self.n = (self.n + 1).min(NEIGHBOURS);
        self.found[at..self.n].rotate_right(1);
        self.found[at] = cosine;
    }

    fn mean(&self) -> f32 {
        self.found[..self.n].iter().sum::<f32>() / self.n.max(1) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_are_kept() {
        let mut nearest = Nearest::default();
        let numbers: Vec<f32> = (0..50).map(|i| ((i * 17) % 50) as f32).collect();
        for (at, number) in numbers.iter().enumerate() {
            nearest.add(*number);
            let mut sorted = numbers[..=at].to_vec();
            sorted.sort_by(|a, b| b.total_cmp(a));
            sorted.truncate(NEIGHBOURS);
            assert_eq!(nearest.found[..nearest.n], sorted);
        }
        assert_eq!(nearest.mean(), 44.5);
    }

    #[test]
    fn ranks_count_what_is_nearer() {
        let scores = [0.5, 0.9, 0.5, 0.5, 0.1];
        assert_eq!(best_rank(&scores, &[1]), 1);
        assert_eq!(best_rank(&scores, &[2]), 3);
        assert_eq!(best_rank(&scores, &[4, 3]), 4);
        assert_eq!(best_rank(&scores, &[3, 2]), 3);
        let found = TranslationScores::of(&[1, 2, 6, 1]);
        assert_eq!((found.p_at_1, found.p_at_5), (0.5, 0.75));
        assert!((found.mrr - (2.0 + 0.5 + 1.0 / 6.0) / 4.0).abs() < 1e-12);
    }

    /// Vectors of length 1 around their mean.
    fn vectors(n: usize, width: usize) -> Vec<f32> {
        let values: Vec<f32> = (0..n * width).map(|i| ((i * i) as f32 * 0.37 + i as f32).sin()).collect();
        normalized(&values, width)
    }

    #[test]
    fn a_rotation_is_found_again() {
        let (n, width) = (200, 6);
        let targets = vectors(n, width);
        // Axes in another order, one turned round.
        let turned: Vec<f32> =
            targets.chunks_exact(width).flat_map(|y| [y[3], -y[0], y[5], y[1], y[2], y[4]]).collect();
        let map = OrthogonalMap::fit(&turned[..60 * width], &targets[..60 * width], width);
        let images = map.apply(&turned);
        assert!(images.iter().zip(&targets).all(|(a, b)| (a - b).abs() < 1e-5));
        let queries: Vec<(usize, Vec<usize>)> = (60..n).map(|i| (i, vec![i])).collect();
        let mut done = 0;
        let ranks = translation_ranks(&images, &targets, width, &queries, &mut |words| done = words);
        assert_eq!(done, n);
        assert!(ranks.cosine.iter().all(|rank| *rank == 1));
        // CSLS prefers words that are near to few others, also to the word itself.
        assert!(TranslationScores::of(&ranks.csls).mrr > 0.7, "{:?}", ranks.csls);
    }

    #[test]
    fn fewer_pairs_than_features_leave_the_map_orthogonal() {
        let width = 6;
        let (sources, targets) = (vectors(9, width), vectors(20, width));
        let map = OrthogonalMap::fit(&sources[..2 * width], &targets[..2 * width], width);
        for i in 0..width {
            for j in 0..width {
                let row = |at: usize| &map.matrix()[at * width..][..width];
                let product: f64 = row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum();
                assert!((product - f64::from(u8::from(i == j))).abs() < 1e-10);
            }
        }
    }
}
