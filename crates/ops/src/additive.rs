use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use crate::flex;

/// The scores of additive attention, `v·tanh(q + k)` for each pair of query and key (Bahdanau et al. 2015,
/// §A.1.2).
///
/// # Shapes
/// - `query`: `[batch, q_len, d]`; `key`: `[batch, k_len, d]`, both after projection; `v`: `[d]`
/// - returns `[batch, q_len, k_len]`
///
/// # Panics
/// If the shapes do not match.
pub fn additive_scores(query: Tensor<3>, key: Tensor<3>, v: Tensor<1>) -> Tensor<3> {
    let [batch, _, d] = query.dims();
    let [rows, _, width] = key.dims();
    assert_eq!([rows, width], [batch, d], "the keys do not fit the queries");
    assert_eq!(v.dims(), [d], "a factor of each feature");
    #[cfg(feature = "flex")]
    if flex::takes(&query) {
        return flex::additive::additive_scores(query, key, v);
    }
    let sums = query.unsqueeze_dim::<4>(2) + key.unsqueeze_dim::<4>(1);
    (sums.tanh() * v.reshape([1, 1, 1, d])).sum_dim(3).squeeze_dim::<3>(3)
}
