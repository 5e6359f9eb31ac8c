//! What replicas tell one another of the streams that they read.

use crate::Result;
use crate::engine::messages::{Words, gather};
use crate::engine::replicas::Replicas;
use burn::tensor::{Tensor, TensorData};
use cloze_data::StreamBatch;
use cloze_model::awd_lstm::StreamMemory;
use cloze_model::recurrent::RecurrentState;

/// Gives each replica the states of the streams that the others have read on: `own` are the batches of this one. A message
/// has, for each batch, its streams and the numbers of their states. Beside a step's gradients this is little: two vectors a
/// layer and stream.
///
/// # Errors
/// [`TrainerError::Replicas`](crate::TrainerError::Replicas) for a replica that cannot be reached, or has another model.
pub(super) fn share_states(
    memory: &StreamMemory,
    own: &[StreamBatch],
    replicas: &dyn Replicas,
) -> Result<()> {
    let mut message = vec![own.len() as u32];
    for batch in own {
        let n = batch.tokens.lengths.len();
        message.extend([batch.first as u32, n as u32]);
        for RecurrentState { hidden, cell } in memory.read(batch.first, n) {
            [Some(hidden), cell].into_iter().flatten().for_each(|state| put(&mut message, state));
        }
    }
    let all = gather(replicas, message)?;
    for (rank, message) in all.iter().enumerate().filter(|(rank, _)| *rank != replicas.rank()) {
        let mut words = Words::new(message, rank);
        for _ in 0..words.one()? {
            let (first, n) = (words.one()? as usize, words.one()? as usize);
            let mut states = memory.read(first, n);
            for RecurrentState { hidden, cell } in &mut states {
                for state in [Some(hidden), cell.as_mut()].into_iter().flatten() {
                    let (shape, device) = (state.dims(), state.device());
                    let values = words.values(shape.iter().product())?;
                    *state = Tensor::from_data(TensorData::new(values, shape), &device);
                }
            }
            memory.write(first, &states);
        }
    }
    Ok(())
}

fn put(message: &mut Vec<u32>, state: Tensor<2>) {
    message.extend(state.into_data().iter::<f32>().map(f32::to_bits));
}
