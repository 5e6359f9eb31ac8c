//! Checks of a configuration's sizes.

use crate::{ModelError, Result};

/// Checks that each size is positive, and small enough to be computed with.
///
/// # Errors
/// [`ModelError::Setting`] for the first that is not, by its key.
pub(crate) fn check_sizes(sizes: impl IntoIterator<Item = (&'static str, usize)>) -> Result<()> {
    for (key, size) in sizes {
        // Far larger than any model, and small enough that no tensor has more elements than can be counted.
        let most = match key {
            key if key.ends_with("layers") || key.ends_with("kernel") => 10_000,
            key if key.starts_with('d') => 1 << 30,
            _ => i32::MAX as usize,
        };
        if size == 0 {
            return Err(ModelError::setting(key, 0, "at least 1"));
        }
        if size > most {
            return Err(ModelError::setting(key, size, format!("at most {most}")));
        }
    }
    Ok(())
}
