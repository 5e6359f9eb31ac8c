use crate::blocks::Linear;
use crate::recurrent::{Cell, RecurrentState};
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use serde::{Deserialize, Serialize};

/// How the decoder's first states are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BridgeKind {
    /// A map of the encoder's last states, `tanh(W s)` (Bahdanau et al. 2015, §A.2.2).
    #[default]
    Linear,
    /// A copy of the encoder's last states, layer by layer (Sutskever et al. 2014).
    Copy,
}

/// Computes the decoder's first states from the encoder's last ones.
#[derive(Module, Debug)]
pub struct Bridge {
    /// The maps for each decoder layer's hidden state, `[d_model, d_model]`; empty if states are copied.
    pub hidden: Vec<Linear>,
    /// The maps for each layer's cell state, in an LSTM.
    pub cell: Vec<Linear>,
}

linear_maps!(Bridge { hidden, cell });

impl Bridge {
    /// A bridge for `n_layers` decoder layers.
    pub(super) fn new(kind: BridgeKind, cell: Cell, n_layers: usize, d: usize, init: &mut ParamInit) -> Self {
        let n = if kind == BridgeKind::Linear { n_layers } else { 0 };
        let mut maps = |n: usize| (0..n).map(|_| Linear::uniform(d, d, init)).collect();
        let hidden = maps(n);
        Self { hidden, cell: maps(if cell == Cell::Lstm { n } else { 0 }) }
    }

    /// A decoder layer starts from the encoder layer with the same number, or from the last one if there is none.
    pub(super) fn forward(&self, last: &[RecurrentState]) -> Vec<RecurrentState> {
        if self.hidden.is_empty() {
            return last.to_vec();
        }
        let from = |layer: usize| last[layer.min(last.len() - 1)].clone();
        let layer = |(i, map): (usize, &Linear)| {
            let RecurrentState { hidden, cell } = from(i);
            let cell = cell.map(|cell| self.cell[i].forward(cell).tanh());
            RecurrentState { hidden: map.forward(hidden).tanh(), cell }
        };
        self.hidden.iter().enumerate().map(layer).collect()
    }
}
