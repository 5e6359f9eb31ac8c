//! How alike several encoders, such as those of different tasks, represent the same texts, and whether that tells which
//! transfers to which.
//!
//! Representational similarity analysis (Kriegeskorte et al. 2008): [`dissimilarities`] describes an encoder by the
//! distances between its vectors of the texts, which encoders of any width have in common; [`similarities`] compares such
//! descriptions. [`average_linkage`] groups the encoders, and [`Agreement`] compares their similarity with measured
//! transfer, as "CogTaskonomy" does (Luo et al. 2022).

mod agreement;
mod linkage;
mod representations;

pub use agreement::{Agreement, TargetAgreement};
pub use linkage::{Merge, average_linkage, leaves};
pub use representations::{dissimilarities, similarities};

#[cfg(test)]
mod golden {
    use serde::Deserialize;

    /// Values of rsatoolbox, SciPy and pandas, from `tests/fixtures/task_similarity/export.py`.
    const CASES: &str = include_str!("../../../../tests/fixtures/task_similarity/cases.json");

    #[derive(Deserialize)]
    pub struct Golden {
        pub cases: Vec<Case>,
        pub linkage: Linkage,
        pub agreement: Agreed,
    }

    #[derive(Deserialize)]
    pub struct Case {
        pub width: usize,
        pub vectors: Vec<Vec<f32>>,
        pub dissimilarities: Vec<Vec<f64>>,
        pub similarity: Vec<Vec<f64>>,
    }

    #[derive(Deserialize)]
    pub struct Linkage {
        pub distances: Vec<Vec<f64>>,
        pub merges: Vec<[f64; 4]>,
    }

    #[derive(Deserialize)]
    pub struct Agreed {
        pub tasks: Vec<String>,
        pub transfer: Vec<Vec<f64>>,
        pub similarity: Vec<Vec<f64>>,
        pub correlations: Vec<f64>,
        pub mean_correlation: f64,
        pub chosen_ranks: Vec<f64>,
        pub mean_rank: f64,
    }

    pub fn golden() -> Golden {
        serde_json::from_str(CASES).unwrap()
    }

    #[track_caller]
    pub fn assert_close(ours: f64, theirs: f64) {
        assert!((ours - theirs).abs() < 1e-9, "{ours} is not {theirs}");
    }
}
