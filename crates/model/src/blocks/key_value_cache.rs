use crate::ops::{self, AttentionMask, KeyValueStore, Packing, Queries};
use burn::tensor::Tensor;
use std::sync::Arc;

/// The keys and values of one attention, kept between calls, so that decoding computes only those of new tokens.
///
/// A row is one sequence of a padded or packed batch. Each row has a list of its tokens, whose keys and
/// values are in a shared store. So rows may have different lengths, several rows can
/// [continue](Self::select) one row without copying its keys, rows started at another time can
/// [join](Self::join), and beams share the keys and values of their source. Unreferenced entries are removed
/// from time to time.
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
/// assert_eq!(cache.lengths(), [3]);
/// cache.select(&[0, 0]);
/// assert_eq!(cache.lengths(), [3, 3]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct KeyValueCache {
    /// None before the first call.
    store: Option<KeyValueStore>,
    /// The places of each row's tokens in the store.
    rows: Vec<Arc<Vec<u32>>>,
    /// Whether it holds a memory that does not change, as in cross-attention.
    is_memory: bool,
    /// The store size that triggers the next sweep for unused places.
    next_sweep: usize,
    /// See [`with_bias`](Self::with_bias).
    bias: Option<Tensor<2>>,
}

/// The minimum store size, in places, for a sweep.
const FIRST_SWEEP: usize = 4096;

impl KeyValueCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// A cache of `n_rows` empty rows. It can be [selected](Self::select) from and [joined](Self::join).
    pub fn of_rows(n_rows: usize) -> Self {
        Self { rows: vec![Arc::default(); n_rows], ..Self::default() }
    }

    /// Adds a score bias by distance before the query's token, `[n_heads, n]`: column `i` is for tokens `i`
    /// places before it, and the last column also for all farther ones. For causal attention without a
    /// window.
    pub fn with_bias(mut self, bias: Tensor<2>) -> Self {
        self.bias = Some(bias);
        self
    }

    /// The number of tokens in the longest row: the position of a batch's next tokens if all rows are of one length.
    pub fn len(&self) -> usize {
        self.rows.iter().map(|row| row.len()).max().unwrap_or(0)
    }

    /// The number of tokens in each row: the position of each row's next token.
    pub fn lengths(&self) -> Vec<usize> {
        self.rows.iter().map(|row| row.len()).collect()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.store.is_none()
    }

    /// Whether it holds a memory that does not change, as in cross-attention, rather than the tokens written so far.
    pub fn is_memory(&self) -> bool {
        self.is_memory
    }

    /// The keys and values of a memory, one sequence per row: packed, `[1, n_heads, n_tokens, d]`, or padded
    /// at the sequences' ends, `[sequences, n_heads, longest, d]`. Rows leave out the padding.
    ///
    /// # Panics
    /// If the number of tokens does not match the lengths.
    pub fn of_memory(memory: [Tensor<4>; 2], lengths: &[usize]) -> Self {
        let [batch, _, len, _] = memory[0].dims();
        let (packed, padded) =
            (lengths.iter().sum::<usize>(), (lengths.len(), lengths.iter().copied().max().unwrap_or(0)));
        let apart = match (batch, len) {
            (1, len) if len == packed => None,
            found => {
                assert_eq!(found, padded, "sequences and tokens of a padded memory");
                Some(len)
            }
        };
        let mut next = 0;
        let rows = lengths.iter().map(|len| {
            let row = next..next + *len as u32;
            next += apart.unwrap_or(*len) as u32;
            Arc::new(row.collect())
        });
        let rows = rows.collect();
        let store = Some(KeyValueStore::new(memory));
        Self { store, rows, is_memory: true, next_sweep: FIRST_SWEEP, bias: None }
    }

    /// The mask for one new token per row, packed: `[1, rows, d_model]`. For a memory, the mask for one query
    /// per row.
    pub fn step_mask(&self) -> AttentionMask {
        let one = Queries::Counts(vec![1; self.rows.len()].into());
        let new = usize::from(!self.is_memory);
        let lengths: Vec<usize> = self.rows.iter().map(|row| row.len() + new).collect();
        let mask = AttentionMask::default().with_packing(Packing::new(lengths)).with_queries(one);
        if self.is_memory { mask } else { mask.with_causal() }
    }

    /// Row `i` continues row `rows[i]`. A row may be named several times, or not at all.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn select(&mut self, rows: &[usize]) {
        self.rows = rows.iter().map(|row| self.rows[*row].clone()).collect();
    }

    /// Appends another cache's rows, of any lengths.
    ///
    /// # Panics
    /// If the other cache has other heads or widths, or only one of the two holds a memory.
    pub fn join(&mut self, other: Self) {
        let Some(theirs) = other.store else {
            self.rows.extend(other.rows);
            return;
        };
        let Some(store) = &mut self.store else {
            let rows = [std::mem::take(&mut self.rows), other.rows].concat();
            *self = Self { store: Some(theirs), rows, ..other };
            return;
        };
        assert_eq!(self.is_memory, other.is_memory, "a memory's cache, and one of what is written");
        let first = store.len() as u32;
        self.rows
            .extend(other.rows.iter().map(|row| Arc::new(row.iter().map(|place| first + place).collect())));
        store.join(theirs);
        self.sweep();
    }

    /// Keeps only the first `lengths[i]` tokens of each row, such as those before a prompt's padding.
    ///
    /// # Panics
    /// If the number of lengths is not that of the rows.
    pub fn truncate(&mut self, lengths: &[usize]) {
        assert_eq!(lengths.len(), self.rows.len(), "lengths, and rows");
        for (row, len) in self.rows.iter_mut().zip(lengths) {
            if row.len() > *len {
                Arc::make_mut(row).truncate(*len);
            }
        }
    }

    /// Adds the keys and values of new tokens, and attends to them and to all earlier ones.
    ///
    /// New tokens of packed sequences are the last of their sequences: [`packing`](AttentionMask::packing) has the
    /// number of all keys of each sequence, and [`queries`](AttentionMask::queries) the number of new ones.
    ///
    /// # Shapes
    /// - `query`: `[batch, n_heads, n_new, d_k]`; `new`: keys and values, `[batch, n_kv_heads, n_new, d]` each
    /// - returns `[batch, n_heads, n_new, d_v]` and, if asked for, the probabilities: `[batch, n_heads,
    ///   n_new, k_len]` for rows of a batch. For packed sequences they cover each query's own sequence, `[1,
    ///   n_heads, n_new, longest]`, padded with zeros; only the first call's cover all keys.
    ///
    /// # Panics
    /// If the rows, heads or features differ from those before, or the packing does not match the number of keys; with a
    /// [bias](Self::with_bias), if the mask is not causal, or has more than that and a packing.
    pub fn attend(
        &mut self,
        query: Tensor<4>,
        new: [Tensor<4>; 2],
        mask: &AttentionMask,
        need_weights: bool,
    ) -> (Tensor<4>, Option<Tensor<4>>) {
        assert!(!self.is_memory, "what is written does not go into a memory's cache");
        if self.is_empty() && self.bias.is_none() {
            self.add(new.clone(), mask);
            return attention(query, new, mask, need_weights);
        }
        self.add(new, mask);
        self.attend_to_held(query, mask, need_weights)
    }

    /// Attends to a memory. The first call computes its keys and values, unless the cache was made [with
    /// them](Self::of_memory).
    /// Shapes and panics are those of [`attend`](Self::attend).
    pub fn attend_to_memory(
        &mut self,
        query: Tensor<4>,
        make: impl FnOnce() -> [Tensor<4>; 2],
        mask: &AttentionMask,
        need_weights: bool,
    ) -> (Tensor<4>, Option<Tensor<4>>) {
        if self.is_empty() {
            let memory = make();
            let [batch, _, len, _] = memory[0].dims();
            let lengths = match &mask.packing {
                Some(packing) => packing.lengths().to_vec(),
                None => vec![len; batch],
            };
            *self = Self::of_memory(memory, &lengths);
        }
        assert!(self.is_memory, "a memory does not go into the cache of what is written");
        self.attend_to_held(query, mask, need_weights)
    }

    /// Adds the keys and values of new tokens to their rows.
    fn add(&mut self, new: [Tensor<4>; 2], mask: &AttentionMask) {
        let [batch, _, n_new, _] = new[0].dims();
        let counts = match &mask.packing {
            Some(packing) => mask.query_counts(packing).to_vec(),
            None => vec![n_new; batch],
        };
        assert_eq!(counts.iter().sum::<usize>(), batch * n_new, "the new tokens of all rows");
        if self.store.is_none() {
            self.rows = vec![Arc::default(); counts.len()];
            self.next_sweep = FIRST_SWEEP;
        }
        assert_eq!(counts.len(), self.rows.len(), "rows of new tokens, and rows of the cache");
        self.sweep();
        let mut next = self.store.as_ref().map_or(0, KeyValueStore::len) as u32;
        for (row, count) in self.rows.iter_mut().zip(counts) {
            // Rows that shared a list until now diverge: their lists are copied.
            let row = Arc::make_mut(row);
            row.extend(next..next + count as u32);
            next += count as u32;
        }
        if let Some(packing) = &mask.packing {
            assert!(
                self.rows.iter().map(|row| row.len()).eq(packing.lengths().iter().copied()),
                "the keys that are packed, and those of the cache"
            );
        }
        match &mut self.store {
            Some(store) => store.append(new),
            None => self.store = Some(KeyValueStore::new(new)),
        }
    }

    fn attend_to_held(
        &self,
        query: Tensor<4>,
        mask: &AttentionMask,
        need_weights: bool,
    ) -> (Tensor<4>, Option<Tensor<4>>) {
        let store = self.store.as_ref().expect("a first call came before");
        let by_position = mask.is_by_position();
        let whole = mask.bias.is_some()
            || mask.sights.is_some()
            || mask.pad_mask.is_some()
            || matches!(mask.queries, Queries::Tokens(_));
        if self.bias.is_some() {
            let fits = mask.causal && mask.window.is_none() && !whole;
            assert!(fits, "a cache with a bias by distance is for causal attention alone");
        }
        if whole || self.is_memory && by_position {
            return attention(query.clone(), self.gathered(store, &query, mask), mask, need_weights);
        }
        let [batch, _, q_len, _] = query.dims();
        let counts = match &mask.packing {
            Some(packing) => mask.query_counts(packing).to_vec(),
            None => vec![q_len; batch],
        };
        assert_eq!(counts.len(), self.rows.len(), "rows of queries, and rows of the cache");
        let seen = self.rows.iter().zip(&counts).flat_map(|(row, count)| {
            let first = row.len() as i64 - *count as i64;
            (0..*count as i64).map(move |i| {
                // Queries of a memory have no position.
                let position = first + i;
                let (mut start, mut end) = (0, row.len() as i64);
                if let Some(window) = mask.window.map(|window| window.min(row.len()) as i64) {
                    (start, end) = ((position - window).max(0), end.min(position + window + 1));
                }
                if mask.causal {
                    end = end.min(position + 1);
                }
                &row[start as usize..end as usize]
            })
        });
        let seen: Vec<&[u32]> = seen.collect();
        ops::attention_at_with_bias(query, store, &seen, self.bias.as_ref(), need_weights)
    }

    /// All keys and values in the order of the mask: packed `[1, n_heads, n_tokens, d]`, else one sequence
    /// per row.
    fn gathered(&self, store: &KeyValueStore, like: &Tensor<4>, mask: &AttentionMask) -> [Tensor<4>; 2] {
        let places: Vec<u32> = self.rows.iter().flat_map(|row| row.iter().copied()).collect();
        store.gather(&places, like).map(|x| {
            if mask.packing.is_some() {
                return x;
            }
            let [_, n_heads, n_tokens, d] = x.dims();
            let (batch, len) = (self.rows.len(), self.len());
            assert_eq!(
                batch * len,
                n_tokens,
                "with a bias or a padding mask, rows of a batch are of one length"
            );
            x.swap_dims(1, 2).reshape([batch, len, n_heads, d]).swap_dims(1, 2)
        })
    }

    /// Removes unreferenced places from the store, if there may be many.
    fn sweep(&mut self) {
        let Some(store) = &mut self.store else { return };
        if store.len() < self.next_sweep {
            return;
        }
        const NOT_KEPT: u32 = u32::MAX;
        let mut moved = vec![NOT_KEPT; store.len()];
        let mut kept = Vec::new();
        let mut last: Option<[Arc<Vec<u32>>; 2]> = None;
        for row in &mut self.rows {
            // Rows that share a list, as beams share that of their source, are next to each other and keep sharing it.
            if let Some([_, new]) = last.as_ref().filter(|[old, _]| Arc::ptr_eq(old, row)) {
                *row = new.clone();
                continue;
            }
            let places = row.iter().map(|place| {
                let moved = &mut moved[*place as usize];
                if *moved == NOT_KEPT {
                    *moved = kept.len() as u32;
                    kept.push(*place);
                }
                *moved
            });
            let new = Arc::new(places.collect());
            last = Some([std::mem::replace(row, Arc::clone(&new)), new]);
        }
        store.keep(&kept);
        self.next_sweep = FIRST_SWEEP.max(2 * kept.len());
    }
}

/// Attention without dropout, with the probabilities if asked for.
fn attention(
    query: Tensor<4>,
    [key, value]: [Tensor<4>; 2],
    mask: &AttentionMask,
    need_weights: bool,
) -> (Tensor<4>, Option<Tensor<4>>) {
    if need_weights {
        let (context, weights) = ops::attention_with_weights(query, key, value, mask, 0.0);
        return (context, Some(weights));
    }
    (ops::attention(query, key, value, mask, 0.0), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    fn tensor(shape: [usize; 4], phase: usize, device: &Device) -> Tensor<4> {
        let n = shape.iter().product();
        let values: Vec<f32> = (0..n).map(|i| ((i + 31 * phase) as f32 * 0.7).sin() * 1.5).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    fn close(found: Tensor<4>, expected: Tensor<4>) {
        found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
    }

    fn devices() -> [Device; 2] {
        [Device::flex(), Device::flex().autodiff().gradient_checkpointing()]
    }

    /// The query, key and value of some numbered tokens, packed.
    fn tokens(numbers: &[usize], device: &Device) -> [Tensor<4>; 3] {
        [0, 1, 2].map(|which| {
            let heads = if which == 0 { 4 } else { 2 };
            Tensor::cat(numbers.iter().map(|i| tensor([1, heads, 1, 3], 3 * i + which, device)).collect(), 2)
        })
    }

    /// What the last token of a sequence sees of all tokens.
    fn uncached(sequence: &[usize], device: &Device) -> Tensor<4> {
        let [query, key, value] = tokens(sequence, device);
        let n = sequence.len();
        attention(query, [key, value], &AttentionMask::default().with_causal(), false).0.narrow(2, n - 1, 1)
    }

    #[test]
    fn rows_part_end_and_join_without_changing_what_they_see() {
        for device in devices() {
            // The tokens written in each row.
            let mut written: Vec<Vec<usize>> = vec![vec![1, 2, 3], vec![4], vec![5, 6]];
            let begin = |rows: &[Vec<usize>]| {
                let mut cache = KeyValueCache::new();
                let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
                let mask = AttentionMask::default().with_causal().with_packing(Packing::new(lengths));
                let [query, key, value] = tokens(&rows.concat(), &device);
                cache.attend(query, [key, value], &mask, false);
                cache
            };
            let mut cache = begin(&written);
            // Unused places are removed often.
            cache.next_sweep = 0;
            for step in 0..40 {
                let n = written.len();
                let rows: Vec<usize> = (0..n.min(5)).map(|i| (i * 2 + step) % n).collect();
                cache.select(&rows);
                written = rows.iter().map(|row| written[*row].clone()).collect();
                if step % 7 == 3 {
                    let more = vec![vec![step + 50, step], vec![step + 90]];
                    cache.join(begin(&more));
                    written.extend(more);
                }
                let new: Vec<usize> = (0..written.len()).map(|i| 100 + step * 9 + i).collect();
                let mask = cache.step_mask();
                let [query, key, value] = tokens(&new, &device);
                let (found, weights) = cache.attend(query, [key, value], &mask, step % 2 == 0);
                written.iter_mut().zip(&new).for_each(|(row, new)| row.push(*new));
                assert_eq!(cache.lengths(), written.iter().map(Vec::len).collect::<Vec<_>>());
                for (i, row) in written.iter().enumerate() {
                    close(found.clone().narrow(2, i, 1), uncached(row, &device));
                }
                assert_eq!(weights.is_some(), step % 2 == 0);
                cache.next_sweep = cache.next_sweep.min(30);
            }
            let held = cache.store.as_ref().unwrap().len();
            assert!(held < 300, "{held} places for {} tokens", written.concat().len());
        }
    }

    #[test]
    fn a_memory_is_shared_by_rows_of_other_numbers() {
        for device in devices() {
            let [_, key, value] = tokens(&[1, 2, 3, 4, 5, 6], &device);
            let pad = |x: Tensor<4>| {
                let rows = [x.clone().narrow(2, 0, 2), x.clone().narrow(2, 2, 4)];
                let filled = Tensor::cat(vec![rows[0].clone(), tensor([1, 2, 2, 3], 99, &device)], 2);
                Tensor::cat(vec![filled, rows[1].clone()], 0)
            };
            let packed = [key.clone(), value.clone()];
            for memory in [packed, [pad(key.clone()), pad(value.clone())]] {
                let mut cache = KeyValueCache::of_memory(memory, &[2, 4]);
                cache.select(&[1, 1, 0]);
                cache.next_sweep = 0;
                cache.join(KeyValueCache::of_memory([key.clone(), value.clone()], &[6]));
                assert_eq!(cache.lengths(), [4, 4, 2, 6]);
                assert!(Arc::ptr_eq(&cache.rows[0], &cache.rows[1]));
                let query = tokens(&[7, 8, 9, 10], &device)[0].clone();
                let unused = || unreachable!("the memory is there");
                let (found, weights) =
                    cache.attend_to_memory(query.clone(), unused, &cache.step_mask(), true);
                for (i, (start, len)) in [(2, 4), (2, 4), (0, 2), (0, 6)].into_iter().enumerate() {
                    let memory = [&key, &value].map(|x| x.clone().narrow(2, start, len));
                    let query = query.clone().narrow(2, i, 1);
                    let (expected, probs) = attention(query, memory, &AttentionMask::default(), true);
                    close(found.clone().narrow(2, i, 1), expected);
                    let weights = weights.clone().unwrap().narrow(2, i, 1);
                    close(weights.clone().narrow(3, 0, len), probs.unwrap());
                    assert!(
                        weights.into_data().iter::<f32>().enumerate().all(|(i, p)| i % 6 < len || p == 0.0)
                    );
                }
            }
        }
    }

    #[test]
    fn padding_of_prompts_is_forgotten() {
        let device = Device::flex();
        let rows = [[1, 2, 3], [4, 5, 77]].map(|row| tokens(&row, &device));
        let [query, key, value] =
            [0, 1, 2].map(|i| Tensor::cat(rows.iter().map(|row| row[i].clone()).collect(), 0));
        let mut cache = KeyValueCache::new();
        cache.attend(query, [key, value], &AttentionMask::default().with_causal(), false);
        cache.truncate(&[3, 2]);
        let mask = cache.step_mask();
        let [query, key, value] = tokens(&[8, 9], &device);
        let (found, _) = cache.attend(query, [key, value], &mask, false);
        close(found.clone().narrow(2, 0, 1), uncached(&[1, 2, 3, 8], &device));
        close(found.narrow(2, 1, 1), uncached(&[4, 5, 9], &device));
    }
}
