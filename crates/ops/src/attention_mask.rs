use crate::{Packing, Sight, TokenPositions};
use burn::tensor::{Bool, DType, Device, Int, Tensor};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Which keys a query may look at, and what is added to its scores.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AttentionMask {
    /// `[batch, k_len]`, `true` = ignored (the opposite of Hugging Face's `attention_mask`).
    pub pad_mask: Option<Tensor<2, Bool>>,
    /// A query sees the keys up to its own position only (left to right).
    pub causal: bool,
    /// A query sees the keys from `window` positions before its own to `window` after it only: a local window of
    /// `2 · window + 1` keys, or with `causal` of `window + 1` (Beltagy et al. 2020, "Longformer", which calls
    /// `2 · window` the window's size). 0 is the query's own position alone.
    pub window: Option<usize>,
    /// What the tokens of each sequence see, one value a sequence: a packed one, or a row. Positions in a row count its
    /// padding. Whatever else hides keys hides them too.
    pub sights: Option<Arc<[Sight]>>,
    /// Sequences packed into the batch's one row, none of which sees another: the keys', and the queries'.
    pub packing: Option<Packing>,
    /// Where the queries stand among the keys.
    pub queries: Queries,
    /// Added to the scores, broadcastable to `[batch, n_heads, q_len, k_len]`, for instance relative positions (Raffel
    /// et al. 2020, §2.1; Press et al. 2022). Its numbers are finite, and gradients flow into it. Attention with a bias
    /// is composed on every device: all scores of all heads are in memory, of packed sequences those between sequences
    /// as well.
    pub bias: Option<Tensor<4>>,
}

/// Where queries stand among the keys: [causal](AttentionMask::causal) masks, [windows](AttentionMask::window) and
/// [sights](AttentionMask::sights) go by these positions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Queries {
    /// Query `i` is at position `i + k_len − q_len`: the queries are the last tokens, or all of them. Packed sequences
    /// have as many queries as keys.
    #[default]
    Last,
    /// The last tokens of each packed sequence, one number of tokens a sequence: new tokens whose predecessors are in a
    /// cache. In cross-attention, the numbers of queries of as many other sequences.
    Counts(Arc<[usize]>),
    /// The keys' tokens of these numbers, in ascending order; packed tokens are numbered through.
    Tokens(Arc<[usize]>),
}

impl AttentionMask {
    /// Ignores padding: `[batch, k_len]`, `true` = ignored.
    pub fn with_pad_mask(mut self, pad_mask: Tensor<2, Bool>) -> Self {
        self.pad_mask = Some(pad_mask);
        self
    }

    /// Lets queries see the keys up to their own position only.
    pub fn with_causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// Lets queries see `window` keys each way only.
    pub fn with_window(mut self, window: usize) -> Self {
        self.window = Some(window);
        self
    }

    /// Says what the tokens of each sequence see.
    pub fn with_sights(mut self, sights: impl Into<Arc<[Sight]>>) -> Self {
        self.sights = Some(sights.into());
        self
    }

    /// Keeps packed sequences apart.
    pub fn with_packing(mut self, packing: Packing) -> Self {
        self.packing = Some(packing);
        self
    }

    /// Says where the queries stand.
    pub fn with_queries(mut self, queries: Queries) -> Self {
        self.queries = queries;
        self
    }

    /// Adds to the scores, see [`bias`](Self::bias).
    pub fn with_bias(mut self, bias: Tensor<4>) -> Self {
        self.bias = Some(bias);
        self
    }

    /// The mask as a term added to the scores, broadcastable to `[batch, n_heads, q_len, k_len]`: the
    /// [`bias`](Self::bias), and the type's most negative number where a key is hidden. None if no key is hidden and there
    /// is no bias.
    ///
    /// Not minus infinity: a row without any visible key then has uniform weights and not NaN, as
    /// in transformers.
    ///
    /// # Panics
    /// If the mask does not fit the sizes.
    pub fn score_bias(&self, q_len: usize, k_len: usize, scores: &Tensor<4>) -> Option<Tensor<4>> {
        let lowest = match scores.dtype() {
            DType::F16 => -65504.0,
            _ => f64::from(f32::MIN),
        };
        self.check_sights(scores.dims()[0]);
        let hidden = self.hidden(q_len, k_len, &scores.device());
        let hidden = hidden.map(|hidden| hidden.float().cast(scores.dtype()).mul_scalar(lowest));
        let bias = self.bias.clone().map(|bias| bias.cast(scores.dtype()));
        match (bias, hidden) {
            (Some(bias), Some(hidden)) => Some(bias + hidden),
            (bias, hidden) => bias.or(hidden),
        }
    }

    /// `true` where a query does not see a key, `[batch or 1, 1, q_len, k_len]`; none where everything is seen.
    pub(crate) fn hidden(&self, q_len: usize, k_len: usize, device: &Device) -> Option<Tensor<4, Bool>> {
        let shape = [1, 1, q_len, k_len];
        let pad = self.pad_mask.as_ref().map(|mask| {
            let [batch, len] = mask.dims();
            assert_eq!(len, k_len, "pad_mask covers {len} positions, there are {k_len} keys");
            mask.clone().reshape([batch, 1, 1, len])
        });
        // No window is wider than all positions.
        let window = self.window.map(|window| window.min(q_len + k_len) as i64);
        let places = self.places(q_len, k_len);
        let unseen = self.unseen(places.as_deref(), [q_len, k_len], device);
        let [causal, window, packed] = match places {
            None => {
                let offset = k_len as i64 - q_len as i64;
                let sizes = [q_len, k_len];
                let after = |offset| Tensor::<2, Bool>::tril_mask(sizes, offset, device).reshape(shape);
                let before = |offset| Tensor::<2, Bool>::triu_mask(sizes, offset, device).reshape(shape);
                let causal = (self.causal && q_len > 1).then(|| after(offset));
                let window =
                    window.map(|window| Tensor::bool_or(before(offset - window), after(offset + window)));
                [causal, window, None]
            }
            Some(places) => {
                let matrix = |numbers: Vec<i32>, dims: [usize; 2]| {
                    Tensor::<1, Int>::from_data(numbers.as_slice(), device)
                        .reshape([1, 1, dims[0], dims[1]])
                        .expand(shape)
                };
                let positions = || matrix(places.iter().map(|place| place.key as i32).collect(), [q_len, 1]);
                let keys = || matrix((0..k_len as i32).collect(), [1, k_len]);
                let causal = self.causal.then(|| keys().greater(positions()));
                let window = window.map(|window| {
                    let (before, after) = (positions().sub_scalar(window), positions().add_scalar(window));
                    Tensor::bool_or(keys().lower(before), keys().greater(after))
                });
                let packed = self.packing.as_ref().map(|packing| {
                    let of_query = places.iter().map(|place| place.sequence as i32).collect();
                    let of_key = packing.sequences().map(|sequence| sequence as i32).collect();
                    matrix(of_query, [q_len, 1]).not_equal(matrix(of_key, [1, k_len]))
                });
                [causal, window, packed]
            }
        };
        let either = |a: Tensor<4, Bool>, b: Tensor<4, Bool>| {
            let shape = [a.dims()[0].max(b.dims()[0]), 1, q_len, k_len];
            Tensor::bool_or(a.expand(shape), b.expand(shape))
        };
        [pad, causal, window, unseen, packed].into_iter().flatten().reduce(either)
    }

    /// `true` where a sequence's [sight](Self::sights) hides a key from a query, `[batch or 1, 1, q_len, k_len]`.
    fn unseen(
        &self,
        places: Option<&[Place]>,
        [q_len, k_len]: [usize; 2],
        device: &Device,
    ) -> Option<Tensor<4, Bool>> {
        let sights = self.sights.as_ref()?;
        // The keys that each query sees.
        let keys: Vec<Range<usize>> = match (places, &self.packing) {
            (Some(places), Some(packing)) => {
                let spans: Vec<(usize, usize)> =
                    packing.starts().zip(packing.lengths().iter().copied()).collect();
                let seen = places.iter().map(|place| {
                    let (start, len) = spans[place.sequence];
                    let keys = sights[place.sequence].keys(place.key as isize - start as isize, len);
                    start + keys.start..start + keys.end
                });
                seen.collect()
            }
            (places, _) => {
                let position = |query: usize| match places {
                    Some(places) => places[query].key as isize,
                    None => (query + k_len) as isize - q_len as isize,
                };
                let seen = sights
                    .iter()
                    .flat_map(|sight| (0..q_len).map(move |query| sight.keys(position(query), k_len)));
                seen.collect()
            }
        };
        let shape = [keys.len() / q_len.max(1), 1, q_len, k_len];
        let of_queries = |of: fn(&Range<usize>) -> usize| {
            let numbers: Vec<i32> = keys.iter().map(|keys| of(keys) as i32).collect();
            Tensor::<1, Int>::from_data(numbers.as_slice(), device)
                .reshape([shape[0], 1, q_len, 1])
                .expand(shape)
        };
        let numbers: Vec<i32> = (0..k_len as i32).collect();
        let numbers = Tensor::<1, Int>::from_data(numbers.as_slice(), device).reshape([1, 1, 1, k_len]);
        let numbers = numbers.expand(shape);
        let before = numbers.clone().lower(of_queries(|keys| keys.start));
        Some(Tensor::bool_or(before, numbers.greater_equal(of_queries(|keys| keys.end))))
    }

    /// # Panics
    /// If there are other sequences than [sights](Self::sights).
    pub(crate) fn check_sights(&self, batch: usize) {
        let Some(sights) = &self.sights else { return };
        let sequences = self.packing.as_ref().map_or(batch, |packing| packing.lengths().len());
        assert_eq!(sights.len(), sequences, "what sequences see, and the sequences");
    }

    /// Where the queries stand in their sequences, as position encodings count: from 0 at a sequence's first token, the
    /// padding left out. With a cache the queries are the new tokens, and rows may hold different numbers of old ones.
    ///
    /// # Panics
    /// If the mask does not fit the sizes, or a packed sequence has more queries than keys.
    pub fn query_positions(&self, q_len: usize, k_len: usize) -> TokenPositions {
        if let (Some(pad_mask), None) = (&self.pad_mask, &self.packing) {
            let positions = unpadded_positions(pad_mask);
            let positions = match &self.queries {
                Queries::Tokens(numbers) => {
                    let numbers: Vec<i32> = numbers.iter().map(|number| *number as i32).collect();
                    let numbers = Tensor::<1, Int>::from_data(numbers.as_slice(), &positions.device());
                    positions.select(1, numbers)
                }
                _ => positions.narrow(1, k_len - q_len, q_len),
            };
            return TokenPositions::Rows { positions, pad_mask: pad_mask.clone() };
        }
        let Some(places) = self.places(q_len, k_len) else {
            return TokenPositions::From(k_len - q_len);
        };
        let (starts, lengths): (Vec<usize>, Vec<usize>) = match &self.packing {
            Some(packing) => packing.starts().zip(packing.lengths().iter().copied()).unzip(),
            None => (vec![0], vec![k_len]),
        };
        let position = |place: &Place| {
            let position = usize::try_from(place.key - starts[place.sequence] as i64);
            position.expect("a sequence has no more queries than keys")
        };
        TokenPositions::Packed {
            positions: places.iter().map(position).collect(),
            lengths: places.iter().map(|place| lengths[place.sequence]).collect(),
        }
    }

    /// [`query_positions`](Self::query_positions) of all keys.
    ///
    /// # Panics
    /// If there are other keys than the mask says.
    pub fn key_positions(&self, k_len: usize) -> TokenPositions {
        match (&self.packing, &self.pad_mask) {
            (Some(packing), _) => {
                assert_eq!(packing.n_tokens(), k_len, "the keys that are packed, and that there are");
                let lengths = packing.lengths().iter().flat_map(|len| std::iter::repeat_n(*len, *len));
                TokenPositions::Packed {
                    positions: packing.positions().collect(),
                    lengths: lengths.collect(),
                }
            }
            (None, Some(pad_mask)) => {
                let positions = unpadded_positions(pad_mask);
                TokenPositions::Rows { positions, pad_mask: pad_mask.clone() }
            }
            (None, None) => TokenPositions::From(0),
        }
    }

    /// Where each query stands; none where they are simply a row's last tokens.
    fn places(&self, q_len: usize, k_len: usize) -> Option<Vec<Place>> {
        if let Some(packing) = &self.packing {
            self.check_packing(packing, [1, q_len, k_len]);
        }
        match (&self.packing, &self.queries) {
            (None, Queries::Last) => None,
            (None, Queries::Counts(_)) => panic!("{COUNTS}"),
            (packing, Queries::Tokens(numbers)) => {
                assert_eq!(numbers.len(), q_len, "the queries' tokens, and the queries");
                let sequences: Vec<usize> = match packing {
                    Some(packing) => packing.sequences().collect(),
                    None => vec![0; k_len],
                };
                Some(numbers.iter().map(|&key| Place { key: key as i64, sequence: sequences[key] }).collect())
            }
            (Some(packing), _) => {
                let counts = self.query_counts(packing);
                let keys = packing.starts().zip(packing.lengths()).zip(counts.iter()).enumerate();
                let places = keys.flat_map(|(sequence, ((start, len), count))| {
                    // Of more queries than keys the first stand before them.
                    let first = (start + len) as i64 - *count as i64;
                    (first..first + *count as i64).map(move |key| Place { key, sequence })
                });
                Some(places.collect())
            }
        }
    }

    /// Whether what a query sees depends on its position.
    pub fn is_by_position(&self) -> bool {
        self.causal || self.window.is_some() || self.sights.is_some()
    }

    /// Whether a fused operation takes this mask.
    #[cfg(any(feature = "flex", feature = "cube"))]
    pub(crate) fn is_fused(&self) -> bool {
        let by_position = self.is_by_position();
        let tokens = matches!(self.queries, Queries::Tokens(_));
        self.bias.is_none() && !(tokens && by_position)
    }

    /// How many queries each packed sequence has.
    ///
    /// # Panics
    /// If tokens are not in ascending order.
    pub fn query_counts<'a>(&'a self, packing: &'a Packing) -> Cow<'a, [usize]> {
        match &self.queries {
            Queries::Last => Cow::Borrowed(packing.lengths()),
            Queries::Counts(counts) => Cow::Borrowed(counts),
            Queries::Tokens(numbers) => {
                assert!(numbers.is_sorted(), "the queries' tokens are in ascending order");
                let mut rest = &numbers[..];
                let counts = packing.starts().zip(packing.lengths()).map(|(start, len)| {
                    let count = rest.partition_point(|number| *number < start + len);
                    rest = &rest[count..];
                    count
                });
                Cow::Owned(counts.collect())
            }
        }
    }

    /// # Panics
    /// If other queries or keys are packed than there are.
    pub(crate) fn check_packing(&self, packing: &Packing, sizes: [usize; 3]) {
        let counts = self.query_counts(packing);
        assert_eq!(counts.len(), packing.lengths().len(), "every packed sequence has queries, or none");
        let packed = [1, counts.iter().sum(), packing.n_tokens()];
        assert_eq!(packed, sizes, "the rows, queries and keys that are packed, and that there are");
    }
}

/// How many tokens of its row that are not ignored stand before each token, `[batch, len]`.
fn unpadded_positions(pad_mask: &Tensor<2, Bool>) -> Tensor<2, Int> {
    pad_mask.clone().bool_not().int().cumsum(1).sub_scalar(1).clamp_min(0)
}

pub(crate) const COUNTS: &str = "counts of queries are those of packed sequences";

/// Where a query stands.
struct Place {
    /// The number of the key at its position, which may be one that is not there.
    key: i64,
    sequence: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_what_is_not_padding() {
        let device = Device::flex();
        let found = |positions: TokenPositions| match positions {
            TokenPositions::From(start) => vec![start],
            TokenPositions::Packed { positions, .. } => positions.to_vec(),
            TokenPositions::Rows { positions, .. } => {
                positions.into_data().iter::<i64>().map(|x| x as usize).collect()
            }
        };
        let all = AttentionMask::default();
        assert_eq!(found(all.query_positions(5, 5)), [0]);
        assert_eq!(found(all.query_positions(2, 7)), [5]);
        assert_eq!(found(all.key_positions(7)), [0]);
        let some = all.clone().with_queries(Queries::Tokens([1, 4].into()));
        assert_eq!(found(some.query_positions(2, 5)), [1, 4]);
        // Padding before, between and behind.
        let ignored = [[true, true, false, false, false], [false, false, true, true, false]];
        let padded = all.clone().with_pad_mask(Tensor::from_data(ignored, &device));
        assert_eq!(found(padded.query_positions(5, 5)), [0, 0, 0, 1, 2, 0, 1, 1, 1, 2]);
        assert_eq!(found(padded.query_positions(1, 5)), [2, 2]);
        let some = padded.with_queries(Queries::Tokens([0, 4].into()));
        assert_eq!(found(some.query_positions(2, 5)), [0, 2, 0, 2]);
        let packed = all.with_packing(Packing::new([3, 1, 4]));
        assert_eq!(found(packed.query_positions(8, 8)), [0, 1, 2, 0, 0, 1, 2, 3]);
        assert_eq!(found(packed.key_positions(8)), [0, 1, 2, 0, 0, 1, 2, 3]);
        let new = packed.clone().with_queries(Queries::Counts([1, 1, 2].into()));
        assert_eq!(found(new.query_positions(4, 8)), [2, 0, 2, 3]);
        let some = packed.with_queries(Queries::Tokens([2, 3, 6].into()));
        assert_eq!(found(some.query_positions(3, 8)), [2, 0, 2]);
    }
}
