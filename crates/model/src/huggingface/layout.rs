//! The layout of tensors in files: transposed, and several in one.

use burn::tensor::TensorData;

/// Transposes a matrix; other tensors are returned unchanged.
pub(super) fn transpose(data: &TensorData) -> TensorData {
    let &[rows, columns] = &**data.shape() else {
        return data.clone();
    };
    let from = data.as_slice::<f32>().expect("weights are FP32");
    // In tiles, which stay in the cache while they are read column by column.
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

/// Concatenates tensors along `axis`; their other dimensions are equal.
pub(super) fn concatenated(parts: &[TensorData], axis: usize) -> TensorData {
    let mut shape = parts[0].shape().to_vec();
    shape[axis] = parts.iter().map(|part| part.shape()[axis]).sum();
    let blocks: Vec<&[f32]> =
        parts.iter().map(|part| part.as_slice::<f32>().expect("weights are FP32")).collect();
    let outer: usize = shape[..axis].iter().product();
    let mut values = Vec::with_capacity(shape.iter().product());
    for row in 0..outer {
        for block in &blocks {
            let len = block.len() / outer;
            values.extend_from_slice(&block[row * len..(row + 1) * len]);
        }
    }
    TensorData::new(values, shape)
}

/// Splits a tensor into parts of these `sizes` along `axis`.
pub(super) fn cut(data: &TensorData, axis: usize, sizes: &[usize]) -> Vec<TensorData> {
    let (shape, from) = (data.shape(), data.as_slice::<f32>().expect("weights are FP32"));
    let inner: usize = shape[axis + 1..].iter().product();
    let row = shape[axis] * inner;
    let mut start = 0;
    let part = |size: &usize| {
        let (begin, end) = (start * inner, (start + size) * inner);
        start += size;
        let values = from.chunks_exact(row.max(1)).flat_map(|row| &row[begin..end]).copied();
        let mut shape = shape.to_vec();
        shape[axis] = *size;
        TensorData::new(values.collect::<Vec<f32>>(), shape)
    };
    sizes.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposing_twice_is_the_identity() {
        let data = TensorData::new(vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
        let once = transpose(&data);
        assert_eq!(once, TensorData::new(vec![1f32, 4.0, 2.0, 5.0, 3.0, 6.0], [3, 2]));
        assert_eq!(transpose(&once), data);
        let large = TensorData::new((0..70 * 33).map(|i| i as f32).collect::<Vec<_>>(), [70, 33]);
        assert_eq!(transpose(&transpose(&large)), large);
    }

    #[test]
    fn what_is_cut_is_put_together_again() {
        let data = TensorData::new((0..24).map(|i| i as f32).collect::<Vec<_>>(), [2, 4, 3]);
        let middle = cut(&data, 1, &[1, 3]);
        assert_eq!(middle[0], TensorData::new(vec![0f32, 1.0, 2.0, 12.0, 13.0, 14.0], [2, 1, 3]));
        for (axis, sizes) in [(0, vec![1, 1]), (1, vec![1, 3]), (1, vec![0, 4]), (2, vec![1, 1, 1])] {
            assert_eq!(concatenated(&cut(&data, axis, &sizes), axis), data, "axis {axis}");
        }
    }
}
