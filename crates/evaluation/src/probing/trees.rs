//! Dependency trees, and evaluation of structural probes against them.

use crate::correlation::spearman;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The sentence lengths over which Spearman's coefficients are averaged (Hewitt & Manning 2019, §4.2).
const LENGTHS: RangeInclusive<usize> = 5..=50;

/// A sentence's dependency tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DependencyTree {
    /// Each word's head by index; the root is its own head.
    heads: Vec<usize>,
    depths: Vec<usize>,
    root: usize,
}

impl DependencyTree {
    /// The tree with these heads, numbered from 1; the root has 0, as in CoNLL-U.
    ///
    /// # Errors
    /// A message: no root or several, a head that is not a word, a cycle.
    pub fn new(heads: &[usize]) -> Result<Self, String> {
        let n = heads.len();
        let roots: Vec<usize> = (0..n).filter(|word| heads[*word] == 0).collect();
        let [root] = roots[..] else {
            return Err(format!("{} words have the head 0, expected one, the root", roots.len()));
        };
        if let Some(word) = (0..n).find(|word| heads[*word] > n) {
            return Err(format!("word {} has the head {}, expected 0 to {n}", word + 1, heads[word]));
        }
        let heads: Vec<usize> =
            heads.iter().enumerate().map(|(word, head)| if *head == 0 { word } else { head - 1 }).collect();
        let mut depths = Vec::with_capacity(n);
        for word in 0..n {
            let (mut at, mut depth) = (word, 0);
            while at != root {
                at = heads[at];
                depth += 1;
                if depth > n {
                    return Err(format!(
                        "word {} is its own head by way of others, expected a tree",
                        word + 1
                    ));
                }
            }
            depths.push(depth);
        }
        Ok(Self { heads, depths, root })
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Always `false`.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Number of edges from each word to the root.
    pub fn depths(&self) -> &[usize] {
        &self.depths
    }

    /// `[n · n]`: number of edges between each two words.
    pub fn distances(&self) -> Vec<usize> {
        let n = self.len();
        let mut distances = vec![0; n * n];
        for a in 0..n {
            for b in 0..a {
                let (mut x, mut y, mut edges) = (a, b, 0);
                while x != y {
                    // The deeper of the two goes up.
                    if self.depths[x] >= self.depths[y] {
                        x = self.heads[x]
                    } else {
                        y = self.heads[y]
                    }
                    edges += 1;
                }
                distances[a * n + b] = edges;
                distances[b * n + a] = edges;
            }
        }
        distances
    }

    /// Whether two words are connected by an edge.
    fn has_edge(&self, a: usize, b: usize) -> bool {
        a != b && (self.heads[a] == b || self.heads[b] == a)
    }
}

/// The minimum spanning tree of the `kept` words under `distances`, `[n · n]` (Kruskal 1956). Ties go to the
/// first words.
pub fn spanning_tree(distances: &[f64], kept: &[bool]) -> Vec<(usize, usize)> {
    let n = kept.len();
    let words: Vec<usize> = (0..n).filter(|word| kept[*word]).collect();
    let mut pairs: Vec<(usize, usize)> =
        words.iter().enumerate().flat_map(|(i, a)| words[i + 1..].iter().map(|b| (*a, *b))).collect();
    pairs.sort_by(|a, b| distances[a.0 * n + a.1].total_cmp(&distances[b.0 * n + b.1]));
    let mut groups: Vec<usize> = (0..n).collect();
    let mut edges = Vec::new();
    for (a, b) in pairs {
        let (from, to) = (groups[a], groups[b]);
        if from != to {
            groups.iter_mut().filter(|group| **group == from).for_each(|group| *group = to);
            edges.push((a, b));
        }
    }
    edges
}

/// Accumulates the figures of a structural probe over sentences.
#[derive(Debug, Clone, Default)]
pub struct StructuralScore {
    right_edges: usize,
    edges: usize,
    right_roots: usize,
    roots: usize,
    /// Each word's coefficient, by sentence length.
    of_distances: BTreeMap<usize, Vec<f64>>,
    /// Each sentence's coefficient, by sentence length.
    of_depths: BTreeMap<usize, Vec<f64>>,
}

/// The metrics of a structural probe (Hewitt & Manning 2019, §4.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StructuralFigures {
    /// The undirected unlabelled attachment score: the share of gold edges in the minimum spanning tree of
    /// predicted distances, without punctuation.
    pub uuas: f64,
    /// Spearman's coefficient of predicted and gold distances from each word; averaged over words by sentence
    /// length, then over lengths 5 to 50.
    pub distance_spearman: f64,
    /// The share of sentences whose root has the least predicted depth, without punctuation.
    pub root_accuracy: f64,
    /// Spearman's coefficient of predicted and gold depths ("NSpr."); averaged over sentences by length, then
    /// over lengths 5 to 50.
    pub depth_spearman: f64,
}

impl StructuralScore {
    /// Adds a sentence's predicted `distances`, `[n · n]`. `kept` says which words are not punctuation.
    ///
    /// # Panics
    /// If the number of values differs.
    pub fn push_distances(&mut self, tree: &DependencyTree, kept: &[bool], distances: &[f64]) {
        let n = tree.len();
        assert_eq!((kept.len(), distances.len()), (n, n * n), "numbers of another sentence");
        let gold = (0..n).filter(|word| *word != tree.root && kept[*word] && kept[tree.heads[*word]]).count();
        self.edges += gold;
        let found = spanning_tree(distances, kept);
        self.right_edges += found.iter().filter(|(a, b)| tree.has_edge(*a, *b)).count();
        let gold: Vec<f64> = tree.distances().into_iter().map(|distance| distance as f64).collect();
        let rows = gold.chunks_exact(n).zip(distances.chunks_exact(n));
        let of_words = rows.map(|(gold, found)| spearman(gold, found)).filter(|value| value.is_finite());
        self.of_distances.entry(n).or_default().extend(of_words);
    }

    /// Adds a sentence's predicted `depths`, `[n]`.
    ///
    /// # Panics
    /// If the number of values differs.
    pub fn push_depths(&mut self, tree: &DependencyTree, kept: &[bool], depths: &[f64]) {
        assert_eq!((kept.len(), depths.len()), (tree.len(), tree.len()), "numbers of another sentence");
        let words = (0..tree.len()).filter(|word| kept[*word]);
        let root = words.min_by(|a, b| depths[*a].total_cmp(&depths[*b]));
        self.roots += 1;
        self.right_roots += usize::from(root == Some(tree.root));
        let gold: Vec<f64> = tree.depths.iter().map(|depth| *depth as f64).collect();
        let coefficient = spearman(&gold, depths);
        self.of_depths
            .entry(tree.len())
            .or_default()
            .extend(Some(coefficient).filter(|value| value.is_finite()));
    }

    /// The figures; NaN without relevant data.
    pub fn figures(&self) -> StructuralFigures {
        StructuralFigures {
            uuas: self.right_edges as f64 / self.edges as f64,
            distance_spearman: by_length(&self.of_distances),
            root_accuracy: self.right_roots as f64 / self.roots as f64,
            depth_spearman: by_length(&self.of_depths),
        }
    }
}

/// The mean over lengths of each length's mean.
fn by_length(values: &BTreeMap<usize, Vec<f64>>) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let means: Vec<f64> =
        values.range(LENGTHS).filter(|(_, of)| !of.is_empty()).map(|(_, of)| mean(of)).collect();
    mean(&means)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chef made five dishes .
    const HEADS: [usize; 6] = [2, 3, 0, 5, 3, 3];
    const KEPT: [bool; 6] = [true, true, true, true, true, false];

    #[test]
    fn a_tree_has_depths_and_distances() {
        let tree = DependencyTree::new(&HEADS).unwrap();
        assert_eq!(tree.depths(), [2, 1, 0, 2, 1, 1]);
        let distances = tree.distances();
        assert_eq!(distances[..6], [0, 1, 2, 4, 3, 3]);
        assert_eq!(distances[3 * 6..4 * 6], [4, 3, 2, 0, 1, 3]);
    }

    #[test]
    fn what_is_no_tree_is_said() {
        let error = |heads: &[usize]| DependencyTree::new(heads).unwrap_err();
        assert_eq!(error(&[]), "0 words have the head 0, expected one, the root");
        assert_eq!(error(&[0, 0]), "2 words have the head 0, expected one, the root");
        assert_eq!(error(&[0, 3]), "word 2 has the head 3, expected 0 to 2");
        assert_eq!(error(&[0, 3, 2]), "word 2 is its own head by way of others, expected a tree");
    }

    #[test]
    fn gold_numbers_are_perfect() {
        let tree = DependencyTree::new(&HEADS).unwrap();
        let distances: Vec<f64> = tree.distances().iter().map(|d| *d as f64 * 0.3).collect();
        let depths: Vec<f64> = tree.depths().iter().map(|d| *d as f64).collect();
        let mut score = StructuralScore::default();
        score.push_distances(&tree, &KEPT, &distances);
        score.push_depths(&tree, &KEPT, &depths);
        let found = score.figures();
        assert_eq!((found.uuas, found.root_accuracy), (1.0, 1.0));
        assert!((found.distance_spearman - 1.0).abs() < 1e-12 && (found.depth_spearman - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_chain_has_only_the_edges_of_neighbours() {
        let tree = DependencyTree::new(&HEADS).unwrap();
        let chain: Vec<f64> = (0..36_i32).map(|i| f64::from((i / 6 - i % 6).abs())).collect();
        assert_eq!(spanning_tree(&chain, &KEPT), [(0, 1), (1, 2), (2, 3), (3, 4)]);
        let mut score = StructuralScore::default();
        score.push_distances(&tree, &KEPT, &chain);
        score.push_depths(&tree, &KEPT, &[0.0, 1.0, 2.0, 3.0, 4.0, -1.0]);
        let found = score.figures();
        // Of the gold edges the-chef, chef-made, five-dishes and made-dishes the last is missing.
        assert_eq!((found.uuas, found.root_accuracy), (0.75, 0.0));
        // scipy.stats.spearmanr, word by word, and of the depths.
        assert!((found.distance_spearman - CHAIN_DISTANCES).abs() < 1e-9, "{}", found.distance_spearman);
        assert!((found.depth_spearman - CHAIN_DEPTHS).abs() < 1e-9, "{}", found.depth_spearman);
    }

    const CHAIN_DISTANCES: f64 = 0.7143116571717302;
    const CHAIN_DEPTHS: f64 = -0.06172133998483677;

    #[test]
    fn short_sentences_have_no_coefficient() {
        let tree = DependencyTree::new(&[0, 1]).unwrap();
        let mut score = StructuralScore::default();
        score.push_distances(&tree, &[true, true], &[0.0, 1.0, 1.0, 0.0]);
        assert_eq!(score.figures().uuas, 1.0);
        assert!(score.figures().distance_spearman.is_nan() && score.figures().root_accuracy.is_nan());
    }
}
