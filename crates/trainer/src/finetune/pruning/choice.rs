//! Which heads and neurons are removed next, given their importance.

/// The `n` least important heads that may go, given those removed so far: by importance, then by layer and number.
/// Each layer keeps one head.
pub(super) fn heads(importance: &[Vec<f64>], removed: &[Vec<usize>], n: usize) -> Vec<(usize, usize)> {
    let mut left: Vec<(f64, usize, usize)> = Vec::new();
    for (layer, of) in importance.iter().enumerate() {
        let stay = of.iter().enumerate().filter(|(head, _)| !removed[layer].contains(head));
        left.extend(stay.map(|(head, value)| (*value, layer, head)));
    }
    left.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut may_go: Vec<usize> =
        importance.iter().zip(removed).map(|(of, gone)| (of.len() - gone.len()).saturating_sub(1)).collect();
    let mut chosen = Vec::new();
    for (_, layer, head) in left {
        if chosen.len() == n {
            break;
        }
        if may_go[layer] > 0 {
            may_go[layer] -= 1;
            chosen.push((layer, head));
        }
    }
    chosen
}

/// The `n` least important neurons of a layer, given those removed so far: by importance, then by number.
pub(super) fn neurons(importance: &[f64], removed: &[usize], n: usize) -> Vec<usize> {
    let gone: std::collections::BTreeSet<usize> = removed.iter().copied().collect();
    let mut left: Vec<usize> = (0..importance.len()).filter(|neuron| !gone.contains(neuron)).collect();
    left.sort_by(|a, b| importance[*a].total_cmp(&importance[*b]).then(a.cmp(b)));
    left.truncate(n);
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_important_go_and_each_layer_keeps_one() {
        let importance = [vec![0.1, 0.2, 0.05], vec![0.9, 0.8, 0.7]];
        let none = vec![Vec::new(); 2];
        assert_eq!(heads(&importance, &none, 2), [(0, 2), (0, 0)]);
        // The last head of the first layer stays, however little it does.
        assert_eq!(heads(&importance, &none, 3), [(0, 2), (0, 0), (1, 2)]);
        assert_eq!(heads(&importance, &[vec![0, 2], vec![]], 1), [(1, 2)]);
        assert_eq!(heads(&importance, &none, 9).len(), 4);
    }

    #[test]
    fn equal_neurons_go_by_number() {
        assert_eq!(neurons(&[0.5, 0.1, 0.5, 0.1, 0.2], &[], 3), [1, 3, 4]);
        assert_eq!(neurons(&[0.5, 0.1, 0.5, 0.1, 0.2], &[1, 3], 2), [4, 0]);
    }
}
