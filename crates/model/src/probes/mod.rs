//! Probes: small models that are trained on an encoder's states to see what these say.
//!
//! The encoder itself is not trained. [`ClassProbe`] tells classes of words or sentences, [`MixedProbe`] those of a mean over
//! layers that it weighs itself, and [`StructuralProbe`] finds distances and depths of a dependency tree.

mod class;
mod mixed;
mod structural;

pub use class::ClassProbe;
pub use mixed::MixedProbe;
pub use structural::StructuralProbe;
