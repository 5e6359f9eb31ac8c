//! One vector for each sequence.

use crate::encoder::States;
use crate::error::{OnnxError, Result};
use crate::graph::{Graph, Kind, Value, int, ints};
use crate::sequences::Sequences;
use cloze_model::bert::{Pooling, SentencePooling};
use cloze_model::huggingface::Dense;

/// The least sum of weights, as in sentence-transformers: a sequence without a token has a vector of zeros.
const LEAST: f32 = 1e-9;

/// Pools states.
///
/// # Shapes
/// - `states`: `[batch, len, d_model]`; returns `[batch, d_model]`
pub(crate) fn pool(
    graph: &mut Graph,
    pooling: Pooling,
    sequences: &mut Sequences,
    states: &Value,
) -> Result<Value> {
    let token = match pooling {
        Pooling::Cls => sequences.first(graph),
        Pooling::LastToken => sequences.last(graph),
        Pooling::Max => {
            let kept = sequences.kept(graph);
            let kept = graph.unsqueeze(&kept, &[2]);
            let least = graph.float(f32::MIN);
            let states = graph.op("Where", &[&kept, states, &least]);
            return Ok(graph.op_with("ReduceMax", &[&states], vec![ints("axes", &[1]), int("keepdims", 0)]));
        }
        Pooling::Mean | Pooling::MeanSqrtLen => {
            let weights = sequences.weights(graph);
            return Ok(weighted(graph, &weights, pooling, states));
        }
        Pooling::WeightedMean => {
            let numbers = sequences.numbers(graph);
            let numbers = graph.op("Mul", &[&numbers, &sequences.mask]);
            let weights = graph.cast(&numbers, Kind::Float);
            return Ok(weighted(graph, &weights, pooling, states));
        }
        other => {
            let expected = "mean, cls, max, mean_sqrt_len_tokens, weightedmean and lasttoken can";
            return Err(OnnxError::unsupported(format!("the pooling {other:?}"), expected));
        }
    };
    Ok(graph.token_of_each(states, &token))
}

/// The sum of weighted states, divided by that of the weights or by its root.
fn weighted(graph: &mut Graph, weights: &Value, pooling: Pooling, states: &Value) -> Value {
    let axes = graph.ints(&[1]);
    let total = graph.op_with("ReduceSum", &[weights, &axes], vec![int("keepdims", 1)]);
    let total = graph.scalar_op("Max", &total, LEAST);
    let total = match pooling {
        Pooling::MeanSqrtLen => graph.op("Sqrt", &[&total]),
        _ => total,
    };
    let weights = graph.unsqueeze(weights, &[2]);
    let products = graph.op("Mul", &[states, &weights]);
    let sum = graph.op_with("ReduceSum", &[&products, &axes], vec![int("keepdims", 0)]);
    graph.op("Div", &[&sum, &total])
}

/// How sentence-transformers makes a sentence's embedding of its states.
pub struct SentenceModules {
    /// The poolings.
    pub pooling: SentencePooling,
    /// The modules `Dense`, in their order.
    pub dense: Vec<Dense>,
    /// Whether embeddings are scaled to length 1.
    pub normalize: bool,
}

/// The embeddings of a batch, `[batch, width]`.
pub(crate) fn embedding(
    graph: &mut Graph,
    modules: &SentenceModules,
    sequences: &mut Sequences,
    states: &States,
) -> Result<Value> {
    let SentenceModules { pooling, dense, normalize } = modules;
    let layers = &states.all[states.all.len() - pooling.layers()..];
    let mut parts = Vec::new();
    for pooling in pooling.poolings() {
        for states in layers {
            parts.push(pool(graph, *pooling, sequences, states)?);
        }
    }
    let mut embedding = match &parts[..] {
        [one] => one.clone(),
        parts => graph.concat(&parts.iter().collect::<Vec<_>>(), 1),
    };
    for (number, dense) in dense.iter().enumerate() {
        embedding = graph.linear(&format!("dense.{number}"), dense.linear(), &embedding)?;
        if let Some(activation) = dense.activation() {
            embedding = graph.activation(activation, &embedding)?;
        }
    }
    if *normalize {
        let length = graph.op_with("ReduceL2", &[&embedding], vec![ints("axes", &[-1]), int("keepdims", 1)]);
        // As torch.nn.functional.normalize does.
        let length = graph.scalar_op("Max", &length, 1e-12);
        embedding = graph.op("Div", &[&embedding, &length]);
    }
    Ok(embedding)
}
