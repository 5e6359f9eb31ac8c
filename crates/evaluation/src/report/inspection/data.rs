//! What the page's script reads: everything of an [`Inspection`] but shares and neurons, which are packed beside it.

use std::collections::HashMap;

use serde::Serialize;

use super::pack::{Rounded, Shares};
use crate::inspection::{
    Alignment, Answer, AttentionMaps, Completeness, Explanation, Inspection, Layer, Lens, LensLayer,
    LensPosition, MapKind, Method, Side, Token,
};
use crate::report::html;

#[derive(Serialize)]
pub(super) struct Data<'a> {
    source: Tokens,
    target: Option<Tokens>,
    pub maps: Vec<Map>,
    answer: Option<&'a Answer>,
    explanations: Vec<Explained<'a>>,
    alignment: Option<Aligned<'a>>,
}

/// Tokens as columns.
#[derive(Serialize)]
struct Tokens {
    texts: Vec<String>,
    words: Vec<Option<usize>>,
    special: Vec<u8>,
    parts: Vec<u8>,
}

#[derive(Serialize)]
pub(super) struct Map {
    /// Its name in the page's address.
    name: &'static str,
    title: &'static str,
    rows: &'static str,
    columns: &'static str,
    pub layers: Vec<LayerData>,
}

#[derive(Serialize)]
pub(super) struct LayerData {
    layer: usize,
    heads: Vec<HeadData>,
    /// The shares of all heads, and what neurons there are: not part of the JSON.
    #[serde(skip)]
    pub shares: Vec<u8>,
    #[serde(skip)]
    pub neurons: Vec<u8>,
}

#[derive(Serialize)]
struct HeadData {
    /// In bits; `null` if it is not finite.
    entropy: f32,
    distance: Option<f32>,
    special: f32,
    step: f32,
    neurons: Option<NeuronsData>,
}

#[derive(Serialize)]
struct NeuronsData {
    width: usize,
    scale: f64,
    queries: f32,
    keys: f32,
    positions: Option<(f32, f32)>,
}

#[derive(Serialize)]
struct Explained<'a> {
    name: &'static str,
    /// What it shows, and what it does not.
    note: &'static str,
    signed: bool,
    source: Vec<f32>,
    target: Vec<f32>,
    completeness: Option<&'a Completeness>,
}

#[derive(Serialize)]
struct Aligned<'a> {
    pairs: &'a [(usize, usize)],
    entropies: Vec<f32>,
}

/// The lens, its pieces written once.
#[derive(Serialize)]
pub(super) struct LensData {
    side: Side,
    layers: Vec<usize>,
    pieces: Vec<String>,
    /// By layer, then position: the rank, and then a piece's number and its probability in ten-thousandths, and so on.
    cells: Vec<Vec<Vec<usize>>>,
}

/// Whether there is anything to show of a map.
pub(super) fn has_heads(maps: &AttentionMaps) -> bool {
    maps.layers.iter().any(|layer| !layer.heads.is_empty())
}

impl<'a> Data<'a> {
    pub(super) fn of(inspection: &'a Inspection) -> Self {
        let maps = inspection.attention.iter().filter(|maps| has_heads(maps));
        let aligned = |alignment: &'a Alignment| Aligned {
            pairs: &alignment.pairs,
            entropies: short(&alignment.entropies),
        };
        Self {
            source: Tokens::of(&inspection.source),
            target: inspection.target.as_deref().map(Tokens::of),
            maps: maps.map(|maps| Map::of(maps, inspection)).collect(),
            answer: inspection.answer.as_ref(),
            explanations: inspection.explanations.iter().map(Explained::of).collect(),
            alignment: inspection.alignment.as_ref().map(aligned),
        }
    }
}

impl Tokens {
    fn of(tokens: &[Token]) -> Self {
        Self {
            texts: tokens.iter().map(|token| html::clipped(&token.text)).collect(),
            words: tokens.iter().map(|token| token.word).collect(),
            special: tokens.iter().map(|token| token.special.into()).collect(),
            parts: tokens.iter().map(|token| token.part).collect(),
        }
    }
}

impl Map {
    fn of(maps: &AttentionMaps, inspection: &Inspection) -> Self {
        let (name, title, rows, columns) = match maps.kind {
            MapKind::Own(Side::Source) => ("source", "what is read, to itself", "source", "source"),
            MapKind::Own(Side::Target) => ("target", "what is written, to itself", "target", "target"),
            MapKind::Cross => ("cross", "what is written, to what is read", "target", "source"),
            MapKind::Align => ("align", "alignment: what is written, to what is read", "target", "source"),
        };
        let count = |side| match side {
            "source" => inspection.source.len(),
            _ => inspection.target.as_ref().map_or(0, Vec::len),
        };
        let (queries, keys) = (count(rows), count(columns));
        let layer = |layer: &Layer| {
            let (mut shares, mut neurons) = (Vec::new(), Vec::new());
            let heads = layer.heads.iter().enumerate().map(|(at, head)| {
                assert_eq!(
                    head.shares.len(),
                    queries * keys,
                    "{name}, layer {}, head {at}: a share for each query and key",
                    layer.layer
                );
                let packed = Shares::of(head, queries, keys);
                shares.extend(packed.bytes);
                let rounded = head.neurons.as_ref().map(|of| {
                    let (q, k) = (queries * of.width, keys * of.width);
                    assert_eq!(
                        (of.queries.len(), of.keys.len()),
                        (q, k),
                        "{name}: `width` numbers for each query and key"
                    );
                    let positions = of.positions.as_ref().map_or(queries * keys, Vec::len);
                    assert_eq!(positions, queries * keys, "{name}: a number for each query and key");
                    let packed = Rounded::of(of);
                    neurons.extend(packed.bytes);
                    let Rounded { queries, keys, positions, .. } = packed;
                    NeuronsData { width: of.width, scale: of.scale, queries, keys, positions }
                });
                HeadData {
                    entropy: head.entropy as f32,
                    distance: head.distance.map(|distance| distance as f32),
                    special: head.special as f32,
                    step: packed.step,
                    neurons: rounded,
                }
            });
            let heads = heads.collect();
            LayerData { layer: layer.layer, heads, shares, neurons }
        };
        Self {
            name,
            title,
            rows,
            columns,
            layers: maps.layers.iter().filter(|layer| !layer.heads.is_empty()).map(layer).collect(),
        }
    }
}

impl<'a> Explained<'a> {
    fn of(explanation: &'a Explanation) -> Self {
        let (name, note) = match explanation.method {
            Method::Rollout => (
                "attention rollout",
                "The path of attention through all layers, residual connections counted as half. It knows no sign and no class: \
                 it shows what could have been mixed into the answer, not what was used.",
            ),
            Method::GradientTimesInput => (
                "gradient × input",
                "How the score changes at this very point, times the word embedding. It shows the slope, which may be \
                 steep where nothing is at stake and flat where the score has saturated.",
            ),
            Method::IntegratedGradients => (
                "integrated gradients",
                "What each token adds to the score on a straight path from the baseline. The numbers add up to the \
                 difference; another baseline gives others.",
            ),
            Method::GradientWeightedAttention => (
                "attention weighted by its gradient",
                "The path of that attention whose growth would raise the score (Chefer et al. 2021). It shows what speaks for the answer, \
                 not what speaks against it.",
            ),
            Method::Occlusion => (
                "occlusion",
                "What the score loses if this token alone is masked. Tokens that can replace each other all look unimportant, \
                 and a text with a gap is not one that the model has seen.",
            ),
        };
        Self {
            name,
            note,
            signed: explanation.signed,
            source: short(&explanation.source),
            target: short(&explanation.target),
            completeness: explanation.completeness.as_ref(),
        }
    }
}

impl LensData {
    pub(super) fn of<'a>(lens: &'a Lens) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut pieces = Vec::new();
        let mut cell = |position: &'a LensPosition| {
            let mut cell = vec![position.rank];
            for (piece, probability) in &position.best {
                let number = *numbers.entry(piece).or_insert_with(|| {
                    pieces.push(html::clipped(piece));
                    pieces.len() - 1
                });
                cell.extend([number, (probability * 10_000.0).round() as usize]);
            }
            cell
        };
        let layer = |layer: &'a LensLayer| layer.positions.iter().map(&mut cell).collect();
        let cells = lens.layers.iter().map(layer).collect();
        Self { side: lens.side, layers: lens.layers.iter().map(|layer| layer.layer).collect(), pieces, cells }
    }
}

/// Numbers in the digits that a page shows.
fn short(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}
