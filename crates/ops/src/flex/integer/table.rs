//! Embeddings looked up in a table of integers.

use super::super::{filled, indices, op, tensor};
use crate::IntegerMatrix;
use burn::tensor::{Int, Shape, Tensor};
use burn_flex::Flex;
use rayon::prelude::*;

/// Rows dequantised by a task.
const ROWS: usize = 32;

pub(crate) fn embedding(table: &IntegerMatrix, ids: Tensor<2, Int>) -> Tensor<3> {
    op!("embedding");
    let ([batch, len], [n, d]) = (ids.dims(), table.dims());
    let ids = indices(ids);
    assert!(ids.iter().all(|id| *id < n), "an index is below {n}");
    // SAFETY: the tasks cover the whole, and each row is written.
    let y = unsafe {
        filled(ids.len() * d, |y| {
            y.par_chunks_mut((ROWS * d).max(1)).zip(ids.par_chunks(ROWS)).for_each_init(
                || vec![0.0; d],
                |row, (y, ids)| {
                    for (y, id) in y.chunks_exact_mut(d).zip(ids) {
                        table.dequantize_row(*id, row);
                        y.iter_mut().zip(&*row).for_each(|(y, x)| {
                            y.write(*x);
                        });
                    }
                },
            );
        })
    };
    Tensor::from_primitive::<Flex>(tensor(y, Shape::new([batch, len, d])))
}
