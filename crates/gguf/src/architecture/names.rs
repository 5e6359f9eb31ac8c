//! The names of tensors in the two formats, and their shapes.

use super::layout::Layout;

/// The sizes of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The number of pieces of the vocabulary.
    pub vocab_size: usize,
    /// The number of layers.
    pub n_layers: usize,
    /// The width of the hidden states.
    pub d_model: usize,
    /// The number of heads of queries.
    pub n_heads: usize,
    /// The number of heads of keys and values.
    pub n_kv_heads: usize,
    /// The width of a head.
    pub d_head: usize,
    /// The width of the feed-forward networks.
    pub d_ff: usize,
    /// The number of positions.
    pub max_positions: usize,
    /// The number of token types.
    pub n_types: usize,
}

/// A dimension of a tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dim {
    Vocab,
    Model,
    Ff,
    Positions,
    Types,
    /// All heads' queries.
    Queries,
    /// All heads' keys, or values.
    Keys,
    /// Queries, keys and values.
    All,
}

/// How a tensor is laid out; see [`Layout`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Plain,
    Transposed,
    RotaryQueries,
    RotaryKeys,
    /// Plain, and it may be missing.
    Optional,
}

/// A map, table or norm: a name in GGUF and one in the folder, without `.weight` and `.bias`, with `*` for the number of
/// the layer; and the shape of its weight in GGUF, `[out, in]`.
pub(crate) struct Name {
    pub gguf: &'static str,
    pub folder: &'static str,
    pub shape: &'static [Dim],
    pub kind: Kind,
}

pub(crate) const fn name(gguf: &'static str, folder: &'static str, shape: &'static [Dim]) -> Name {
    Name { gguf, folder, shape, kind: Kind::Plain }
}

impl Name {
    pub const fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    pub fn layout(&self, sizes: &Sizes) -> Layout {
        match self.kind {
            Kind::Plain | Kind::Optional => Layout::Same,
            Kind::Transposed => Layout::Transposed,
            Kind::RotaryQueries => Layout::Rotary { n_heads: sizes.n_heads },
            Kind::RotaryKeys => Layout::Rotary { n_heads: sizes.n_kv_heads },
        }
    }

    /// The shape in GGUF of the weight, or of the bias.
    pub fn shape(&self, sizes: &Sizes, part: &str) -> Vec<usize> {
        let n_dims = if part == "bias" { 1 } else { self.shape.len() };
        let size = |dim: &Dim| match dim {
            Dim::Vocab => sizes.vocab_size,
            Dim::Model => sizes.d_model,
            Dim::Ff => sizes.d_ff,
            Dim::Positions => sizes.max_positions,
            Dim::Types => sizes.n_types,
            Dim::Queries => sizes.n_heads * sizes.d_head,
            Dim::Keys => sizes.n_kv_heads * sizes.d_head,
            Dim::All => (sizes.n_heads + 2 * sizes.n_kv_heads) * sizes.d_head,
        };
        self.shape[..n_dims].iter().map(size).collect()
    }
}

/// The parts that a map has.
const PARTS: [&str; 2] = ["weight", "bias"];

/// The entry of a tensor's name, its name in the other format, and its part; none for an unknown one. `from` and `to` say
/// which name of an entry is which.
pub(crate) fn find<'n>(
    names: &'n [Name],
    name: &str,
    from: fn(&Name) -> &'static str,
    to: fn(&Name) -> &'static str,
) -> Option<(&'n Name, String, &'static str)> {
    let (base, part) = name.rsplit_once('.')?;
    let part = PARTS.into_iter().find(|known| *known == part)?;
    names.iter().find_map(|entry| {
        let number = matched(from(entry), base)?;
        Some((entry, format!("{}.{part}", to(entry).replace('*', number)), part))
    })
}

/// The text in the place of `*`; empty for an equal name without one.
fn matched<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once('*') else {
        return (pattern == name).then_some("");
    };
    let number = name.strip_prefix(before)?.strip_suffix(after)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    // Two numbers that are one would be two tensors of one name.
    (is_number && (number == "0" || !number.starts_with('0'))).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_translated_with_its_layer() {
        let names =
            [name("blk.*.attn_q", "layers.*.query", &[Dim::Queries, Dim::Model]), name("a", "b", &[])];
        let found = |name: &str| {
            find(&names, name, |name| name.gguf, |name| name.folder).map(|(_, name, part)| (name, part))
        };
        assert_eq!(found("blk.12.attn_q.bias"), Some(("layers.12.query.bias".into(), "bias")));
        assert_eq!(found("a.weight"), Some(("b.weight".into(), "weight")));
        for unknown in [
            "blk.x.attn_q.bias",
            "blk.01.attn_q.bias",
            "blk..attn_q.bias",
            "a",
            "a.scale",
            "blk.1.attn_k.bias",
        ] {
            assert_eq!(found(unknown), None, "{unknown}");
        }
    }
}
