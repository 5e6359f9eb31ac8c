//! How the rows of a matrix are laid out in the two formats.

use std::borrow::Cow;

/// How a tensor in a GGUF file differs from the folder's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// In nothing.
    Same,
    /// The folder's is transposed, as transformers' `Conv1D` stores matrices of GPT-2.
    Transposed,
    /// Llama's queries and keys: rotary positions turn neighbouring features in llama.cpp, and features half a head apart
    /// in transformers.
    Rotary {
        /// The number of heads, each with the same number of rows.
        n_heads: usize,
    },
}

impl Layout {
    /// The values for a GGUF file, of a folder's tensor that has this shape there.
    pub fn to_gguf<'a>(self, values: &'a [f32], folder_shape: &[usize]) -> Cow<'a, [f32]> {
        match self {
            Self::Same => values.into(),
            Self::Transposed => transposed(values, folder_shape),
            Self::Rotary { n_heads } => interleaved(values, folder_shape[0], n_heads).into(),
        }
    }

    /// The bytes of blocks for a GGUF file, of a folder's matrix with so many rows; none if blocks lie across the rows there.
    pub(crate) fn blocks_to_gguf(self, bytes: Vec<u8>, n_rows: usize) -> Option<Vec<u8>> {
        match self {
            Self::Same => Some(bytes),
            Self::Transposed => None,
            Self::Rotary { n_heads } => Some(interleaved(&bytes, n_rows, n_heads)),
        }
    }

    /// The values for a folder, of a GGUF file's tensor that has this shape there.
    pub fn to_folder<'a>(self, values: &'a [f32], gguf_shape: &[usize]) -> Cow<'a, [f32]> {
        match self {
            Self::Same => values.into(),
            Self::Transposed => transposed(values, gguf_shape),
            Self::Rotary { n_heads } => {
                let n_rows = gguf_shape[0];
                let half = n_rows / n_heads / 2;
                rows(values, n_rows, |row| {
                    let (head, place) = (row / (2 * half), row % (2 * half));
                    head * 2 * half + place % half * 2 + place / half
                })
                .into()
            }
        }
    }

    /// The shape in the other format.
    pub fn shape(self, shape: &[usize]) -> Vec<usize> {
        let mut shape = shape.to_vec();
        if self == Self::Transposed {
            shape.reverse();
        }
        shape
    }
}

/// The rows of heads whose halves a folder has one after the other: row 2i + j of a head is the folder's j·half + i.
fn interleaved<T: Copy>(values: &[T], n_rows: usize, n_heads: usize) -> Vec<T> {
    let half = n_rows / n_heads / 2;
    rows(values, n_rows, |row| {
        let (head, place) = (row / (2 * half), row % (2 * half));
        head * 2 * half + place % 2 * half + place / 2
    })
}

/// The transpose of a matrix; a vector stays as it is.
fn transposed<'a>(values: &'a [f32], shape: &[usize]) -> Cow<'a, [f32]> {
    let &[n_rows, n_columns] = shape else { return values.into() };
    // In tiles, which stay in the cache while they are read column by column.
    const TILE: usize = 32;
    let mut to = vec![0f32; values.len()];
    for first_row in (0..n_rows).step_by(TILE) {
        for first_column in (0..n_columns).step_by(TILE) {
            for column in first_column..(first_column + TILE).min(n_columns) {
                for row in first_row..(first_row + TILE).min(n_rows) {
                    to[column * n_rows + row] = values[row * n_columns + column];
                }
            }
        }
    }
    to.into()
}

/// The rows in another order: `from` says which one comes at a place.
fn rows<T: Copy>(values: &[T], n_rows: usize, from: impl Fn(usize) -> usize) -> Vec<T> {
    let width = values.len() / n_rows.max(1);
    (0..n_rows)
        .flat_map(|row| {
            let from = from(row);
            &values[from * width..(from + 1) * width]
        })
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rearranged_comes_back() {
        let values: Vec<f32> = (0..96).map(|i| i as f32).collect();
        for (layout, shape) in [
            (Layout::Same, vec![8, 12]),
            (Layout::Transposed, vec![8, 12]),
            (Layout::Rotary { n_heads: 2 }, vec![8, 12]),
            (Layout::Rotary { n_heads: 3 }, vec![96]),
            (Layout::Transposed, vec![96]),
        ] {
            let there = layout.to_gguf(&values, &shape);
            assert_eq!(
                layout == Layout::Same || shape == [96] && layout == Layout::Transposed,
                *there == values
            );
            assert_eq!(layout.to_folder(&there, &layout.shape(&shape)), values, "{layout:?}");
        }
    }

    #[test]
    fn rotary_rows_are_interleaved() {
        // One head of six rows: halves 0 1 2 and 3 4 5.
        let values = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        let there = Layout::Rotary { n_heads: 1 }.to_gguf(&values, &[6]);
        assert_eq!(*there, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    }
}
