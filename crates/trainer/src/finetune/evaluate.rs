//! A model's outputs on a whole split, and their metrics.

use super::task::{Encoded, Features, Task};
use crate::Result;
use crate::engine::{Advance, share_out};
use burn::tensor::Device;
use cloze_data::labelled::{BatchSize, Buckets, restore};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::Predictions;
use cloze_ops::on_awake_cores;
use std::ops::Range;

/// A model's predictions for examples. `model` and `device` are without autodiff. Batches have about
/// `batch_tokens` tokens in sequences of similar length; this only affects the last digits of outputs. Reports
/// each batch to `progress`. Replicas that evaluate together [share](share_out) the batches.
///
/// # Errors
/// A replica that cannot be reached.
pub fn predict<T: Task>(
    task: &T,
    model: &T::Model,
    data: &Encoded<T::Example, T::Features>,
    batch_tokens: usize,
    device: &Device,
    progress: &mut dyn FnMut(Advance),
) -> Result<Box<dyn Predictions>> {
    let features: Vec<&T::Features> = data.features.iter().collect();
    let batches = Batches::new(&features, batch_tokens);
    let work = |batch: &[&T::Features]| on_awake_cores(device, || task.outputs(model, batch, device));
    let outputs = share_out(batches.places.len(), |own| Ok(batches.outputs(own, work, progress)))?;
    let outputs = restore(&batches.places, outputs.into_iter().flatten());
    Ok(task.predictions(&data.examples, &data.features, &outputs))
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
    work: impl FnMut(&[&F]) -> Vec<R>,
    progress: &mut dyn FnMut(Advance),
) -> Vec<R> {
    let batches = Batches::new(features, batch_tokens);
    let outputs = batches.outputs(0..batches.places.len(), work, progress);
    restore(&batches.places, outputs.into_iter().flatten())
}

/// Features in batches of similar length.
struct Batches<'a, F> {
    features: &'a [&'a F],
    lengths: Vec<usize>,
    /// The features' places in each batch.
    places: Vec<Vec<usize>>,
}

impl<'a, F: Features> Batches<'a, F> {
    /// Batches of about so many tokens.
    fn new(features: &'a [&'a F], tokens: usize) -> Self {
        let lengths: Vec<usize> = features.iter().map(|features| features.cost()).collect();
        let places = Buckets::new(lengths.clone(), BatchSize::Tokens(tokens), 0).sorted();
        Self { features, lengths, places }
    }

    /// The results of `work` for a range of the batches.
    fn outputs<R>(
        &self,
        range: Range<usize>,
        mut work: impl FnMut(&[&F]) -> Vec<R>,
        progress: &mut dyn FnMut(Advance),
    ) -> Vec<Vec<R>> {
        let tokens = |batch: &[usize]| batch.iter().map(|place| self.lengths[*place]).sum::<usize>();
        let batches = &self.places[range];
        let all = batches.iter().map(|batch| tokens(batch)).sum::<usize>().max(1);
        let (mut done, mut read) = (0, 0);
        let outputs = batches.iter().map(|batch| {
            done += batch.len();
            read += tokens(batch);
            let batch: Vec<&F> = batch.iter().map(|place| self.features[*place]).collect();
            let outputs = work(&batch);
            progress(Advance { done, share: read as f64 / all as f64 });
            outputs
        });
        outputs.collect()
    }
}

/// The metrics of predictions. `metric`, if given, is the main one.
///
/// # Errors
/// [`EvaluationError::NoFigure`](cloze_evaluation::EvaluationError::NoFigure).
pub fn figures(predictions: &dyn Predictions, metric: Option<&str>) -> Result<Figures> {
    let figures = predictions.figures();
    match metric {
        Some(name) => Ok(figures.with_main(name)?),
        None => Ok(figures),
    }
}
