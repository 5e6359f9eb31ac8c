//! Patterns of paths, in which `*` stands for any characters.

use crate::{ModelError, Result};
use glob::Pattern;

/// Parses patterns, each of which must match one of `paths`.
///
/// # Errors
/// A pattern that is malformed or matches nothing.
pub(crate) fn parse<'a>(
    patterns: &[impl AsRef<str>],
    paths: impl Iterator<Item = &'a str> + Clone,
) -> Result<Vec<Pattern>> {
    let parse = |text: &str| {
        let refused = |reason: String| ModelError::Pattern { pattern: text.into(), reason };
        let pattern = Pattern::new(text).map_err(|error| refused(error.to_string()))?;
        if paths.clone().any(|path| pattern.matches(path)) {
            return Ok(pattern);
        }
        let example = paths.clone().next().unwrap_or_default();
        Err(refused(format!("it matches nothing; an existing path is `{example}`")))
    };
    patterns.iter().map(|text| parse(text.as_ref())).collect()
}
