//! What a frozen encoder's features know of the images' classes: a linear probe, and the nearest images.

use super::data::pixels;
use crate::Result;
use crate::engine::Advance;
use crate::probing::ProbeSection;
use crate::probing::classes::{Examples, Training, measure};
use burn::tensor::Device;
use cloze_data::images::ImageData;
use cloze_data::labelled::Target;
use cloze_evaluation::figures::Figures;
use cloze_model::ops::on_awake_cores;
use cloze_model::vision::ImageEncoder;
use rayon::prelude::*;

/// The most training images that a probe learns from, and that are searched.
const MOST: usize = 10_000;

/// The nearest images that vote for a class (Wu et al. 2018 take 200 of a million).
const VOTES: usize = 20;

/// Passes of the probe over its images, and its learning rate.
const EPOCHS: usize = 20;
const RATE: f64 = 1e-2;

/// Vectors of images with their classes.
struct Features {
    /// `[n · width]`, of length 1 each.
    unit: Vec<f32>,
    width: usize,
    classes: Vec<usize>,
}

/// The `accuracy` of a linear probe that is trained on an encoder's summaries of the first training images, and of the
/// `neighbours`: the class that most of the nearest of these have.
///
/// # Errors
/// Those of decoding.
pub(super) fn probe<E: ImageEncoder>(
    encoder: &E,
    [train, dev]: [&ImageData; 2],
    n_classes: usize,
    batch_size: usize,
    seed: u64,
    device: &Device,
    advanced: &mut dyn FnMut(Advance),
) -> Result<Figures> {
    let sizes = [train, dev].map(|data| data.examples().len());
    let all = sizes[0].min(MOST) + sizes[1];
    let mut told = |done: usize| advanced(Advance { done, share: done as f64 / all as f64 });
    let learned = features(encoder, train, MOST, batch_size, device, &mut told)?;
    let n = learned.classes.len();
    let asked = features(encoder, dev, usize::MAX, batch_size, device, &mut |done| told(n + done))?;
    let neighbours = neighbours(&learned, &asked, n_classes);
    let section = ProbeSection { epochs: EPOCHS, lr: RATE, ..ProbeSection::default() };
    let training = Training { section: &section, n_classes, device, seed };
    // As wide as they are long, so that a rate suits encoders of all widths.
    let scale = (learned.width as f32).sqrt();
    let scaled = |of: &Features| of.unit.iter().map(|x| x * scale).collect::<Vec<f32>>();
    let (learned_rows, asked_rows) = (scaled(&learned), scaled(&asked));
    let rows = |n: usize| (0..n).collect::<Vec<usize>>();
    let examples = Examples { layers: &[&learned_rows], width: learned.width, labels: &learned.classes };
    let probe = training.probe(&examples, &rows(n), None)?;
    let examples = Examples { layers: &[&asked_rows], width: asked.width, labels: &asked.classes };
    let measured = measure(&probe, &examples, &rows(asked.classes.len()), device);
    Ok(Figures::new(
        asked.classes.len(),
        [
            ("accuracy", measured.accuracy),
            ("neighbours", neighbours),
            ("loss", measured.nats / asked.classes.len() as f64),
        ],
    ))
}

/// The features of the first images that have a class.
fn features<E: ImageEncoder>(
    encoder: &E,
    data: &ImageData,
    most: usize,
    batch_size: usize,
    device: &Device,
    told: &mut dyn FnMut(usize),
) -> Result<Features> {
    let n = data.examples().len().min(most);
    let mut all = Features { unit: Vec::new(), width: 0, classes: Vec::with_capacity(n) };
    for start in (0..n).step_by(batch_size) {
        let end = n.min(start + batch_size);
        let batch = data.in_order(start..end)?;
        let found = on_awake_cores(device, || encoder.summaries(pixels(&batch, device)).class.into_data());
        all.width = found.shape()[1];
        let values: Vec<f32> = found.iter::<f32>().collect();
        for vector in values.chunks_exact(all.width.max(1)) {
            let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-12);
            all.unit.extend(vector.iter().map(|x| x / length));
        }
        all.classes.extend(data.examples()[start..end].iter().map(|example| match example.target {
            Target::Class(class) => class,
            _ => 0,
        }));
        told(end);
    }
    Ok(all)
}

/// The share of images whose class is that of most of the nearest ones, by cosine; of equally many the lowest.
fn neighbours(learned: &Features, asked: &Features, n_classes: usize) -> f64 {
    let width = learned.width.max(1);
    let right = |(vector, class): (&[f32], &usize)| {
        let cosine = |other: &[f32]| vector.iter().zip(other).map(|(a, b)| a * b).sum::<f32>();
        let mut by_cosine: Vec<(f32, usize)> =
            learned.unit.chunks_exact(width).map(cosine).zip(learned.classes.iter().copied()).collect();
        let votes = VOTES.min(by_cosine.len());
        if votes == 0 {
            return false;
        }
        by_cosine.select_nth_unstable_by(votes - 1, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut counts = vec![0usize; n_classes];
        by_cosine[..votes].iter().for_each(|(_, class)| counts[*class] += 1);
        let most = counts.iter().max().copied().unwrap_or(0);
        counts.iter().position(|count| *count == most) == Some(*class)
    };
    let vectors: Vec<&[f32]> = asked.unit.chunks_exact(width).collect();
    let right = vectors
        .into_par_iter()
        .zip(&asked.classes)
        .filter(|(vector, class)| right((*vector, *class)))
        .count();
    right as f64 / asked.classes.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_vote() {
        let around = |angle: f32, class: usize| {
            (0..VOTES).map(move |i| {
                let angle = angle + 0.01 * i as f32;
                ([angle.cos(), angle.sin()], class)
            })
        };
        let of = |points: Vec<([f32; 2], usize)>| Features {
            unit: points.iter().flat_map(|(point, _)| *point).collect(),
            width: 2,
            classes: points.iter().map(|(_, class)| *class).collect(),
        };
        let learned = of(around(0.0, 2).chain(around(1.5, 0)).chain(around(3.0, 1)).collect());
        let asked = of(vec![([1.0, 0.1], 2), ([0.0, 1.0], 0), ([-1.0, 0.0], 1), ([-1.0, 0.1], 0)]);
        assert_eq!(neighbours(&learned, &asked, 3), 0.75);
    }
}
