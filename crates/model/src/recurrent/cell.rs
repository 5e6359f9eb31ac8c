use burn::tensor::{Device, Int, Tensor};
use serde::{Deserialize, Serialize};

/// What a recurrent layer computes at a time step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cell {
    /// Long short-term memory, see [`ops::lstm`](crate::ops::lstm).
    #[default]
    Lstm,
    /// Gated recurrent units, see [`ops::gru`](crate::ops::gru).
    Gru,
}

impl Cell {
    /// How many gates its sums are of.
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }
}

/// What a recurrent layer, or both directions of one side by side, remembers of each sequence.
#[derive(Debug, Clone)]
pub struct RecurrentState {
    /// `[sequences, d]`
    pub hidden: Tensor<2>,
    /// `[sequences, d]`: of an LSTM.
    pub cell: Option<Tensor<2>>,
}

impl RecurrentState {
    /// Nothing yet.
    pub fn zeros(cell: Cell, sequences: usize, d: usize, device: &Device) -> Self {
        let hidden = Tensor::zeros([sequences, d], device);
        Self { cell: (cell == Cell::Lstm).then(|| hidden.clone()), hidden }
    }

    /// Both tensors changed alike.
    pub fn map(self, change: impl Fn(Tensor<2>) -> Tensor<2>) -> Self {
        Self { hidden: change(self.hidden), cell: self.cell.map(change) }
    }

    /// Those of other sequences: sequence `i` is what sequence `sequences[i]` was.
    pub fn select(self, sequences: Tensor<1, Int>) -> Self {
        self.map(|x| x.select(0, sequences.clone()))
    }

    /// Two states along an axis: 0 puts sequences one below the other, 1 features side by side.
    ///
    /// # Panics
    /// If they are not of the same cell.
    pub fn cat(self, other: Self, axis: usize) -> Self {
        assert_eq!(self.cell.is_some(), other.cell.is_some(), "states of the same cell");
        let join = |a, b| Tensor::cat(vec![a, b], axis);
        Self {
            hidden: join(self.hidden, other.hidden),
            cell: self.cell.zip(other.cell).map(|(a, b)| join(a, b)),
        }
    }
}
