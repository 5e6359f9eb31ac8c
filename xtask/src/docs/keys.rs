//! The page of every key of a config, made of the doc comments in the sources.

use std::path::Path;

use anyhow::Result;
use config_keys::Reference;

/// The page, with a section for each kind of run.
pub fn page(root: &Path) -> Result<String> {
    Reference::read(root)?.page()
}
