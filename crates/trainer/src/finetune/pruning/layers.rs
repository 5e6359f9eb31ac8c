//! Removing whole layers, one after another: the one whose absence costs the least.

use super::super::task::{Encoded, Features, PretrainedTask, Task};
use crate::Result;
use crate::engine::Advance;
use burn::tensor::Device;
use cloze_data::labelled::{BatchSize, Buckets};
use cloze_model::bert::BertConfig;
use cloze_ops::on_awake_cores;

/// The mean loss of a model on some examples. `model` and `device` are without autodiff.
pub(super) fn loss<T: Task>(
    task: &T,
    model: &T::Model,
    data: &Encoded<T::Example, T::Features>,
    batch_tokens: usize,
    device: &Device,
) -> f64 {
    let lengths: Vec<usize> = data.features.iter().map(Features::cost).collect();
    let (mut sum, mut weight) = (0.0, 0.0);
    for batch in Buckets::new(lengths, BatchSize::Tokens(batch_tokens), 0).sorted() {
        let batch: Vec<&T::Features> = batch.iter().map(|place| &data.features[*place]).collect();
        let loss = on_awake_cores(device, || task.loss(task.scores(model, &batch, device), &batch));
        sum += loss.into_data().iter::<f64>().sum::<f64>();
        weight += task.weight(&batch);
    }
    sum / weight.max(f64::MIN_POSITIVE)
}

/// The layers that stay, and those removed with the losses without them.
pub(super) type Choice = (Vec<usize>, Vec<(usize, f64)>);

/// The layers that stay of a model until there are `n`, and those removed in their order, each with the loss without it and
/// those before it.
///
/// # Errors
/// Those of the task.
pub(super) fn greedy<T: PretrainedTask>(
    task: &T,
    (config, model): (&BertConfig, &T::Model),
    n: usize,
    mut loss: impl FnMut(&T::Model) -> f64,
    progress: &mut dyn FnMut(Advance),
) -> Result<Choice> {
    let mut left: Vec<usize> = (0..config.n_layers).collect();
    let all: usize = (n + 1..=config.n_layers).sum();
    let (mut removed, mut done) = (Vec::new(), 0);
    while left.len() > n {
        let mut best: Option<(usize, f64)> = None;
        for layer in left.clone() {
            let kept: Vec<usize> = left.iter().copied().filter(|other| *other != layer).collect();
            done += 1;
            // Some layers cannot go, such as the first of ModernBERT.
            if config.with_chosen_layers(&kept).is_ok() {
                let without = task.map_encoder(model.clone(), |bert| Ok(bert.with_layers(&kept)))?;
                let loss = loss(&without);
                if best.is_none_or(|(_, least)| loss < least) {
                    best = Some((layer, loss));
                }
            }
            progress(Advance { done, share: done as f64 / all.max(1) as f64 });
        }
        let Some((layer, loss)) = best else {
            // The error of the configuration says why.
            config.with_chosen_layers(&left[1..])?;
            break;
        };
        left.retain(|other| *other != layer);
        removed.push((layer, loss));
    }
    Ok((left, removed))
}
