use crate::ops::AttentionMask;
use burn::tensor::{Int, Tensor};

/// The keys and values of one attention, kept from call to call, so that decoding computes those of new tokens only.
///
/// ```
/// # use burn::tensor::{Device, Tensor};
/// # use cloze_model::ParamInit;
/// use cloze_model::blocks::{Attention, AttentionInput, KeyValueCache, MultiHeadAttentionConfig};
/// use cloze_model::ops::AttentionMask;
///
/// let device = Device::flex();
/// let block = MultiHeadAttentionConfig::new(8, 2).init(&mut ParamInit::new(&device, 1));
/// let (mask, mut cache) = (AttentionMask::default().with_causal(), KeyValueCache::new());
/// for state in Tensor::<3>::ones([1, 3, 8], &device).chunk(3, 1) {
///     let context = block.forward(AttentionInput::new(state, &mask).with_cache(&mut cache)).context;
///     assert_eq!(context.dims(), [1, 1, 8]);
/// }
/// assert_eq!(cache.len(), 3);
/// ```
#[derive(Debug, Clone, Default)]
pub struct KeyValueCache {
    /// `[batch, n_heads, len, d]` each.
    held: Option<[Tensor<4>; 2]>,
}

impl KeyValueCache {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many keys of each row it holds; of packed sequences those of all.
    pub fn len(&self) -> usize {
        self.held.as_ref().map_or(0, |[keys, _]| keys.dims()[2])
    }

    /// Whether it holds nothing yet.
    pub fn is_empty(&self) -> bool {
        self.held.is_none()
    }

    /// Adds the keys and values of new tokens, and returns those of all.
    ///
    /// New tokens of packed sequences come to stand behind those of their sequences:
    /// [`packing`](AttentionMask::packing) has all keys' lengths and [`queries`](AttentionMask::queries) how many are new.
    ///
    /// # Shapes
    /// - `new`: keys and values, `[batch, n_heads, n_new, d]` each; returns `[batch, n_heads, len, d]` each
    ///
    /// # Panics
    /// If batch, heads or features are not those of the tokens before; if the packing has other keys than there are.
    pub fn append(&mut self, new: [Tensor<4>; 2], mask: &AttentionMask) -> [Tensor<4>; 2] {
        let all = match self.held.take() {
            None => new,
            Some(held) => {
                let order = mask.packing.as_ref().map(|_| {
                    let order = packed_order(mask, held[0].dims()[2], new[0].dims()[2]);
                    Tensor::<1, Int>::from_data(order.as_slice(), &new[0].device())
                });
                let mut pairs = held.into_iter().zip(new);
                let mut joined = || {
                    let (held, new) = pairs.next().expect("keys and values");
                    let all = Tensor::cat(vec![held, new], 2);
                    match &order {
                        Some(order) => all.select(2, order.clone()),
                        None => all,
                    }
                };
                [joined(), joined()]
            }
        };
        self.held = Some(all.clone());
        all
    }

    /// The keys and values of a memory that does not change, computed by the first call only.
    pub fn get_or_insert_with(&mut self, make: impl FnOnce() -> [Tensor<4>; 2]) -> [Tensor<4>; 2] {
        self.held.get_or_insert_with(make).clone()
    }
}

/// Where each packed sequence's tokens are among those held, one sequence after another, and the new ones after them.
fn packed_order(mask: &AttentionMask, n_held: usize, n_new: usize) -> Vec<i32> {
    let packing = mask.packing.as_ref().expect("packed sequences");
    let counts = mask.query_counts(packing);
    let (mut held, mut new) = (0, n_held);
    let mut order = Vec::with_capacity(n_held + n_new);
    for (len, count) in packing.lengths().iter().zip(counts.iter()) {
        let before = len.checked_sub(*count).expect("a sequence has no more new tokens than tokens");
        order.extend(held as i32..(held + before) as i32);
        order.extend(new as i32..(new + count) as i32);
        (held, new) = (held + before, new + count);
    }
    assert_eq!((held, new), (n_held, n_held + n_new), "the keys that are packed, and that there are");
    order
}
