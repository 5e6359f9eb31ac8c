//! How a recurrent model is stored in a folder.

use super::super::model_folder::TaskFile;
use super::super::section::TaskSection;
use super::super::task::Task;
use crate::Result;
use crate::engine::ModelFormat;
use cloze_model::huggingface::{FloatType, Published, save_published};
use cloze_tokenizer::Tokenizer;
use std::path::Path;

/// A recurrent model with its own `config.json`, its tokenizer and its task.
pub(super) struct RecurrentFormat<'a, C> {
    config: C,
    tokenizer: &'a Tokenizer,
    file: TaskFile,
}

impl<'a, C> RecurrentFormat<'a, C> {
    /// The form of a task's models.
    pub fn of<T: Task<Section = TaskSection>>(
        config: C,
        tokenizer: &'a Tokenizer,
        task: &T,
        max_len: usize,
    ) -> Box<Self> {
        Box::new(Self { config, tokenizer, file: TaskFile::of(task, max_len) })
    }
}

impl<C: Published + Sync> ModelFormat<C::Model> for RecurrentFormat<'_, C> {
    fn save(&self, model: &C::Model, folder: &Path) -> Result<()> {
        save_published(folder, model, &self.config, FloatType::F32)?;
        self.tokenizer.save(folder)?;
        self.file.write(folder)
    }

    fn load(&self, model: C::Model, folder: &Path) -> Result<C::Model> {
        Ok(self.config.rules().load(model, folder, &[])?.0)
    }
}
