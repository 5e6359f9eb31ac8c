//! How many captions differ.

use hashbrown::HashSet;

use crate::translation::words;
use crate::{EvaluationError, Result};

/// The share of distinct captions among all, from 1 / captions to 1. A model that looks at no image writes one caption
/// for all. Captions with the same tokens are the same.
///
/// # Errors
/// [`EvaluationError::NoLines`] without captions.
///
/// ```
/// use cloze_evaluation::captions::distinct_share;
///
/// assert_eq!(distinct_share(&["a man", "a dog", "a  man", "a man"])?, 0.5);
/// # Ok::<(), cloze_evaluation::EvaluationError>(())
/// ```
pub fn distinct_share(captions: &[impl AsRef<str>]) -> Result<f64> {
    if captions.is_empty() {
        return Err(EvaluationError::NoLines);
    }
    let distinct: HashSet<Vec<&str>> =
        captions.iter().map(|caption| words(caption.as_ref()).collect()).collect();
    Ok(distinct.len() as f64 / captions.len() as f64)
}
