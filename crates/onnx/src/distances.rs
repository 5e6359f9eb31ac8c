//! What distances between tokens add to the scores of attention.

use crate::Result;
use crate::graph::{Graph, Kind, Value, int};
use crate::sequences::Sequences;
use cloze_model::bert::{BertConfig, BertEmbeddings};
use cloze_model::blocks::{DistanceVectors, RelativeBias, TransformerXlConfig};

/// The vectors of distances that all layers share (DeBERTa, XLNet).
pub(crate) struct Distances {
    /// `[n_rows, d_model]`
    pub vectors: Value,
    /// The row of each query's distance to each key, `[len, len]`.
    pub rows: Value,
    /// 1 where a key is of another segment than its query, else 0, `[batch, 1, len, len]` (XLNet).
    pub of_others: Option<Value>,
}

impl Distances {
    /// Those of the embeddings, if the attention has such terms.
    pub fn of(
        graph: &mut Graph,
        embeddings: &BertEmbeddings,
        config: &BertConfig,
        sequences: &mut Sequences,
    ) -> Result<Option<Self>> {
        if let Some(vectors) = &embeddings.distances {
            return Self::learned(graph, vectors, config, sequences).map(Some);
        }
        Ok(config.transformer_xl.map(|terms| Self::sinusoids(graph, terms, config.d_model, sequences)))
    }

    fn learned(
        graph: &mut Graph,
        vectors: &DistanceVectors,
        config: &BertConfig,
        sequences: &mut Sequences,
    ) -> Result<Self> {
        let n_rows = vectors.table.weight.dims()[0] as i64;
        let is_last = |most: i64| vectors.row(most) == 0 && vectors.row(-most) == n_rows - 1;
        // Beyond the greatest distance of the buckets, each side has one row.
        let mut most = config.disentangled.map_or(1, |terms| terms.max_distance as i64);
        while !is_last(most) && most < config.max_positions as i64 {
            most += 1;
        }
        graph.within("distances", |graph| {
            let table = graph.parameter("weight", vectors.table.weight.val());
            let vectors_value = match &vectors.norm {
                Some(norm) => graph.layer_norm("norm", norm, config, &table)?,
                None => table,
            };
            let rows = rows(graph, sequences, most, |distance| vectors.row(distance));
            Ok(Self { vectors: vectors_value, rows, of_others: None })
        })
    }

    /// The sinusoids of the distances `len − 1, …, 1 − len`, sines first (Yang et al. 2019; the reference code's order).
    fn sinusoids(
        graph: &mut Graph,
        terms: TransformerXlConfig,
        d_model: usize,
        sequences: &mut Sequences,
    ) -> Self {
        let len = graph.shape(&sequences.ids, 1, 2);
        let len = graph.squeeze(&len, &[0]);
        let one = graph.int(1);
        let last = graph.op("Sub", &[&len, &one]);
        let less = graph.op("Neg", &[&len]);
        let minus_one = graph.int(-1);
        let distances = graph.op("Range", &[&last, &less, &minus_one]);
        let distances = match terms.clamp_len {
            Some(most) => clamped(graph, &distances, most as i64),
            None => distances,
        };
        let distances = graph.cast(&distances, Kind::Float);
        let distances = graph.unsqueeze(&distances, &[1]);
        let frequency = |i: usize| 1.0 / 10_000f32.powf((2 * i) as f32 / d_model as f32);
        let frequencies: Vec<f32> = (0..d_model / 2).map(frequency).collect();
        let frequencies = graph.floats(&frequencies, &[frequencies.len()]);
        let angles = graph.op("Mul", &[&distances, &frequencies]);
        let parts = ["Sin", "Cos"].map(|kind| graph.op(kind, &[&angles]));
        let vectors = graph.concat(&[&parts[0], &parts[1]], 1);
        let between = sequences.distances(graph);
        let rows = graph.op("Add", &[&between, &last]);
        let of_others = sequences.types.as_ref().map(|types| {
            let (queries, keys) = (graph.unsqueeze(types, &[2]), graph.unsqueeze(types, &[1]));
            let same = graph.op("Equal", &[&queries, &keys]);
            let others = graph.op("Not", &[&same]);
            let others = graph.cast(&others, Kind::Float);
            graph.unsqueeze(&others, &[1])
        });
        Self { vectors, rows, of_others }
    }

    /// The scores of queries with the vectors of their keys' distances.
    ///
    /// # Shapes
    /// - `queries`: `[batch, n_heads, len, d_k]`; `keys`: `[n_heads, d_k, n_rows]`; returns
    ///   `[batch, n_heads, len, len]`
    pub fn scores(&self, graph: &mut Graph, queries: &Value, keys: &Value) -> Value {
        self.scores_at(graph, queries, keys, &self.rows)
    }

    /// The scores of keys with the vectors of their queries' distances, a row a query again.
    pub fn scores_of_keys(&self, graph: &mut Graph, keys: &Value, queries: &Value) -> Value {
        let rows = graph.transpose(&self.rows, &[1, 0]);
        let scores = self.scores_at(graph, keys, queries, &rows);
        graph.transpose(&scores, &[0, 1, 3, 2])
    }

    fn scores_at(&self, graph: &mut Graph, x: &Value, vectors: &Value, rows: &Value) -> Value {
        let all = graph.op("MatMul", &[x, vectors]);
        // `[batch, n_heads]`, then `[len, len]`.
        let (outer, inner) = (graph.shape(&all, 0, 2), graph.shape(rows, 0, 2));
        let shape = graph.concat(&[&outer, &inner], 0);
        let rows = graph.op("Expand", &[rows, &shape]);
        graph.op_with("GatherElements", &[&all, &rows], vec![int("axis", 3)])
    }
}

/// The bias of all layers' scores, `[1, n_heads, len, len]` (T5, MPNet).
pub(crate) fn relative_bias(
    graph: &mut Graph,
    bias: &RelativeBias,
    sequences: &mut Sequences,
) -> Result<Value> {
    graph.within("relative_bias", |graph| {
        let table = graph.parameter("weight", bias.table.weight.val());
        let rows = rows(graph, sequences, bias.max_distance() as i64, |distance| bias.row(distance));
        let bias = graph.rows(&table, &rows);
        let bias = graph.transpose(&bias, &[2, 0, 1]);
        Ok(graph.unsqueeze(&bias, &[0]))
    })
}

/// The table's row for each query and key, `[len, len]`. The rows of all distances up to `most`, beyond which they do not
/// change, are a constant: so the rounding of logarithms in buckets is the model's.
fn rows(graph: &mut Graph, sequences: &mut Sequences, most: i64, row: impl Fn(i64) -> i64) -> Value {
    let rows: Vec<i64> = (-most..=most).map(row).collect();
    let rows = graph.ints(&rows);
    let distances = sequences.distances(graph);
    let distances = clamped(graph, &distances, most);
    let most = graph.int(most);
    let places = graph.op("Add", &[&distances, &most]);
    graph.rows(&rows, &places)
}

/// Integers, at least `−most` and at most `most`.
fn clamped(graph: &mut Graph, x: &Value, most: i64) -> Value {
    let (low, high) = (graph.int(-most), graph.int(most));
    graph.op("Clip", &[x, &low, &high])
}
