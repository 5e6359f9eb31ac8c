//! Losses that draw a student to its teacher. Each is summed over what it compares, so that batches add up.
//!
//! No gradient flows into what is given of the teacher if it has none.

mod outputs;
mod relations;
mod states;

pub use outputs::{ABSENT, soft_labels, soft_targets, squared_distance};
pub use relations::Relations;
pub use states::cosine_distance;
