/// # Panics
/// If the heads of keys and values cannot be shared out among those of queries.
pub(crate) fn assert_groups(n_heads: usize, n_kv_heads: usize) {
    assert!(
        n_kv_heads > 0 && n_heads.is_multiple_of(n_kv_heads),
        "{n_heads} heads of queries cannot share {n_kv_heads} heads of keys and values"
    );
}
