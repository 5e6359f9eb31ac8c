//! Hard negative mining: for each pair of texts, finds the texts of a pool that a model considers most similar
//! to the first, excluding its positives.
//!
//! The selection follows sentence-transformers' `mine_hard_negatives`, and is deterministic.

use cloze_evaluation::embeddings::{Documents, Similarity, Vectors};
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};

/// Criteria for negatives. Similarities are cosines.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MiningConfig {
    /// Maximum negatives per pair.
    pub negatives: usize,
    /// Number of nearest eligible texts to skip: they are the most likely to be unlabelled positives.
    pub range_min: usize,
    /// Number of nearest texts to consider, not counting positives.
    pub range_max: usize,
    /// How much less similar to the anchor than its positive a negative must be.
    pub margin: Option<f64>,
    /// A negative's similarity to the anchor must be at most `1 − relative_margin` times the positive's.
    pub relative_margin: Option<f64>,
    /// Maximum similarity of a negative.
    pub max_score: Option<f64>,
    /// Minimum similarity of a negative.
    pub min_score: Option<f64>,
}

impl MiningConfig {
    /// This many negatives per pair, chosen from the nearest ten times as many.
    pub fn new(negatives: usize) -> Self {
        Self {
            negatives,
            range_min: 0,
            range_max: 10 * negatives,
            margin: None,
            relative_margin: None,
            max_score: None,
            min_score: None,
        }
    }

    /// Whether a text with similarity `score` to the anchor may be a negative if the positive has similarity
    /// `positive`.
    fn takes(&self, score: f64, positive: f64) -> bool {
        // A bound that there is none of holds.
        self.margin.is_none_or(|margin| score + margin <= positive)
            && self.relative_margin.is_none_or(|margin| score <= positive * (1.0 - margin))
            && self.max_score.is_none_or(|most| score <= most)
            && self.min_score.is_none_or(|least| score >= least)
    }
}

/// A negative for an anchor.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Negative {
    /// Its index in the pool.
    pub place: usize,
    /// Its cosine with the anchor.
    pub score: f64,
}

/// The negatives of each pair of an anchor and a positive, most similar first, from a pool of distinct texts.
/// The vectors of a pair's texts are in the same rows of `anchors` and `positives`, those of the pool in
/// `pool`.
///
/// Neither the anchor nor any of its positives is a negative. For several positives, margins are relative to
/// the least similar one. Ties are broken by text, the greater in bytes first, so the result depends only on
/// the arguments.
///
/// # Panics
/// If the numbers of vectors and texts differ, or vectors differ in width.
pub fn hard_negatives(
    pairs: &[(&str, &str)],
    [anchors, positives, pool_vectors]: [Vectors<'_>; 3],
    pool: &[String],
    config: &MiningConfig,
) -> Vec<Vec<Negative>> {
    assert_eq!([anchors.len(), positives.len()], [pairs.len(); 2], "a vector for each text of a pair");
    let mut of_anchor: HashMap<&str, Vec<usize>> = HashMap::new();
    for (row, (anchor, _)) in pairs.iter().enumerate() {
        of_anchor.entry(anchor).or_default().push(row);
    }
    // Rows with the same anchor have the same negatives, and are looked at once; of each anchor that has its vector, the first.
    let mut firsts: HashMap<(&str, Vec<u32>), usize> = HashMap::new();
    let bits = |row: usize| anchors.get(row).iter().map(|x| x.to_bits()).collect();
    let first: Vec<usize> =
        (0..pairs.len()).map(|row| *firsts.entry((pairs[row].0, bits(row))).or_insert(row)).collect();
    let likeness = |row: &usize| Similarity::Cosine.of(anchors.get(*row), positives.get(*row));
    let known: HashMap<&str, (HashSet<&str>, f64)> = of_anchor
        .par_iter()
        .map(|(anchor, rows)| {
            let positives = rows.iter().map(|row| pairs[*row].1).collect();
            (*anchor, (positives, rows.iter().map(likeness).fold(f64::INFINITY, f64::min)))
        })
        .collect();
    let places: HashMap<&str, usize> = pool.iter().enumerate().map(|(i, text)| (text.as_str(), i)).collect();
    let documents = Documents::new(pool, pool_vectors, Similarity::Cosine);
    let of_row = |row: usize| {
        let anchor = pairs[row].0;
        let (positives, positive) = &known[anchor];
        let most = config.range_max.saturating_add(positives.len());
        let nearest = documents.nearest(anchor, anchors.get(row), most);
        let others = nearest.iter().filter(|hit| !positives.contains(hit.id)).take(config.range_max);
        others
            .map(|hit| Negative { place: places[hit.id], score: f64::from(hit.score) })
            .filter(|negative| config.takes(negative.score, *positive))
            .skip(config.range_min)
            .take(config.negatives)
            .collect()
    };
    let distinct: Vec<usize> = (0..pairs.len()).filter(|row| first[*row] == *row).collect();
    let found: HashMap<usize, Vec<Negative>> =
        distinct.into_par_iter().map(|row| (row, of_row(row))).collect();
    first.iter().map(|row| found[row].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of length 1 whose cosine with the first axis is this.
    fn vectors(cosines: &[f64]) -> Vec<f32> {
        cosines.iter().flat_map(|cosine| [*cosine as f32, (1.0 - cosine * cosine).sqrt() as f32]).collect()
    }

    fn mined(pairs: &[(&str, &str, f64)], config: &MiningConfig) -> Vec<Vec<String>> {
        let pool: Vec<String> = ["q", "a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let of_pool = vectors(&[1.0, 0.9, 0.8, 0.7, 0.6, 0.2]);
        let texts: Vec<(&str, &str)> =
            pairs.iter().map(|(anchor, positive, _)| (*anchor, *positive)).collect();
        let anchors = vectors(&vec![1.0; pairs.len()]);
        let positives = vectors(&pairs.iter().map(|(.., cosine)| *cosine).collect::<Vec<_>>());
        let all = [&anchors, &positives, &of_pool].map(|values| Vectors::new(values, 2).unwrap());
        let negatives = hard_negatives(&texts, all, &pool, config);
        let names = |of_pair: &Vec<Negative>| of_pair.iter().map(|one| pool[one.place].clone()).collect();
        negatives.iter().map(names).collect()
    }

    #[test]
    fn each_bound_leaves_out_what_it_should() {
        let two = MiningConfig::new(2);
        let of = |config: MiningConfig| mined(&[("q", "a", 0.9)], &config).remove(0);
        assert_eq!(of(two.clone()), ["b", "c"], "neither the anchor nor its positive");
        assert_eq!(of(MiningConfig { range_min: 1, ..two.clone() }), ["c", "d"]);
        assert_eq!(of(MiningConfig { range_max: 3, range_min: 2, ..two.clone() }), ["d"]);
        assert_eq!(of(MiningConfig { margin: Some(0.15), ..two.clone() }), ["c", "d"]);
        // 0.9 · (1 − 0.3) = 0.63
        assert_eq!(of(MiningConfig { relative_margin: Some(0.3), ..two.clone() }), ["d", "e"]);
        assert_eq!(of(MiningConfig { max_score: Some(0.65), ..two.clone() }), ["d", "e"]);
        assert_eq!(of(MiningConfig { min_score: Some(0.75), ..two.clone() }), ["b"]);
        // What is passed over is among those that pass the bounds.
        assert_eq!(of(MiningConfig { margin: Some(0.15), range_min: 1, ..two }), ["d", "e"]);
    }

    /// As many rows as took minutes when each looked at all others.
    #[test]
    fn rows_that_share_an_anchor_are_looked_at_once() {
        let n = 20_000;
        let texts: Vec<String> = (0..n).map(|i| format!("text {i}")).collect();
        let pairs: Vec<(&str, &str)> = texts.iter().map(|text| ("q", text.as_str())).collect();
        let cosines: Vec<f64> = (0..n).map(|i| f64::from(i as u32) / n as f64).collect();
        let [anchors, positives] = [vectors(&vec![1.0; n]), vectors(&cosines)];
        let mut pool = texts.clone();
        pool.extend(["a", "b"].map(String::from));
        let of_pool = [positives.clone(), vectors(&[-0.5, -0.4])].concat();
        let all = [&anchors, &positives, &of_pool].map(|values| Vectors::new(values, 2).unwrap());
        let started = std::time::Instant::now();
        let negatives = hard_negatives(&pairs, all, &pool, &MiningConfig::new(2));
        let places: Vec<usize> = negatives[0].iter().map(|one| one.place).collect();
        assert_eq!(places, [n + 1, n]);
        assert!(negatives.iter().all(|of_row| *of_row == negatives[0]));
        // Some tens of milliseconds; looking at each row by itself takes hours.
        assert!(started.elapsed() < std::time::Duration::from_secs(60));
    }

    #[test]
    fn all_positives_of_an_anchor_are_left_out_of_each_of_its_rows() {
        let config = MiningConfig { margin: Some(0.05), ..MiningConfig::new(3) };
        let found = mined(&[("q", "a", 0.9), ("other", "d", 0.6), ("q", "c", 0.7)], &config);
        // The least like of its positives counts: 0.7 − 0.05.
        assert_eq!(found[0], ["d", "e"]);
        assert_eq!(found[0], found[2]);
        assert_eq!(found[1], ["e"]);
        // The pool has no room for more.
        let many = MiningConfig { range_max: usize::MAX, ..MiningConfig::new(99) };
        assert_eq!(mined(&[("q", "z", 0.9)], &many)[0], ["a", "b", "c", "d", "e"]);
    }
}
