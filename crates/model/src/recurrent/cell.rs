use burn::tensor::{Device, Int, Tensor};
use serde::{Deserialize, Serialize};

/// The kind of recurrent cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cell {
    /// Long short-term memory.
    #[default]
    Lstm,
    /// Gated recurrent units.
    Gru,
}

impl Cell {
    /// Number of gates.
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }
}

/// The state of a recurrent layer, or of both its directions concatenated, for each sequence.
#[derive(Debug, Clone)]
pub struct RecurrentState {
    /// `[sequences, d]`
    pub hidden: Tensor<2>,
    /// `[sequences, d]`, for an LSTM.
    pub cell: Option<Tensor<2>>,
}

impl RecurrentState {
    /// The zero state.
    pub fn zeros(cell: Cell, sequences: usize, d: usize, device: &Device) -> Self {
        let hidden = Tensor::zeros([sequences, d], device);
        Self { cell: (cell == Cell::Lstm).then(|| hidden.clone()), hidden }
    }

    /// Applies a function to both tensors.
    pub fn map(self, change: impl Fn(Tensor<2>) -> Tensor<2>) -> Self {
        Self { hidden: change(self.hidden), cell: self.cell.map(change) }
    }

    /// The states of selected sequences: sequence `i` is the former `sequences[i]`.
    pub fn select(self, sequences: Tensor<1, Int>) -> Self {
        self.map(|x| x.select(0, sequences.clone()))
    }

    /// Concatenates two states along an axis: 0 for sequences, 1 for features.
    ///
    /// # Panics
    /// If their cells differ.
    pub fn cat(self, other: Self, axis: usize) -> Self {
        assert_eq!(self.cell.is_some(), other.cell.is_some(), "states of the same cell");
        let join = |a, b| Tensor::cat(vec![a, b], axis);
        Self {
            hidden: join(self.hidden, other.hidden),
            cell: self.cell.zip(other.cell).map(|(a, b)| join(a, b)),
        }
    }
}
