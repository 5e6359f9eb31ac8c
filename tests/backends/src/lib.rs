//! Every model and the operations that have gone wrong somewhere, on every device: outputs, losses, gradients and an
//! update, held against flex.
//!
//! `cargo xtask backends` builds the program of this package with a backend, and draws the table.

pub mod cases;
mod compare;
mod values;
mod workarounds;

pub use cases::{CASES, Case};
pub use compare::{Difference, TOLERANCE, compare};
pub use values::Values;
pub use workarounds::{WORKAROUNDS, Workaround};
