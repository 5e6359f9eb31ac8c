//! Operators that change types and shapes.

use crate::graph::{Graph, Kind, Value, int, ints};

impl Graph {
    /// Values of another type.
    pub(crate) fn cast(&mut self, x: &Value, kind: Kind) -> Value {
        self.op_with("Cast", &[x], vec![int("to", kind.number().into())])
    }

    /// Another shape, in which 0 keeps the axis at this place and one −1 takes what is left.
    pub(crate) fn reshape(&mut self, x: &Value, shape: &[i64]) -> Value {
        let shape = self.ints(shape);
        self.op("Reshape", &[x, &shape])
    }

    /// The axes in another order.
    pub(crate) fn transpose(&mut self, x: &Value, order: &[i64]) -> Value {
        self.op_with("Transpose", &[x], vec![ints("perm", order)])
    }

    /// More axes, at these places of the result.
    pub(crate) fn unsqueeze(&mut self, x: &Value, axes: &[i64]) -> Value {
        let axes = self.ints(axes);
        self.op("Unsqueeze", &[x, &axes])
    }

    /// Without axes of size 1.
    pub(crate) fn squeeze(&mut self, x: &Value, axes: &[i64]) -> Value {
        let axes = self.ints(axes);
        self.op("Squeeze", &[x, &axes])
    }

    /// The sizes of the axes from `start` to before `end`, as a list.
    pub(crate) fn shape(&mut self, x: &Value, start: i64, end: i64) -> Value {
        self.op_with("Shape", &[x], vec![int("start", start), int("end", end)])
    }

    /// Values one after the other along an axis.
    pub(crate) fn concat(&mut self, parts: &[&Value], axis: i64) -> Value {
        self.op_with("Concat", parts, vec![int("axis", axis)])
    }

    /// Parts of these sizes along an axis.
    pub(crate) fn split(&mut self, x: &Value, sizes: &[i64], axis: i64) -> Vec<Value> {
        let sizes_value = self.ints(sizes);
        self.ops("Split", &[x, &sizes_value], vec![int("axis", axis)], sizes.len())
    }

    /// Rows of a table.
    ///
    /// # Shapes
    /// - `table`: `[n_rows, d]`; `rows`: `[…]`; returns `[…, d]`
    pub(crate) fn rows(&mut self, table: &Value, rows: &Value) -> Value {
        self.op_with("Gather", &[table, rows], vec![int("axis", 0)])
    }

    /// The state of one token of each sequence.
    ///
    /// # Shapes
    /// - `states`: `[batch, len, d]`; `tokens`: `[batch]`; returns `[batch, d]`
    pub(crate) fn token_of_each(&mut self, states: &Value, tokens: &Value) -> Value {
        let tokens = self.unsqueeze(tokens, &[1]);
        self.op_with("GatherND", &[states, &tokens], vec![int("batch_dims", 1)])
    }
}
