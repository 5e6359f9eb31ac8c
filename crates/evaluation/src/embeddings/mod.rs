//! Evaluation of embeddings: text similarity, retrieval, pair classification, clustering, and
//! classification by a linear probe.
//!
//! Figures are those of sentence-transformers' evaluators and MTEB's tasks, and equal scipy's, scikit-learn's
//! and trec_eval's on the same vectors. Vectors are plain numbers here, from any source.

mod classification;
mod clustering;
mod kmeans;
mod lbfgs;
mod logistic;
pub(crate) mod pairs;
mod retrieval;
mod similarity;
mod sts;
mod vectors;

pub use classification::{LinearProbe, linear_probe};
pub use clustering::{VMeasure, v_measure};
pub use kmeans::{Clusters, first_centres, lloyd};
pub use logistic::{LogisticConfig, LogisticRegression};
pub use pairs::{PairScores, pair_figures, pair_scores};
pub use retrieval::{Documents, Hit, RankingScores, Retrieval};
pub use similarity::Similarity;
pub(crate) use similarity::norm;
pub use sts::{scores, sts_figures};
pub use vectors::Vectors;
