//! Agreement of clusters with classes.

/// The agreement of clusters with classes (Rosenberg and Hirschberg 2007), from 0 to 1; as scikit-learn's
/// `homogeneity_completeness_v_measure`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VMeasure {
    /// The degree to which each cluster has members of one class only.
    pub homogeneity: f64,
    /// The degree to which each class's members are in one cluster.
    pub completeness: f64,
    /// The harmonic mean of both.
    pub v_measure: f64,
}

/// Compares clusters with classes, both numbered from 0. All are 1 without members.
///
/// # Panics
/// If the numbers of classes and clusters differ.
pub fn v_measure(classes: &[usize], clusters: &[usize]) -> VMeasure {
    assert_eq!(classes.len(), clusters.len(), "a cluster for each member");
    let size = |labels: &[usize]| labels.iter().max().map_or(0, |most| most + 1);
    let mut counts = vec![vec![0_usize; size(clusters)]; size(classes)];
    for (class, cluster) in classes.iter().zip(clusters) {
        counts[*class][*cluster] += 1;
    }
    let of_classes: Vec<usize> = counts.iter().map(|row| row.iter().sum()).collect();
    let of_clusters: Vec<usize> =
        (0..size(clusters)).map(|cluster| counts.iter().map(|row| row[cluster]).sum()).collect();
    let n = classes.len() as f64;
    let mut information = 0.0;
    for (row, of_class) in counts.iter().zip(&of_classes) {
        for (count, of_cluster) in row.iter().zip(&of_clusters).filter(|(count, _)| **count > 0) {
            let (count, of_class, of_cluster) = (*count as f64, *of_class as f64, *of_cluster as f64);
            let term = count / n * ((count / n).ln() - (of_class / n).ln() - (of_cluster / n).ln());
            information += term;
        }
    }
    // What is left of a sum of zeros by rounding is no information.
    let n_occurring = |counts: &[usize]| counts.iter().filter(|count| **count > 0).count();
    if n_occurring(&of_classes) <= 1 || n_occurring(&of_clusters) <= 1 {
        information = 0.0;
    }
    let share = |counts: &[usize]| match entropy(counts, n) {
        0.0 => 1.0,
        entropy => information.max(0.0) / entropy,
    };
    let (homogeneity, completeness) = (share(&of_classes), share(&of_clusters));
    let sum = homogeneity + completeness;
    let v_measure = if sum == 0.0 { 0.0 } else { 2.0 * homogeneity * completeness / sum };
    VMeasure { homogeneity, completeness, v_measure }
}

/// The entropy of counts that add up to `n`, in nats.
fn entropy(counts: &[usize], n: f64) -> f64 {
    let occurring: Vec<f64> =
        counts.iter().filter(|count| **count > 0).map(|count| *count as f64 / n).collect();
    match occurring.len() {
        0 | 1 => 0.0,
        _ => -occurring.iter().map(|share| share * share.ln()).sum::<f64>(),
    }
}
