//! Training on images: from a config and labelled images to the saved classifier.
//!
//! [`ImageRunConfig`] describes a run, [`train_images`] runs it, as a recipe of the [engine](crate::engine):
//! [`ImageClassification`], which takes any [`ImageEncoder`](cloze_model::vision::ImageEncoder). [`ImagePredictor`] answers
//! with the result, and [`ImageEmbedder`] makes vectors of images. [`MaskedPatchesRunConfig`] and [`ContrastiveViewsRunConfig`] pretrain an encoder without labels.

mod classification;
pub(crate) mod config;
mod contrastive_views;
pub(crate) mod data;
mod embedder;
mod features;
mod masked_patches;
mod memory;
pub(crate) mod outputs;
pub(crate) mod predictor;
mod pretrained;
mod respond;
pub(crate) mod start;
mod teacher;
mod without_classifier;

pub use classification::ImageClassification;
pub use config::{
    ImageDataSection, ImageDistillationSection, ImageEval, ImageModelSection, ImageRun, ImageRunConfig,
    ImageTaskSection, ImageTrain, NewImageEncoder, NewResNet, NewVit, PretrainedImageModel,
};
pub use contrastive_views::{
    ContrastiveViewsRun, ContrastiveViewsRunConfig, ContrastiveViewsSection, train_contrastive_views,
};
pub use data::{ImageSplits, pixels};
pub use embedder::{ImageEmbedConfig, ImageEmbedder, ImageEmbeddings};
pub use masked_patches::{
    MaeDecoderSection, MaeSection, MaskedPatchesRecipe, MaskedPatchesRun, MaskedPatchesRunConfig,
    MaskedPatchesSection, train_masked_patches,
};
pub use outputs::ImageOutput;
pub use predictor::{EvaluationSplit, ImageMeasurement, ImagePredictor, has_classes, is_image_model};
pub use respond::{ImageRequest, ImageUnit};
pub use start::train_images;
pub use teacher::ImageTeacher;
