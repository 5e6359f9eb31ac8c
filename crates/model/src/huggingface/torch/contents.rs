use super::pickle::Pickle;
use std::collections::HashMap;
use std::ops::Range;

/// The contents of a file, from which tensors are made.
pub(super) struct Contents<'a> {
    pub pickle: Pickle<'a>,
    /// The offset of the pickle.
    pub pickle_at: usize,
    /// The place of each storage's bytes.
    pub storages: HashMap<&'a str, Range<usize>>,
}
