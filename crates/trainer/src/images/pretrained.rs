//! Encoders of images from folders: of an encoder, of a classifier or MAE, or of a captioner, whose encoder it is then.

use super::config::PretrainedImageModel;
use super::start::follow;
use crate::Result;
use crate::captions::is_captioner;
use cloze_model::ParamInit;
use cloze_model::captions::CaptionerConfig;
use cloze_model::huggingface::{load_published_as, read_published};
use cloze_model::vision::{AnyImageEncoder, AnyImageEncoderConfig};

impl PretrainedImageModel {
    /// The encoder's configuration, changed as the section says.
    ///
    /// # Errors
    /// A folder of something else; a setting that the network has no use for.
    pub(crate) fn encoder_config(&self) -> Result<AnyImageEncoderConfig> {
        let mut encoder = match is_captioner(&self.path) {
            true => read_published::<CaptionerConfig>(&self.path)?.encoder,
            false => read_published(&self.path)?,
        };
        follow(self, &mut encoder)?;
        Ok(encoder)
    }

    /// The encoder with the folder's weights.
    ///
    /// # Errors
    /// Those of loading.
    pub(crate) fn encoder(
        &self,
        config: &AnyImageEncoderConfig,
        init: &mut ParamInit,
    ) -> Result<AnyImageEncoder> {
        if !is_captioner(&self.path) {
            return Ok(load_published_as(config, &self.path, init)?.0);
        }
        let mut captioner: CaptionerConfig = read_published(&self.path)?;
        captioner.encoder = config.clone();
        Ok(load_published_as(&captioner, &self.path, init)?.0.encoder)
    }
}
