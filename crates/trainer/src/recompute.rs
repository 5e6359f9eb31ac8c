//! `train.recompute`: layers whose activations the backward pass computes again.

use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_model::blocks::{Encoder, MultiHeadAttention};
use cloze_ops::can_recompute;

/// Whether a run on `device`, with autodiff or without, could recompute.
pub(crate) fn is_possible(device: &Device) -> bool {
    can_recompute(&device.clone().autodiff())
}

/// Refuses to recompute on a device that cannot.
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
        expected: "false on this device: layers are recomputed on flex alone".into(),
    })
}

/// Lets an encoder recompute its layers, or keep them.
pub(crate) fn set(encoder: &mut Encoder<MultiHeadAttention>, wanted: bool) {
    encoder.recompute = wanted;
}
