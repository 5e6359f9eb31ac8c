use super::{ImageEncoder, ImagePooling, ImageStates, PatchEmbeddings, Summaries};
use crate::blocks::{
    Attention, Encoder, EncoderOutput, EncoderTrace, LinearMap, LinearMaps, MultiHeadAttention, WantedTokens,
};
use crate::ops::AttentionMask;
use crate::{Backbone, BackboneShape, HasBackbone};
use burn::module::Module;
use burn::tensor::{Int, Tensor};

/// The Vision Transformer (Dosovitskiy et al. 2021): patches as tokens, the pre-norm encoder of texts, a normalisation.
#[derive(Module, Debug)]
pub struct Vit<A: Attention = MultiHeadAttention> {
    /// Patches and positions to vectors.
    pub embeddings: PatchEmbeddings,
    /// The layers, and the normalisation after them.
    pub encoder: Encoder<A>,
    /// What heads see.
    #[module(skip)]
    pub pooling: ImagePooling,
}

impl<A: Attention> LinearMaps for Vit<A> {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        let Self { embeddings, encoder, .. } = self;
        LinearMap::of("encoder", encoder).chain(LinearMap::kept("embeddings", embeddings)).collect()
    }
}

impl<A: Attention> Vit<A> {
    /// The same model for images of this height and width, with its positions resized bicubically.
    ///
    /// # Panics
    /// If an image is smaller than a patch.
    pub fn with_image_size(mut self, image_size: [usize; 2]) -> Self {
        self.embeddings = self.embeddings.with_image_size(image_size);
        self
    }

    /// [`ImageEncoder::forward`], with what is traced.
    ///
    /// # Panics
    /// If an image is smaller than a patch, or has another number of channels.
    pub fn forward_traced(&self, pixels: Tensor<4>, trace: EncoderTrace) -> (EncoderOutput, [usize; 2]) {
        let (embedded, grid) = self.embeddings.forward(pixels);
        (self.encoder.forward(embedded, &AttentionMask::default(), trace, None), grid)
    }

    /// The last states of each image's first pieces, without the work that only patches need in the last layer.
    ///
    /// # Shapes
    /// - returns `[batch, n, d_model]`
    fn first_states(&self, pixels: Tensor<4>, n: usize) -> Tensor<3> {
        let (embedded, _) = self.embeddings.forward(pixels);
        let [batch, len, d_model] = embedded.dims();
        let tokens: Vec<i32> =
            (0..batch).flat_map(|image| (0..n).map(move |piece| (image * len + piece) as i32)).collect();
        let wanted = WantedTokens::new(Tensor::<1, Int>::from_data(tokens.as_slice(), &embedded.device()));
        let mask = AttentionMask::default();
        let output = self.encoder.forward(embedded, &mask, EncoderTrace::default(), Some(&wanted));
        output.last_hidden_state.reshape([batch, n, d_model])
    }
}

impl<A: Attention> ImageEncoder for Vit<A> {
    fn forward(&self, pixels: Tensor<4>) -> ImageStates {
        let (output, grid) = self.forward_traced(pixels, EncoderTrace::default());
        ImageStates { states: output.last_hidden_state, n_pieces: self.embeddings.n_pieces(), grid }
    }

    fn summaries(&self, pixels: Tensor<4>) -> Summaries {
        let has_distillation = self.embeddings.distillation_piece.is_some();
        let state = |states: &Tensor<3>, piece| states.clone().narrow(1, piece, 1).squeeze_dim::<2>(1);
        match self.pooling {
            ImagePooling::Class => {
                let states = self.first_states(pixels, 1 + usize::from(has_distillation));
                let distillation = has_distillation.then(|| state(&states, 1));
                Summaries { class: state(&states, 0), distillation }
            }
            ImagePooling::Mean => {
                let states = self.forward(pixels);
                let distillation = has_distillation.then(|| state(&states.states, 1));
                Summaries { class: states.mean(), distillation }
            }
        }
    }
}

impl<A: Attention> Backbone for Vit<A> {
    fn shape(&self) -> BackboneShape {
        let [_, d_model] = self.embeddings.projection.weight.lazy_shape().dims();
        // Images have no vocabulary.
        BackboneShape::new(d_model, self.encoder.order.len(), 0)
    }

    fn embeddings_path(&self) -> String {
        "embeddings".into()
    }

    fn layer_paths(&self) -> Vec<String> {
        (0..self.encoder.layers.len()).map(|layer| format!("encoder.layers.{layer}")).collect()
    }
}

impl<A: Attention> HasBackbone for Vit<A> {
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
    use crate::ParamInit;
    use crate::vision::{PatchPositions, VitConfig};
    use burn::tensor::{Device, Distribution, Tolerance};

    fn config() -> VitConfig {
        VitConfig::new(12, 4, 3, 16).with_n_heads(4).with_init_std(0.3)
    }

    fn vit(config: &VitConfig) -> Vit {
        config.init(&mut ParamInit::new(&Device::flex(), 1))
    }

    fn images() -> Tensor<4> {
        Tensor::random([3, 3, 12, 12], Distribution::Default, &Device::flex())
    }

    fn close<const D: usize>(found: Tensor<D>, expected: Tensor<D>) {
        found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(2e-5));
    }

    #[test]
    fn summaries_are_states() {
        for config in [config(), config().with_distillation_piece(true)] {
            let (vit, images) = (vit(&config), images());
            let (states, summaries) = (vit.forward(images.clone()), vit.summaries(images.clone()));
            assert_eq!(states.states.dims(), [3, config.n_pieces() + 9, 16]);
            assert_eq!((states.n_pieces, states.grid), (config.n_pieces(), [3, 3]));
            close(summaries.class, states.states.clone().narrow(1, 0, 1).squeeze_dim(1));
            assert_eq!(summaries.distillation.is_some(), config.distillation_piece);
            if let Some(found) = summaries.distillation {
                close(found, states.states.narrow(1, 1, 1).squeeze_dim(1));
            }
        }
        let config = config().with_class_piece(false).with_pooling(ImagePooling::Mean);
        let (vit, images) = (vit(&config), images());
        let states = vit.forward(images.clone()).states;
        assert_eq!(states.dims(), [3, 9, 16]);
        close(vit.summaries(images).class, states.mean_dim(1).squeeze_dim(1));
    }

    #[test]
    fn without_positions_patches_are_a_set() {
        let images = images();
        // The first two rows of patches change places.
        let turned = Tensor::cat(
            vec![
                images.clone().narrow(2, 4, 4),
                images.clone().narrow(2, 0, 4),
                images.clone().narrow(2, 8, 4),
            ],
            2,
        );
        for (positions, is_same) in [
            (PatchPositions::None, true),
            (PatchPositions::Learned, false),
            (PatchPositions::Sinusoidal, false),
        ] {
            let vit = vit(&config().with_positions(positions));
            let [a, b] = [&images, &turned].map(|images| vit.summaries(images.clone()).class);
            let distance = (a - b).abs().max().into_scalar::<f32>();
            assert_eq!(distance < 1e-4, is_same, "{positions:?}: {distance}");
        }
    }

    #[test]
    fn an_image_is_cut_and_its_positions_are_resized() {
        let vit = vit(&config());
        let device = Device::flex();
        // Less than a patch at the right and the bottom is left out.
        let whole = Tensor::<4>::random([1, 3, 12, 20], Distribution::Default, &device);
        let more = Tensor::cat(vec![whole.clone(), Tensor::ones([1, 3, 12, 3], &device)], 3);
        let [a, b] = [whole, more].map(|images| vit.forward(images));
        assert_eq!((a.grid, b.grid), ([3, 5], [3, 5]));
        assert_eq!(a.states.into_data(), b.states.into_data());
    }

    #[test]
    fn stochastic_depth_acts_on_whole_images_in_training() {
        let config = config().with_stochastic_depth(0.5);
        let device = Device::flex().autodiff();
        let vit = config.init(&mut ParamInit::new(&device, 1));
        let one = Tensor::<4>::random([1, 3, 12, 12], Distribution::Default, &device);
        let images = one.expand([64, 3, 12, 12]);
        device.seed(3);
        let states = vit.forward(images.clone()).states;
        // Three layers of which the last two leave out two sub-layers each: at most 16 results.
        let rows = states.into_data().try_to_vec::<f32>().unwrap();
        let mut distinct: Vec<Vec<u32>> =
            rows.chunks_exact(10 * 16).map(|image| image.iter().map(|x| x.to_bits()).collect()).collect();
        distinct.sort();
        distinct.dedup();
        assert!((8..=16).contains(&distinct.len()), "{}", distinct.len());
        let plain = vit.clone().valid();
        let [a, b] = [0, 1].map(|_| plain.forward(images.clone().inner()).states.into_data());
        assert_eq!(a, b);
    }
}
