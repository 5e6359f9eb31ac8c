//! How tensors lie in files: PyTorch stores a linear map's matrix as `[d_out, d_in]`, burn as `[d_in, d_out]`.

use burn::tensor::TensorData;

/// Whether a parameter, by this crate's path, lies transposed in files: every `weight` but those of the tables
/// that are looked up.
pub(super) fn is_transposed(path: &str) -> bool {
    const TABLES: [&str; 3] =
        ["embeddings.tokens.weight", "embeddings.token_types.weight", "embeddings.positions.table.weight"];
    path.ends_with(".weight") && !TABLES.iter().any(|table| path.ends_with(table))
}

/// The transpose of a matrix; other tensors as they are.
pub(super) fn transpose(data: &TensorData) -> TensorData {
    let &[rows, columns] = &**data.shape() else {
        return data.clone();
    };
    let from = data.as_slice::<f32>().expect("weights are FP32");
    // In tiles, which stay in the cache while they are read by column.
    const TILE: usize = 32;
    let mut to = vec![0f32; rows * columns];
    for first_row in (0..rows).step_by(TILE) {
        let last_row = (first_row + TILE).min(rows);
        for first_column in (0..columns).step_by(TILE) {
            for column in first_column..(first_column + TILE).min(columns) {
                let to = &mut to[column * rows + first_row..column * rows + last_row];
                for (to, from) in
                    to.iter_mut().zip(from[first_row * columns + column..].iter().step_by(columns))
                {
                    *to = *from;
                }
            }
        }
    }
    TensorData::new(to, [columns, rows])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_transposed_and_tables_are_not() {
        for path in ["bert.embeddings.projection.weight", "head.output.weight", "output.weight"] {
            assert!(is_transposed(path), "{path}");
        }
        for path in [
            "bert.embeddings.tokens.weight",
            "embeddings.positions.table.weight",
            "embeddings.token_types.weight",
            "bert.embeddings.norm.gamma",
            "crf.transitions",
            "mlm.bias",
        ] {
            assert!(!is_transposed(path), "{path}");
        }
    }

    #[test]
    fn transposing_twice_is_the_identity() {
        let data = TensorData::new(vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
        let once = transpose(&data);
        assert_eq!(once, TensorData::new(vec![1f32, 4.0, 2.0, 5.0, 3.0, 6.0], [3, 2]));
        assert_eq!(transpose(&once), data);
        let large = TensorData::new((0..70 * 33).map(|i| i as f32).collect::<Vec<_>>(), [70, 33]);
        assert_eq!(transpose(&transpose(&large)), large);
    }
}
