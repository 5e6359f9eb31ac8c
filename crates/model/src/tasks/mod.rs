//! Models for tasks: an encoder with a head on top, each with its loss as a function beside it.

mod crf;

pub use crf::{Crf, TagRules, TagScheme};
