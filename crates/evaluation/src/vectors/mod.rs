//! The geometry of a set of vectors: how alike they point, corrections that spread them out, and maps of them on a plane.
//!
//! Vectors lie one after another, `[n · width]`.

mod components;
mod corrections;
mod cosines;
mod eigen;
mod neighbours;
mod tsne;

pub use components::{PrincipalComponents, principal_components};
pub use corrections::Correction;
pub use cosines::{directions, intra_sentence_similarity, mean_cosine, self_similarity};
pub use eigen::{Eigen, covariance, symmetric_eigen};
pub use tsne::{TsneConfig, tsne};
