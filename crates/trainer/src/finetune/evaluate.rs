//! A model's outputs on a whole split, and what they are worth.

use super::task::{Encoded, Task};
use crate::evaluation::figures::Figures;
use crate::evaluation::report::Predictions;
use burn::tensor::Device;
use cloze_data::labelled::{BatchSize, Buckets, restore};

/// What a model predicts for examples. `model` and `device` are without autodiff; batches are of similar length
/// and of about `batch_tokens` tokens, which no output depends on but in the last digits.
pub fn predict<T: Task>(
    task: &T,
    model: &T::Model,
    data: &Encoded<T::Example, T::Features>,
    batch_tokens: usize,
    device: &Device,
) -> Box<dyn Predictions> {
    let outputs = outputs(task, model, &data.features, batch_tokens, device);
    task.predictions(&data.examples, &data.features, &outputs)
}

/// A model's outputs in the order of the features.
pub fn outputs<T: Task>(
    task: &T,
    model: &T::Model,
    features: &[T::Features],
    batch_tokens: usize,
    device: &Device,
) -> Vec<T::Output> {
    let lengths = features.iter().map(|features| n_tokens(task, features)).collect();
    let batches = Buckets::new(lengths, BatchSize::Tokens(batch_tokens), 0).sorted();
    let outputs = batches.iter().flat_map(|batch| {
        let batch: Vec<&T::Features> = batch.iter().map(|place| &features[*place]).collect();
        task.outputs(model, &batch, device)
    });
    let outputs: Vec<T::Output> = outputs.collect();
    restore(&batches, outputs)
}

/// The figures of predictions, `metric` the main one of them where it is given.
///
/// # Errors
/// [`TrainerError::NoFigure`](crate::TrainerError::NoFigure).
pub fn figures(predictions: &dyn Predictions, metric: Option<&str>) -> crate::Result<Figures> {
    let figures = predictions.figures();
    match metric {
        Some(name) => figures.with_main(name),
        None => Ok(figures),
    }
}

/// Tokens of all its sequences.
pub(super) fn n_tokens<T: Task>(task: &T, features: &T::Features) -> usize {
    task.sequences(features).iter().map(|sequence| sequence.len()).sum()
}
