use crate::time::{Step, in_token_order};
use crate::{Direction, Packing, linear};
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;

#[cfg(feature = "flex")]
use crate::flex;

/// What [`gru`] returns.
#[derive(Debug, Clone)]
pub struct GruOutput {
    /// The state after each token, `[n_tokens, d]`, in the order of the tokens.
    pub states: Tensor<2>,
    /// The state after each sequence's last step, `[sequences, d]`.
    pub last: Tensor<2>,
}

/// One layer of gated recurrent units in one direction over packed sequences (Cho et al. 2014), in the variant of
/// `torch.nn.GRU`, whose reset gate acts after the product:
///
/// `r, z = σ(W x + U h + b)`, `n = tanh(W x + b + r·(U h + b'))`, `h' = (1 − z)·n + z·h`
///
/// `W x + b` of all tokens is one product computed beforehand; this computes what depends on the previous
/// time step. Multiplies in the precision of the scope, [`with_precision`](crate::with_precision).
///
/// # Shapes
/// - `inputs`: `[n_tokens, 3·d]`, `W x + b` of each token, gates in the order `r, z, n`
/// - `weight`: `U`, `[d, 3·d]`; `bias`: `b'`, `[d]`
/// - `initial`: `[sequences, d]`, default zeros
///
/// # Panics
/// If sizes do not match, or there is no sequence.
pub fn gru(
    inputs: Tensor<2>,
    weight: Tensor<2>,
    bias: Tensor<1>,
    initial: Option<Tensor<2>>,
    packing: &Packing,
    direction: Direction,
) -> GruOutput {
    let [d, width] = weight.dims();
    let n = packing.lengths().len();
    assert_eq!(width, 3 * d, "a GRU has three gates");
    assert_eq!(bias.dims(), [d], "a bias of the new state alone");
    assert_eq!(inputs.dims(), [packing.n_tokens(), width], "inputs are [n_tokens, 3·d]");
    assert!(n > 0, "a sequence at least");
    if let Some(initial) = &initial {
        assert_eq!(initial.dims(), [n, d], "an initial state of each sequence");
    }
    #[cfg(feature = "flex")]
    if flex::takes(&inputs) {
        return flex::recurrent::gru(inputs, weight, bias, initial, packing, direction);
    }
    composed(inputs, weight, bias, initial, packing, direction)
}

fn composed(
    inputs: Tensor<2>,
    weight: Tensor<2>,
    bias: Tensor<1>,
    initial: Option<Tensor<2>>,
    packing: &Packing,
    direction: Direction,
) -> GruOutput {
    let device = inputs.device();
    let ([d, _], n) = (weight.dims(), packing.lengths().len());
    let mut last = initial.unwrap_or_else(|| Tensor::zeros([n, d], &device));
    let mut states = Vec::with_capacity(packing.longest());
    for step in 0..packing.longest() {
        let step = Step::new(step, packing, direction, d, &device);
        let input = inputs.clone().select(0, step.tokens.clone());
        let before = linear(last.clone(), weight.clone(), None);
        let part = |x: &Tensor<2>, i: usize| x.clone().narrow(1, i * d, d);
        let [reset, update] = [0, 1].map(|i| sigmoid(part(&input, i) + part(&before, i)));
        let new = (part(&input, 2) + reset * (part(&before, 2) + bias.clone().unsqueeze())).tanh();
        let state = new.clone() + update * (last.clone() - new);
        states.push(state.clone());
        last = step.keep_ended(state, last);
    }
    GruOutput { states: in_token_order(states, packing, direction, &device), last }
}
