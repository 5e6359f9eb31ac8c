//! BERT's pretraining objective: masked pieces and sentence pairs (Devlin et al. 2019, §3.1).

use crate::objective::Objective;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_data::{PretrainingBatch, UnigramCounts};
use cloze_model::bert::{BertForPreTraining, BertInput, PreTrainingLogits};
use cloze_model::ops;

/// The mean cross-entropy of the masked pieces plus, where there are pairs and a head for them, that of the
/// sentence pairs.
#[derive(Debug, Clone, Copy, Default)]
pub struct BertPretraining;

impl Objective for BertPretraining {
    type Model = BertForPreTraining;
    type Batch = PretrainingBatch;

    fn terms(&self) -> &'static [&'static str] {
        &["masked_loss", "pair_loss"]
    }

    fn counts(&self, batch: &PretrainingBatch) -> Vec<f64> {
        vec![batch.masked_labels.len() as f64, batch.pair_labels.len() as f64]
    }

    fn sums(&self, model: &BertForPreTraining, batch: &PretrainingBatch, device: &Device) -> Vec<Tensor<1>> {
        let Losses { masked, pairs, .. } = losses(model, batch, device);
        vec![masked.sum(), pairs.map_or_else(|| Tensor::zeros([1], device), Tensor::sum)]
    }
}

/// The batch's cross-entropies one by one, and the logits they are of.
struct Losses {
    logits: PreTrainingLogits,
    masked: Tensor<1>,
    pairs: Option<Tensor<1>>,
}

fn losses(model: &BertForPreTraining, batch: &PretrainingBatch, device: &Device) -> Losses {
    let (input, positions) = match model.bert.takes_packed() {
        true => packed_input(batch, device),
        false => (input(batch, device), batch.masked_positions.clone()),
    };
    let logits = model.forward(input, vector(&positions, device));
    let masked = ops::cross_entropy(logits.mlm.clone(), vector(&batch.masked_labels, device));
    let pairs = logits.next_sentence.clone().filter(|_| !batch.pair_labels.is_empty());
    let pairs = pairs.map(|logits| ops::cross_entropy(logits, vector(&batch.pair_labels, device)));
    Losses { logits, masked, pairs }
}

/// A batch's tensors on `device`. A batch without padding has no mask: nothing to add to the scores.
pub fn input(batch: &PretrainingBatch, device: &Device) -> BertInput {
    let shape = [batch.batch_size, batch.seq_len];
    let matrix =
        |values: &[i32]| Tensor::<2, Int>::from_data(TensorData::new(values.to_vec(), shape), device);
    let input = BertInput::new(matrix(&batch.input_ids)).with_token_types(matrix(&batch.token_type_ids));
    match batch.pad_mask.contains(&true) {
        true => {
            let mask = TensorData::new(batch.pad_mask.clone(), shape);
            input.with_pad_mask(Tensor::<2, Bool>::from_data(mask, device))
        }
        false => input,
    }
}

/// A batch's tensors without its padding, for which nothing is computed then, and the masked positions as
/// they are counted in the packed sequences. A batch without padding is as [`input`] makes it.
///
/// # Panics
/// If a sequence is nothing but padding.
pub fn packed_input(batch: &PretrainingBatch, device: &Device) -> (BertInput, Vec<i32>) {
    if !batch.pad_mask.contains(&true) {
        return (input(batch, device), batch.masked_positions.clone());
    }
    let kept = |values: &[i32]| -> Vec<i32> {
        let kept = values.iter().zip(&batch.pad_mask).filter(|(_, ignored)| !**ignored);
        kept.map(|(value, _)| *value).collect()
    };
    let rows = batch.pad_mask.chunks(batch.seq_len);
    let lengths: Vec<usize> = rows.map(|row| row.iter().filter(|ignored| !**ignored).count()).collect();
    // How many tokens stand before each place.
    let before: Vec<i32> = batch
        .pad_mask
        .iter()
        .scan(0, |tokens, ignored| Some(std::mem::replace(tokens, *tokens + i32::from(!*ignored))))
        .collect();
    let types = vector(&kept(&batch.token_type_ids), device).unsqueeze_dim::<2>(0);
    let input = BertInput::packed(&kept(&batch.input_ids), &lengths, device).with_token_types(types);
    (input, batch.masked_positions.iter().map(|place| before[*place as usize]).collect())
}

fn vector(values: &[i32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

/// Sums over held-out batches; see the methods for what they make.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evaluation {
    masked: u64,
    masked_loss: f64,
    masked_right: u64,
    unigram_loss: f64,
    unigram_right: u64,
    pairs: u64,
    pair_loss: f64,
    pair_right: u64,
}

impl Evaluation {
    /// Takes in one batch; `model` is on an inference device.
    pub fn add(
        &mut self,
        model: &BertForPreTraining,
        batch: &PretrainingBatch,
        unigram: &UnigramCounts,
        device: &Device,
    ) {
        let Losses { logits: PreTrainingLogits { mlm, next_sentence }, masked, pairs } =
            ops::on_awake_cores(device, || losses(model, batch, device));
        self.masked += batch.masked_labels.len() as u64;
        self.masked_loss += sum(masked);
        self.masked_right += right(mlm, &batch.masked_labels);
        for label in &batch.masked_labels {
            self.unigram_loss -= unigram.log_prob(*label as u32);
            self.unigram_right += u64::from(*label as u32 == unigram.most_frequent());
        }
        if let (Some(pairs), Some(logits)) = (pairs, next_sentence) {
            self.pairs += batch.pair_labels.len() as u64;
            self.pair_loss += sum(pairs);
            self.pair_right += right(logits, &batch.pair_labels);
        }
    }

    /// The means as a metrics record of `step`, an evaluation that took `seconds`.
    pub fn record(&self, step: u64, seconds: f64) -> crate::metrics::EvalRecord {
        let masked = self.masked.max(1) as f64;
        let per_pair = |sum: f64| (self.pairs > 0).then(|| sum / self.pairs as f64);
        crate::metrics::EvalRecord {
            step,
            masked_loss: self.masked_loss / masked,
            masked_accuracy: self.masked_right as f64 / masked,
            masked_tokens: self.masked,
            unigram_loss: self.unigram_loss / masked,
            unigram_accuracy: self.unigram_right as f64 / masked,
            pair_loss: per_pair(self.pair_loss),
            pair_accuracy: per_pair(self.pair_right as f64),
            seconds,
        }
    }
}

fn sum(values: Tensor<1>) -> f64 {
    values.into_data().iter::<f64>().sum()
}

/// How many rows of `logits` have their greatest value at the label.
fn right(logits: Tensor<2>, labels: &[i32]) -> u64 {
    let predicted = logits.argmax(1).into_data();
    predicted.iter::<i32>().zip(labels).filter(|(predicted, label)| predicted == *label).count() as u64
}
