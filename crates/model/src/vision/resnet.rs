use super::{ImageClassifier, ImageEncoder, ImageStates};
use crate::blocks::{GroupNorm, ImageConvolution};
use crate::ops::subsampled;
use crate::sizes::check_sizes;
use crate::with_fields::with_fields;
use crate::{Backbone, BackboneShape, HasBackbone, ModelError, ParamInit, Result, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// Two convolutions and a way past them, `ReLU(x + N(W₂ ∗ ReLU(N(W₁ ∗ x))))` (He et al. 2016, §3.2). Where the width changes, the
/// way past takes every second place and fills the new channels with zeros (option A).
#[derive(Module, Debug)]
pub struct ResidualBlock {
    /// `W₁`, which may halve rows and columns.
    pub first: ImageConvolution,
    /// The normalisation after it.
    pub first_norm: GroupNorm,
    /// `W₂`
    pub second: ImageConvolution,
    /// The normalisation after it.
    pub second_norm: GroupNorm,
    stride: usize,
}

linear_maps!(ResidualBlock { first, second });

impl ResidualBlock {
    fn new(config: &ResNetConfig, d_in: usize, d_out: usize, init: &mut ParamInit) -> Self {
        let stride = if d_in == d_out { 1 } else { 2 };
        let first = ImageConvolution::new(d_in, d_out, 3, stride, init);
        let second = ImageConvolution::new(d_out, d_out, 3, 1, init);
        let (first_norm, second_norm) = (config.norm(d_out, init), config.norm(d_out, init));
        Self { first, first_norm, second, second_norm, stride }
    }

    /// # Shapes
    /// - `x`: `[batch, rows, columns, d_in]`; returns `[batch, ⌈rows / stride⌉, ⌈columns / stride⌉, d_out]`
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let inner = self.first_norm.forward_relu(self.first.forward(x.clone()), None);
        let outer = self.second.forward(inner);
        let past = self.past(x, outer.dims());
        self.second_norm.forward_relu(outer, Some(past))
    }

    /// The input, in the shape of the output.
    fn past(&self, x: Tensor<4>, [.., d_out]: [usize; 4]) -> Tensor<4> {
        match self.stride {
            1 => x,
            stride => subsampled(x, stride, d_out),
        }
    }
}

/// A convolution of the pixels, a normalisation and a ReLU.
#[derive(Module, Debug)]
pub struct ConvolutionalStem {
    /// The convolution.
    pub convolution: ImageConvolution,
    /// The normalisation after it.
    pub norm: GroupNorm,
}

linear_maps!(ConvolutionalStem { convolution });

/// A residual network for small images (He et al. 2016, §4.2): three stages of blocks, each with half the rows and columns of the one
/// before and twice its channels. Its normalisation is by [groups](GroupNorm) where the paper's is by batches, in which
/// gradients of micro-batches do not add up to that of the batch.
#[derive(Module, Debug)]
pub struct ResNet {
    /// Pixels to channels.
    pub stem: ConvolutionalStem,
    /// All stages' blocks.
    pub blocks: Vec<ResidualBlock>,
    /// Whether training [recomputes](crate::ops::recompute) each block in the backward pass, so that only the blocks' inputs are kept.
    /// Devices [must support](crate::ops::can_recompute) it.
    #[module(skip)]
    pub recompute: bool,
}

linear_maps!(ResNet { blocks; stem });

/// The configuration of a [`ResNet`].
///
/// ```
/// # use cloze_model::vision::ResNetConfig;
/// let resnet20 = ResNetConfig::new(32, 3);
/// assert_eq!((resnet20.widths.as_slice(), resnet20.grid()), (&[16, 32, 64][..], [8, 8]));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ResNetConfig {
    /// Height and width of the images, in pixels. The model takes images of any size.
    pub image_size: [usize; 2],
    /// Numbers of a pixel: 3 for colours.
    pub n_channels: usize,
    /// The blocks of each stage.
    pub n_blocks: usize,
    /// The channels of each stage. From one to the next they do not get fewer.
    pub widths: Vec<usize>,
    /// The channels of a group in normalisations; divides those of each stage.
    pub group_width: usize,
    /// Added to the variance in every normalisation.
    pub norm_eps: f64,
}

with_fields!(ResNetConfig {
    with_image_size => image_size: [usize; 2],
    with_n_channels => n_channels: usize,
    with_widths => widths: Vec<usize>,
    with_group_width => group_width: usize,
    with_norm_eps => norm_eps: f64,
});

impl ResNetConfig {
    /// Square images with this side, colours, and the paper's three stages of 16, 32 and 64 channels: a model of
    /// `6 · n_blocks + 2` layers, so 3 blocks are ResNet-20, and 9 are ResNet-56.
    pub fn new(image: usize, n_blocks: usize) -> Self {
        Self {
            image_size: [image; 2],
            n_channels: 3,
            n_blocks,
            widths: vec![16, 32, 64],
            group_width: 8,
            norm_eps: 1e-5,
        }
    }

    /// Features of a state: the channels of the last stage.
    pub fn d_model(&self) -> usize {
        self.widths.last().copied().unwrap_or(0)
    }

    /// Rows and columns of states of an image of the configured size.
    pub fn grid(&self) -> [usize; 2] {
        self.stages().last().map_or(self.image_size, |(grid, _)| grid)
    }

    /// Rows and columns, and channels, of each stage.
    pub fn stages(&self) -> impl Iterator<Item = ([usize; 2], usize)> {
        let mut grid = self.image_size;
        let mut below = None;
        self.widths.iter().map(move |width| {
            // A stage has half the rows and columns of the one before if it has more channels.
            if below.replace(*width).is_some_and(|below| below != *width) {
                grid = grid.map(|side| side.div_ceil(2));
            }
            (grid, *width)
        })
    }

    /// The floating-point operations of an image's way through the network, with a product and a sum counted as two: the
    /// convolutions.
    pub fn flops(&self) -> f64 {
        let of_map = |[rows, columns]: [usize; 2], d_in: usize, d_out: usize| {
            2.0 * 9.0 * (rows * columns) as f64 * d_in as f64 * d_out as f64
        };
        let mut below = self.widths.first().copied().unwrap_or(0);
        let mut flops = of_map(self.image_size, self.n_channels, below);
        for (grid, width) in self.stages() {
            for _ in 0..self.n_blocks {
                flops += of_map(grid, below, width) + of_map(grid, width, width);
                below = width;
            }
        }
        flops
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        let [height, width] = self.image_size;
        check_sizes([
            ("image_size", height),
            ("image_size", width),
            ("n_channels", self.n_channels),
            ("n_blocks", self.n_blocks),
            ("widths", self.widths.len()),
            ("group_width", self.group_width),
        ])?;
        check_sizes(self.widths.iter().map(|width| ("widths", *width)))?;
        let most = 1_000;
        for (key, n) in [("n_blocks", self.n_blocks), ("widths", self.widths.len())] {
            if n > most {
                return Err(ModelError::setting(key, n, format!("at most {most}")));
            }
        }
        // A window of the widest convolution is 9 times as long, and its weight as many rows.
        let widest = self.widths.iter().chain([&self.n_channels]).copied().max().unwrap_or(0);
        if widest > 10_000 {
            return Err(ModelError::setting("widths", widest, "at most 10000"));
        }
        for (i, width) in self.widths.iter().enumerate() {
            if !width.is_multiple_of(self.group_width) {
                let expected = format!("a divisor of `widths`, of which one is {width}");
                return Err(ModelError::setting("group_width", self.group_width, expected));
            }
            if i > 0 && self.widths[i - 1] > *width {
                return Err(ModelError::setting(
                    "widths",
                    width,
                    format!("at least the stage before, {}", self.widths[i - 1]),
                ));
            }
        }
        if !(self.norm_eps.is_finite() && self.norm_eps > 0.0) {
            return Err(ModelError::setting("norm_eps", self.norm_eps, "a finite number above 0"));
        }
        Ok(())
    }

    fn norm(&self, channels: usize, init: &mut ParamInit) -> GroupNorm {
        GroupNorm::new(channels, channels / self.group_width, self.norm_eps, init)
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> ResNet {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let first = self.widths[0];
        let convolution = ImageConvolution::new(self.n_channels, first, 3, 1, init);
        let stem = ConvolutionalStem { convolution, norm: self.norm(first, init) };
        let (mut blocks, mut d_in) = (Vec::new(), first);
        for &width in &self.widths {
            for _ in 0..self.n_blocks {
                blocks.push(ResidualBlock::new(self, d_in, width, init));
                d_in = width;
            }
        }
        ResNet { stem, blocks, recompute: false }
    }
}

impl ImageEncoder for ResNet {
    fn forward(&self, pixels: Tensor<4>) -> ImageStates {
        let ConvolutionalStem { convolution, norm } = &self.stem;
        let x = norm.forward_relu(convolution.forward(pixels.permute([0, 2, 3, 1])), None);
        let x = self.blocks.iter().fold(x, |x, block| match self.recompute && x.device().is_autodiff() {
            true => crate::ops::recompute(block, x, ResidualBlock::forward),
            false => block.forward(x),
        });
        let [batch, rows, columns, d_model] = x.dims();
        ImageStates::new(x.reshape([batch, rows * columns, d_model]), [rows, columns])
    }
}

impl Backbone for ResNet {
    fn shape(&self) -> BackboneShape {
        let d_model = self.blocks.last().map_or_else(
            || self.stem.convolution.map.weight.lazy_shape().dims::<2>()[1],
            |block| block.second.map.weight.lazy_shape().dims::<2>()[1],
        );
        BackboneShape::new(d_model, self.blocks.len(), 0)
    }

    fn embeddings_path(&self) -> String {
        "stem".into()
    }

    fn layer_paths(&self) -> Vec<String> {
        (0..self.blocks.len()).map(|block| format!("blocks.{block}")).collect()
    }
}

impl HasBackbone for ResNet {
    type Backbone = Self;
    const PATH: &'static str = "";

    fn backbone(&self) -> &Self {
        self
    }

    fn backbone_mut(&mut self) -> &mut Self {
        self
    }
}

/// The configuration of a classifier with a [`ResNet`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ResNetClassifierConfig {
    /// The encoder's.
    pub encoder: ResNetConfig,
    /// The names of the classes, in the order of the logits.
    pub labels: Vec<String>,
}

impl ResNetClassifierConfig {
    /// A classifier of these classes.
    pub fn new(encoder: ResNetConfig, labels: Vec<String>) -> Self {
        Self { encoder, labels }
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        self.encoder.validate()?;
        check_sizes([("labels", self.labels.len())])
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> ImageClassifier<ResNet> {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        ImageClassifier::new(self.encoder.init(init), self.labels.len(), init)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, Tolerance};

    #[test]
    fn work_is_that_of_the_papers_model() {
        let config = ResNetConfig::new(32, 3);
        // Its 41 million products (He et al. 2016, §4.2, counted by others), each with a sum.
        assert!((config.flops() / 2.0 - 40.55e6).abs() < 0.05e6, "{}", config.flops());
        let stages: Vec<_> = config.stages().collect();
        assert_eq!(stages, [([32, 32], 16), ([16, 16], 32), ([8, 8], 64)]);
        assert_eq!(config.grid(), [8, 8]);
    }

    #[test]
    fn it_has_the_papers_parameters_and_grid() {
        let device = Device::flex();
        let model = ResNetConfig::new(32, 3).init(&mut ParamInit::new(&device, 1));
        // 0.27 million in table 6, with a head of 650.
        assert_eq!(model.num_params() + 650, 269_722);
        let states = model.forward(Tensor::zeros([2, 3, 32, 32], &device));
        assert_eq!((states.states.dims(), states.grid), ([2, 64, 64], [8, 8]));
        let states = model.forward(Tensor::zeros([1, 3, 21, 33], &device));
        assert_eq!(states.grid, [6, 9]);
    }

    #[test]
    fn no_image_sees_another() {
        let device = Device::flex();
        let model = ResNetConfig::new(12, 1).init(&mut ParamInit::new(&device, 1));
        let pixels = Tensor::<4>::random([3, 3, 12, 12], Distribution::Default, &device);
        let all = model.forward(pixels.clone()).states;
        for image in 0..3 {
            let one = model.forward(pixels.clone().narrow(0, image, 1)).states;
            let tolerance = Tolerance::<f32>::absolute(1e-5);
            one.into_data().assert_approx_eq(&all.clone().narrow(0, image, 1).into_data(), tolerance);
        }
    }
}
