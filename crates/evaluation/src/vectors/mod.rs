//! The geometry of a set of vectors: how alike they point, and corrections that spread them out.
//!
//! Vectors lie one after another, `[n · width]`.

mod corrections;
mod cosines;
mod eigen;

pub use corrections::Correction;
pub use cosines::{cosine, intra_sentence_similarity, mean_cosine, self_similarity};
pub use eigen::{Eigen, covariance, symmetric_eigen};
