//! How a kind of model is kept in a folder.

use super::{load_parameters, save_parameters};
use crate::Result;
use burn::module::Module;
use std::path::Path;

/// Saves and loads one kind of model.
pub trait ModelFormat<M>: Sync {
    /// Saves a model in an existing empty folder, with everything needed to use it: its tokenizer, its task.
    ///
    /// # Errors
    /// Non-finite weights; a file that cannot be written.
    fn save(&self, model: &M, folder: &Path) -> Result<()>;

    /// Loads a folder's weights into a model like the saved one.
    ///
    /// # Errors
    /// Those of reading the folder.
    fn load(&self, model: M, folder: &Path) -> Result<M>;
}

/// The parameters alone, under their own paths: [`save_parameters`] and [`load_parameters`].
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnParameters;

impl<M: Module> ModelFormat<M> for OwnParameters {
    fn save(&self, model: &M, folder: &Path) -> Result<()> {
        save_parameters(model, folder)
    }

    fn load(&self, model: M, folder: &Path) -> Result<M> {
        load_parameters(model, folder)
    }
}
