//! Rotary positions (Su et al. 2021).

use crate::error::{OnnxError, Result};
use crate::graph::{Graph, Kind, Value};
use crate::sequences::Sequences;
use cloze_model::ops::{LongFrequencies, Rotary, RotaryPairs};

/// The cosines and sines of all positions, which layers share, and the rotation by them.
pub(crate) struct Rotation {
    /// `[1 or batch, len, 1, pairs]`
    cos: Value,
    sin: Value,
    /// Whether a pair is two neighbouring features rather than one of each half.
    neighbours: bool,
    n_pairs: usize,
}

impl Rotation {
    /// The angles of a batch's positions, counted from its first place: what padding on the left adds to them does not
    /// change the distances, on which alone the scores depend.
    pub fn new(graph: &mut Graph, rotary: &Rotary, sequences: &mut Sequences) -> Result<Self> {
        let neighbours = match rotary.pairs() {
            RotaryPairs::Halves => false,
            RotaryPairs::Neighbours => true,
            other => return Err(unsupported(format!("rotary pairs {other:?}"))),
        };
        let n_pairs = rotary.frequencies().len();
        let frequencies = frequencies(graph, rotary, sequences)?;
        let places = sequences.places(graph);
        let places = graph.cast(&places, Kind::Float);
        let places = graph.unsqueeze(&places, &[0, 2]);
        let angles = graph.op("Mul", &[&places, &frequencies]);
        let mut part = |kind| {
            let part = graph.op(kind, &[&angles]);
            let part = match rotary.magnitude() {
                1.0 => part,
                magnitude => graph.scalar_op("Mul", &part, magnitude),
            };
            graph.unsqueeze(&part, &[2])
        };
        let [cos, sin] = ["Cos", "Sin"].map(&mut part);
        Ok(Self { cos, sin, neighbours, n_pairs })
    }

    /// Rotates the first features of each head.
    ///
    /// # Shapes
    /// - `x`: `[batch, len, n_heads, d]`; returns the same
    pub fn apply(&self, graph: &mut Graph, x: &Value, [n_heads, d]: [usize; 2]) -> Value {
        let n = self.n_pairs as i64;
        let rest = d as i64 - 2 * n;
        let rest_of =
            |sizes: &[i64]| sizes.iter().copied().chain((rest > 0).then_some(rest)).collect::<Vec<_>>();
        match self.neighbours {
            false => {
                let parts = graph.split(x, &rest_of(&[n, n]), 3);
                let turned = self.turned(graph, [&parts[0], &parts[1]]);
                let turned: Vec<&Value> = turned.iter().chain(parts.get(2)).collect();
                graph.concat(&turned, 3)
            }
            true => {
                let parts = match rest {
                    0 => vec![x.clone()],
                    _ => graph.split(x, &rest_of(&[2 * n]), 3),
                };
                let heads = n_heads as i64;
                let pairs = graph.reshape(&parts[0], &[0, 0, heads, n, 2]);
                let sides = graph.split(&pairs, &[1, 1], 4);
                let sides = [graph.squeeze(&sides[0], &[4]), graph.squeeze(&sides[1], &[4])];
                let turned = self.turned(graph, [&sides[0], &sides[1]]);
                let turned = turned.map(|side| graph.unsqueeze(&side, &[4]));
                let turned = graph.concat(&[&turned[0], &turned[1]], 4);
                let turned = graph.reshape(&turned, &[0, 0, heads, 2 * n]);
                match parts.get(1) {
                    Some(rest) => graph.concat(&[&turned, rest], 3),
                    None => turned,
                }
            }
        }
    }

    /// Both features of the pairs after the rotation.
    fn turned(&self, graph: &mut Graph, [a, b]: [&Value; 2]) -> [Value; 2] {
        let mut product = |x: &Value, y: &Value| graph.op("Mul", &[x, y]);
        let [a_cos, b_sin] = [product(a, &self.cos), product(b, &self.sin)];
        let [b_cos, a_sin] = [product(b, &self.cos), product(a, &self.sin)];
        [graph.op("Sub", &[&a_cos, &b_sin]), graph.op("Add", &[&b_cos, &a_sin])]
    }
}

/// The angle that a position adds to each pair, `[pairs]`, or `[batch, 1, pairs]` if it depends on the number of a
/// sequence's tokens.
fn frequencies(graph: &mut Graph, rotary: &Rotary, sequences: &mut Sequences) -> Result<Value> {
    let short = graph.floats(rotary.frequencies(), &[rotary.frequencies().len()]);
    let Some((most, long)) = rotary.long() else { return Ok(short) };
    let axes = graph.ints(&[1]);
    let lengths = graph.op("ReduceSum", &[&sequences.mask, &axes]);
    let lengths = graph.unsqueeze(&lengths, &[2]);
    let most_value = graph.int(*most as i64);
    let is_long = graph.op("Greater", &[&lengths, &most_value]);
    let long = match long {
        LongFrequencies::Fixed(long) => graph.floats(long, &[long.len()]),
        LongFrequencies::Ntk { theta, factor } => {
            // In 64 bits, as the model computes them: an angle is a multiple of its frequency's rounding error.
            let n = rotary.width() as f64;
            let lengths = graph.cast(&lengths, Kind::Double);
            let mut with = |kind: &str, x: &Value, number: f64| {
                let number = graph.doubles(&[number], &[1]);
                graph.op(kind, &[x, &number])
            };
            let growth = with("Mul", &lengths, factor / *most as f64);
            let growth = with("Sub", &growth, factor - 1.0);
            // The growth of sequences that are not long does not matter; below 1 it may have no power.
            let growth = with("Max", &growth, 1.0);
            let growth = with("Pow", &growth, n / (n - 2.0));
            let base = with("Mul", &growth, *theta);
            let pairs = rotary.frequencies().len();
            let exponents: Vec<f64> = (0..pairs).map(|i| -2.0 * i as f64 / n).collect();
            let exponents = graph.doubles(&exponents, &[pairs]);
            let frequencies = graph.op("Pow", &[&base, &exponents]);
            graph.cast(&frequencies, Kind::Float)
        }
        other => return Err(unsupported(format!("rotary angles {other:?}"))),
    };
    Ok(graph.op("Where", &[&is_long, &long, &short]))
}

fn unsupported(what: String) -> OnnxError {
    OnnxError::unsupported(what, "those of published encoders can")
}
