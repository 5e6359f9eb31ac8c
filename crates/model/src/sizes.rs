//! Checks of a configuration's sizes.

use crate::{ModelError, Result};

/// Checks that each size is positive, and small enough not to overflow.
///
/// # Errors
/// [`ModelError::Setting`] for the first that is not, by its key.
pub(crate) fn check_sizes(sizes: impl IntoIterator<Item = (&'static str, usize)>) -> Result<()> {
    check_up_to(i32::MAX as usize, sizes)
}

/// [`check_sizes`] for a model with recurrent layers, whose matrices are four times as wide as their states.
///
/// # Errors
/// As [`check_sizes`].
pub(crate) fn check_recurrent_sizes(sizes: impl IntoIterator<Item = (&'static str, usize)>) -> Result<()> {
    check_up_to(i32::MAX as usize / 4, sizes)
}

fn check_up_to(most: usize, sizes: impl IntoIterator<Item = (&'static str, usize)>) -> Result<()> {
    for (key, size) in sizes {
        // Far larger than any model.
        let most = if key.ends_with("layers") || key.ends_with("kernel") { 10_000 } else { most };
        if size == 0 {
            return Err(ModelError::setting(key, 0, "at least 1"));
        }
        if size > most {
            return Err(ModelError::setting(key, size, format!("at most {most}")));
        }
    }
    Ok(())
}
