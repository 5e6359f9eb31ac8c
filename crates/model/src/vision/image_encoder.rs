use super::patch_positions::sinusoids;
use crate::Backbone;
use burn::module::ModuleDisplay;
use burn::tensor::{Int, Tensor, TensorData};

/// A network that turns images into states, on which heads and decoders are put: the trait to implement for a backbone of
/// one's own.
pub trait ImageEncoder: Backbone + ModuleDisplay + Sync + 'static {
    /// The states of all places of the images.
    ///
    /// # Shapes
    /// - `pixels`: `[batch, channels, height, width]`
    fn forward(&self, pixels: Tensor<4>) -> ImageStates;

    /// What a head of classes sees of each image. By default the mean of its places.
    ///
    /// # Shapes
    /// - `pixels`: `[batch, channels, height, width]`
    fn summaries(&self, pixels: Tensor<4>) -> Summaries {
        Summaries::new(self.forward(pixels).mean())
    }
}

/// What an [`ImageEncoder`] makes of images.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImageStates {
    /// `[batch, pieces + rows · columns, d_model]`: pieces that stand for no place, then the places row by row.
    pub states: Tensor<3>,
    /// The number of pieces that stand for no place, such as the class piece.
    pub n_pieces: usize,
    /// Rows and columns of places.
    pub grid: [usize; 2],
}

impl ImageStates {
    /// States of a grid of places alone.
    ///
    /// # Shapes
    /// - `states`: `[batch, rows · columns, d_model]`
    pub fn new(states: Tensor<3>, grid: [usize; 2]) -> Self {
        Self { states, n_pieces: 0, grid }
    }

    /// The states of the places, `[batch, rows · columns, d_model]`.
    pub fn places(&self) -> Tensor<3> {
        self.states.clone().narrow(1, self.n_pieces, self.grid[0] * self.grid[1])
    }

    /// These states, with the sines and cosines of its column and row added to each place, as Carion et al. (2020, "End-to-End
    /// Object Detection with Transformers", appendix A.4) do: a convolutional encoder hardly says where a place is.
    pub(crate) fn with_positions(mut self) -> Self {
        let [_, n, d] = self.states.dims();
        let positions = TensorData::new(sinusoids(self.n_pieces, self.grid, d), [1, n, d]);
        let positions = Tensor::from_data(positions, &self.states.device());
        self.states = self.states + positions;
        self
    }

    /// The states of these images, which may be named several times.
    ///
    /// # Panics
    /// If there is no such image.
    pub fn select(self, images: &[usize]) -> Self {
        let images: Vec<i32> = images.iter().map(|image| *image as i32).collect();
        let images = Tensor::<1, Int>::from_data(images.as_slice(), &self.states.device());
        Self { states: self.states.select(0, images), ..self }
    }

    /// The mean of the places, `[batch, d_model]`.
    pub fn mean(&self) -> Tensor<2> {
        self.places().mean_dim(1).squeeze_dim(1)
    }
}

/// A vector for each image.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Summaries {
    /// `[batch, d_model]`: what the head of classes sees.
    pub class: Tensor<2>,
    /// `[batch, d_model]`: what the head sees that learns from a teacher, if the encoder has a distillation piece.
    pub distillation: Option<Tensor<2>>,
}

impl Summaries {
    /// One vector for each image, `[batch, d_model]`.
    pub fn new(class: Tensor<2>) -> Self {
        Self { class, distillation: None }
    }
}
