use super::{ImageEncoder, ImageStates};
use crate::blocks::{GroupNorm, ImageConvolution};
use crate::{Backbone, BackboneShape, HasBackbone, ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;

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
    fn past(&self, x: Tensor<4>, [batch, rows, columns, d_out]: [usize; 4]) -> Tensor<4> {
        if self.stride == 1 {
            return x;
        }
        let options = (&x.device(), x.dtype());
        let every_second = crate::ops::image_windows(x, 1, self.stride);
        let [.., d_in] = every_second.dims();
        let zeros = Tensor::zeros([batch, rows, columns, d_out - d_in], options);
        Tensor::cat(vec![every_second, zeros], 3)
    }
}

/// A residual network for small images (He et al. 2016, §4.2): three stages of blocks, each with half the rows and columns of the one
/// before and twice its channels. Its normalisation is by [groups](GroupNorm) where the paper's is by batches, in which
/// gradients of micro-batches do not add up to that of the batch.
#[derive(Module, Debug)]
pub struct ResNet {
    /// Pixels to channels.
    pub stem: ImageConvolution,
    /// The normalisation after it.
    pub stem_norm: GroupNorm,
    /// All stages' blocks.
    pub blocks: Vec<ResidualBlock>,
}

linear_maps!(ResNet { blocks; stem });

/// The sizes of a [`ResNet`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResNetConfig {
    /// Channels of an image: 3, or 1 for grey.
    pub n_channels: usize,
    /// The channels of each stage.
    pub widths: Vec<usize>,
    /// The blocks of each stage.
    pub blocks: usize,
    /// The channels of a group in normalisations.
    pub group_width: usize,
}

impl ResNetConfig {
    /// `6 · blocks + 2` layers: 3 blocks a stage are ResNet-20.
    pub fn new(blocks: usize) -> Self {
        Self { n_channels: 3, widths: vec![16, 32, 64], blocks, group_width: 8 }
    }

    fn norm(&self, channels: usize, init: &mut ParamInit) -> GroupNorm {
        GroupNorm::new(channels, channels / self.group_width, 1e-5, init)
    }

    /// A new model.
    ///
    /// # Panics
    /// If there is no stage, or a group's channels do not divide a stage's.
    pub fn init(&self, init: &mut ParamInit) -> ResNet {
        let first = *self.widths.first().expect("a stage at least");
        let stem = ImageConvolution::new(self.n_channels, first, 3, 1, init);
        let stem_norm = self.norm(first, init);
        let (mut blocks, mut d_in) = (Vec::new(), first);
        for &width in &self.widths {
            for _ in 0..self.blocks {
                blocks.push(ResidualBlock::new(self, d_in, width, init));
                d_in = width;
            }
        }
        ResNet { stem, stem_norm, blocks }
    }
}

impl ImageEncoder for ResNet {
    fn forward(&self, pixels: Tensor<4>) -> ImageStates {
        let stem = self.stem.forward(pixels.permute([0, 2, 3, 1]));
        let x = self.stem_norm.forward_relu(stem, None);
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        let [batch, rows, columns, d_model] = x.dims();
        ImageStates::new(x.reshape([batch, rows * columns, d_model]), [rows, columns])
    }
}

impl Backbone for ResNet {
    fn shape(&self) -> BackboneShape {
        let d_model = self.blocks.last().map_or_else(
            || self.stem.map.weight.lazy_shape().dims::<2>()[1],
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

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, Tolerance};

    #[test]
    fn it_has_the_papers_parameters_and_grid() {
        let device = Device::flex();
        let model = ResNetConfig::new(3).init(&mut ParamInit::new(&device, 1));
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
        let model = ResNetConfig::new(1).init(&mut ParamInit::new(&device, 1));
        let pixels = Tensor::<4>::random([3, 3, 12, 12], Distribution::Default, &device);
        let all = model.forward(pixels.clone()).states;
        for image in 0..3 {
            let one = model.forward(pixels.clone().narrow(0, image, 1)).states;
            let tolerance = Tolerance::<f32>::absolute(1e-5);
            one.into_data().assert_approx_eq(&all.clone().narrow(0, image, 1).into_data(), tolerance);
        }
    }
}
