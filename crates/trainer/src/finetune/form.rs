//! How a task's model is stored in a folder.

use super::config::Tuning;
use super::model_folder::ModelFolder;
use super::task::PretrainedTask;
use crate::Result;
use cloze_model::HasBackbone;
use cloze_model::blocks::merge_lora;
use cloze_model::huggingface::PretrainedFolder;
use std::path::Path;

/// Saves and loads one kind of model.
pub trait Form<M> {
    /// Saves a model with everything needed to use it: its tokenizer, its task.
    ///
    /// # Errors
    /// Non-finite weights; write errors.
    fn save(&self, model: &M, folder: &Path) -> Result<()>;

    /// Loads a folder's weights into a model.
    ///
    /// # Errors
    /// Those of reading the folder.
    fn load(&self, model: M, folder: &Path) -> Result<M>;
}

/// A checkpoint's encoder with a head, in transformers' format.
pub(super) struct PretrainedForm<'a, T: PretrainedTask> {
    pub config: Tuning<'a>,
    pub task: &'a T,
    pub folder: ModelFolder<'a, T::Section>,
}

impl<T: PretrainedTask> PretrainedForm<'_, T> {
    /// The model without adapters or training-only parts.
    fn kept(&self, model: T::Model) -> Result<T::Model> {
        let mut model = self.task.without_training_parts(model);
        model.backbone_mut().teacher_maps = None;
        match self.config.model.lora {
            Some(_) => self.task.map_encoder(model, |bert| Ok(merge_lora(bert))),
            None => Ok(model),
        }
    }
}

impl<T: PretrainedTask> Form<T::Model> for PretrainedForm<'_, T> {
    fn save(&self, model: &T::Model, folder: &Path) -> Result<()> {
        self.folder.save(&self.kept(model.clone())?, folder)?;
        self.task.save_more(&self.folder.encoder, self.config.data.max_len, folder)
    }

    fn load(&self, model: T::Model, folder: &Path) -> Result<T::Model> {
        let saved = PretrainedFolder::open(folder)?;
        let architecture = saved.config.architecture;
        Ok(saved.load_into(self.kept(model)?, architecture, &[])?.0)
    }
}
