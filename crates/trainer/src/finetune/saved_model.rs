//! A saved model as passed to a kind of task, and the same model loaded.

use super::predict::PredictTask;
use super::task::PretrainedTask;
use super::task_model::{AnyTaskModel, TaskModel};
use crate::Result;
use burn::tensor::Device;
use cloze_model::bert::BertConfig;
use cloze_model::blocks::{pack_weights, quantize_int8};
use cloze_model::huggingface::{LoadReport, PretrainedFolder};
use cloze_model::tasks::DropoutOverrides;
use cloze_model::{HasBackbone, ParamInit};
use cloze_tokenizer::Tokenizer;
use std::path::Path;

/// A folder to load a model from.
pub struct SavedModel<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// Its tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Its weights and `config.json`.
    pub pretrained: PretrainedFolder,
    /// Whether inputs are pairs of texts, if the folder says so.
    pub pairs: Option<bool>,
    /// Whether the encoder multiplies in 8 bits.
    pub int8: bool,
    /// The model's device.
    pub device: &'a Device,
}

/// A loaded model.
pub struct OpenedModel {
    pub(super) encoder: BertConfig,
    pub(super) model: Box<dyn AnyTaskModel>,
    pub(super) report: LoadReport,
}

impl SavedModel<'_> {
    /// Loads the model for this task.
    ///
    /// # Errors
    /// Those of the checkpoint.
    pub fn open<T>(self, task: T) -> Result<OpenedModel>
    where
        T: PredictTask<Model: Sync> + PretrainedTask + Send + Sync + 'static,
    {
        let init = &mut ParamInit::new(self.device, 0);
        let (encoder, mut model, report) = task.model(self.pretrained, &DropoutOverrides::default(), init)?;
        let backbone = model.backbone_mut();
        if self.int8 {
            quantize_int8(backbone);
        } else {
            pack_weights(backbone);
        }
        Ok(OpenedModel { encoder, model: Box::new(TaskModel { task, model }), report })
    }
}
