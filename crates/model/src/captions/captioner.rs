use super::{CaptionDecoder, Draws, Taught};
use crate::seq2seq::DecodeOptions;
use crate::vision::ImageEncoder;
use crate::{HasBackbone, Sequences, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;

/// A model that describes images: any [`ImageEncoder`] with any [`CaptionDecoder`] on it.
#[derive(Module, Debug)]
pub struct Captioner<E: ImageEncoder, D: CaptionDecoder> {
    /// Makes states of images.
    pub encoder: E,
    /// Writes captions from them.
    pub decoder: D,
}

linear_maps!(Captioner<E: ImageEncoder, D: CaptionDecoder> { encoder, decoder });

impl<E: ImageEncoder, D: CaptionDecoder> Captioner<E, D> {
    /// A model of these parts. The decoder takes states of the encoder's width.
    pub fn new(encoder: E, decoder: D) -> Self {
        Self { encoder, decoder }
    }

    /// [`CaptionDecoder::teach`] of captions of images. `of` names the image of each caption.
    ///
    /// # Shapes
    /// - `pixels`: `[images, channels, height, width]`; `of`: `[captions]`
    ///
    /// # Panics
    /// Those of [`CaptionDecoder::teach`], and if there is no such image.
    pub fn teach(
        &self,
        pixels: Tensor<4>,
        captions: &Sequences,
        of: &[usize],
        draws: Option<&Draws>,
    ) -> Taught {
        let images = self.encoder.forward(pixels);
        let [n, ..] = images.states.dims();
        let images = if of.iter().copied().eq(0..n) { images } else { images.select(of) };
        self.decoder.teach(&images, captions, draws)
    }

    /// The decoder's state for images, one row each.
    ///
    /// # Shapes
    /// - `pixels`: `[images, channels, height, width]`
    pub fn begin(&self, pixels: Tensor<4>, options: DecodeOptions) -> D::State {
        self.decoder.begin(&self.encoder.forward(pixels), options)
    }
}

impl<E: ImageEncoder, D: CaptionDecoder> HasBackbone for Captioner<E, D> {
    type Backbone = E;
    const PATH: &'static str = "encoder";

    fn backbone(&self) -> &E {
        &self.encoder
    }

    fn backbone_mut(&mut self) -> &mut E {
        &mut self.encoder
    }
}
