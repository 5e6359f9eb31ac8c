//! A batch of tokens on the device: converts `data`'s vectors to the model's input.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_data::{Sight, TokenBatch};
use cloze_model::bert::{Bert, BertInput};
use cloze_model::blocks::{Attention, Positions};
use cloze_model::ops;

/// A batch in the encoder's fastest form: packed if supported, else padded; [in its
/// language](in_language).
///
/// # Panics
/// If the batch is empty.
pub fn input<A: Attention, P: Positions>(
    bert: &Bert<A, P>,
    tokens: &TokenBatch,
    device: &Device,
) -> BertInput {
    let input = match bert.takes_packed() {
        true => packed(tokens, device),
        false => padded(tokens, device),
    };
    in_language(input, bert)
}

/// The same input with every token in the encoder's [language](cloze_model::bert::BertConfig::language), if it
/// has one, regardless of the token types of a pair's segments.
pub fn in_language<A: Attention, P: Positions>(input: BertInput, bert: &Bert<A, P>) -> BertInput {
    let Some(language) = bert.embeddings.language else { return input };
    let types = Tensor::full(input.input_ids.dims(), language as i32, &input.input_ids.device());
    input.with_token_types(types)
}

/// A batch without padding, all sequences in one row, `[1, n_tokens]`. Tokens are in the batch's order.
///
/// # Panics
/// If the batch is empty.
pub fn packed(tokens: &TokenBatch, device: &Device) -> BertInput {
    let row = |values: &[i32]| {
        Tensor::<2, Int>::from_data(TensorData::new(values.to_vec(), [1, tokens.n_tokens()]), device)
    };
    let input = BertInput::packed(tokens.input_ids(), tokens.lengths(), device)
        .with_token_types(row(tokens.token_type_ids()));
    let input = with_sights(input, tokens);
    match tokens.position_ids() {
        Some(positions) => input.with_positions(row(positions)),
        None => input,
    }
}

/// A batch with one sequence per row, `[batch, len]`; [`TokenBatch::padded_places`] gives the positions of its
/// tokens. A batch without padding has no mask.
pub fn padded(tokens: &TokenBatch, device: &Device) -> BertInput {
    let padded = tokens.padded();
    let shape = [padded.batch_size, padded.seq_len];
    let matrix = |values: Vec<i32>| Tensor::<2, Int>::from_data(TensorData::new(values, shape), device);
    let input = BertInput::new(matrix(padded.input_ids)).with_token_types(matrix(padded.token_type_ids));
    let mut input = with_sights(input, tokens);
    if !padded.position_ids.is_empty() {
        input = input.with_positions(matrix(padded.position_ids));
    }
    match tokens.n_padding() > 0 {
        true => {
            input.with_pad_mask(Tensor::<2, Bool>::from_data(TensorData::new(padded.pad_mask, shape), device))
        }
        false => input,
    }
}

/// Sets which tokens each token attends to, unless attention is full.
fn with_sights(input: BertInput, tokens: &TokenBatch) -> BertInput {
    if tokens.sights().iter().all(|sight| *sight == Sight::All) {
        return input;
    }
    let sights = tokens.sights().iter().map(|sight| match *sight {
        Sight::All => ops::Sight::All,
        Sight::Prefix(len) => ops::Sight::Prefix(len),
        Sight::RightToLeft => ops::Sight::RightToLeft,
    });
    input.with_sights(sights.collect::<Vec<_>>())
}
