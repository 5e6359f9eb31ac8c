//! `train.recompute`: layers whose activations are recomputed in the backward pass.

use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_model::blocks::{Encoder, MultiHeadAttention};
use cloze_ops::can_recompute;

/// Whether a run on `device`, with or without autodiff, can recompute.
pub(crate) fn is_possible(device: &Device) -> bool {
    can_recompute(&device.clone().autodiff())
}

/// Rejects recomputing on a device that does not support it.
///
/// # Errors
/// [`TrainerError::Setting`].
pub(crate) fn check(wanted: bool, device: &Device) -> Result<()> {
    if !wanted || is_possible(device) {
        return Ok(());
    }
    Err(TrainerError::Setting {
        key: "train.recompute".into(),
        found: "true".into(),
        expected: "false on this device: only flex can recompute layers".into(),
    })
}

/// Makes an encoder recompute its layers, or not.
pub(crate) fn set(encoder: &mut Encoder<MultiHeadAttention>, wanted: bool) {
    encoder.recompute = wanted;
}
