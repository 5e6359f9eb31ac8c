use super::{PatchPositions, VitConfig, patch_positions};
use crate::blocks::Linear;
use crate::ops;
use crate::{ParamInit, linear_maps};
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};

/// Cuts images into patches, row by row from the top left. What is left at the right and the bottom, less than a patch,
/// is cut off, as a convolution with the stride of a patch does.
///
/// # Shapes
/// - `pixels`: `[batch, channels, height, width]`; `[rows, columns]` of a patch in `size`
/// - returns `[batch, patches, channels · rows · columns]`: a patch's pixels channel by channel
///
/// # Panics
/// If an image is smaller than a patch.
pub fn patches(pixels: Tensor<4>, size: [usize; 2]) -> Tensor<3> {
    let [batch, channels, height, width] = pixels.dims();
    let [rows, columns] = grid([height, width], size);
    assert!(rows * columns > 0, "an image of {height} × {width} pixels is smaller than a patch of {size:?}");
    pixels
        .narrow(2, 0, rows * size[0])
        .narrow(3, 0, columns * size[1])
        .reshape([batch, channels, rows, size[0], columns, size[1]])
        .permute([0, 2, 4, 1, 3, 5])
        .reshape([batch, rows * columns, channels * size[0] * size[1]])
}

/// Rows and columns of the patches of this size in an image of this height and width.
pub(super) fn grid(image: [usize; 2], size: [usize; 2]) -> [usize; 2] {
    [image[0] / size[0], image[1] / size[1]]
}

/// `z₀ = [class; x₁·E; …; x_n·E] + E_pos` (Dosovitskiy et al. 2021, eq. 1): patches of images as tokens, after the pieces
/// that stand for no patch.
#[derive(Module, Debug)]
pub struct PatchEmbeddings {
    /// `E`: `[channels · rows · columns of a patch, d_model]`
    pub projection: Linear,
    /// `[1, 1, d_model]`: the piece whose last state is the image's, unless the states of patches are averaged.
    pub class_piece: Option<Param<Tensor<3>>>,
    /// `[1, 1, d_model]`: DeiT's piece that learns from a teacher (Touvron et al. 2021, §4).
    pub distillation_piece: Option<Param<Tensor<3>>>,
    /// `E_pos`: `[1, pieces + patches, d_model]`, for images of the configured size; none without positions.
    pub positions: Option<Param<Tensor<3>>>,
    #[module(skip)]
    kind: PatchPositions,
    #[module(skip)]
    patch_size: [usize; 2],
    /// Rows and columns of the patches that have a position.
    #[module(skip)]
    grid: [usize; 2],
    dropout: f64,
}

linear_maps!(PatchEmbeddings { projection });

impl PatchEmbeddings {
    pub(super) fn new(config: &VitConfig, init: &mut ParamInit) -> Self {
        let VitConfig { d_model, patch_size, .. } = *config;
        let (grid, n_pieces) = (config.grid(), config.n_pieces());
        let piece = |has: bool, init: &mut ParamInit| has.then(|| init.truncated_normal([1, 1, d_model]));
        let shape = [1, n_pieces + grid[0] * grid[1], d_model];
        Self {
            projection: Linear::new(config.n_channels * patch_size[0] * patch_size[1], d_model, init),
            class_piece: piece(config.class_piece, init),
            distillation_piece: piece(config.distillation_piece, init),
            positions: match config.positions {
                PatchPositions::Learned => Some(init.truncated_normal(shape)),
                PatchPositions::Sinusoidal => {
                    let mut values = patch_positions::sinusoids(n_pieces, grid, d_model).into_iter();
                    Some(init.param(shape, move |_| values.next().unwrap_or_default()))
                }
                PatchPositions::None => None,
            },
            kind: config.positions,
            patch_size,
            grid,
            dropout: config.hidden_dropout,
        }
    }

    /// The same embeddings for images of this height and width, with resized positions.
    ///
    /// # Panics
    /// If an image is smaller than a patch.
    pub(super) fn with_image_size(mut self, image_size: [usize; 2]) -> Self {
        let grid = grid(image_size, self.patch_size);
        assert!(
            grid[0] * grid[1] > 0,
            "an image of {image_size:?} is smaller than a patch of {:?}",
            self.patch_size
        );
        if grid != self.grid {
            let resized = self.positions_of(grid).map(|positions| Param::from_tensor(positions.detach()));
            (self.positions, self.grid) = (resized, grid);
        }
        self
    }

    /// The number of pieces before the patches.
    pub fn n_pieces(&self) -> usize {
        usize::from(self.class_piece.is_some()) + usize::from(self.distillation_piece.is_some())
    }

    /// The embeddings of images, and the rows and columns of their patches.
    ///
    /// # Shapes
    /// - `pixels`: `[batch, channels, height, width]`; returns `[batch, pieces + patches, d_model]`
    ///
    /// # Panics
    /// If an image is smaller than a patch, or has another number of channels.
    pub fn forward(&self, pixels: Tensor<4>) -> (Tensor<3>, [usize; 2]) {
        self.forward_of(pixels, None)
    }

    /// The embeddings of some patches of each image.
    ///
    /// # Shapes
    /// - `kept`: `[batch · n]`, numbers of patches in the flattened batch, as many of each image; returns
    ///   `[batch, pieces + n, d_model]`
    pub(super) fn forward_of(
        &self,
        pixels: Tensor<4>,
        kept: Option<Tensor<1, Int>>,
    ) -> (Tensor<3>, [usize; 2]) {
        let [batch, _, height, width] = pixels.dims();
        let grid = grid([height, width], self.patch_size);
        let n_pieces = self.n_pieces();
        let mut patches = patches(pixels, self.patch_size);
        let positions = self.positions_of(grid);
        let [_, n_patches, n_pixels] = patches.dims();
        let mut of_patches = positions.clone().map(|positions| positions.narrow(1, n_pieces, n_patches));
        if let Some(kept) = kept {
            let [n] = kept.dims();
            patches = patches.reshape([batch * n_patches, n_pixels]).select(0, kept.clone()).reshape([
                batch,
                n / batch,
                n_pixels,
            ]);
            of_patches = of_patches.map(|positions| {
                let [_, _, d_model] = positions.dims();
                let places = kept.remainder_scalar(n_patches as i32);
                positions.squeeze_dim::<2>(0).select(0, places).reshape([batch, n / batch, d_model])
            });
        }
        let mut embedded = self.projection.forward(patches);
        if let Some(positions) = of_patches {
            embedded = embedded + positions;
        }
        let [_, _, d_model] = embedded.dims();
        let pieces = [&self.class_piece, &self.distillation_piece].into_iter().flatten().enumerate();
        let pieces = pieces.map(|(number, piece)| {
            let piece = match &positions {
                Some(positions) => piece.val() + positions.clone().narrow(1, number, 1),
                None => piece.val(),
            };
            piece.expand([batch, 1, d_model])
        });
        let all: Vec<Tensor<3>> = pieces.chain([embedded]).collect();
        (ops::dropout(Tensor::cat(all, 1), self.dropout), grid)
    }

    /// The positions of an image with this grid of patches, `[1, pieces + patches, d_model]`.
    pub(super) fn positions_of(&self, grid: [usize; 2]) -> Option<Tensor<3>> {
        let positions = self.positions.as_ref()?.val();
        // Those that are computed are not learned.
        let positions = if self.kind == PatchPositions::Sinusoidal { positions.detach() } else { positions };
        if grid == self.grid {
            return Some(positions);
        }
        let (n_pieces, n_patches) = (self.n_pieces(), self.grid[0] * self.grid[1]);
        let patches =
            patch_positions::resized(positions.clone().narrow(1, n_pieces, n_patches), self.grid, grid);
        match n_pieces {
            0 => Some(patches),
            n => Some(Tensor::cat(vec![positions.narrow(1, 0, n), patches], 1)),
        }
    }
}
