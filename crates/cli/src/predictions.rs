//! Predictions with typed inputs and outputs.
//!
//! A [`Predictor`] reads and writes the JSON of `cloze predict`; this module converts it from and to Rust types.

use std::collections::HashMap;
use std::ops::Range;

use cloze_trainer::finetune::{Predictor, TaskSection};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Error, Result};

/// Returns the predictor if its model is for one of the expected tasks.
///
/// # Errors
/// [`Error::WrongTask`].
pub fn for_task(
    predictor: Predictor,
    expected: &'static str,
    is_expected: impl Fn(&TaskSection) -> bool,
) -> Result<Predictor> {
    match predictor.task().is_some_and(is_expected) {
        true => Ok(predictor),
        false => Err(Error::WrongTask { found: predictor.kind().to_owned(), expected }),
    }
}

/// The model's answers to inputs.
///
/// # Errors
/// [`Error::Input`] with the first input that the model cannot read; those of [`Predictor::predict`].
pub fn predict<A: DeserializeOwned>(
    predictor: &Predictor,
    inputs: impl IntoIterator<Item = Value>,
) -> Result<Vec<A>> {
    let (values, _) = predict_lines(predictor, inputs)?;
    values.into_iter().map(|value| serde_json::from_value(value).map_err(Error::Answer)).collect()
}

/// The model's raw answers to inputs, and how many inputs were truncated.
///
/// # Errors
/// Those of [`predict`].
pub fn predict_lines(
    predictor: &Predictor,
    inputs: impl IntoIterator<Item = Value>,
) -> Result<(Vec<Value>, usize)> {
    let lines: Vec<String> = inputs.into_iter().map(|input| input.to_string()).collect();
    let predicted = predictor.predict(&lines, &mut |_| {})?;
    match predicted.refused {
        Some(source) => Err(Error::Input { place: predicted.values.len(), source }),
        None => Ok((predicted.values, predicted.truncated)),
    }
}

/// Maps character offsets in a text to byte offsets.
pub struct ByteOffsets(HashMap<usize, usize>);

impl ByteOffsets {
    /// The byte offsets in `text` of these character offsets, counted from 0.
    pub fn of(text: &str, chars: impl IntoIterator<Item = usize>) -> Self {
        let mut wanted: Vec<usize> = chars.into_iter().collect();
        wanted.sort_unstable();
        let mut wanted = wanted.into_iter().peekable();
        let ends = text.char_indices().map(|(byte, _)| byte).chain([text.len()]);
        let mut places = HashMap::new();
        for (place, byte) in ends.enumerate() {
            while wanted.next_if(|wanted| *wanted <= place).is_some() {
                places.insert(place, byte);
            }
        }
        Self(places)
    }

    /// Converts a character range to a byte range.
    pub fn range(&self, start: usize, end: usize) -> Option<Range<usize>> {
        Some(*self.0.get(&start)?..*self.0.get(&end)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_between_characters() {
        let text = "aé日b";
        let places = ByteOffsets::of(text, [4, 0, 2, 1, 2, 9]);
        assert_eq!(places.range(1, 2), Some(1..3));
        assert_eq!(places.range(0, 4), Some(0..text.len()));
        assert_eq!(places.range(2, 3), None, "3 was not in the list");
        assert_eq!(places.range(0, 9), None);
        assert_eq!(ByteOffsets::of("", [0]).range(0, 0), Some(0..0));
    }
}
