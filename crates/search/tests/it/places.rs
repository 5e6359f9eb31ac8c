//! Indexes of random vectors, and the naive search beside them.

use cloze_search::{Found, Index, IndexConfig, Metric, NewRow};
use serde_json::json;

/// Numbers from −1 to 1 (SplitMix64, Steele, Lea and Flood 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ bits >> 31
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn vectors(&mut self, n: usize, width: usize) -> Vec<f32> {
        (0..n * width).map(|_| (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
    }

    /// Vectors around a centre for each twenty rows.
    pub fn clustered(&mut self, n: usize, width: usize) -> Vec<f32> {
        let centres = Random(1).vectors(n.div_ceil(20), width);
        let mut all = self.vectors(n, width);
        for vector in all.chunks_exact_mut(width) {
            let centre = self.below(centres.len() / width);
            vector.iter_mut().zip(&centres[centre * width..]).for_each(|(x, c)| *x = *c + 0.5 * *x);
        }
        all
    }
}

/// A row with an id, and fields to ask for.
pub fn row(id: usize) -> NewRow {
    let fields = json!({"group": id % 7, "parity": if id.is_multiple_of(2) { "even" } else { "odd" }});
    NewRow {
        id: Some(format!("id-{id}")),
        text: format!("text {id}"),
        fields: fields.as_object().unwrap().clone(),
    }
}

pub fn rows(ids: impl IntoIterator<Item = usize>) -> Vec<NewRow> {
    ids.into_iter().map(row).collect()
}

/// Without a graph.
pub fn config(width: usize) -> IndexConfig {
    IndexConfig { graph: None, ..IndexConfig::new(width) }
}

/// Ids and scores of what was found.
pub fn told(index: &Index, found: &[Found]) -> Vec<(String, f64)> {
    found.iter().map(|found| (index.row(found.place).unwrap().id, found.score)).collect()
}

/// Ids and scores of the `k` nearest of these rows.
pub fn naive(metric: Metric, rows: &[(String, Vec<f32>)], query: &[f32], k: usize) -> Vec<(String, f64)> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let score = |row: &[f32]| match metric {
        Metric::Dot => dot(query, row),
        Metric::Cosine => dot(query, row) / (dot(query, query) * dot(row, row)).sqrt(),
        Metric::Euclidean => {
            -query.iter().zip(row).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
        }
    };
    let mut all: Vec<(String, f64)> = rows.iter().map(|(id, row)| (id.clone(), score(row))).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(k);
    let sign = if metric == Metric::Euclidean { -1.0 } else { 1.0 };
    all.into_iter().map(|(id, score)| (id, sign * score)).collect()
}

/// The same ids in the same order, and the same scores but for rounding.
#[track_caller]
pub fn assert_same(found: &[(String, f64)], expected: &[(String, f64)]) {
    let ids = |all: &[(String, f64)]| all.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(found), ids(expected));
    for ((id, found), (_, expected)) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5 * (1.0 + expected.abs()), "{id}: {found}, {expected}");
    }
}
