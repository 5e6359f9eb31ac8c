//! An encoder of integers on the inputs of one of floats.

use super::{IntegerBert, IntegerToken};
use crate::bert::{BertInput, BertOutput, Pooling};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use std::ops::Range;

/// Sequences without padding, and where each token has been.
struct Tokens {
    tokens: Vec<IntegerToken>,
    lengths: Vec<usize>,
    /// The places in the flattened batch.
    places: Vec<usize>,
    /// Of the batch.
    dims: [usize; 2],
    device: Device,
}

impl Tokens {
    /// # Panics
    /// For what the encoder does not compute: a bias of scores, causal attention, sights, and attention probabilities.
    fn new(input: BertInput) -> Self {
        let is_plain = input.bias.is_none() && !input.causal && input.sights.is_none();
        assert!(
            is_plain && !input.trace.attentions,
            "an encoder of integers attends to all tokens of a sequence"
        );
        let numbers = |ids: Tensor<2, Int>| -> Vec<usize> {
            ids.into_data()
                .iter::<i64>()
                .map(|id| usize::try_from(id).expect("ids are not negative"))
                .collect()
        };
        let (dims, device) = (input.input_ids.dims(), input.input_ids.device());
        let [batch, len] = dims;
        let ids = numbers(input.input_ids);
        let types = numbers(input.token_type_ids);
        let explicit = input.position_ids.map(numbers);
        let ignored =
            input.pad_mask.map(|mask: Tensor<2, Bool>| mask.into_data().iter::<bool>().collect::<Vec<_>>());
        let rows: Vec<Range<usize>> = match &input.packing {
            Some(packing) => {
                packing.starts().zip(packing.lengths()).map(|(start, len)| start..start + len).collect()
            }
            None => (0..batch).map(|row| row * len..(row + 1) * len).collect(),
        };
        let (mut tokens, mut lengths, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            let start = row.start;
            let kept = row.filter(|place| ignored.as_ref().is_none_or(|ignored| !ignored[*place]));
            let before = places.len();
            places.extend(kept);
            lengths.push(places.len() - before);
            tokens.extend(places[before..].iter().map(|place| IntegerToken {
                id: ids[*place],
                token_type: types[*place],
                position: explicit.as_ref().map_or(place - start, |positions| positions[*place]),
            }));
        }
        Self { tokens, lengths, places, dims, device }
    }

    /// The numbers of integers, in the places of their tokens: 0 where there is padding.
    fn spread(&self, states: &[i8], scale: f64) -> Tensor<3> {
        let ([batch, len], d) = (self.dims, states.len() / self.tokens.len().max(1));
        let mut all = vec![0f32; batch * len * d];
        for (place, states) in self.places.iter().zip(states.chunks_exact(d.max(1))) {
            let to = &mut all[place * d..][..d];
            to.iter_mut().zip(states).for_each(|(to, q)| *to = f32::from(*q) * scale as f32);
        }
        Tensor::from_data(TensorData::new(all, [batch, len, d]), &self.device)
    }
}

/// The states in floats: each an integer times the layer's scale.
///
/// # Panics
/// For a bias of scores, causal attention, sights, and a trace of attention probabilities.
pub(in crate::bert) fn forward(bert: &IntegerBert, input: BertInput) -> BertOutput {
    let all = input.trace.hidden_states;
    let tokens = Tokens::new(input);
    let scales = bert.scales();
    if !all {
        let states = bert.states(&tokens.tokens, &tokens.lengths);
        let last_hidden_state = tokens.spread(&states, scales[scales.len() - 1]);
        return BertOutput { last_hidden_state, hidden_states: Vec::new(), attentions: Vec::new() };
    }
    let states = bert.all_states(&tokens.tokens, &tokens.lengths);
    let hidden_states: Vec<_> =
        states.iter().zip(scales).map(|(states, scale)| tokens.spread(states, *scale)).collect();
    let last_hidden_state = hidden_states[hidden_states.len() - 1].clone();
    BertOutput { last_hidden_state, hidden_states, attentions: Vec::new() }
}

/// The logits of each sequence, `[sequences, n_outputs]`; none if the head has no integers.
pub(crate) fn logits(bert: &IntegerBert, input: &BertInput) -> Option<Tensor<2>> {
    let n_outputs = bert.n_outputs()?;
    let tokens = Tokens::new(input.clone());
    let logits = bert.logits(&tokens.tokens, &tokens.lengths)?;
    let data = TensorData::new(logits, [tokens.lengths.len(), n_outputs]);
    Some(Tensor::from_data(data, &tokens.device))
}

/// Each sequence's states pooled: of each pooling the last `n_layers` layers, the deepest last, without the first `skipped`
/// tokens. Sums are exact; each number is multiplied with a scale once.
///
/// # Shapes
/// - returns `[sequences, poolings · n_layers · d_model]`
///
/// # Panics
/// If there are fewer layers, and as [`forward`].
pub(crate) fn pooled(
    bert: &IntegerBert,
    input: BertInput,
    poolings: &[Pooling],
    n_layers: usize,
    skipped: usize,
) -> Tensor<2> {
    let tokens = Tokens::new(input);
    let (d, scales) = (bert.d_model(), bert.scales());
    assert!(n_layers < scales.len(), "the encoder has {} layers", scales.len() - 1);
    let layers = match n_layers {
        1 => vec![bert.states(&tokens.tokens, &tokens.lengths)],
        n => bert.all_states(&tokens.tokens, &tokens.lengths).split_off(scales.len() - n),
    };
    let scales = &scales[scales.len() - n_layers..];
    let (mut all, mut start) = (Vec::new(), 0);
    for len in &tokens.lengths {
        let of = start * d..(start + len) * d;
        start += len;
        for pooling in poolings {
            for (states, scale) in layers.iter().zip(scales) {
                all.extend(pool(&states[of.clone()], d, *pooling, skipped, *scale));
            }
        }
    }
    let n = tokens.lengths.len();
    let width = all.len() / n.max(1);
    Tensor::from_data(TensorData::new(all, [n, width]), &tokens.device)
}

fn pool(states: &[i8], d: usize, pooling: Pooling, skipped: usize, scale: f64) -> Vec<f32> {
    let len = states.len() / d;
    let skipped = skipped.min(len.saturating_sub(1));
    let rows = || states.chunks_exact(d).enumerate().skip(skipped);
    let floats = |numbers: Vec<i64>, divisor: f64| -> Vec<f32> {
        numbers.into_iter().map(|q| (q as f64 * scale / divisor) as f32).collect()
    };
    let sum = |weight: &dyn Fn(usize) -> i64| {
        let mut sums = vec![0i64; d];
        for (place, row) in rows() {
            sums.iter_mut().zip(row).for_each(|(sum, q)| *sum += weight(place) * i64::from(*q));
        }
        sums
    };
    let n = (len - skipped) as f64;
    let one = |place: usize| states[place * d..][..d].iter().map(|q| i64::from(*q)).collect();
    match pooling {
        Pooling::Cls => floats(one(0), 1.0),
        Pooling::LastToken => floats(one(len - 1), 1.0),
        Pooling::Mean => floats(sum(&|_| 1), n),
        Pooling::MeanSqrtLen => floats(sum(&|_| 1), n.sqrt()),
        Pooling::WeightedMean => {
            let weights: i64 = rows().map(|(place, _)| place as i64 + 1).sum();
            floats(sum(&|place| place as i64 + 1), weights as f64)
        }
        Pooling::Max => {
            let mut most = vec![i64::from(i8::MIN); d];
            for (_, row) in rows() {
                most.iter_mut().zip(row).for_each(|(most, q)| *most = (*most).max(i64::from(*q)));
            }
            floats(most, 1.0)
        }
    }
}
