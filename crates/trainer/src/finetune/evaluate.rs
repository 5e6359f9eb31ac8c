//! A model's outputs on a whole split, and their metrics.

use super::task::{Encoded, Features, Task};
use crate::engine::Advance;
use burn::tensor::Device;
use cloze_data::labelled::{BatchSize, Buckets, restore};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::Predictions;
use cloze_ops::on_awake_cores;

/// A model's predictions for examples. `model` and `device` are without autodiff. Batches have about
/// `batch_tokens` tokens in sequences of similar length; this only affects the last digits of outputs. Reports
/// each batch to `progress`.
pub fn predict<T: Task>(
    task: &T,
    model: &T::Model,
    data: &Encoded<T::Example, T::Features>,
    batch_tokens: usize,
    device: &Device,
    progress: &mut dyn FnMut(Advance),
) -> Box<dyn Predictions> {
    let outputs = outputs(task, model, &data.features, batch_tokens, device, progress);
    task.predictions(&data.examples, &data.features, &outputs)
}

/// A model's outputs in the order of the features.
pub fn outputs<T: Task>(
    task: &T,
    model: &T::Model,
    features: &[T::Features],
    batch_tokens: usize,
    device: &Device,
    progress: &mut dyn FnMut(Advance),
) -> Vec<T::Output> {
    let features: Vec<&T::Features> = features.iter().collect();
    outputs_of(task, model, &features, batch_tokens, device, progress)
}

/// A model's outputs in the order of the features, which need not be contiguous.
pub(super) fn outputs_of<T: Task>(
    task: &T,
    model: &T::Model,
    features: &[&T::Features],
    batch_tokens: usize,
    device: &Device,
    progress: &mut dyn FnMut(Advance),
) -> Vec<T::Output> {
    let work = |batch: &[&T::Features]| on_awake_cores(device, || task.outputs(model, batch, device));
    in_batches(features, batch_tokens, work, progress)
}

/// The results of `work` for each feature, called in batches of similar length.
pub(super) fn in_batches<F: Features, R>(
    features: &[&F],
    batch_tokens: usize,
    mut work: impl FnMut(&[&F]) -> Vec<R>,
    progress: &mut dyn FnMut(Advance),
) -> Vec<R> {
    let lengths: Vec<usize> = features.iter().map(|features| features.cost()).collect();
    let batches = Buckets::new(lengths.clone(), BatchSize::Tokens(batch_tokens), 0).sorted();
    let all = lengths.iter().sum::<usize>().max(1);
    let (mut done, mut tokens) = (0, 0);
    let outputs = batches.iter().flat_map(|batch| {
        done += batch.len();
        tokens += batch.iter().map(|place| lengths[*place]).sum::<usize>();
        let batch: Vec<&F> = batch.iter().map(|place| features[*place]).collect();
        let outputs = work(&batch);
        progress(Advance { done, share: tokens as f64 / all as f64 });
        outputs
    });
    let outputs: Vec<R> = outputs.collect();
    restore(&batches, outputs)
}

/// The metrics of predictions. `metric`, if given, is the main one.
///
/// # Errors
/// [`EvaluationError::NoFigure`](cloze_evaluation::EvaluationError::NoFigure).
pub fn figures(predictions: &dyn Predictions, metric: Option<&str>) -> crate::Result<Figures> {
    let figures = predictions.figures();
    match metric {
        Some(name) => Ok(figures.with_main(name)?),
        None => Ok(figures),
    }
}
