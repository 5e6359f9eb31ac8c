//! Attention maps and what they are made of.

use super::matrix::Matrix;
use super::model::{Input, Model};
use burn::tensor::{Device, Tensor};
use cloze_evaluation::inspection::{AttentionMaps, Head, Layer, MapKind, Neurons, Side};
use cloze_model::blocks::{ScoreParts, SeenAttention, observe_attention};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// What is kept of the attention.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// Numbers of layers.
    pub layers: Range<usize>,
    /// Whether queries and keys are kept too.
    pub neurons: bool,
    /// Whether each token is special, of the source and of the target.
    pub special: [Vec<bool>; 2],
}

/// The kinds of maps in the order of [`Model::n_layers`].
const KINDS: [MapKind; 4] =
    [MapKind::Own(Side::Source), MapKind::Own(Side::Target), MapKind::Cross, MapKind::Align];

/// Hands every layer of each kind to `take`, in order, with the kind's place in [`KINDS`] and the layer's number.
fn each_layer(
    model: &Model,
    input: &Input,
    device: &Device,
    mut take: impl FnMut(usize, usize, SeenAttention) + 'static,
) {
    let n_layers = model.n_layers();
    let n_target = input.target.len();
    let mut counts = [0; 4];
    let mut steps: Vec<Tensor<4>> = Vec::new();
    let observer = move |mut seen: SeenAttention| {
        let kind = match seen.is_cross {
            _ if n_layers[3] > 0 => 3,
            true => 2,
            false if counts[0] < n_layers[0] => 0,
            false => 1,
        };
        if kind == 3 {
            // A recurrent model may attend at one step after another.
            steps.extend(seen.probabilities.take());
            if steps.iter().map(|step| step.dims()[2]).sum::<usize>() < n_target {
                return None;
            }
            seen.probabilities = Some(Tensor::cat(std::mem::take(&mut steps), 2));
        }
        take(kind, counts[kind], seen);
        counts[kind] += 1;
        None
    };
    observe_attention(observer, || model.read(input, device));
}

/// The maps of all kinds that a model has.
pub(super) fn attention(model: &Model, input: &Input, wanted: Wanted, device: &Device) -> Vec<AttentionMaps> {
    let found: Rc<RefCell<[Vec<Layer>; 4]>> = Rc::default();
    let place = found.clone();
    each_layer(model, input, device, move |kind, number, seen| {
        if let Some(heads) =
            wanted.layers.contains(&number).then(|| heads(KINDS[kind], seen, &wanted)).flatten()
        {
            place.borrow_mut()[kind].push(Layer { layer: number, heads });
        }
    });
    let maps = KINDS.into_iter().zip(found.take()).filter(|(_, layers)| !layers.is_empty());
    maps.map(|(kind, layers)| AttentionMaps { kind, layers }).collect()
}

/// The mean over heads of each layer of a kind, which an encoder–decoder has for its cross-attention too.
pub(super) fn means(model: &Model, input: &Input, kind: MapKind, device: &Device) -> Vec<Matrix> {
    let found: Rc<RefCell<Vec<Matrix>>> = Rc::default();
    let place = found.clone();
    each_layer(model, input, device, move |number, _, seen| {
        if let Some(probabilities) = seen.probabilities.filter(|_| KINDS[number] == kind) {
            let [.., k_len] = probabilities.dims();
            let values = probabilities.mean_dim(1).into_data().iter::<f64>().collect();
            place.borrow_mut().push(Matrix::new(values, k_len));
        }
    });
    found.take()
}

/// The heads of a layer; none if it shows nothing.
fn heads(kind: MapKind, seen: SeenAttention, wanted: &Wanted) -> Option<Vec<Head>> {
    let probabilities = seen.probabilities?;
    let [_, n_heads, q_len, k_len] = probabilities.dims();
    let shares = floats(probabilities);
    let mut neurons: Vec<Option<Neurons>> = match seen.scores.filter(|_| wanted.neurons) {
        Some(parts) => of_heads(parts, [n_heads, q_len, k_len]).into_iter().map(Some).collect(),
        None => vec![None; n_heads],
    };
    let special = match kind {
        MapKind::Own(Side::Target) => &wanted.special[1],
        _ => &wanted.special[0],
    };
    let is_own = matches!(kind, MapKind::Own(_));
    let head = |(shares, neurons): (&[f32], &mut Option<Neurons>)| {
        let rows = || shares.chunks(k_len).enumerate();
        let mean = |of: &dyn Fn(usize, usize, f64) -> f64| {
            let sum = |(i, row): (usize, &[f32])| -> f64 {
                row.iter().enumerate().map(|(j, share)| of(i, j, f64::from(*share))).sum()
            };
            rows().map(sum).sum::<f64>() / q_len.max(1) as f64
        };
        Head {
            entropy: mean(&|_, _, share| entropy_of(share)),
            distance: is_own.then(|| mean(&|i, j, share| share * i.abs_diff(j) as f64)),
            special: mean(&|_, j, share| if special[j] { share } else { 0.0 }),
            shares: shares.to_vec(),
            neurons: neurons.take(),
        }
    };
    Some(shares.chunks(q_len * k_len).zip(&mut neurons).map(head).collect())
}

/// What a share adds to an entropy, in bits.
pub(super) fn entropy_of(share: f64) -> f64 {
    if share > 0.0 { -share * share.log2() } else { 0.0 }
}

fn of_heads(parts: ScoreParts, [n_heads, q_len, k_len]: [usize; 3]) -> Vec<Neurons> {
    let [_, n_kv_heads, _, width] = parts.keys.dims();
    let positions = parts.positions.map(|bias| floats(bias.expand([1, n_heads, q_len, k_len])));
    let (queries, keys) = (floats(parts.queries), floats(parts.keys));
    let neurons = |head: usize| {
        let of_keys = head / (n_heads / n_kv_heads);
        Neurons {
            width,
            scale: parts.scale,
            queries: queries[head * q_len * width..(head + 1) * q_len * width].to_vec(),
            keys: keys[of_keys * k_len * width..(of_keys + 1) * k_len * width].to_vec(),
            positions: positions
                .as_ref()
                .map(|positions| positions[head * q_len * k_len..(head + 1) * q_len * k_len].to_vec()),
        }
    };
    (0..n_heads).map(neurons).collect()
}

fn floats(x: Tensor<4>) -> Vec<f32> {
    x.into_data().iter::<f32>().collect()
}
