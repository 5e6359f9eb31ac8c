//! k-means: Lloyd's algorithm with greedy k-means++ initialisation.

use rayon::prelude::*;

use super::Vectors;
use crate::{EvaluationError, Result};

/// The result of [`lloyd`].
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// The cluster of each vector, from 0.
    pub labels: Vec<usize>,
    /// The centres, `[clusters · width]`.
    pub centres: Vec<f64>,
    /// The sum of the squared distances of vectors from their centres.
    pub inertia: f64,
    /// Number of updates of the centres.
    pub iterations: usize,
}

/// Draws `k` initial centres from the vectors: the first uniformly, each further one in proportion to its
/// squared distance from the nearest centre so far (k-means++, Arthur and Vassilvitskii 2007). As in
/// scikit-learn, `2 + ⌊ln k⌋` candidates are drawn each time, and the one that leaves the smallest sum of
/// distances is kept.
///
/// `uniform` yields numbers in `0..1`. Returns `[k · width]`.
///
/// # Errors
/// [`EvaluationError::ClusterCount`] if `k` is 0 or there are fewer vectors.
pub fn first_centres(vectors: Vectors, k: usize, uniform: &mut dyn FnMut() -> f64) -> Result<Vec<f64>> {
    if k == 0 || k > vectors.len() {
        return Err(EvaluationError::ClusterCount { clusters: k, vectors: vectors.len() });
    }
    let trials = 2 + (k as f64).ln() as usize;
    let wide =
        |place: usize| -> Vec<f64> { vectors.get(place).iter().map(|value| f64::from(*value)).collect() };
    let mut centres = wide(((uniform() * vectors.len() as f64) as usize).min(vectors.len() - 1));
    let mut nearest: Vec<f64> = distances(vectors, &centres);
    while centres.len() < k * vectors.width() {
        let total: f64 = nearest.iter().sum();
        let mut best: Option<(f64, Vec<f64>, Vec<f64>)> = None;
        for _ in 0..trials {
            let candidate = wide(drawn(&nearest, uniform() * total));
            let left: Vec<f64> =
                distances(vectors, &candidate).iter().zip(&nearest).map(|(new, old)| new.min(*old)).collect();
            let sum: f64 = left.iter().sum();
            if best.as_ref().is_none_or(|(least, ..)| sum < *least) {
                best = Some((sum, left, candidate));
            }
        }
        if let Some((_, left, candidate)) = best {
            nearest = left;
            centres.extend(candidate);
        }
    }
    Ok(centres)
}

/// The index at which the running sum of `weights` passes `point`.
fn drawn(weights: &[f64], point: f64) -> usize {
    let mut sum = 0.0;
    let passed = weights.iter().position(|weight| {
        sum += weight;
        sum > point
    });
    // Rounding can leave the sum below the point; weights can all be zero.
    passed.or_else(|| weights.iter().rposition(|weight| *weight > 0.0)).unwrap_or(0)
}

/// The squared distance of each vector from a centre.
fn distances(vectors: Vectors, centre: &[f64]) -> Vec<f64> {
    vectors.iter().map(|vector| squared_distance(vector, centre)).collect()
}

fn squared_distance(vector: &[f32], centre: &[f64]) -> f64 {
    const LANES: usize = 8;
    let (vectors, centres) = (vector.chunks_exact(LANES), centre.chunks_exact(LANES));
    let term = |a: &f32, b: &f64| (f64::from(*a) - b) * (f64::from(*a) - b);
    let rest: f64 = vectors.remainder().iter().zip(centres.remainder()).map(|(a, b)| term(a, b)).sum();
    let mut lanes = [0.0; LANES];
    for (a, b) in vectors.zip(centres) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (a, b))| *lane += term(a, b));
    }
    lanes.iter().sum::<f64>() + rest
}

/// Moves `centres`, `[clusters · width]`, to the means of the vectors nearest to them until no vector changes
/// its cluster, at most `max_iterations` times (Lloyd 1982). Like scikit-learn's `KMeans` with tolerance 0: a
/// cluster that loses all its vectors takes the vector farthest from its centre.
///
/// # Panics
/// If the centres have another width or there are none.
pub fn lloyd(vectors: Vectors, centres: Vec<f64>, max_iterations: usize) -> Clusters {
    let width = vectors.width();
    assert!(!centres.is_empty() && centres.len().is_multiple_of(width), "centres of another width");
    let mut centres = centres;
    let mut found = nearest_centres(vectors, &centres);
    let mut iterations = 0;
    while iterations < max_iterations {
        iterations += 1;
        centres = means(vectors, &found, &centres);
        let next = nearest_centres(vectors, &centres);
        let is_settled = next.iter().zip(&found).all(|(new, old)| new.0 == old.0);
        found = next;
        if is_settled {
            break;
        }
    }
    let (labels, distances): (Vec<usize>, Vec<f64>) = found.into_iter().unzip();
    Clusters { labels, centres, inertia: distances.iter().sum(), iterations }
}

/// The nearest centre of each vector (the first if tied) and its squared distance.
fn nearest_centres(vectors: Vectors, centres: &[f64]) -> Vec<(usize, f64)> {
    let nearest = |place: usize| {
        let vector = vectors.get(place);
        let all =
            centres.chunks_exact(vectors.width()).map(|centre| squared_distance(vector, centre)).enumerate();
        all.fold((0, f64::INFINITY), |best, new| if new.1 < best.1 { new } else { best })
    };
    (0..vectors.len()).into_par_iter().map(nearest).collect()
}

/// The mean of each cluster's vectors. An empty cluster first takes a vector from another one; a cluster that
/// thereby loses its last vector stays in place.
fn means(vectors: Vectors, found: &[(usize, f64)], centres: &[f64]) -> Vec<f64> {
    let width = vectors.width();
    let clusters = without_empty(found, centres.len() / width);
    let mut sums = vec![0.0; centres.len()];
    let mut counts = vec![0_usize; centres.len() / width];
    for (vector, cluster) in vectors.iter().zip(clusters) {
        let sum = &mut sums[cluster * width..][..width];
        sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += f64::from(*value));
        counts[cluster] += 1;
    }
    for ((sum, count), old) in sums.chunks_exact_mut(width).zip(counts).zip(centres.chunks_exact(width)) {
        match count {
            0 => sum.copy_from_slice(old),
            count => sum.iter_mut().for_each(|sum| *sum /= count as f64),
        }
    }
    sums
}

/// The cluster of each vector, after moving the vectors farthest from their centres to the empty clusters.
fn without_empty(found: &[(usize, f64)], n_clusters: usize) -> Vec<usize> {
    let mut clusters: Vec<usize> = found.iter().map(|(cluster, _)| *cluster).collect();
    let mut is_empty = vec![true; n_clusters];
    clusters.iter().for_each(|cluster| is_empty[*cluster] = false);
    if is_empty.contains(&true) {
        let mut farthest: Vec<usize> = (0..found.len()).collect();
        farthest.sort_by(|a, b| found[*b].1.total_cmp(&found[*a].1));
        let empty = (0..n_clusters).filter(|cluster| is_empty[*cluster]);
        empty.zip(farthest).for_each(|(cluster, place)| clusters[place] = cluster);
    }
    clusters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uniform;

    #[test]
    fn well_separated_groups_are_found() {
        let values: Vec<f32> = (0..90).flat_map(|i| [(i % 3) as f32 * 10.0, (i / 3) as f32 * 0.01]).collect();
        let vectors = Vectors::new(&values, 2).unwrap();
        for seed in 0..20 {
            let centres = first_centres(vectors, 3, &mut uniform(seed)).unwrap();
            let found = lloyd(vectors, centres, 300);
            for (place, label) in found.labels.iter().enumerate() {
                assert_eq!(*label, found.labels[place % 3], "seed {seed}");
            }
            let firsts: std::collections::BTreeSet<_> = found.labels[..3].iter().collect();
            assert_eq!(firsts.len(), 3, "seed {seed}");
        }
    }

    #[test]
    fn equal_vectors_and_too_many_clusters_are_no_trouble() {
        let values = [1.0_f32; 6];
        let vectors = Vectors::new(&values, 2).unwrap();
        let found = lloyd(vectors, first_centres(vectors, 3, &mut uniform(1)).unwrap(), 300);
        assert_eq!((found.inertia, found.labels.len()), (0.0, 3));
        let error = first_centres(vectors, 4, &mut uniform(1)).unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot make 4 clusters of 3 vectors; expected from 1 to as many clusters as vectors"
        );
    }

    #[test]
    fn an_empty_cluster_takes_the_farthest_vector() {
        let values = [0.0_f32, 1.0, 2.0, 30.0];
        let vectors = Vectors::new(&values, 1).unwrap();
        let found = lloyd(vectors, vec![0.0, 1000.0], 300);
        assert_eq!((found.labels, found.inertia), (vec![0, 0, 0, 1], 2.0));
    }
}
