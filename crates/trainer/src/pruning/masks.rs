//! Masks of the largest scores.

use super::targets::Scope;

/// For each list of scores a mask with 1 for the largest `⌈share · n⌉` of the list, or of all lists together. Between equal
/// scores the earlier one stays.
pub(super) fn largest(scores: &[Vec<f32>], share: f64, scope: Scope) -> Vec<Vec<f32>> {
    let n_left = |n: usize| ((share * n as f64).ceil() as usize).min(n);
    match scope {
        Scope::Matrix => {
            scores.iter().map(|list| above(&[list], n_left(list.len())).swap_remove(0)).collect()
        }
        Scope::Global => {
            let lists: Vec<&Vec<f32>> = scores.iter().collect();
            above(&lists, n_left(lists.iter().map(|list| list.len()).sum()))
        }
    }
}

/// Masks of the `n` largest numbers of all lists.
fn above(lists: &[&Vec<f32>], n: usize) -> Vec<Vec<f32>> {
    let mut all: Vec<f32> = lists.iter().flat_map(|list| list.iter().copied()).collect();
    if n >= all.len() {
        return lists.iter().map(|list| vec![1.0; list.len()]).collect();
    }
    if n == 0 {
        return lists.iter().map(|list| vec![0.0; list.len()]).collect();
    }
    let (_, least, _) = all.select_nth_unstable_by(n - 1, |a, b| b.total_cmp(a));
    let least = *least;
    let greater =
        lists.iter().flat_map(|list| list.iter()).filter(|score| score.total_cmp(&least).is_gt()).count();
    // As many of those equal to the least as there is room for.
    let mut equal = n - greater;
    let mut entry = |score: &f32| match score.total_cmp(&least) {
        std::cmp::Ordering::Greater => 1.0,
        std::cmp::Ordering::Equal if equal > 0 => {
            equal -= 1;
            1.0
        }
        _ => 0.0,
    };
    lists.iter().map(|list| list.iter().map(&mut entry).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_stay_and_of_equals_the_first() {
        let scores = [vec![0.1, 0.9, 0.5, 0.5], vec![0.5, 0.2, 0.8]];
        let all = largest(&scores, 0.5, Scope::Global);
        assert_eq!(all, [vec![0.0, 1.0, 1.0, 1.0], vec![0.0, 0.0, 1.0]]);
        let each = largest(&scores, 0.5, Scope::Matrix);
        assert_eq!(each, [vec![0.0, 1.0, 1.0, 0.0], vec![1.0, 0.0, 1.0]]);
        assert_eq!(largest(&scores, 1.0, Scope::Global), [vec![1.0; 4], vec![1.0; 3]]);
        assert_eq!(largest(&scores, 0.0, Scope::Matrix), [vec![0.0; 4], vec![0.0; 3]]);
    }
}
