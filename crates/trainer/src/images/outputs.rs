use crate::Result;
use crate::engine::{Advance, share_out};
use crate::finetune::{argmax, softmax};
use burn::tensor::{Device, Tensor};
use cloze_data::images::{ImageBatch, ImageData, ImageExample};
use cloze_data::labelled::Target;
use cloze_evaluation::report::{ClassExample, ClassPredictions, Picture};
use cloze_ops::on_awake_cores;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::Instant;

/// What a classifier says of an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ImageOutput {
    /// The most probable class.
    pub class: usize,
    /// The probability of each class.
    pub probabilities: Vec<f64>,
}

impl ImageOutput {
    /// The output for each row of logits.
    pub(super) fn of(logits: Tensor<2>) -> Vec<Self> {
        let [_, n_classes] = logits.dims();
        let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
        let output = |logits: &[f32]| {
            let probabilities = softmax(logits);
            Self { class: argmax(&probabilities), probabilities }
        };
        logits.chunks_exact(n_classes.max(1)).map(output).collect()
    }
}

/// The logits of a batch of images.
pub(super) type Logits<'a> = dyn Fn(&ImageBatch, &Device) -> Tensor<2> + Sync + 'a;

/// A model's outputs for the first `n` images, in order.
///
/// # Errors
/// Those of decoding.
pub(super) fn outputs(
    logits: &Logits<'_>,
    data: &ImageData,
    n: usize,
    batch_size: usize,
    device: &Device,
    advanced: &mut dyn FnMut(Advance),
) -> Result<Vec<ImageOutput>> {
    let starts: Vec<usize> = (0..n).step_by(batch_size).collect();
    let outputs = share_out(starts.len(), |own| {
        let place = |batch: usize| starts.get(batch).copied().unwrap_or(n);
        let own = place(own.start)..place(own.end);
        let outputs = timed_outputs(logits, data, own, batch_size, device, advanced)?.0;
        Ok(outputs.chunks(batch_size.max(1)).map(<[ImageOutput]>::to_vec).collect())
    })?;
    Ok(outputs.concat())
}

/// A model's outputs for some images, in order, and the seconds that they took without decoding.
///
/// # Errors
/// The same.
pub(super) fn timed_outputs(
    logits: &Logits<'_>,
    data: &ImageData,
    images: Range<usize>,
    batch_size: usize,
    device: &Device,
    advanced: &mut dyn FnMut(Advance),
) -> Result<(Vec<ImageOutput>, f64)> {
    let n = images.len();
    let (mut all, mut seconds) = (Vec::with_capacity(n), 0.0);
    for start in images.clone().step_by(batch_size) {
        let end = images.end.min(start + batch_size);
        let batch = data.in_order(start..end)?;
        let begun = Instant::now();
        all.extend(on_awake_cores(device, || ImageOutput::of(logits(&batch, device))));
        seconds += begun.elapsed().as_secs_f64();
        advanced(Advance { done: all.len(), share: all.len() as f64 / n as f64 });
    }
    Ok((all, seconds))
}

/// Outputs beside the classes of their images.
pub(super) fn predictions(labels: &[String], data: &ImageData, outputs: &[ImageOutput]) -> ClassPredictions {
    let example = |(example, output): (&ImageExample, &ImageOutput)| {
        let gold = match example.target {
            Target::Class(class) => class,
            _ => 0,
        };
        ClassExample {
            id: String::new(),
            texts: vec![example.image.to_string()],
            gold,
            predicted: output.class,
            score: output.probabilities[output.class],
            loss: -output.probabilities[gold].max(f64::MIN_POSITIVE).ln(),
        }
    };
    ClassPredictions {
        labels: labels.to_vec(),
        positive: (labels.len() == 2).then_some(1),
        examples: data.examples().iter().zip(outputs).map(example).collect(),
    }
}

/// The longest side of a picture on a page, in pixels.
const SIDE: usize = 128;

/// The picture of an example; none if it does not decode any more.
pub(crate) fn picture(data: &ImageData, example: usize) -> Vec<Picture> {
    let png = data.decoded(example).map(|image| image.thumbnail(SIDE).to_png());
    png.into_iter().map(|png| Picture { caption: "", png }).collect()
}
