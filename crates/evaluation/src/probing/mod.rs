//! What a layer's states say: the arithmetic of probes, which needs no tensors.
//!
//! ```text
//! score               accuracy beside that of a control task: selectivity (Hewitt & Liang 2019)
//! description_length  bits of labels in an online code (Voita & Titov 2020)
//! trees               dependency trees, and distances and depths beside them (Hewitt & Manning 2019)
//! ```

mod description_length;
mod score;
mod trees;

pub use description_length::{OnlineCode, portions};
pub use score::ProbeScore;
pub use trees::{DependencyTree, StructuralFigures, StructuralScore, spanning_tree};
