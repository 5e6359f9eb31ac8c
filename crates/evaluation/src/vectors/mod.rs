//! The geometry of a set of vectors: anisotropy, corrections of it, and two-dimensional maps.
//!
//! Vectors are concatenated, `[n · width]`.

mod components;
mod corrections;
mod cosines;
mod eigen;
mod neighbours;
mod svd;
mod tsne;

pub use components::{PrincipalComponents, principal_components};
pub use corrections::Correction;
pub use cosines::{directions, intra_sentence_similarity, mean_cosine, self_similarity};
pub use eigen::{Eigen, covariance, symmetric_eigen};
pub use svd::{Svd, svd};
pub use tsne::{TsneConfig, tsne};
