//! `layer_types`: which layers see a neighbourhood only, a name a layer.

use super::super::fields::Fields;
use crate::Result;
use serde_json::Value;

pub(super) const LAYER_TYPES: &str = "layer_types";
pub(super) const FULL: &str = "full_attention";
pub(super) const SLIDING: &str = "sliding_attention";
/// No model has more layers: what is validated later is not allocated.
pub(super) const MOST: usize = 10_000;

/// Whether each layer sees a neighbourhood only; none if the file does not say it.
///
/// # Errors
/// [`ModelError::Config`](crate::ModelError::Config) for other layers, and for more or fewer of them than there are.
pub(super) fn read(fields: &Fields, n_layers: usize) -> Result<Option<Vec<bool>>> {
    let kinds = |value: &Value| -> Option<Vec<bool>> {
        let kind = |name: &Value| match name.as_str()? {
            SLIDING => Some(true),
            // The old name of the other kind, which transformers 5 still reads.
            FULL | "attention" => Some(false),
            _ => None,
        };
        value.as_array()?.iter().map(kind).collect()
    };
    let expected =
        format!("a list of \"{FULL}\" and \"{SLIDING}\", one a layer, of which there are {n_layers}");
    fields.typed(LAYER_TYPES, &expected, |value| kinds(value).filter(|layers| layers.len() == n_layers))
}

/// The names of layers.
pub(super) fn names(is_sliding: &[bool]) -> Vec<&'static str> {
    is_sliding.iter().map(|sliding| if *sliding { SLIDING } else { FULL }).collect()
}
