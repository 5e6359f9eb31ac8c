//! Training on images: from a config and labelled images to the saved classifier.
//!
//! [`ImageRunConfig`] describes a run, [`train_images`] runs it, as a recipe of the [engine](crate::engine):
//! [`ImageClassification`], which takes any [`ImageEncoder`](cloze_model::vision::ImageEncoder). [`ImagePredictor`] answers
//! with the result. [`MaskedPatchesRunConfig`] and [`ContrastiveViewsRunConfig`] pretrain an encoder without labels.

mod classification;
mod config;
mod contrastive_views;
mod data;
mod features;
mod masked_patches;
mod outputs;
mod predictor;
mod start;
mod teacher;

pub use classification::ImageClassification;
pub use config::{
    ImageDataSection, ImageDistillationSection, ImageEval, ImageModelSection, ImageRun, ImageRunConfig,
    ImageTaskSection, ImageTrain, NewImageEncoder, NewResNet, NewVit, PretrainedImageModel,
};
pub use contrastive_views::{
    ContrastiveViewsRun, ContrastiveViewsRunConfig, ContrastiveViewsSection, train_contrastive_views,
};
pub use data::{ImageSplits, pixels};
pub use masked_patches::{
    MaeDecoderSection, MaeSection, MaskedPatchesRecipe, MaskedPatchesRun, MaskedPatchesRunConfig,
    MaskedPatchesSection, train_masked_patches,
};
pub use outputs::ImageOutput;
pub use predictor::{EvaluationSplit, ImageMeasurement, ImagePredictor, is_image_model};
pub use start::train_images;
pub use teacher::ImageTeacher;
