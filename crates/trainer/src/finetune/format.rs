//! How a task's model is stored in a folder.

use super::config::Tuning;
use super::model_folder::ModelFolder;
use super::task::PretrainedTask;
use crate::Result;
use crate::engine::ModelFormat;
use crate::quantization::{attach, detach, read, write};
use burn::module::Module;
use cloze_model::HasBackbone;
use cloze_model::blocks::merge_lora;
use cloze_model::huggingface::PretrainedFolder;
use std::path::Path;

/// A checkpoint's encoder with a head, in transformers' format.
pub(super) struct PretrainedFormat<'a, T: PretrainedTask> {
    pub config: Tuning<'a>,
    pub task: &'a T,
    pub folder: ModelFolder<'a, T::Section>,
}

impl<T: PretrainedTask> PretrainedFormat<'_, T> {
    /// The model without adapters or training-only parts.
    fn kept(&self, model: T::Model) -> Result<T::Model> {
        let mut model = self.task.without_training_parts(model);
        let encoder = model.backbone_mut();
        encoder.teacher_maps = None;
        detach(encoder);
        match self.config.model.lora {
            Some(_) => self.task.map_encoder(model, |bert| Ok(merge_lora(bert))),
            None => Ok(model),
        }
    }
}

impl<T: PretrainedTask> ModelFormat<T::Model> for PretrainedFormat<'_, T> {
    fn save(&self, model: &T::Model, folder: &Path) -> Result<()> {
        let ranges = detach(model.clone().backbone_mut());
        if !ranges.is_empty() {
            write(folder, &ranges)?;
        }
        self.folder.save(&self.kept(model.clone())?, folder)?;
        self.task.save_more(&self.folder.encoder, self.config.data.max_len, folder)
    }

    fn load(&self, model: T::Model, folder: &Path) -> Result<T::Model> {
        let saved = PretrainedFolder::open(folder)?;
        let architecture = saved.config.architecture;
        let mut model = saved.load_into(self.kept(model)?, architecture, &[])?.0;
        if let Some(ranges) = read(folder)? {
            let encoder = model.backbone_mut();
            let device = encoder.devices().into_iter().next().unwrap_or_default();
            attach(encoder, &ranges, false, &device);
        }
        Ok(model)
    }
}
