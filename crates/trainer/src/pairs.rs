//! What training on pairs of a source and a target has in common, whatever the pairs are: the loss of each target token,
//! its figures, and how a model is saved.

use crate::Result;
use crate::engine::{Advance, load_parameters, save_parameters};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::parallel::PairBatch;
use cloze_model::seq2seq::{AnyEncoderDecoder, AnyEncoderDecoderConfig, EncoderDecoder};
use cloze_model::{ParamInit, Sequences, weights};
use cloze_ops::CrossEntropy;
use std::path::Path;

/// The figures of a model on pairs.
pub(crate) mod figure {
    /// The mean cross-entropy of a target token, in nats, of the very target: no label is smoothed.
    pub const LOSS: &str = "loss";
    /// Its exponential: the effective number of choices.
    pub const PERPLEXITY: &str = "perplexity";
    /// Share of the target tokens that are predicted first, given those before.
    pub const TOKEN_ACCURACY: &str = "token_accuracy";
}

/// The cross-entropy of each target token, given the source and the target's tokens before.
pub(crate) struct PairLoss {
    /// What decoding begins with.
    pub begin: u32,
    /// The loss that is trained with.
    pub training: CrossEntropy,
}

impl PairLoss {
    /// What the mean of a batch's loss is over.
    pub fn counts(batch: &PairBatch) -> Vec<f64> {
        vec![batch.target.ids.len() as f64]
    }

    /// The sum of a batch's losses.
    pub fn sums<M: EncoderDecoder>(&self, model: &M, batch: &PairBatch, device: &Device) -> Vec<Tensor<1>> {
        vec![self.losses(model, batch, &self.training, device).0.sum()]
    }

    /// The loss of each target token of a batch, and the logits they come from.
    fn losses<M: EncoderDecoder>(
        &self,
        model: &M,
        batch: &PairBatch,
        loss: &CrossEntropy,
        device: &Device,
    ) -> (Tensor<1>, Tensor<2>) {
        let (source, target) = inputs(batch, self.begin);
        let logits = model.logits(&source, &target, device);
        let labels = Tensor::<1, Int>::from_data(
            TensorData::new(batch.target.ids.clone(), [batch.target.ids.len()]),
            device,
        );
        (loss.forward(logits.clone(), labels), logits)
    }

    /// The figures of a model on batches.
    pub fn measure<M: EncoderDecoder>(
        &self,
        model: &M,
        batches: &[PairBatch],
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Vec<(&'static str, f64)> {
        let plain = CrossEntropy::default();
        let all: usize = batches.iter().map(PairBatch::n_tokens).sum();
        let (mut sum, mut right, mut tokens) = (0.0, 0, 0);
        let (mut done, mut read) = (0, 0);
        for batch in batches {
            let (losses, logits) =
                cloze_ops::on_awake_cores(device, || self.losses(model, batch, &plain, device));
            sum += losses.into_data().iter::<f64>().sum::<f64>();
            let predicted = logits.argmax(1).into_data();
            right += predicted.iter::<i32>().zip(&batch.target.ids).filter(|(a, b)| a == *b).count();
            tokens += batch.target.ids.len();
            done += batch.source.len();
            read += batch.n_tokens();
            advanced(Advance { done, share: read as f64 / all.max(1) as f64 });
        }
        let mean = sum / tokens.max(1) as f64;
        vec![
            (figure::LOSS, mean),
            (figure::PERPLEXITY, mean.exp()),
            (figure::TOKEN_ACCURACY, right as f64 / tokens.max(1) as f64),
        ]
    }
}

/// What a model reads of a batch: the sources, and the targets behind the piece that decoding begins with, without their
/// last tokens.
pub fn inputs(batch: &PairBatch, begin: u32) -> (Sequences, Sequences) {
    let mut shifted = Vec::new();
    let mut target = Sequences::new();
    for ids in batch.target.iter() {
        shifted.clear();
        shifted.push(begin as i32);
        shifted.extend(&ids[..ids.len() - 1]);
        target.push(&shifted);
    }
    (batch.source.iter().collect(), target)
}

/// How a kind of model is saved and read.
pub trait ModelFormat<M>: Sync {
    /// Saves a model in an existing empty folder.
    ///
    /// # Errors
    /// A file that cannot be written.
    fn save(&self, model: &M, folder: &Path) -> Result<()>;

    /// The parameters that were saved, in a model like this one.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn load(&self, model: M, folder: &Path) -> Result<M>;
}

/// A model's parameters by their own paths.
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

impl ModelFormat<AnyEncoderDecoder> for AnyEncoderDecoderConfig {
    fn save(&self, model: &AnyEncoderDecoder, folder: &Path) -> Result<()> {
        Ok(Self::save(self, model, folder).map(drop)?)
    }

    fn load(&self, model: AnyEncoderDecoder, folder: &Path) -> Result<AnyEncoderDecoder> {
        let device = model.devices().into_iter().next().unwrap_or_default();
        let (_, saved) = Self::load(folder, &mut ParamInit::new(&device, 0))?;
        Ok(weights::replace(model, weights::collect(&saved)))
    }
}
