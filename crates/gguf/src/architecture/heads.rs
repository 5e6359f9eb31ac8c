//! Heads that a folder lacks, as zeros: GGUF has one number of heads for all layers.

use super::config::Config;
use super::names::Sizes;
use crate::{GgufError, Result};
use std::collections::BTreeMap;

const KEY: &str = "pruned_heads";

/// For each layer that lacks some, whether each of its heads is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Heads(BTreeMap<usize, Vec<bool>>);

/// A dimension of a tensor that is made of heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Rows,
    Columns,
}

/// A tensor with fewer heads than its file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partial {
    present: Vec<bool>,
    side: Side,
    d_head: usize,
    /// The tensor's shape in the folder.
    pub shape: Vec<usize>,
}

impl Heads {
    /// Those of a BERT, by `config.json`.
    pub fn read(config: Config<'_>, sizes: &Sizes) -> Result<Self> {
        let Some((key, value)) = config.value(&[KEY]) else { return Ok(Self::default()) };
        let Sizes { n_layers, n_heads, .. } = *sizes;
        let refuse = || -> GgufError {
            let expected = format!(
                "lists of heads from 0 to {} by layer, from \"0\" to \"{}\"",
                n_heads.saturating_sub(1),
                n_layers.saturating_sub(1)
            );
            config.refuse(key, &expected)
        };
        let mut layers = BTreeMap::new();
        for (layer, heads) in value.as_object().ok_or_else(refuse)? {
            let layer: usize = layer.parse().ok().filter(|layer| *layer < n_layers).ok_or_else(refuse)?;
            let mut present = vec![true; n_heads];
            for head in heads.as_array().ok_or_else(refuse)? {
                let head = head.as_u64().and_then(|head| usize::try_from(head).ok());
                *head.and_then(|head| present.get_mut(head)).ok_or_else(refuse)? = false;
            }
            if present.contains(&false) {
                layers.insert(layer, present);
            }
        }
        Ok(Self(layers))
    }

    /// Refuses a folder that lacks some, of a model that transformers never prunes.
    pub fn refuse(config: Config<'_>) -> Result<()> {
        match config.value(&[KEY]) {
            Some((key, value)) if !value.as_object().is_some_and(serde_json::Map::is_empty) => {
                Err(config.refuse(key, "none: heads are pruned in BERT alone"))
            }
            _ => Ok(()),
        }
    }

    /// What a tensor, by its name in GGUF, lacks of `full`, its shape there.
    pub fn of(&self, name: &str, full: &[usize], sizes: &Sizes) -> Option<Partial> {
        let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
        let present = self.0.get(&layer.parse().ok()?)?;
        let side = match part.rsplit_once('.')? {
            ("attn_q" | "attn_k" | "attn_v", _) => Side::Rows,
            ("attn_output", "weight") => Side::Columns,
            _ => return None,
        };
        let mut shape = full.to_vec();
        let axis = if side == Side::Rows { 0 } else { 1 };
        shape[axis] = present.iter().filter(|is_there| **is_there).count() * sizes.d_head;
        Some(Partial { present: present.clone(), side, d_head: sizes.d_head, shape })
    }
}

impl Partial {
    /// Whether blocks of this length are whole within each head.
    pub fn keeps_blocks(&self, block_len: usize) -> bool {
        self.side == Side::Rows || self.d_head.is_multiple_of(block_len)
    }

    /// The tensor with zeros for the heads that it lacks. `per_value` items of `values` stand for `of` values, as in blocks.
    pub fn filled<T: Copy + Default>(&self, values: &[T], per_value: usize, of: usize) -> Vec<T> {
        let width = |n: usize| n * per_value / of;
        let row = self.shape.get(1).copied().unwrap_or(1);
        let (n_lines, per_head) = match self.side {
            Side::Rows => (1, self.d_head * width(row)),
            Side::Columns => (self.shape[0], width(self.d_head)),
        };
        let mut heads = values.chunks_exact(per_head.max(1));
        let mut to = Vec::with_capacity(n_lines * self.present.len() * per_head);
        for is_there in (0..n_lines).flat_map(|_| &self.present) {
            match is_there.then(|| heads.next()).flatten() {
                Some(head) => to.extend_from_slice(head),
                None => to.extend(std::iter::repeat_n(T::default(), per_head)),
            }
        }
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn sizes() -> Sizes {
        Sizes { n_layers: 2, n_heads: 3, n_kv_heads: 3, d_head: 2, d_model: 6, ..Sizes::default() }
    }

    fn heads(value: Value) -> Result<Heads> {
        let config = json!({ "pruned_heads": value });
        Heads::read(Config(config.as_object().unwrap()), &sizes())
    }

    #[test]
    fn lacking_heads_become_zeros() {
        let heads = heads(json!({"0": [], "1": [1]})).unwrap();
        assert_eq!(heads.of("blk.0.attn_q.weight", &[6, 6], &sizes()), None);
        assert_eq!(heads.of("blk.1.attn_output.bias", &[6], &sizes()), None);
        let part = heads.of("blk.1.attn_q.bias", &[6], &sizes()).unwrap();
        assert_eq!(part.shape, [4]);
        assert_eq!(part.filled(&[1, 2, 3, 4], 1, 1), [1, 2, 0, 0, 3, 4]);
        let part = heads.of("blk.1.attn_v.weight", &[6, 6], &sizes()).unwrap();
        let values: Vec<u32> = (1..=24).collect();
        let filled = part.filled(&values, 1, 1);
        assert_eq!((&part.shape[..], filled.len()), (&[4, 6][..], 36));
        assert_eq!([&filled[..12], &filled[12..24], &filled[24..]], [&values[..12], &[0; 12], &values[12..]]);
        let part = heads.of("blk.1.attn_output.weight", &[2, 6], &sizes()).unwrap();
        assert_eq!(part.filled(&[1, 2, 3, 4, 5, 6, 7, 8], 1, 1), [1, 2, 0, 0, 3, 4, 5, 6, 0, 0, 7, 8]);
        assert!(!part.keeps_blocks(32));
        // A layer without a head.
        let heads = Heads(BTreeMap::from([(0, vec![false; 3])]));
        let part = heads.of("blk.0.attn_output.weight", &[2, 6], &sizes()).unwrap();
        assert_eq!(part.filled::<u8>(&[], 1, 1), [0; 12]);
    }

    #[test]
    fn lists_that_name_no_head_are_refused() {
        for value in [json!([0]), json!({"2": [0]}), json!({"x": [0]}), json!({"0": [3]}), json!({"0": 1})] {
            let error = heads(value).unwrap_err().to_string();
            let expected = "expected lists of heads from 0 to 2 by layer, from \"0\" to \"1\"";
            assert!(error.contains("`pruned_heads` is ") && error.contains(expected), "{error}");
        }
    }
}
