use super::{Cell, RecurrentState};
use crate::blocks::Linear;
use crate::ops::{self, Direction, LstmState, Packing};
use crate::{ParamInit, linear_maps, ops::GruOutput, ops::LstmOutput};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// One recurrent layer in one direction.
///
/// Gates are in PyTorch's order: `i, f, g, o` for an LSTM, `r, z, n` for a GRU.
#[derive(Module, Debug)]
pub struct RecurrentLayer {
    /// `[d_in, gates·d]`, with a bias: `W x + b`.
    pub input: Linear,
    /// `[d, gates·d]`: `U`.
    pub recurrent: Param<Tensor<2>>,
    /// `[d]`: for a GRU, the bias multiplied by its reset gate.
    pub recurrent_bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    cell: Cell,
}

linear_maps!(RecurrentLayer { input });

/// What a [`RecurrentLayer`] returns.
#[derive(Debug, Clone)]
pub struct LayerOutput {
    /// The state after each token, `[n_tokens, d]`.
    pub states: Tensor<2>,
    /// The state after each sequence's last step.
    pub last: RecurrentState,
}

impl RecurrentLayer {
    /// A new layer: weights are uniform between `±1/√d`, as in PyTorch, and biases zero, except an LSTM's
    /// forget gate's, which is 1 (Jozefowicz et al. 2015, §2.2).
    pub fn new(cell: Cell, d_in: usize, d: usize, init: &mut ParamInit) -> Self {
        let (width, bound) = (cell.gates() * d, 1.0 / (d.max(1) as f64).sqrt());
        let weight = init.uniform([d_in, width], bound);
        let mut place = 0;
        let bias = init.param([width], move |_| {
            place += 1;
            let forgets = cell == Cell::Lstm && (d..2 * d).contains(&(place - 1));
            if forgets { 1.0 } else { 0.0 }
        });
        Self {
            input: Linear::from_parts(weight, Some(bias)),
            recurrent: init.uniform([d, width], bound),
            recurrent_bias: (cell == Cell::Gru).then(|| init.zeros([d])),
            cell,
        }
    }

    /// The kind of cell.
    pub fn cell(&self) -> Cell {
        self.cell
    }

    /// Features of a state.
    pub fn d(&self) -> usize {
        self.recurrent.dims()[0]
    }

    /// # Shapes
    /// - `x`: `[n_tokens, d_in]`, packed; `initial`: default zeros
    ///
    /// # Panics
    /// If sizes do not match, or there is no sequence.
    pub fn forward(
        &self,
        x: Tensor<2>,
        packing: &Packing,
        initial: Option<RecurrentState>,
        direction: Direction,
    ) -> LayerOutput {
        self.forward_dropping(x, packing, initial, direction, 0.0)
    }

    /// [`forward`](Self::forward) with DropConnect on the recurrent weight: in training each of its numbers
    /// is dropped with probability `weight_dropout`, the same ones at all time steps (Merity et al. 2018,
    /// §2).
    pub fn forward_dropping(
        &self,
        x: Tensor<2>,
        packing: &Packing,
        initial: Option<RecurrentState>,
        direction: Direction,
        weight_dropout: f64,
    ) -> LayerOutput {
        let (inputs, weight) = (self.input.forward(x), ops::dropout(self.recurrent.val(), weight_dropout));
        match (self.cell, &self.recurrent_bias) {
            (Cell::Gru, Some(bias)) => {
                let initial = initial.map(|initial| initial.hidden);
                let GruOutput { states, last } =
                    ops::gru(inputs, weight, bias.val(), initial, packing, direction);
                LayerOutput { states, last: RecurrentState { hidden: last, cell: None } }
            }
            _ => {
                let initial = initial.map(|RecurrentState { hidden, cell }| {
                    let cell = cell.expect("an LSTM's state has a cell");
                    LstmState { hidden, cell }
                });
                let LstmOutput { states, last } = ops::lstm(inputs, weight, initial, packing, direction);
                let last = RecurrentState { hidden: last.hidden, cell: Some(last.cell) };
                LayerOutput { states, last }
            }
        }
    }

    /// One time step of each sequence.
    ///
    /// # Shapes
    /// - `x`: `[sequences, d_in]`; returns the states after it
    pub fn step(&self, x: Tensor<2>, state: Option<RecurrentState>) -> RecurrentState {
        let packing = Packing::new(vec![1; x.dims()[0]]);
        self.forward(x, &packing, state, Direction::Forward).last
    }
}
