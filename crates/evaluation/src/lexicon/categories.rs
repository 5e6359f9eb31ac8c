//! Categories of words.

use crate::Result;
use crate::embeddings::{Clusters, Vectors, first_centres, lloyd};

/// Maximum iterations of k-means, as in scikit-learn.
const MAX_ITERATIONS: usize = 300;

/// Clusters of words beside their categories.
#[derive(Debug, Clone, PartialEq)]
pub struct Categories {
    /// The cluster of each word, from 0.
    pub clusters: Vec<usize>,
    /// The share of words whose category is the most frequent one of their cluster.
    pub purity: f64,
}

/// Clusters vectors into as many clusters as there are categories, and compares them with the categories, which are
/// numbered from 0.
///
/// k-means: Lloyd's algorithm from centres by k-means++, `runs` times with other random numbers; the clusters with the
/// smallest sum of squared distances are taken, the first of equal ones. On vectors of length 1, squared distances are
/// twice 1 − cosine to first order. `uniform` yields numbers in `0..1`.
///
/// # Errors
/// [`EvaluationError::ClusterCount`](crate::EvaluationError::ClusterCount) without vectors.
///
/// # Panics
/// If the numbers of vectors and categories differ.
pub fn category_clusters(
    vectors: Vectors,
    categories: &[usize],
    runs: usize,
    uniform: &mut dyn FnMut() -> f64,
) -> Result<Categories> {
    assert_eq!(vectors.len(), categories.len(), "a category for each vector");
    let mut occurring = categories.to_vec();
    occurring.sort_unstable();
    occurring.dedup();
    let mut best: Option<Clusters> = None;
    for _ in 0..runs.max(1) {
        let found = lloyd(vectors, first_centres(vectors, occurring.len(), uniform)?, MAX_ITERATIONS);
        if best.as_ref().is_none_or(|best| found.inertia < best.inertia) {
            best = Some(found);
        }
    }
    let clusters = best.map(|best| best.labels).unwrap_or_default();
    let purity = purity(categories, &clusters);
    Ok(Categories { clusters, purity })
}

/// The purity of clusters: `1/n · Σ_k max_c |cluster k ∩ category c|` (Zhao & Karypis 2001). NaN without members.
///
/// # Panics
/// If the numbers of categories and clusters differ.
pub fn purity(categories: &[usize], clusters: &[usize]) -> f64 {
    assert_eq!(categories.len(), clusters.len(), "a cluster for each member");
    let mut members: Vec<(usize, usize)> = clusters.iter().copied().zip(categories.iter().copied()).collect();
    members.sort_unstable();
    let of_cluster =
        |cluster: &[(usize, usize)]| cluster.chunk_by(|a, b| a == b).map(<[_]>::len).max().unwrap_or(0);
    let pure: usize = members.chunk_by(|a, b| a.0 == b.0).map(of_cluster).sum();
    pure as f64 / categories.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uniform;

    #[test]
    fn purity_counts_the_most_frequent_category() {
        assert_eq!(purity(&[0, 0, 1, 1, 2], &[3, 3, 3, 1, 1]), 3.0 / 5.0);
        assert_eq!(purity(&[0, 1], &[0, 0]), 0.5);
        assert!(purity(&[], &[]).is_nan());
    }

    #[test]
    fn groups_are_found() {
        let values: Vec<f32> = (0..60).flat_map(|i| [(i % 4) as f32 * 10.0, (i / 4) as f32 * 0.01]).collect();
        let vectors = Vectors::new(&values, 2).unwrap();
        let categories: Vec<usize> = (0..60).map(|i| i % 4 + 5).collect();
        let found = category_clusters(vectors, &categories, 10, &mut uniform(1)).unwrap();
        assert_eq!(found.purity, 1.0);
        assert_eq!(found.clusters.iter().max(), Some(&3));
    }
}
