//! Models of images.

use crate::Values;
use crate::values::{classified, trained};
use burn::tensor::{Device, Tensor, TensorData};
use cloze_model::vision::{
    ImageClassifierConfig, ImagePooling, Mae, MaeConfig, MaeDecoderConfig, MaskedPatches, PatchPositions,
    ResNetClassifierConfig, ResNetConfig, SimClr, VitConfig, nt_xent,
};

fn config() -> VitConfig {
    VitConfig::new(12, 4, 2, 24).with_n_heads(4).with_init_std(0.3)
}

/// So many images of this height and width.
pub(super) fn pixels(n: usize, height: usize, width: usize, device: &Device) -> Tensor<4> {
    let values: Vec<f32> = (0..n * 3 * height * width).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, [n, 3, height, width]), device)
}

fn of(config: &ImageClassifierConfig, [height, width]: [usize; 2], device: &Device) -> Values {
    classified(
        device,
        |init| config.init(init),
        |model, device| model.forward(pixels(3, height, width, device)),
    )
}

pub fn vit(device: &Device) -> Values {
    of(&ImageClassifierConfig::new(config(), 5), [12, 12], device)
}

/// Positions resized to a rectangle, and the mean of the patches.
pub fn resized(device: &Device) -> Values {
    let config = config().with_class_piece(false).with_pooling(ImagePooling::Mean);
    of(&ImageClassifierConfig::new(config, 5), [8, 20], device)
}

pub fn deit(device: &Device) -> Values {
    of(&ImageClassifierConfig::new(config().with_distillation_piece(true), 5), [12, 12], device)
}

/// Images with odd sides, which strides leave a part of.
pub fn resnet(device: &Device) -> Values {
    let encoder = ResNetConfig::new(13, 2).with_widths(vec![8, 12]).with_group_width(4);
    let config = ResNetClassifierConfig::new(encoder, ["a", "b", "c"].map(str::to_owned).to_vec());
    classified(device, |init| config.init(init), |model, device| model.forward(pixels(3, 13, 10, device)))
}

/// The errors of the patches as logits; the loss is the mean of the four that are masked.
pub fn mae(device: &Device) -> Values {
    let config = MaeConfig::new(config(), MaeDecoderConfig::new(1, 16, 2)).with_mask_ratio(0.7);
    let masked = MaskedPatches::new(&[&[7, 2], &[0, 5]], 9);
    let errors =
        |model: &Mae, device: &Device| model.errors(pixels(2, 12, 12, device), &masked) * masked.mask(device);
    trained(device, |init| config.init(init), errors, |_, errors| errors.sum().div_scalar(4.0))
}

/// Projections of two views each of three images, and NT-Xent.
pub fn simclr(device: &Device) -> Values {
    let config = config().with_positions(PatchPositions::Sinusoidal);
    trained(
        device,
        |init| SimClr::new(config.init(init), 8, init),
        |model, device| model.forward(pixels(6, 12, 12, device)),
        |_, projections| nt_xent(projections, 0.5),
    )
}
