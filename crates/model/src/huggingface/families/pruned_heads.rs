//! The key `pruned_heads` of transformers 4: for each layer with fewer heads, the numbers of those that are gone.
//! transformers 5 dropped it.

use super::super::fields::Fields;
use crate::Result;
use serde_json::{Map, Value};

/// The key of [`BertConfig::pruned_heads`](crate::bert::BertConfig::pruned_heads).
pub(super) const KEY: &str = "pruned_heads";

/// The heads that each of `n_layers` layers lacks; empty if there are none.
///
/// # Errors
/// [`ModelError::Config`](crate::ModelError::Config) for a layer that is not there, or something other than lists of
/// heads. Whether the heads exist is [checked](crate::bert::BertConfig::validate) later.
pub(super) fn read(fields: &Fields, n_layers: usize) -> Result<Vec<Vec<usize>>> {
    let expected = format!("lists of heads by layer, from \"0\" to \"{}\"", n_layers.saturating_sub(1));
    let lists = fields.typed(KEY, &expected, |value| {
        let layers = value.as_object()?;
        let mut lists = vec![Vec::new(); if layers.is_empty() { 0 } else { n_layers.min(MOST_LAYERS) }];
        for (layer, heads) in layers {
            let list = lists.get_mut(layer.parse::<usize>().ok()?)?;
            let heads = heads.as_array()?.iter().map(|head| head.as_u64().map(|head| head as usize));
            *list = heads.collect::<Option<_>>()?;
            list.sort_unstable();
            list.dedup();
        }
        Some(lists)
    })?;
    Ok(lists.filter(|lists| lists.iter().any(|heads| !heads.is_empty())).unwrap_or_default())
}

/// More layers than any model has, so that a damaged file asks for no memory before it is refused.
const MOST_LAYERS: usize = 10_000;

/// The value of the key.
pub(super) fn written(lists: &[Vec<usize>]) -> Value {
    let layers = lists.iter().enumerate().filter(|(_, heads)| !heads.is_empty());
    Value::Object(
        layers.map(|(layer, heads)| (layer.to_string(), heads.clone().into())).collect::<Map<_, _>>(),
    )
}
