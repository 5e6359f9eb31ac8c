//! Captions: from a config and images with captions to a model that describes images.
//!
//! [`CaptionRunConfig`] describes a run, [`train_captions`] runs it, as a recipe of the [engine](crate::engine):
//! [`CaptionRecipe`], which takes any [`ImageEncoder`](cloze_model::vision::ImageEncoder) with any
//! [`CaptionDecoder`](cloze_model::captions::CaptionDecoder). [`ImageDescriber`] uses the result.

mod attention;
mod baseline;
mod config;
mod data;
mod describer;
mod measures;
mod recipe;
mod run;
mod vocabulary;
mod written;

pub use attention::Looks;
pub use config::{
    CaptionDataSection, CaptionDecoderSection, CaptionEval, CaptionModelSection, CaptionRun,
    CaptionRunConfig, CaptionSource, CaptionTaskSection, NewCaptioner, PretrainedCaptioner,
};
pub use data::{CaptionData, CaptionSplits, CaptionTexts};
pub use describer::{DescribeConfig, Described, Descriptions, ImageDescriber, is_captioner};
pub use measures::figure;
pub use recipe::CaptionRecipe;
pub use run::train_captions;
pub use vocabulary::CaptionVocabulary;
pub use written::{WrittenCaption, WrittenWord};
