//! Common parts of training on source–target pairs: the loss of each target token, its metrics, and saving.

use crate::Result;
use crate::engine::{Advance, ModelFormat, share_out};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::parallel::PairBatch;
use cloze_model::blocks::SampledSoftmax;
use cloze_model::seq2seq::{AnyEncoderDecoder, AnyEncoderDecoderConfig, EncoderDecoder};
use cloze_model::{ParamInit, Sequences, weights};
use cloze_ops::CrossEntropy;
use std::path::Path;

/// The metrics of a model on pairs.
pub(crate) mod figure {
    /// The mean cross-entropy of a target token, in nats, without label smoothing.
    pub const LOSS: &str = "loss";
    /// Its exponential: the effective number of choices.
    pub const PERPLEXITY: &str = "perplexity";
    /// Fraction of the target tokens that are ranked first, given the previous ones.
    pub const TOKEN_ACCURACY: &str = "token_accuracy";
}

/// The cross-entropy of each target token, given the source and the previous target tokens.
pub(crate) struct PairLoss {
    /// The first token of decoding.
    pub begin: u32,
    /// The training loss.
    pub training: CrossEntropy,
    /// How pieces are drawn in training, whose loss is the plain one then; none: the softmax is over the whole vocabulary, as it
    /// always is in evaluation.
    pub sampled: Option<SampledSoftmax>,
}

impl PairLoss {
    /// The denominator of a batch's mean loss.
    pub fn counts(batch: &PairBatch) -> Vec<f64> {
        vec![batch.target.ids.len() as f64]
    }

    /// The sum of a batch's losses.
    pub fn sums<M: EncoderDecoder>(&self, model: &M, batch: &PairBatch, device: &Device) -> Vec<Tensor<1>> {
        let (source, target) = inputs(batch, self.begin);
        let next = &batch.target.ids;
        let losses = match self.training == CrossEntropy::default() {
            true => model.losses(&source, &target, next, self.sampled, device),
            false => self.training.forward(model.logits(&source, &target, device), labels(next, device)),
        };
        vec![losses.sum()]
    }

    /// Evaluates a model on batches.
    ///
    /// # Errors
    /// A replica that cannot be reached.
    pub fn measure<M: EncoderDecoder>(
        &self,
        model: &M,
        batches: &[PairBatch],
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Vec<(&'static str, f64)>> {
        let measured = share_out(batches.len(), |own| {
            let own = &batches[own];
            let all: usize = own.iter().map(PairBatch::n_tokens).sum();
            let (mut done, mut read) = (0, 0);
            let measured = own.iter().map(|batch| {
                let measured = self.loss_and_right(model, batch, device);
                done += batch.source.len();
                read += batch.n_tokens();
                advanced(Advance { done, share: read as f64 / all.max(1) as f64 });
                measured
            });
            Ok(measured.collect())
        })?;
        let tokens: usize = batches.iter().map(|batch| batch.target.ids.len()).sum();
        let (sum, right) =
            measured.into_iter().fold((0.0, 0), |(sum, right), (loss, more)| (sum + loss, right + more));
        let mean = sum / tokens.max(1) as f64;
        Ok(vec![
            (figure::LOSS, mean),
            (figure::PERPLEXITY, mean.exp()),
            (figure::TOKEN_ACCURACY, right as f64 / tokens.max(1) as f64),
        ])
    }

    /// The sum of the losses of a batch's target tokens, and how many of them are ranked first.
    fn loss_and_right<M: EncoderDecoder>(
        &self,
        model: &M,
        batch: &PairBatch,
        device: &Device,
    ) -> (f64, usize) {
        let (source, target) = inputs(batch, self.begin);
        let (losses, logits) = cloze_ops::on_awake_cores(device, || {
            let logits = model.logits(&source, &target, device);
            (cloze_ops::cross_entropy(logits.clone(), labels(&batch.target.ids, device)), logits)
        });
        let loss = losses.into_data().iter::<f64>().sum();
        let predicted = logits.argmax(1).into_data();
        let right = predicted.iter::<i32>().zip(&batch.target.ids).filter(|(a, b)| a == *b).count();
        (loss, right)
    }
}

fn labels(ids: &[i32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(ids.to_vec(), [ids.len()]), device)
}

/// A model's inputs for a batch: the sources, and the targets after the first token of decoding, without their
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
