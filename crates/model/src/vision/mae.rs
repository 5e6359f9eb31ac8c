use super::{PatchPositions, Vit, VitConfig, patch_positions, patches};
use crate::blocks::{Encoder, EncoderTrace, Linear, MultiHeadAttention};
use crate::ops::AttentionMask;
use crate::sizes::check_sizes;
use crate::{HasBackbone, ModelError, ParamInit, Result, linear_maps};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// The configuration of a [`Mae`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MaeConfig {
    /// The encoder's, with sinusoidal positions and a class piece.
    pub vit: VitConfig,
    /// The decoder's.
    pub decoder: MaeDecoderConfig,
    /// The share of patches that are masked: 0.75 in the paper.
    pub mask_ratio: f64,
    /// Whether the pixels to restore are normalised patch by patch, which makes better features in the paper.
    pub normalised_pixels: bool,
}

/// The sizes of a [`MaeDecoder`]; all else is the encoder's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaeDecoderConfig {
    /// Layers.
    pub n_layers: usize,
    /// Features of a hidden state.
    pub d_model: usize,
    /// Attention heads.
    pub n_heads: usize,
    /// Features inside the feed-forward networks.
    pub d_ff: usize,
}

impl MaeDecoderConfig {
    /// A decoder of these sizes, with `d_ff = 4 · d_model`. The paper's has 8 layers of 512 features with 16 heads.
    pub fn new(n_layers: usize, d_model: usize, n_heads: usize) -> Self {
        Self { n_layers, d_model, n_heads, d_ff: d_model.saturating_mul(4) }
    }

    /// Sets the features inside the feed-forward networks.
    pub fn with_d_ff(mut self, d_ff: usize) -> Self {
        self.d_ff = d_ff;
        self
    }
}

impl MaeConfig {
    /// An autoencoder that masks three patches of four, and restores normalised pixels. The encoder's positions become
    /// sinusoidal.
    pub fn new(vit: VitConfig, decoder: MaeDecoderConfig) -> Self {
        let vit = vit.with_positions(PatchPositions::Sinusoidal);
        Self { vit, decoder, mask_ratio: 0.75, normalised_pixels: true }
    }

    /// Sets the share of patches that are masked.
    pub fn with_mask_ratio(mut self, mask_ratio: f64) -> Self {
        self.mask_ratio = mask_ratio;
        self
    }

    /// Sets whether the pixels to restore are normalised.
    pub fn with_normalised_pixels(mut self, normalised_pixels: bool) -> Self {
        self.normalised_pixels = normalised_pixels;
        self
    }

    /// The decoder's layers as those of a [`Vit`].
    fn decoder_vit(&self) -> VitConfig {
        let MaeDecoderConfig { n_layers, d_model, n_heads, d_ff } = self.decoder;
        VitConfig { n_layers, d_model, n_heads, d_ff, ..self.vit.clone() }
    }

    /// The number of patches of an image that the encoder sees.
    pub fn n_kept(&self) -> usize {
        let [rows, columns] = self.vit.grid();
        ((rows * columns) as f64 * (1.0 - self.mask_ratio)) as usize
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        self.vit.validate()?;
        let MaeDecoderConfig { n_layers, d_model, n_heads, d_ff } = self.decoder;
        check_sizes([
            ("decoder_layers", n_layers),
            ("decoder_width", d_model),
            ("decoder_heads", n_heads),
            ("decoder_d_ff", d_ff),
        ])?;
        if !d_model.is_multiple_of(n_heads) {
            let expected = format!("a divisor of the decoder's width, which is {d_model}");
            return Err(ModelError::setting("decoder_heads", n_heads, expected));
        }
        if !d_model.is_multiple_of(4) {
            return Err(ModelError::setting("decoder_width", d_model, "a multiple of 4, for its positions"));
        }
        let ([height, width], [of_patch, across]) = (self.vit.image_size, self.vit.patch_size);
        if !height.is_multiple_of(of_patch) || !width.is_multiple_of(across) {
            let expected = format!("sides that are multiples of a patch's, {of_patch} × {across}");
            return Err(ModelError::setting("image_size", format!("{height} × {width}"), expected));
        }
        let [rows, columns] = self.vit.grid();
        if !(0.0..1.0).contains(&self.mask_ratio) || self.n_kept() == 0 || self.n_kept() == rows * columns {
            let expected =
                format!("a share between 0 and 1 that keeps and masks some of {} patches", rows * columns);
            return Err(ModelError::setting("mask_ratio", self.mask_ratio, expected));
        }
        if self.vit.positions != PatchPositions::Sinusoidal
            || !self.vit.class_piece
            || self.vit.distillation_piece
        {
            let expected = "sinusoidal ones, with a class piece alone: transformers has no other MAE";
            return Err(ModelError::setting("positions", format!("{:?}", self.vit.positions), expected));
        }
        Ok(())
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> Mae {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let vit = self.vit.init(init);
        let before = init.replace_values((self.vit.init_std, false));
        let MaeDecoderConfig { d_model, .. } = self.decoder;
        let grid = self.vit.grid();
        let mut positions = patch_positions::sinusoids(1, grid, d_model).into_iter();
        let shape = [1, 1 + grid[0] * grid[1], d_model];
        let [rows, columns] = self.vit.patch_size;
        let decoder = MaeDecoder {
            embed: Linear::new(self.vit.d_model, d_model, init),
            mask_piece: init.normal([1, 1, d_model], self.vit.init_std),
            positions: init.param(shape, move |_| positions.next().unwrap_or_default()),
            layers: self.decoder_vit().init_encoder(init),
            pixels: Linear::new(d_model, rows * columns * self.vit.n_channels, init),
        };
        init.replace_values(before);
        Mae { vit, decoder, patch_size: self.vit.patch_size, normalised_pixels: self.normalised_pixels }
    }
}

/// The patches that an encoder sees of each image of a batch, on the host: as many of each.
///
/// ```
/// # use cloze_model::vision::MaskedPatches;
/// let masked = MaskedPatches::new(&[&[3, 0], &[1, 2]], 4);
/// assert!(!masked.is_masked(0, 3) && masked.is_masked(1, 3));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedPatches {
    /// Numbers of the kept patches in the flattened batch, image by image.
    kept: Vec<i32>,
    batch: usize,
    n_patches: usize,
}

impl MaskedPatches {
    /// Those of each image that are kept, of `n_patches`.
    ///
    /// # Panics
    /// If images differ in their number of patches, none is kept, or one is out of range.
    pub fn new(kept: &[&[usize]], n_patches: usize) -> Self {
        let n = kept.first().map_or(0, |kept| kept.len());
        assert!(n > 0 && kept.iter().all(|kept| kept.len() == n), "as many patches of each image");
        assert!(kept.iter().all(|kept| kept.iter().all(|patch| *patch < n_patches)), "a patch out of range");
        let numbers = kept.iter().enumerate();
        let numbers = numbers
            .flat_map(|(image, kept)| kept.iter().map(move |patch| (image * n_patches + patch) as i32));
        Self { kept: numbers.collect(), batch: kept.len(), n_patches }
    }

    /// Whether a patch of an image is masked.
    pub fn is_masked(&self, image: usize, patch: usize) -> bool {
        !self.of_image(image).contains(&((image * self.n_patches + patch) as i32))
    }

    /// The number of masked patches of each image.
    pub fn n_masked(&self) -> usize {
        self.n_patches - self.n_kept()
    }

    fn n_kept(&self) -> usize {
        self.kept.len() / self.batch
    }

    fn of_image(&self, image: usize) -> &[i32] {
        &self.kept[image * self.n_kept()..(image + 1) * self.n_kept()]
    }

    fn kept(&self, device: &Device) -> Tensor<1, Int> {
        Tensor::from_data(self.kept.as_slice(), device)
    }

    /// For each patch of the flattened batch, its row among the states of each image's kept patches and its mask piece.
    fn restored(&self, device: &Device) -> Tensor<1, Int> {
        let row = self.n_kept() + 1;
        // The mask piece comes after the kept ones.
        let mut places: Vec<i32> = (0..self.batch * self.n_patches)
            .map(|patch| (patch / self.n_patches * row + self.n_kept()) as i32)
            .collect();
        for (place, patch) in self.kept.iter().enumerate() {
            let (image, number) = (place / self.n_kept(), place % self.n_kept());
            places[*patch as usize] = (image * row + number) as i32;
        }
        Tensor::from_data(places.as_slice(), device)
    }

    /// `[batch, n_patches]`: 1 for masked patches, 0 for others.
    pub fn mask(&self, device: &Device) -> Tensor<2> {
        let mut mask = vec![1f32; self.batch * self.n_patches];
        self.kept.iter().for_each(|patch| mask[*patch as usize] = 0.0);
        Tensor::from_data(TensorData::new(mask, [self.batch, self.n_patches]), device)
    }
}

/// A masked autoencoder (He et al. 2022): the encoder sees the patches that are left, without the masked ones; a narrow decoder
/// sees all places and restores the pixels.
#[derive(Module, Debug)]
pub struct Mae {
    /// The encoder, which is what pretraining is for.
    pub vit: Vit,
    /// The decoder.
    pub decoder: MaeDecoder,
    #[module(skip)]
    patch_size: [usize; 2],
    #[module(skip)]
    normalised_pixels: bool,
}

linear_maps!(Mae { vit, decoder });

/// The decoder of a [`Mae`].
#[derive(Module, Debug)]
pub struct MaeDecoder {
    /// `[d_model, decoder's d_model]`
    pub embed: Linear,
    /// `[1, 1, decoder's d_model]`: stands in the place of each masked patch.
    pub mask_piece: Param<Tensor<3>>,
    /// `[1, 1 + patches, decoder's d_model]`: sinusoidal positions, which are not learned.
    pub positions: Param<Tensor<3>>,
    /// The layers, and the normalisation after them.
    pub layers: Encoder<MultiHeadAttention>,
    /// `[decoder's d_model, rows · columns · channels]`: the pixels of a patch, pixel by pixel.
    pub pixels: Linear,
}

linear_maps!(MaeDecoder { layers; embed, pixels });

impl Mae {
    /// The restored pixels of all patches, masked or not.
    ///
    /// # Shapes
    /// - `pixels`: `[batch, channels, height, width]`
    /// - returns `[batch, patches, rows · columns · channels]`: a patch's pixels row by row, each with its channels
    ///
    /// # Panics
    /// If the images are not of the configured size, or not those of `masked`.
    pub fn forward(&self, pixels: Tensor<4>, masked: &MaskedPatches) -> Tensor<3> {
        let device = pixels.device();
        let (embedded, _) = self.vit.embeddings.forward_of(pixels, Some(masked.kept(&device)));
        let (mask, trace) = (AttentionMask::default(), EncoderTrace::default());
        let states = self.vit.encoder.forward(embedded, &mask, trace, None).last_hidden_state;
        let MaeDecoder { embed, mask_piece, positions, layers, pixels } = &self.decoder;
        let states = embed.forward(states);
        let [batch, len, d_model] = states.dims();
        let mask_pieces = mask_piece.val().expand([batch, 1, d_model]);
        let rows = Tensor::cat(vec![states.clone().narrow(1, 1, len - 1), mask_pieces], 1);
        let rows = rows.reshape([batch * len, d_model]).select(0, masked.restored(&device));
        let patches = rows.reshape([batch, masked.n_patches, d_model]);
        let all = Tensor::cat(vec![states.narrow(1, 0, 1), patches], 1) + positions.val().detach();
        let decoded = layers.forward(all, &mask, trace, None).last_hidden_state;
        pixels.forward(decoded.narrow(1, 1, masked.n_patches))
    }

    /// The mean squared error of each patch's restored pixels.
    ///
    /// # Shapes
    /// - returns `[batch, patches]`
    pub fn errors(&self, pixels: Tensor<4>, masked: &MaskedPatches) -> Tensor<2> {
        let target = self.target(pixels.clone());
        let errors = (self.forward(pixels, masked) - target).powi_scalar(2);
        errors.mean_dim(2).squeeze_dim(2)
    }

    /// The loss, summed over the masked patches, `[1]`: the squared error of a pixel, averaged over the patch.
    pub fn loss(&self, pixels: Tensor<4>, masked: &MaskedPatches) -> Tensor<1> {
        let mask = masked.mask(&pixels.device());
        (self.errors(pixels, masked) * mask).sum()
    }

    /// What is to be restored: each patch's pixels in the order of [`forward`](Self::forward), normalised if they are.
    fn target(&self, pixels: Tensor<4>) -> Tensor<3> {
        let target = self.in_order(pixels);
        match self.normalised_pixels {
            true => {
                let (mean, deviation) = moments(&target);
                (target - mean) / deviation
            }
            false => target,
        }
    }

    /// The images that [`forward`](Self::forward) restored, `[batch, patches, …]`, with the masked patches restored and the
    /// others as they are; normalised pixels get the mean and deviation of the original patch.
    ///
    /// # Shapes
    /// - returns the shape of `pixels`
    pub fn images(&self, pixels: Tensor<4>, restored: Tensor<3>, masked: &MaskedPatches) -> Tensor<4> {
        let (shape, device) = (pixels.dims(), pixels.device());
        let original = self.in_order(pixels);
        let restored = match self.normalised_pixels {
            true => {
                let (mean, deviation) = moments(&original);
                restored * deviation + mean
            }
            false => restored,
        };
        let mask = masked.mask(&device).unsqueeze_dim::<3>(2);
        self.in_place(original * (mask.clone().neg() + 1.0) + restored * mask, shape)
    }

    /// The images with zeros in place of masked patches.
    ///
    /// # Shapes
    /// - returns the shape of `pixels`
    pub fn without_masked(&self, pixels: Tensor<4>, masked: &MaskedPatches) -> Tensor<4> {
        let kept = masked.mask(&pixels.device()).neg() + 1.0;
        let patches = self.in_order(pixels.clone()) * kept.unsqueeze_dim::<3>(2);
        self.in_place(patches, pixels.dims())
    }

    /// Patches in the order of [`in_order`](Self::in_order) as images of this shape.
    fn in_place(&self, patches: Tensor<3>, [batch, channels, height, width]: [usize; 4]) -> Tensor<4> {
        let [rows, columns] = self.patch_size;
        patches
            .reshape([batch, height / rows, width / columns, rows, columns, channels])
            .permute([0, 5, 1, 3, 2, 4])
            .reshape([batch, channels, height, width])
    }

    /// Each patch's pixels row by row, each with its channels, as MAE's code has them.
    fn in_order(&self, pixels: Tensor<4>) -> Tensor<3> {
        let [_, channels, _, _] = pixels.dims();
        let patches = patches(pixels, self.patch_size);
        let [batch, n, size] = patches.dims();
        let [rows, columns] = self.patch_size;
        patches.reshape([batch, n, channels, rows * columns]).swap_dims(2, 3).reshape([batch, n, size])
    }
}

/// The mean of each patch, and its deviation with a small number added to the variance, `[batch, patches, 1]`.
fn moments(patches: &Tensor<3>) -> (Tensor<3>, Tensor<3>) {
    let [_, _, size] = patches.dims();
    let mean = patches.clone().mean_dim(2);
    let squares = (patches.clone() - mean.clone()).powi_scalar(2).sum_dim(2);
    // PyTorch's unbiased variance.
    let variance = squares / (size as f64 - 1.0).max(1.0);
    (mean, (variance + 1e-6).sqrt())
}

impl HasBackbone for Mae {
    type Backbone = Vit;
    const PATH: &'static str = "vit";

    fn backbone(&self) -> &Vit {
        &self.vit
    }

    fn backbone_mut(&mut self) -> &mut Vit {
        &mut self.vit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Distribution, Tolerance};

    #[test]
    fn what_is_masked_is_not_seen() {
        let device = Device::flex();
        let vit = VitConfig::new(12, 4, 2, 16).with_n_heads(4).with_init_std(0.3);
        let config = MaeConfig::new(vit, MaeDecoderConfig::new(1, 8, 2)).with_mask_ratio(0.7);
        assert_eq!(config.n_kept(), 2);
        let masked = MaskedPatches::new(&[&[7, 2], &[0, 5]], 9);
        let images = Tensor::<4>::random([2, 3, 12, 12], Distribution::Default, &device);
        let plain = config.clone().with_normalised_pixels(false).init(&mut ParamInit::new(&device, 1));
        let restored = plain.forward(images.clone(), &masked);
        assert_eq!(restored.dims(), [2, 9, 48]);
        // Other pixels in the masked patches alone.
        let other = plain.images(images.clone(), restored.random_like(Distribution::Default), &masked);
        assert_ne!(other.to_data(), images.to_data());
        assert_eq!(plain.forward(other, &masked).into_data(), restored.into_data());
        let mae = config.init(&mut ParamInit::new(&device, 1));
        // The images that come of perfectly restored pixels are the images.
        let target = mae.target(images.clone());
        let found = mae.images(images.clone(), target, &masked).into_data();
        found.assert_approx_eq::<f32>(&images.into_data(), Tolerance::absolute(1e-5));
    }
}
