use crate::{Direction, GruOutput, LstmOutput, LstmState, Packing, additive_scores, gru, linear, lstm};
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

#[cfg(feature = "flex")]
use crate::flex;

/// Inputs of [`attentive`].
#[derive(Debug, Clone)]
pub struct AttentiveInput {
    /// `[n_tokens, gates·d]`, `W y + b` of each target token: the part independent of the previous time
    /// step.
    pub inputs: Tensor<2>,
    /// `[n_memory, d_memory]`: the sources' states, packed.
    pub memory: Tensor<2>,
    /// `[n_memory, d_key]`: their keys.
    pub keys: Tensor<2>,
    /// `[d, d_key]`: maps a state to its query.
    pub query: Tensor<2>,
    /// `[d_key]`
    pub v: Tensor<1>,
    /// `[d_memory, gates·d]`: maps a context to the gates.
    pub context: Tensor<2>,
    /// `[d, gates·d]`: `U`.
    pub recurrent: Tensor<2>,
    /// `[d]`: for a GRU, the bias multiplied by its reset gate; `None` for an LSTM.
    pub bias: Option<Tensor<1>>,
    /// The state before the first step.
    pub initial: AttentiveState,
}

/// The state of an LSTM or a GRU.
#[derive(Debug, Clone)]
pub struct AttentiveState {
    /// `[sequences, d]`
    pub hidden: Tensor<2>,
    /// `[sequences, d]`, for an LSTM.
    pub cell: Option<Tensor<2>>,
}

/// One recurrent decoder layer with teacher forcing: every step attends to its source with the previous
/// state, and its cell reads the context together with its token (Bahdanau et al. 2015, §3.1):
///
/// `α = softmax(v·tanh(W_q s + k))`, `c = Σ α h`, `s' = cell(W y + b + C c, s)`, an [LSTM](lstm) or a [GRU](gru).
///
/// Multiplies in the precision of the scope, [`with_precision`](crate::with_precision).
///
/// # Shapes
/// - returns `[n_tokens, d + d_memory]`: each token's state, concatenated with its context
///
/// # Panics
/// If sizes do not match, there is no sequence, or the numbers of sources and targets differ.
pub fn attentive(input: AttentiveInput, sources: &Packing, targets: &Packing) -> Tensor<2> {
    let [d, width] = input.recurrent.dims();
    let ([n_memory, d_memory], [_, d_key]) = (input.memory.dims(), input.keys.dims());
    let n = targets.lengths().len();
    let is_gru = input.bias.is_some();
    assert!(n > 0, "a sequence at least");
    assert_eq!(sources.lengths().len(), n, "as many sources as targets");
    assert_eq!(width, if is_gru { 3 } else { 4 } * d, "a GRU has three gates and a bias, an LSTM four gates");
    assert_eq!(input.inputs.dims(), [targets.n_tokens(), width], "inputs are [n_tokens, gates·d]");
    assert_eq!(n_memory, sources.n_tokens(), "the memory is of the sources");
    assert_eq!(input.keys.dims(), [n_memory, d_key], "a key of each state");
    assert_eq!(input.query.dims(), [d, d_key], "the queries do not fit the keys");
    assert_eq!(input.v.dims(), [d_key], "a factor of each feature of the keys");
    assert_eq!(input.context.dims(), [d_memory, width], "the context's map does not fit");
    assert_eq!(input.initial.hidden.dims(), [n, d], "an initial state of each sequence");
    assert_eq!(input.initial.cell.is_none(), is_gru, "an LSTM has cells, a GRU none");
    #[cfg(feature = "flex")]
    if flex::takes(&input.inputs) {
        return flex::recurrent::attentive(input, sources, targets);
    }
    composed(input, sources, targets)
}

fn composed(input: AttentiveInput, sources: &Packing, targets: &Packing) -> Tensor<2> {
    let AttentiveInput { inputs, memory, keys, query, v, context, recurrent, bias, initial } = input;
    let device = inputs.device();
    let n = targets.lengths().len();
    let (memory, keys) = (padded(memory, sources), padded(keys, sources));
    let ignored: Vec<bool> = sources.padded_tokens().iter().map(Option::is_none).collect();
    let ignored = TensorData::new(ignored, [n, 1, sources.longest()]);
    let ignored = Tensor::<3, Bool>::from_data(ignored, &device);
    let each = Packing::new(vec![1; n]);
    let AttentiveState { mut hidden, mut cell } = initial;
    let mut steps = Vec::with_capacity(targets.longest());
    for step in 0..targets.longest() {
        let tokens: Vec<i32> = targets
            .starts()
            .zip(targets.lengths())
            .map(|(start, len)| (start + step.min(len - 1)) as i32)
            .collect();
        let tokens = Tensor::<1, Int>::from_data(tokens.as_slice(), &device);
        let asked = linear(hidden.clone(), query.clone(), None).unsqueeze_dim::<3>(1);
        let scores = additive_scores(asked, keys.clone(), v.clone()).mask_fill(ignored.clone(), f32::MIN);
        let found = softmax(scores, 2).matmul(memory.clone()).squeeze_dim::<2>(1);
        let sums = inputs.clone().select(0, tokens) + linear(found.clone(), context.clone(), None);
        // Where a target has ended, its state does not matter any more.
        (hidden, cell) = match (&bias, cell) {
            (Some(bias), _) => {
                let GruOutput { last, .. } =
                    gru(sums, recurrent.clone(), bias.clone(), Some(hidden), &each, Direction::Forward);
                (last, None)
            }
            (None, cell) => {
                let state = LstmState { hidden, cell: cell.expect("an LSTM has cells") };
                let LstmOutput { last, .. } =
                    lstm(sums, recurrent.clone(), Some(state), &each, Direction::Forward);
                (last.hidden, Some(last.cell))
            }
        };
        steps.push(Tensor::cat(vec![hidden.clone(), found], 1));
    }
    crate::time::in_token_order(steps, targets, Direction::Forward, &device)
}

/// `[sequences, longest, d]`; padding holds the sequence's first state.
fn padded(states: Tensor<2>, packing: &Packing) -> Tensor<3> {
    let [_, d] = states.dims();
    let starts = packing.starts().flat_map(|start| std::iter::repeat_n(start, packing.longest()));
    let places = packing.padded_tokens().into_iter().zip(starts);
    let tokens: Vec<i32> = places.map(|(token, start)| token.unwrap_or(start) as i32).collect();
    let tokens = index(&tokens, &states.device());
    states.select(0, tokens).reshape([packing.lengths().len(), packing.longest(), d])
}

fn index(tokens: &[i32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(tokens, device)
}
