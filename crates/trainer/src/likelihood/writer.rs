//! Left-to-right models of any kind.

use super::Windows;
use crate::Result;
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::awd_lstm::{AwdLstm, AwdLstmConfig};
use cloze_model::blocks::{LinearMap, LinearMaps, pack_weights};
use cloze_model::gpt::{Gpt, GptConfig};
use cloze_model::huggingface::{Format, load_published, model_type};
use std::path::Path;

#[derive(Debug)]
pub(super) enum Writer {
    Transformer(Box<Gpt>),
    Recurrent(Box<AwdLstm>),
}

impl LinearMaps for Writer {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        match self {
            Self::Transformer(model) => model.linear_maps_mut(),
            Self::Recurrent(model) => model.linear_maps_mut(),
        }
    }
}

impl Writer {
    /// The model of a folder, and its vocabulary's size.
    pub fn load(folder: &Path, device: &Device) -> Result<(usize, Self)> {
        let init = &mut ParamInit::new(device, 0);
        if model_type(folder)?.is_some_and(|kind| AwdLstmConfig::MODEL_TYPES.contains(&kind.as_str())) {
            let (shape, model, _) = load_published::<AwdLstmConfig>(folder, init)?;
            return Ok((shape.vocab_size, Self::Recurrent(Box::new(model))));
        }
        let (shape, mut model, _) = load_published::<GptConfig>(folder, init)?;
        pack_weights(&mut model);
        Ok((shape.vocab_size, Self::Transformer(Box::new(model))))
    }

    /// The most tokens that are read; none if there is no limit.
    pub fn max_tokens(&self) -> Option<usize> {
        match self {
            Self::Transformer(model) => Some(model.max_positions()),
            Self::Recurrent(_) => None,
        }
    }

    /// `−log P` of each predicted token of the windows, in nats.
    pub fn losses(&self, windows: &Windows, device: &Device) -> Vec<f64> {
        match self {
            Self::Transformer(model) => windows.losses(model, device),
            Self::Recurrent(model) => windows.recurrent_losses(model, device),
        }
    }
}
