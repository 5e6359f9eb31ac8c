//! The convolution of one image, and its gradients.

use super::tile::{Onto, Operands, Tile};
use std::mem::MaybeUninit;

/// The sizes of a convolution of images with channels last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub rows: usize,
    pub columns: usize,
    pub channels: usize,
    pub channels_out: usize,
    /// Rows and columns of a window, and places from a window to the next.
    pub width: usize,
    pub stride: usize,
}

impl Sizes {
    pub fn rows_out(&self) -> usize {
        self.rows.div_ceil(self.stride)
    }

    pub fn columns_out(&self) -> usize {
        self.columns.div_ceil(self.stride)
    }

    /// Numbers of an input image.
    pub fn input(&self) -> usize {
        self.rows * self.columns * self.channels
    }

    /// Numbers of an output image.
    pub fn output(&self) -> usize {
        self.rows_out() * self.columns_out() * self.channels_out
    }

    /// Numbers of a window.
    pub fn window(&self) -> usize {
        self.width * self.width * self.channels
    }

    /// Places beyond an image's edge that a window sees.
    fn edge(&self) -> usize {
        (self.width - 1) / 2
    }

    /// The output's channels as tiles have them.
    pub fn padded_out(&self) -> usize {
        self.channels_out.next_multiple_of(Tile::of_columns(self.channels_out).columns)
    }
}

/// A convolution's weight in panels, each with a tile's columns.
pub(super) struct Panels {
    tile: Tile,
    values: Vec<f32>,
    /// Numbers of a panel.
    panel: usize,
    n_columns: usize,
}

impl Panels {
    /// For a product with `[n_rows, n_columns]`.
    fn new(n_rows: usize, n_columns: usize, weight: impl Fn(usize, usize) -> f32) -> Self {
        let tile = Tile::of_columns(n_columns);
        let panel = n_rows * tile.columns;
        let mut values = vec![0.0; n_columns.div_ceil(tile.columns) * panel];
        for (block, values) in values.chunks_exact_mut(panel.max(1)).enumerate() {
            let columns = block * tile.columns..n_columns.min((block + 1) * tile.columns);
            for (row, values) in values.chunks_exact_mut(tile.columns).enumerate() {
                values.iter_mut().zip(columns.clone()).for_each(|(to, column)| *to = weight(row, column));
            }
        }
        Self { tile, values, panel, n_columns }
    }

    /// For the forward pass.
    pub fn of_weight(sizes: &Sizes, weight: &[f32]) -> Self {
        let n = sizes.channels_out;
        Self::new(sizes.window(), n, |row, column| weight[row * n + column])
    }

    /// For the input's gradient, which is a convolution of the output's with the windows turned round.
    pub fn of_turned(sizes: &Sizes, weight: &[f32]) -> Self {
        let (padded, n) = (sizes.padded_out(), sizes.channels_out);
        let places = sizes.width * sizes.width;
        Self::new(places * padded, sizes.channels, |row, channel| {
            let (place, out) = (places - 1 - row / padded, row % padded);
            if out < n { weight[(place * sizes.channels + channel) * n + out] } else { 0.0 }
        })
    }
}

/// An image with zeros around it, and between its places if they are spread.
pub(super) struct Padded {
    values: Vec<f32>,
    /// Numbers of a row and of a place.
    row: usize,
    channels: usize,
    edge: usize,
    /// From a place of the image to the next.
    spread: usize,
}

impl Padded {
    fn new(sizes: &Sizes, channels: usize, spread: usize, beyond: usize) -> Self {
        let edges = 2 * sizes.edge();
        let row = (sizes.columns + edges) * channels;
        let values = vec![0.0; (sizes.rows + edges) * row + beyond];
        Self { values, row, channels, edge: sizes.edge(), spread }
    }

    /// For an input image, which tiles of all kinds may read beyond its end.
    pub fn input(sizes: &Sizes) -> Self {
        let rows = Tile::of_columns(sizes.channels_out).rows;
        Self::new(sizes, sizes.channels, 1, rows * sizes.stride * sizes.channels + rows)
    }

    /// For the gradient of an output image.
    pub fn gradient(sizes: &Sizes) -> Self {
        let channels = sizes.padded_out();
        Self::new(sizes, channels, sizes.stride, Tile::of_columns(sizes.channels).rows * channels)
    }

    /// Where a place of the image begins.
    fn at(&self, row: usize, column: usize) -> usize {
        (self.edge + row * self.spread) * self.row + (self.edge + column * self.spread) * self.channels
    }

    /// Puts an image in, in place of the one before.
    pub fn set(&mut self, image: &[f32], columns: usize, channels: usize) {
        if columns * channels == 0 {
            return;
        }
        for (row, values) in image.chunks_exact(columns * channels).enumerate() {
            let start = self.at(row, 0);
            if channels == self.channels && self.spread == 1 {
                self.values[start..][..values.len()].copy_from_slice(values);
                continue;
            }
            let places = self.values[start..].chunks_mut(self.spread * self.channels);
            for (to, from) in places.zip(values.chunks_exact(channels)) {
                to[..channels].copy_from_slice(from);
            }
        }
    }
}

/// The products of all windows, `stride` places apart, with the panels, row by row: `[rows, columns, n_columns]`, where `size` is rows and
/// columns. All of `to` is written.
pub(super) fn convolve(
    image: &Padded,
    width: usize,
    stride: usize,
    [rows, columns]: [usize; 2],
    panels: &Panels,
    to: &mut [MaybeUninit<f32>],
) {
    let Panels { tile, panel, n_columns, .. } = *panels;
    assert_eq!(to.len(), rows * columns * n_columns, "an image of the result");
    assert_eq!(panel, width * width * image.channels * tile.columns, "panels of these windows");
    let len = width * image.channels;
    // The last tile of the last row.
    let last = (rows.max(1) - 1) * stride + width - 1;
    let last_column = (columns.max(1) - 1) / tile.rows * tile.rows;
    let end = last * image.row + (last_column + tile.rows - 1) * stride * image.channels + len;
    assert!(end <= image.values.len(), "windows within the image");
    let to = to.as_mut_ptr().cast::<f32>();
    let mut runs = Vec::with_capacity(width);
    for row in 0..rows {
        runs.clear();
        for seen in 0..width {
            let source = row * stride + seen;
            // Of a spread image, rows between places are zero.
            if (source + image.edge * (image.spread - 1)).is_multiple_of(image.spread) {
                runs.push([source * image.row, seen * len * tile.columns]);
            }
        }
        for (block, panel) in panels.values.chunks_exact(panel.max(1)).enumerate() {
            let first = block * tile.columns;
            for column in (0..columns).step_by(tile.rows) {
                let operands = Operands {
                    a: image.values[column * stride * image.channels..].as_ptr(),
                    a_row: stride * image.channels,
                    a_step: 1,
                    b: panel.as_ptr(),
                    b_step: tile.columns,
                    runs: &runs,
                    len,
                };
                // SAFETY: what is read ends at `end`, and a panel has a tile's columns for each number of a window; the tile's
                // part of the result is within it.
                unsafe {
                    let onto = Onto {
                        start: to.add((row * columns + column) * n_columns + first),
                        row: n_columns,
                        height: tile.rows.min(columns - column),
                        width: tile.columns.min(n_columns - first),
                        adds: false,
                    };
                    tile.run(operands, onto);
                }
            }
        }
    }
}

/// Numbers of both images whose rows are multiplied at a time: they fit in the L1 cache, beside the sums.
const CACHED: usize = 8 << 10;

/// Adds an image's part of the weight's gradient: `[window, padded_out]`.
pub(super) fn add_weight_gradient(sizes: &Sizes, input: &Padded, gradient: &Padded, total: &mut [f32]) {
    let tile = Tile::of_columns(sizes.channels_out);
    let (stride, padded, len) = (sizes.stride, sizes.padded_out(), sizes.width * sizes.channels);
    assert_eq!(total.len(), sizes.window() * padded, "a sum for each weight");
    assert!(gradient.channels == padded && gradient.spread == stride, "a gradient of these sizes");
    let (rows, columns) = (sizes.rows_out(), sizes.columns_out());
    if rows == 0 || columns == 0 || len == 0 {
        return;
    }
    let last = (rows - 1) * stride + sizes.width - 1;
    let end = last * input.row
        + (len - 1) / tile.rows * tile.rows
        + tile.rows
        + (columns - 1) * stride * input.channels;
    assert!(end <= input.values.len(), "windows within the image");
    assert!(
        gradient.at(rows - 1, columns - 1) + padded <= gradient.values.len(),
        "places within the gradient"
    );
    let at_a_time = (CACHED / (stride * (input.row + gradient.row))).max(1);
    let total = total.as_mut_ptr();
    let mut runs = Vec::with_capacity(at_a_time);
    for first in (0..rows).step_by(at_a_time) {
        for seen in 0..sizes.width {
            runs.clear();
            let some = first..rows.min(first + at_a_time);
            runs.extend(some.map(|row| [(row * stride + seen) * input.row, gradient.at(row, 0)]));
            for number in (0..len).step_by(tile.rows) {
                for channel in (0..padded).step_by(tile.columns) {
                    let operands = Operands {
                        a: input.values[number..].as_ptr(),
                        a_row: 1,
                        a_step: stride * input.channels,
                        b: gradient.values[channel..].as_ptr(),
                        b_step: stride * padded,
                        runs: &runs,
                        len: columns,
                    };
                    // SAFETY: what is read ends at `end` and at the last place; the sums are the window's.
                    unsafe {
                        let onto = Onto {
                            start: total.add((seen * len + number) * padded + channel),
                            row: padded,
                            height: tile.rows.min(len - number),
                            width: tile.columns,
                            adds: true,
                        };
                        tile.run(operands, onto);
                    }
                }
            }
        }
    }
}
