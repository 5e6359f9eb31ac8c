//! Stretches of text that a left-to-right model reads together.

use burn::tensor::{Device, Tensor};
use cloze_model::Sequences;
use cloze_model::awd_lstm::AwdLstm;
use cloze_model::gpt::Gpt;

/// Windows that are processed together.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    sequences: Sequences,
    /// The ids of the target tokens.
    next: Vec<i32>,
    /// The indices of the tokens whose successors are predicted.
    wanted: Vec<i32>,
    n_tokens: usize,
}

impl Windows {
    /// Adds a window's tokens; those after the first `done` are to be predicted.
    ///
    /// # Panics
    /// If there are fewer than two tokens, or `done` is 0.
    pub fn push(&mut self, ids: &[i32], done: usize) {
        // What the last token is followed by is another window's.
        let len = ids.len() - 1;
        self.sequences.push(&ids[..len]);
        self.next.extend(&ids[done..]);
        self.wanted.extend((done - 1..len).map(|at| (self.n_tokens + at) as i32));
        self.n_tokens += len;
    }

    /// The number of tokens that are read.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// `−log P` of each predicted token, window by window, in nats.
    ///
    /// # Panics
    /// Those of [`Gpt::losses_at`].
    pub fn losses(&self, model: &Gpt, device: &Device) -> Vec<f64> {
        if self.sequences.is_empty() {
            return Vec::new();
        }
        let losses = model.losses_at(&self.sequences, &self.next, &self.wanted, device);
        losses.into_data().iter::<f64>().collect()
    }

    /// [`losses`](Self::losses) of a recurrent model, which begins each window without a memory.
    ///
    /// # Panics
    /// Those of [`AwdLstm::losses`].
    pub fn recurrent_losses(&self, model: &AwdLstm, device: &Device) -> Vec<f64> {
        if self.sequences.is_empty() {
            return Vec::new();
        }
        let states = model.forward(&self.sequences, None, device).dropped;
        let wanted = states.select(0, Tensor::from_data(self.wanted.as_slice(), device));
        model.losses(wanted, &self.next).into_data().iter::<f64>().collect()
    }
}
