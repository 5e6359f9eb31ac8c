use crate::time::{Step, in_token_order};
use crate::{Direction, Packing, linear};
use burn::tensor::activation::sigmoid;
use burn::tensor::{Device, Tensor};

#[cfg(feature = "flex")]
use crate::flex;

/// An LSTM's state for each sequence.
#[derive(Debug, Clone)]
pub struct LstmState {
    /// `[sequences, d]`
    pub hidden: Tensor<2>,
    /// `[sequences, d]`
    pub cell: Tensor<2>,
}

impl LstmState {
    /// The zero state.
    pub fn zeros(sequences: usize, d: usize, device: &Device) -> Self {
        let zeros = Tensor::zeros([sequences, d], device);
        Self { hidden: zeros.clone(), cell: zeros }
    }
}

/// What [`lstm`] returns.
#[derive(Debug, Clone)]
pub struct LstmOutput {
    /// The hidden state after each token, `[n_tokens, d]`, in the order of the tokens.
    pub states: Tensor<2>,
    /// The state after each sequence's last step.
    pub last: LstmState,
}

/// One layer of long short-term memory in one direction over packed sequences (Hochreiter & Schmidhuber 1997, with
/// the forget gate of Gers et al. 2000), as `torch.nn.LSTM`:
///
/// `i, f, o = σ(W x + U h + b)`, `g = tanh(W x + U h + b)`, `c' = f·c + i·g`, `h' = o·tanh(c')`
///
/// `W x + b` of all tokens is one product computed beforehand; this computes what depends on the previous
/// time step. Multiplies in the precision of the scope, [`with_precision`](crate::with_precision).
///
/// # Shapes
/// - `inputs`: `[n_tokens, 4·d]`, `W x + b` of each token, gates in the order `i, f, g, o`
/// - `weight`: `U`, `[d, 4·d]`
/// - `initial`: default zeros
///
/// # Panics
/// If sizes do not match, or there is no sequence.
pub fn lstm(
    inputs: Tensor<2>,
    weight: Tensor<2>,
    initial: Option<LstmState>,
    packing: &Packing,
    direction: Direction,
) -> LstmOutput {
    let [d, width] = weight.dims();
    let n = packing.lengths().len();
    assert_eq!(width, 4 * d, "an LSTM has four gates");
    assert_eq!(inputs.dims(), [packing.n_tokens(), width], "inputs are [n_tokens, 4·d]");
    assert!(n > 0, "a sequence at least");
    if let Some(LstmState { hidden, cell }) = &initial {
        assert_eq!([hidden.dims(), cell.dims()], [[n, d]; 2], "an initial state of each sequence");
    }
    #[cfg(feature = "flex")]
    if flex::takes(&inputs) {
        return flex::recurrent::lstm(inputs, weight, initial, packing, direction);
    }
    composed(inputs, weight, initial, packing, direction)
}

fn composed(
    inputs: Tensor<2>,
    weight: Tensor<2>,
    initial: Option<LstmState>,
    packing: &Packing,
    direction: Direction,
) -> LstmOutput {
    let device = inputs.device();
    let ([d, _], n) = (weight.dims(), packing.lengths().len());
    let LstmState { mut hidden, mut cell } = initial.unwrap_or_else(|| LstmState::zeros(n, d, &device));
    let mut states = Vec::with_capacity(packing.longest());
    for step in 0..packing.longest() {
        let step = Step::new(step, packing, direction, d, &device);
        let gates =
            inputs.clone().select(0, step.tokens.clone()) + linear(hidden.clone(), weight.clone(), None);
        let gate = |i: usize| gates.clone().narrow(1, i * d, d);
        let [i, f, o] = [0, 1, 3].map(|i| sigmoid(gate(i)));
        let new = f * cell.clone() + i * gate(2).tanh();
        let state = o * new.clone().tanh();
        states.push(state.clone());
        (hidden, cell) = (step.keep_ended(state, hidden), step.keep_ended(new, cell));
    }
    let states = in_token_order(states, packing, direction, &device);
    LstmOutput { states, last: LstmState { hidden, cell } }
}
