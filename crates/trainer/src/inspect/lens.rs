//! The logit lens (nostalgebraist 2020): what each layer would answer, if it were the last one.

use super::model::{Input, Model, copies_of};
use burn::tensor::{Device, Tensor};
use cloze_evaluation::inspection::{Lens, LensLayer, LensPosition, Side};
use cloze_model::blocks::{Norm, record_pass};
use cloze_model::seq2seq::AnyEncoderDecoder;

/// The pieces named at each layer and position.
const BEST: usize = 5;

/// Positions whose logits are computed at once.
const POSITIONS: usize = 64;

/// What each layer of a masked or left-to-right model, or of a decoder, would answer; none for other models, and where layers
/// have other features than the head reads. States go through the model's own last normalisation and its head.
pub(super) fn lens(
    model: &Model,
    input: &Input,
    name: impl Fn(u32) -> String,
    device: &Device,
) -> Option<Lens> {
    type Head<'a> = Box<dyn Fn(Tensor<2>) -> Tensor<2> + 'a>;
    let (norm, head): (Option<&Norm>, Head<'_>) = match model {
        Model::Masked(model) => {
            let table = model.bert.embeddings.tokens.weight.val();
            (
                model.bert.encoder.final_norm.as_ref(),
                Box::new(move |states| model.mlm.forward(states, table.clone())),
            )
        }
        Model::Writer(model) => (model.final_norm.as_ref(), Box::new(|states| model.project(states))),
        Model::Translator(AnyEncoderDecoder::Transformer(model)) => {
            (model.decoder.final_norm.as_ref(), Box::new(|states| model.project(states)))
        }
        Model::ElmoWriter(model) => (None, Box::new(|states| model.output.forward(states))),
        _ => return None,
    };
    let side = if input.target.is_empty() { Side::Source } else { Side::Target };
    let all = match model {
        Model::ElmoWriter(model) => {
            let layers = model.encoder.forward(&copies_of(&input.source.input_ids, 1), device).layers;
            // Those of the direction that predicts the next token come first.
            layers.into_iter().map(|both| both.chunk(2, 1).remove(0)).collect()
        }
        _ => record_pass(|| model.read(input, device)).1.states,
    };
    let n = all.len();
    let logits = |number: usize, start: usize, len: usize| {
        let states = all[number].clone().narrow(0, start, len);
        let states = match norm {
            // The last states are normalised already.
            Some(norm) if number + 1 < n => norm.forward(states),
            _ => states,
        };
        rows(head(states))
    };
    let n_positions = all[0].dims()[0];
    let mut layers: Vec<LensLayer> = (0..n).map(|layer| LensLayer { layer, positions: Vec::new() }).collect();
    for start in (0..n_positions).step_by(POSITIONS) {
        let len = POSITIONS.min(n_positions - start);
        let answers: Vec<usize> = logits(n - 1, start, len).iter().map(|row| best(row, 1)[0]).collect();
        for (number, layer) in layers.iter_mut().enumerate() {
            let rows = logits(number, start, len);
            layer
                .positions
                .extend(rows.iter().zip(&answers).map(|(row, answer)| position(row, *answer, &name)));
        }
    }
    Some(Lens { side, layers })
}

fn position(logits: &[f32], answer: usize, name: impl Fn(u32) -> String) -> LensPosition {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponential = |logit: f32| f64::from(logit - greatest).exp();
    let sum: f64 = logits.iter().map(|logit| exponential(*logit)).sum();
    let best = best(logits, BEST);
    LensPosition {
        best: best.into_iter().map(|id| (name(id as u32), exponential(logits[id]) / sum)).collect(),
        rank: 1 + logits.iter().filter(|logit| **logit > logits[answer]).count(),
    }
}

/// The indices of the largest numbers, the best one first, and of equal ones the first.
pub(super) fn best(values: &[f32], n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    let by_value = |a: &usize, b: &usize| values[*b].total_cmp(&values[*a]).then(a.cmp(b));
    let n = n.min(order.len());
    if n == 0 {
        return order;
    }
    order.select_nth_unstable_by(n - 1, by_value);
    order.truncate(n);
    order.sort_by(by_value);
    order
}

/// A tensor's rows on the host.
pub(super) fn rows(values: Tensor<2>) -> Vec<Vec<f32>> {
    let [_, width] = values.dims();
    let values: Vec<f32> = values.into_data().iter::<f32>().collect();
    values.chunks_exact(width.max(1)).map(<[f32]>::to_vec).collect()
}
