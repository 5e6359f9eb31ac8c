//! Average linkage: groups that are closest are merged first.

/// Two groups that become one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Merge {
    /// The groups: single elements are numbered from 0 to `n − 1`, and the group of merge `k` is `n + k`. The smaller number
    /// comes first.
    pub groups: [usize; 2],
    /// Their distance: the mean over the pairs of their elements.
    pub distance: f64,
    /// Elements of the new group.
    pub size: usize,
}

/// Agglomerative clustering by average linkage (UPGMA; Sokal & Michener 1958), as SciPy's `linkage(method="average")`:
/// the two closest groups are merged until there is one; of equally close ones the first. Returns `n − 1` merges in order.
///
/// # Shapes
/// - `distances`: `[n][n]`, symmetric; the diagonal is not read
///
/// # Panics
/// If the matrix is not square.
pub fn average_linkage(distances: &[Vec<f64>]) -> Vec<Merge> {
    let n = distances.len();
    assert!(distances.iter().all(|row| row.len() == n), "a matrix that is not square");
    let mut distances = distances.to_vec();
    // The number of the group in each row that is still one, and its elements.
    let mut groups: Vec<Option<(usize, usize)>> = (0..n).map(|element| Some((element, 1))).collect();
    let mut merges = Vec::new();
    while merges.len() + 1 < n {
        let mut closest: Option<(f64, usize, usize)> = None;
        for first in 0..n {
            for second in first + 1..n {
                if groups[first].is_none() || groups[second].is_none() {
                    continue;
                }
                let distance = distances[first][second];
                if closest.is_none_or(|(least, ..)| distance.total_cmp(&least).is_lt()) {
                    closest = Some((distance, first, second));
                }
            }
        }
        let Some((distance, first, second)) = closest else { break };
        let (Some((a, size_a)), Some((b, size_b))) = (groups[first], groups[second].take()) else { break };
        let size = size_a + size_b;
        // The mean over all pairs with another group is that of both parts, weighted by their elements.
        let mean = |(a, b): (&f64, &f64)| (size_a as f64 * a + size_b as f64 * b) / size as f64;
        let means: Vec<f64> = distances[first].iter().zip(&distances[second]).map(mean).collect();
        distances.iter_mut().zip(&means).for_each(|(row, mean)| row[first] = *mean);
        distances[first] = means;
        groups[first] = Some((n + merges.len(), size));
        merges.push(Merge { groups: [a.min(b), a.max(b)], distance, size });
    }
    merges
}

/// The order of `n` elements in which the lines of a dendrogram of `merges` do not cross.
pub fn leaves(n: usize, merges: &[Merge]) -> Vec<usize> {
    let mut of_groups: Vec<Vec<usize>> = (0..n).map(|element| vec![element]).collect();
    for merge in merges {
        let [first, second] = merge.groups.map(|group| std::mem::take(&mut of_groups[group]));
        of_groups.push([first, second].concat());
    }
    of_groups.concat()
}

#[cfg(test)]
mod tests {
    use super::super::golden::{assert_close, golden};
    use super::*;

    #[test]
    fn as_scipy_has_it() {
        let golden = golden().linkage;
        let ours = average_linkage(&golden.distances);
        assert_eq!(ours.len(), golden.merges.len());
        for (ours, [first, second, distance, size]) in ours.iter().zip(golden.merges) {
            assert_eq!(ours.groups, [first as usize, second as usize]);
            assert_eq!(ours.size, size as usize);
            assert_close(ours.distance, distance);
        }
        let mut order = leaves(golden.distances.len(), &ours);
        // The last merge joins the groups 11 and 13, the first of which has three elements.
        assert_eq!(order.len(), 8);
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn few_elements_have_few_merges() {
        assert!(average_linkage(&[]).is_empty());
        assert!(average_linkage(&[vec![0.0]]).is_empty());
        assert_eq!(leaves(1, &[]), [0]);
        let two = average_linkage(&[vec![0.0, 0.5], vec![0.5, 0.0]]);
        assert_eq!(two, [Merge { groups: [0, 1], distance: 0.5, size: 2 }]);
    }
}
