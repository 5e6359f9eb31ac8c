use super::{ImageEncoder, Vit, VitConfig};
use crate::blocks::Linear;
use crate::{HasBackbone, ParamInit, Result, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;

/// An image encoder with a head of classes. With a distillation piece it may have a second head, which learns from a
/// teacher (Touvron et al. 2021, §4).
#[derive(Module, Debug)]
pub struct ImageClassifier<E: ImageEncoder> {
    /// The encoder.
    pub encoder: E,
    /// `[d_model, n_classes]`
    pub head: Linear,
    /// `[d_model, n_classes]`: the head of the distillation piece.
    pub distillation_head: Option<Linear>,
}

linear_maps!(ImageClassifier<E: ImageEncoder> { encoder; head, distillation_head });

impl<E: ImageEncoder> ImageClassifier<E> {
    /// A new head of this many classes on an encoder.
    pub fn new(encoder: E, n_classes: usize, init: &mut ParamInit) -> Self {
        let head = Linear::new(encoder.shape().d_model, n_classes, init);
        Self { encoder, head, distillation_head: None }
    }

    /// With a second head, on the distillation piece.
    pub fn with_distillation_head(mut self, init: &mut ParamInit) -> Self {
        let [d_model, n_classes] = self.head.weight.lazy_shape().dims();
        self.distillation_head = Some(Linear::new(d_model, n_classes, init));
        self
    }

    /// The logits of each image: with two heads the mean of theirs, as transformers' DeiT has it.
    ///
    /// # Shapes
    /// - `pixels`: `[batch, channels, height, width]`; returns `[batch, n_classes]`
    pub fn forward(&self, pixels: Tensor<4>) -> Tensor<2> {
        let (class, distillation) = self.logits(pixels);
        match distillation {
            Some(distillation) => (class + distillation).div_scalar(2.0),
            None => class,
        }
    }

    /// The logits of both heads.
    ///
    /// # Shapes
    /// - `pixels`: `[batch, channels, height, width]`; returns `[batch, n_classes]` each
    ///
    /// # Panics
    /// If there is a second head, but no distillation piece.
    pub fn logits(&self, pixels: Tensor<4>) -> (Tensor<2>, Option<Tensor<2>>) {
        let summaries = self.encoder.summaries(pixels);
        let distillation = self.distillation_head.as_ref().map(|head| {
            head.forward(summaries.distillation.clone().expect("a second head has a distillation piece"))
        });
        (self.head.forward(summaries.class), distillation)
    }
}

impl<E: ImageEncoder> HasBackbone for ImageClassifier<E> {
    type Backbone = E;
    const PATH: &'static str = "encoder";

    fn backbone(&self) -> &E {
        &self.encoder
    }

    fn backbone_mut(&mut self) -> &mut E {
        &mut self.encoder
    }
}

/// The configuration of a classifier with a [`Vit`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ImageClassifierConfig {
    /// The encoder's.
    pub vit: VitConfig,
    /// The names of the classes, in the order of the logits.
    pub labels: Vec<String>,
    /// Whether a second head is on the distillation piece.
    pub distillation_head: bool,
}

impl ImageClassifierConfig {
    /// This many classes without names; two heads if there is a distillation piece.
    pub fn new(vit: VitConfig, n_classes: usize) -> Self {
        let distillation_head = vit.distillation_piece;
        Self {
            vit,
            labels: (0..n_classes).map(|class| format!("LABEL_{class}")).collect(),
            distillation_head,
        }
    }

    /// Sets the classes.
    pub fn with_labels(mut self, labels: Vec<String>) -> Self {
        self.labels = labels;
        self
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`](crate::ModelError::Setting) with the invalid field.
    pub fn validate(&self) -> Result<()> {
        self.vit.validate()?;
        crate::sizes::check_sizes([("labels", self.labels.len())])?;
        if self.distillation_head && !self.vit.distillation_piece {
            let expected = "false: there is no distillation piece";
            return Err(crate::ModelError::setting("distillation_head", true, expected));
        }
        Ok(())
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> ImageClassifier<Vit> {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let classifier = ImageClassifier::new(self.vit.init(init), self.labels.len(), init);
        match self.distillation_head {
            true => classifier.with_distillation_head(init),
            false => classifier,
        }
    }
}
