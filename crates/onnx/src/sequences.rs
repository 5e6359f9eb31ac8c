//! A batch of sequences: the graph's inputs, and what follows from them alone.

use crate::graph::{Dim, Graph, Kind, Value, int};

/// The axis of sequences.
pub(crate) const BATCH: Dim = Dim::Named("batch_size");
/// The axis of tokens.
pub(crate) const LENGTH: Dim = Dim::Named("sequence_length");
/// The axis of a question's choices.
pub(crate) const CHOICES: Dim = Dim::Named("num_choices");

/// A padded batch. The padding may be on either side.
pub(crate) struct Sequences {
    /// `[batch, len]`
    pub ids: Value,
    /// `[batch, len]`, integers: 1 for a token, 0 for padding.
    pub mask: Value,
    /// `[batch, len]`, the tokens' segments, if the model tells them apart.
    pub types: Option<Value>,
    kept: Option<Value>,
    places: Option<Value>,
    distances: Option<Value>,
}

impl Sequences {
    /// Declares the inputs, under optimum's names. With `choices`, a question is several sequences, `[batch, choices, len]`.
    pub fn new(graph: &mut Graph, has_types: bool, choices: bool) -> Self {
        let dims: &[Dim] = if choices { &[BATCH, CHOICES, LENGTH] } else { &[BATCH, LENGTH] };
        let mut names = vec!["input_ids", "attention_mask"];
        names.extend(has_types.then_some("token_type_ids"));
        let inputs: Vec<Value> = names.into_iter().map(|name| graph.input(name, dims)).collect();
        let mut rows = inputs.into_iter().map(|input| match choices {
            false => input,
            true => {
                let len = graph.shape(&input, 2, 3);
                let any = graph.ints(&[-1]);
                let shape = graph.concat(&[&any, &len], 0);
                graph.op("Reshape", &[&input, &shape])
            }
        });
        let mut next = || rows.next();
        let (Some(ids), Some(mask)) = (next(), next()) else { unreachable!("two inputs are declared") };
        Self { ids, mask, types: next(), kept: None, places: None, distances: None }
    }

    /// Whether each position is a token rather than padding, `[batch, len]`.
    pub fn kept(&mut self, graph: &mut Graph) -> Value {
        self.kept.get_or_insert_with(|| graph.cast(&self.mask, Kind::Bool)).clone()
    }

    /// 1 for a token, 0 for padding, `[batch, len]`, as floats.
    pub fn weights(&self, graph: &mut Graph) -> Value {
        graph.cast(&self.mask, Kind::Float)
    }

    /// The number of tokens up to each position, `[batch, len]`: the first token is 1.
    pub fn numbers(&self, graph: &mut Graph) -> Value {
        let axis = graph.int(1);
        graph.op("CumSum", &[&self.mask, &axis])
    }

    /// `0, 1, …`, `[len]`.
    pub fn places(&mut self, graph: &mut Graph) -> Value {
        let make = || {
            let len = graph.shape(&self.ids, 1, 2);
            let len = graph.squeeze(&len, &[0]);
            let (from, step) = (graph.int(0), graph.int(1));
            graph.op("Range", &[&from, &len, &step])
        };
        self.places.get_or_insert_with(make).clone()
    }

    /// The distance from each query to each key, negative if the key is before the query, `[len, len]`.
    pub fn distances(&mut self, graph: &mut Graph) -> Value {
        if self.distances.is_none() {
            let places = self.places(graph);
            let (keys, queries) = (graph.unsqueeze(&places, &[0]), graph.unsqueeze(&places, &[1]));
            self.distances = Some(graph.op("Sub", &[&keys, &queries]));
        }
        self.distances.clone().expect("it was just made")
    }

    /// The place of each sequence's first token, `[batch]`: 0 unless the padding is on the left.
    pub fn first(&self, graph: &mut Graph) -> Value {
        let weights = self.weights(graph);
        graph.op_with("ArgMax", &[&weights], vec![int("axis", 1), int("keepdims", 0)])
    }

    /// The place of each sequence's last token, `[batch]`.
    pub fn last(&mut self, graph: &mut Graph) -> Value {
        let places = self.places(graph);
        let one = graph.int(1);
        let numbers = graph.op("Add", &[&places, &one]);
        let numbers = graph.op("Mul", &[&self.mask, &numbers]);
        let numbers = graph.cast(&numbers, Kind::Float);
        graph.op_with("ArgMax", &[&numbers], vec![int("axis", 1), int("keepdims", 0)])
    }
}
