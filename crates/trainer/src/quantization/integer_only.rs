//! An encoder in integers alone: I-BERT (Kim et al. 2021) after training.

use super::histogram::{Histogram, Ranges};
use super::source::tokenizer_of;
use super::{QuantizeReport, unusable};
use crate::fit::check_fit;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::ParamInit;
use cloze_model::bert::integer_only::{IntegerMap, IntegerParts, IntegerSite, observe_sites};
use cloze_model::huggingface::{PretrainedFolder, check_integer_only};
use cloze_model::ops::integer_only::greatest;
use std::collections::BTreeMap;
use std::path::Path;

/// What sums of 16 and 22 bits leave beyond the greatest that was measured: as much again.
const MARGIN: f64 = 2.0;

/// Rounds the encoder in the folder `from`, and a head with tanh on it, to integers, in ranges that are measured on texts,
/// and writes them to `to`.
///
/// # Errors
/// As [`quantize`](super::quantize); [`TrainerError::Setting`] for an encoder that cannot be computed in integers alone.
pub(super) fn quantize_integer_only(
    from: &Path,
    to: &Path,
    ranges: Ranges,
    texts: impl IntoIterator<Item = Result<String>>,
    device: &Device,
    progress: &mut impl FnMut(usize),
) -> Result<QuantizeReport> {
    let pretrained = PretrainedFolder::open(from)?;
    check_integer_only(&pretrained.config)?;
    let head = pretrained.float_head()?;
    let (config, bert, _) = PretrainedFolder::open(from)?.load_encoder(&mut ParamInit::new(device, 0))?;
    let tokenizer = tokenizer_of(from, config.max_positions)?;
    check_fit(&tokenizer, &config, from, false)?;

    let mut seen: BTreeMap<IntegerSite, Histogram> = BTreeMap::new();
    let (mut n_texts, mut finite) = (0, true);
    for text in texts {
        let encoding = tokenizer.encode(&text?, true)?;
        if encoding.is_empty() {
            continue;
        }
        let row = |numbers: &[u32]| {
            let numbers: Vec<i32> = numbers.iter().map(|number| *number as i32).collect();
            let n = numbers.len();
            Tensor::<2, Int>::from_data(TensorData::new(numbers, [1, n]), device)
        };
        let tokens = [row(&encoding.ids), row(&encoding.type_ids)];
        observe_sites(&bert, &config, head.as_ref(), tokens, &mut |site, numbers| {
            finite &= numbers.iter().all(|x| x.is_finite());
            if finite {
                seen.entry(site).or_insert_with(Histogram::new).add(numbers);
            }
        });
        if !finite {
            return Err(TrainerError::OutputNotFinite);
        }
        n_texts += 1;
        progress(n_texts);
    }
    if n_texts == 0 {
        let expected = "texts like those that the model is for".into();
        return Err(TrainerError::Setting { key: "calibrate".into(), found: "no text".into(), expected });
    }
    let most = |site: IntegerSite| {
        let Some(histogram) = seen.get(&site) else { return 0.0 };
        match site.bits() {
            8 => f64::from(histogram.symmetric_end(ranges, greatest(8))),
            _ => MARGIN * f64::from(histogram.symmetric_end(Ranges::MinMax, 1.0)),
        }
    };
    let parts = IntegerParts::of_floats(&bert, &config, head.as_ref(), most)
        .map_err(|reason| unusable(from, "the encoder", &reason))?;
    let saved = pretrained.save_integer_only(to, &parts)?;
    let [lost, all] = weight_error(&bert, &parts);
    Ok(QuantizeReport {
        saved,
        uneven: Vec::new(),
        n_silent: 0,
        n_texts,
        weight_error: if all > 0.0 { lost / all } else { 0.0 },
    })
}

/// The squared errors of the layers' weights, and their squares.
fn weight_error(bert: &cloze_model::bert::Bert, parts: &IntegerParts) -> [f64; 2] {
    let mut sums = [0.0; 2];
    let squared = |x: f32| f64::from(x) * f64::from(x);
    for (layer, parts) in bert.encoder.layers.iter().zip(&parts.layers) {
        let (attention, network) = (&layer.attention, &layer.feed_forward);
        let maps: [(_, &IntegerMap); 6] = [
            (&attention.query, &parts.query),
            (&attention.key, &parts.key),
            (&attention.value, &parts.value),
            (&attention.output, &parts.output),
            (&network.up, &parts.up),
            (&network.down, &parts.down),
        ];
        for (linear, map) in maps {
            let numbers = linear.weight.val().transpose().into_data();
            for (w, back) in numbers.iter::<f32>().zip(map.matrix.dequantized()) {
                sums[0] += squared(w - back);
                sums[1] += squared(w);
            }
        }
    }
    sums
}
