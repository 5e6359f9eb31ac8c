//! What loading and saving a model tell their callers.

/// Tensors and parameters that did not match when a checkpoint was loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// Parameters that the checkpoint lacks, which keep their initial values because they were declared new. The names
    /// are those in files of the model's architecture.
    pub missing: Vec<String>,
    /// Tensors that match no parameter of the model, by their names in the checkpoint.
    pub unexpected: Vec<String>,
}

/// The result of saving a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveReport {
    /// Parameters that transformers' class does not have, such as those of a conditional random field. They are saved
    /// under their paths in this crate.
    pub unknown: Vec<String>,
}
