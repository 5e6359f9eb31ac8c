//! Probes: small models trained on an encoder's states to find out what these encode.
//!
//! The encoder itself is not trained. [`ClassProbe`] predicts classes of words or sentences, [`MixedProbe`]
//! does so from a learned mean over layers, and [`StructuralProbe`] predicts distances and depths of a
//! dependency tree.

mod class;
mod mixed;
mod structural;

pub use class::ClassProbe;
pub use mixed::MixedProbe;
pub use structural::StructuralProbe;
