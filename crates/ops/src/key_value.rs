//! A store of keys and values, and attention to some of them.

use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Int, Tensor, TensorData};

#[cfg(feature = "flex")]
use crate::flex;

/// The keys and values of tokens, each at its own place, numbered from 0 in order of addition.
///
/// The decoder keeps, for each row, the list of its tokens' places. Hypotheses with a common prefix share
/// places, so forking one copies a list of numbers and no keys (like page tables with one-token pages in Kwon
/// et al. 2023, "PagedAttention").
///
/// For inference: it has no gradient.
#[derive(Debug, Clone)]
pub struct KeyValueStore {
    n_heads: usize,
    /// Features of a key and of a value in one head.
    widths: [usize; 2],
    form: Form,
}

#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one of it a layer, and no list")]
enum Form {
    /// `[len, n_heads, d]` each, on the host.
    #[cfg(feature = "flex")]
    Flex([Vec<f32>; 2]),
    /// The same as tensors.
    Composed([Tensor<3>; 2]),
}

impl KeyValueStore {
    /// A store of the first tokens, row by row, each row's tokens in order.
    ///
    /// # Shapes
    /// - `keys`: `[batch, n_heads, len, d_k]`; `values`: `[batch, n_heads, len, d_v]`
    ///
    /// # Panics
    /// If keys and values are not of the same tokens and heads, or have a gradient.
    pub fn new([keys, values]: [Tensor<4>; 2]) -> Self {
        let [_, n_heads, _, d_k] = keys.dims();
        let widths = [d_k, values.dims()[3]];
        #[cfg(feature = "flex")]
        let form = match flex::takes(&keys) && !keys.device().is_autodiff() {
            true => Form::Flex([Vec::new(), Vec::new()]),
            false => Form::Composed(none(&keys, n_heads, widths)),
        };
        #[cfg(not(feature = "flex"))]
        let form = Form::Composed(none(&keys, n_heads, widths));
        let mut store = Self { n_heads, widths, form };
        store.append([keys, values]);
        store
    }

    /// Number of places.
    pub fn len(&self) -> usize {
        match &self.form {
            #[cfg(feature = "flex")]
            Form::Flex([keys, _]) => keys.len() / (self.n_heads * self.widths[0]).max(1),
            Form::Composed([keys, _]) => keys.dims()[0],
        }
    }

    /// Whether there are no places.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Heads of keys and values.
    pub fn n_heads(&self) -> usize {
        self.n_heads
    }

    /// Appends tokens, as in [`new`](Self::new).
    ///
    /// # Panics
    /// If their heads or widths differ from the store's.
    pub fn append(&mut self, [keys, values]: [Tensor<4>; 2]) {
        let [batch, _, len, _] = keys.dims();
        for (new, width) in [(&keys, self.widths[0]), (&values, self.widths[1])] {
            assert_eq!(
                new.dims(),
                [batch, self.n_heads, len, width],
                "new keys and values, and those before"
            );
        }
        match &mut self.form {
            #[cfg(feature = "flex")]
            Form::Flex(held) => {
                for (held, new) in held.iter_mut().zip([keys, values]) {
                    flex::key_value::append(held, new);
                }
            }
            Form::Composed(held) => {
                for (held, new) in held.iter_mut().zip([keys, values]) {
                    let [_, n_heads, _, d] = new.dims();
                    let new = new.swap_dims(1, 2).reshape([batch * len, n_heads, d]);
                    *held = Tensor::cat(vec![held.clone(), new], 0);
                }
            }
        }
    }

    /// Appends another store's tokens.
    ///
    /// # Panics
    /// If its heads or widths differ, or it is on another kind of device.
    pub fn join(&mut self, other: Self) {
        assert_eq!(
            (self.n_heads, self.widths),
            (other.n_heads, other.widths),
            "heads and widths of two stores"
        );
        match (&mut self.form, other.form) {
            #[cfg(feature = "flex")]
            (Form::Flex(held), Form::Flex(other)) => {
                for (held, other) in held.iter_mut().zip(other) {
                    held.extend(other);
                }
            }
            (Form::Composed(held), Form::Composed(other)) => {
                for (held, other) in held.iter_mut().zip(other) {
                    *held = Tensor::cat(vec![held.clone(), other], 0);
                }
            }
            #[cfg(feature = "flex")]
            _ => panic!("stores of two devices cannot be joined"),
        }
    }

    /// Keeps only the tokens at these places, in order: the token at `places[i]` moves to place `i`.
    pub fn keep(&mut self, places: &[u32]) {
        match &mut self.form {
            #[cfg(feature = "flex")]
            Form::Flex(held) => {
                for (held, width) in held.iter_mut().zip(self.widths) {
                    let width = width * self.n_heads;
                    let mut kept = Vec::with_capacity(2 * places.len() * width);
                    places.iter().for_each(|place| kept.extend(&held[*place as usize * width..][..width]));
                    *held = kept;
                }
            }
            Form::Composed(held) => {
                let places = numbers(places, &held[0]);
                held.iter_mut().for_each(|held| *held = held.clone().select(0, places.clone()));
            }
        }
    }

    /// The keys and values at some places, `[1, n_heads, places, d]` each.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn gather(&self, places: &[u32], like: &Tensor<4>) -> [Tensor<4>; 2] {
        match &self.form {
            #[cfg(feature = "flex")]
            Form::Flex(held) => [0, 1].map(|i| {
                let width = self.widths[i] * self.n_heads;
                let found = places.iter().flat_map(|place| &held[i][*place as usize * width..][..width]);
                let found: Vec<f32> = found.copied().collect();
                let shape = [1, places.len(), self.n_heads, self.widths[i]];
                Tensor::<4>::from_data(TensorData::new(found, shape), &like.device()).swap_dims(1, 2)
            }),
            Form::Composed(held) => [0, 1].map(|i| {
                let found = held[i].clone().select(0, numbers(places, like));
                found.reshape([1, places.len(), self.n_heads, self.widths[i]]).swap_dims(1, 2)
            }),
        }
    }
}

fn none(like: &Tensor<4>, n_heads: usize, widths: [usize; 2]) -> [Tensor<3>; 2] {
    widths.map(|d| Tensor::empty([0, n_heads, d], (&like.device(), like.dtype())))
}

fn numbers<const D: usize>(places: &[u32], like: &Tensor<D>) -> Tensor<1, Int> {
    let places: Vec<i32> = places.iter().map(|place| *place as i32).collect();
    Tensor::from_data(places.as_slice(), &like.device())
}

/// Scaled dot-product attention of each query to the tokens at some places of a store.
///
/// Adjacent query heads may share a key–value head (Ainslie et al. 2023, "GQA"): their number is a multiple
/// of the store's.
///
/// On flex products are vectorised over the places' memory, per query and head, on all cores; elsewhere the
/// keys are gathered first. Products are in FP32.
///
/// # Shapes
/// - `query`: `[batch, n_heads, q_len, d_k]`; `seen`: the places that each query sees, `batch · q_len` lists, row by row
/// - returns `[batch, n_heads, q_len, d_v]` and, if requested, the probabilities in the order of each query's
///   list, `[batch, n_heads, q_len, longest list]`, padded with 0
///
/// # Panics
/// If a query sees nothing, or sizes do not match.
pub fn attention_at(
    query: Tensor<4>,
    store: &KeyValueStore,
    seen: &[&[u32]],
    need_weights: bool,
) -> (Tensor<4>, Option<Tensor<4>>) {
    attention_at_with_bias(query, store, seen, None, need_weights)
}

/// [`attention_at`] with a score bias by a key's distance from the last key in its query's list, which is the
/// query's own in causal attention (Raffel et al. 2020, §2.1).
///
/// # Shapes
/// - `bias`: `[n_heads, n]`: column `i` is added to the scores of keys `i` places before the last one; the
///   last column also applies to all farther keys
/// - others as in [`attention_at`]
///
/// # Panics
/// If a query sees nothing, or sizes do not match.
pub fn attention_at_with_bias(
    query: Tensor<4>,
    store: &KeyValueStore,
    seen: &[&[u32]],
    bias: Option<&Tensor<2>>,
    need_weights: bool,
) -> (Tensor<4>, Option<Tensor<4>>) {
    let [batch, n_heads, q_len, d_k] = query.dims();
    assert_eq!(seen.len(), batch * q_len, "lists of places, and queries");
    assert_eq!(d_k, store.widths[0], "features of queries and keys");
    assert!(
        store.n_heads > 0 && n_heads.is_multiple_of(store.n_heads),
        "{n_heads} heads of queries cannot share {} of keys",
        store.n_heads
    );
    assert!(seen.iter().all(|places| !places.is_empty()), "every query sees a token at least");
    if let Some(bias) = bias {
        let [of_heads, n] = bias.dims();
        assert!(of_heads == n_heads && n > 0, "a bias of {n} distances for {of_heads} of {n_heads} heads");
    }
    match &store.form {
        #[cfg(feature = "flex")]
        Form::Flex([keys, values]) => {
            let held = flex::key_value::Held { keys, values, n_heads: store.n_heads, widths: store.widths };
            flex::key_value::attention(query, held, seen, bias, need_weights)
        }
        Form::Composed(held) => composed(query, store, held, seen, bias, need_weights),
    }
}

fn composed(
    query: Tensor<4>,
    store: &KeyValueStore,
    held: &[Tensor<3>; 2],
    seen: &[&[u32]],
    bias: Option<&Tensor<2>>,
    need_weights: bool,
) -> (Tensor<4>, Option<Tensor<4>>) {
    let [batch, n_heads, q_len, d_k] = query.dims();
    let [n_queries, group] = [batch * q_len, n_heads / store.n_heads];
    let longest = seen.iter().map(|places| places.len()).max().unwrap_or(0);
    let padded = seen.iter().flat_map(|places| (0..longest).map(|i| places.get(i).copied().unwrap_or(0)));
    let places = numbers(&padded.collect::<Vec<u32>>(), &held[0]);
    let hidden = seen.iter().flat_map(|places| (0..longest).map(|i| i >= places.len()));
    let hidden = TensorData::new(hidden.collect::<Vec<bool>>(), [n_queries, 1, 1, longest]);
    let hidden = Tensor::<4, Bool>::from_data(hidden, &query.device());
    // `[n_queries, heads of keys, longest, d]`
    let [keys, values] = [0, 1].map(|i| {
        let found = held[i].clone().select(0, places.clone());
        found.reshape([n_queries, longest, store.n_heads, store.widths[i]]).swap_dims(1, 2)
    });
    let query = query.swap_dims(1, 2).reshape([n_queries, store.n_heads, group, d_k]);
    let scores = query.mul_scalar(1.0 / (d_k as f64).sqrt()).matmul(keys.swap_dims(2, 3));
    let scores = match bias {
        Some(bias) => {
            let furthest = bias.dims()[1] - 1;
            let distances = seen.iter().flat_map(|places| {
                (0..longest).map(|i| places.len().saturating_sub(1 + i).min(furthest) as i32)
            });
            let distances = distances.collect::<Vec<i32>>();
            let distances = Tensor::<1, Int>::from_data(distances.as_slice(), &bias.device());
            let bias = bias.clone().select(1, distances).reshape([n_heads, n_queries, longest]);
            scores + bias.swap_dims(0, 1).reshape([n_queries, store.n_heads, group, longest])
        }
        None => scores,
    };
    let hidden = hidden.expand([n_queries, store.n_heads, group, longest]);
    let weights = softmax(scores.mask_fill(hidden, f32::MIN), 3);
    let back = |x: Tensor<4>, width: usize| x.reshape([batch, q_len, n_heads, width]).swap_dims(1, 2);
    let context = back(weights.clone().matmul(values), store.widths[1]);
    (context, need_weights.then(|| back(weights, longest)))
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use crate::{AttentionMask, attention_with_weights};
    use burn::tensor::{Device, Tolerance};

    fn tensor(shape: [usize; 4], phase: f32, device: &Device) -> Tensor<4> {
        let n = shape.iter().product();
        let values: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37 + phase).sin() * 1.7).collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    fn close<const D: usize>(found: Tensor<D>, expected: Tensor<D>) {
        found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
    }

    /// Flex, and flex with composed operations.
    fn devices() -> [Device; 2] {
        [Device::flex(), Device::flex().autodiff().gradient_checkpointing()]
    }

    /// In the order of linear maps' outputs, which is that of decoding.
    fn heads_inside(shape: [usize; 4], phase: f32, device: &Device) -> Tensor<4> {
        let [batch, n_heads, len, d] = shape;
        tensor([batch, len, n_heads, d], phase, device).swap_dims(1, 2)
    }

    #[test]
    fn each_query_attends_to_its_own_places() {
        for device in devices() {
            for (n_heads, kv_heads, d_k, d_v) in
                [(3, 3, 5, 7), (4, 2, 16, 16), (8, 1, 64, 33), (1, 1, 40, 64)]
            {
                let (keys, values) = (
                    heads_inside([2, kv_heads, 9, d_k], 0.3, &device),
                    tensor([2, kv_heads, 9, d_v], 1.3, &device),
                );
                let mut store =
                    KeyValueStore::new([keys.clone().narrow(2, 0, 4), values.clone().narrow(2, 0, 4)]);
                store.append([keys.clone().narrow(2, 4, 5), values.clone().narrow(2, 4, 5)]);
                assert_eq!((store.len(), store.n_heads()), (18, kv_heads));
                // Where a row's token is: four of the first row, four of the second, then five and five.
                let place =
                    |row: usize, i: usize| if i < 4 { 4 * row + i } else { 8 + 5 * row + i - 4 } as u32;
                let lists: [Vec<u32>; 4] = [
                    (0..9).map(|i| place(0, i)).collect(),
                    vec![place(1, 8)],
                    [1, 3, 5, 7].map(|i| place(1, i)).to_vec(),
                    (0..9).rev().map(|i| place(1, i)).collect(),
                ];
                let seen: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
                for shape in [[1, n_heads, 4, d_k], [4, n_heads, 1, d_k], [2, n_heads, 2, d_k]] {
                    let query = heads_inside(shape, 2.3, &device);
                    let (context, weights) = attention_at(query.clone(), &store, &seen, true);
                    let weights = weights.expect("asked for");
                    assert_eq!(weights.dims(), [shape[0], n_heads, shape[2], 9]);
                    close(attention_at(query.clone(), &store, &seen, false).0, context.clone());
                    for (i, places) in seen.iter().enumerate() {
                        let of = |x: &Tensor<4>| {
                            let (row, query) = (i / shape[2], i % shape[2]);
                            x.clone().narrow(0, row, 1).narrow(2, query, 1)
                        };
                        let shared = |x: Tensor<4>| x.repeat_dim(2, 1).swap_dims(0, 1);
                        let [keys, values] = store.gather(places, &query).map(|x| {
                            let [_, _, len, d] = x.dims();
                            let x = shared(x).unsqueeze_dim::<5>(1);
                            x.expand([kv_heads, n_heads / kv_heads, 1, len, d]).reshape([1, n_heads, len, d])
                        });
                        let (expected, probs) =
                            attention_with_weights(of(&query), keys, values, &AttentionMask::default(), 0.0);
                        close(of(&context), expected);
                        let found = of(&weights);
                        close(found.clone().narrow(3, 0, places.len()), probs);
                        assert!(
                            found.into_data().iter::<f32>().skip(places.len()).step_by(9).all(|p| p >= 0.0)
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_bias_is_by_how_far_a_key_stands_before_the_last() {
        for device in devices() {
            for (n_heads, kv_heads, n) in [(3, 3, 4), (4, 2, 1), (4, 1, 20)] {
                let keys = heads_inside([1, kv_heads, 9, 5], 0.3, &device);
                let values = tensor([1, kv_heads, 9, 7], 1.3, &device);
                let store = KeyValueStore::new([keys.clone(), values.clone()]);
                let lists: [Vec<u32>; 3] = [(0..9).collect(), vec![3], vec![8, 2, 5, 1, 0, 7]];
                let seen: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
                let query = heads_inside([3, n_heads, 1, 5], 2.3, &device);
                let bias = tensor([1, 1, n_heads, n], 4.0, &device).reshape([n_heads, n]);
                let (context, weights) =
                    attention_at_with_bias(query.clone(), &store, &seen, Some(&bias), true);
                let weights = weights.expect("asked for");
                for (row, places) in seen.iter().enumerate() {
                    let len = places.len();
                    let columns: Vec<i32> = (0..len).map(|i| (len - 1 - i).min(n - 1) as i32).collect();
                    let columns = Tensor::<1, Int>::from_data(columns.as_slice(), &device);
                    let of_keys = bias.clone().select(1, columns).reshape([1, n_heads, 1, len]);
                    let [keys, values] = store.gather(places, &query).map(|x| {
                        let [_, _, len, d] = x.dims();
                        let x = x.unsqueeze_dim::<5>(2);
                        x.expand([1, kv_heads, n_heads / kv_heads, len, d]).reshape([1, n_heads, len, d])
                    });
                    let query = query.clone().narrow(0, row, 1);
                    let mask = AttentionMask::default().with_bias(of_keys);
                    let (expected, probs) = attention_with_weights(query, keys, values, &mask, 0.0);
                    close(context.clone().narrow(0, row, 1), expected);
                    close(weights.clone().narrow(0, row, 1).narrow(3, 0, len), probs);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "a bias of 3 distances for 1 of 2 heads")]
    fn a_bias_of_other_heads_is_refused() {
        let device = Device::flex();
        let x = || tensor([1, 2, 1, 4], 0.0, &device);
        let bias = tensor([1, 1, 1, 3], 0.0, &device).reshape([1, 3]);
        attention_at_with_bias(x(), &KeyValueStore::new([x(), x()]), &[&[0]], Some(&bias), false);
    }

    #[test]
    fn places_stay_or_move_as_they_are_told_to() {
        for device in devices() {
            let pair = |phase| {
                [heads_inside([1, 2, 6, 3], phase, &device), heads_inside([1, 2, 6, 4], phase, &device)]
            };
            let mut store = KeyValueStore::new(pair(0.0));
            let other = KeyValueStore::new(pair(5.0));
            let like = pair(0.0)[0].clone();
            let expected = other.gather(&[2, 0], &like);
            store.join(other);
            assert_eq!(store.len(), 12);
            store.keep(&[8, 3, 6]);
            assert_eq!(store.len(), 3);
            for (found, expected) in store.gather(&[0, 2], &like).into_iter().zip(expected) {
                close(found, expected);
            }
        }
    }

    #[test]
    #[should_panic(expected = "sees a token")]
    fn a_query_that_sees_nothing_is_refused() {
        let device = Device::flex();
        let x = || tensor([1, 1, 2, 4], 0.0, &device);
        let store = KeyValueStore::new([x(), x()]);
        attention_at(x(), &store, &[&[0], &[]], false);
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let device = Device::flex();
        let x = |phase| tensor([1, 4, 700, 32], phase, &device);
        let store = KeyValueStore::new([x(0.0), x(1.0)]);
        let lists: Vec<Vec<u32>> = (0..40).map(|i| (i..i * 17 + 1).collect()).collect();
        let seen: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
        let query = tensor([1, 4, 40, 32], 2.0, &device);
        let [one, two, three] = [1, 2, 3].map(|n| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
            pool.install(|| attention_at(query.clone(), &store, &seen, false).0.into_data())
        });
        assert!(one == two && one == three);
    }
}
