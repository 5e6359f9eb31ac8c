//! Stretches of text that a left-to-right model reads together.

use super::BATCH_TOKENS;
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

    /// [`losses`](Self::losses) of a recurrent model, which begins each window without a memory. A long one is read in parts,
    /// so the memory that it takes does not grow with it.
    ///
    /// # Panics
    /// Those of [`AwdLstm::losses`].
    pub fn recurrent_losses(&self, model: &AwdLstm, device: &Device) -> Vec<f64> {
        if self.sequences.is_empty() {
            return Vec::new();
        }
        let losses = |states: Tensor<2>, wanted: &[i32], next: &[i32]| {
            let wanted = states.select(0, Tensor::from_data(wanted, device));
            model.losses(wanted, next).into_data().iter::<f64>().collect::<Vec<f64>>()
        };
        if self.sequences.len() > 1 {
            let states = model.forward(&self.sequences, None, device).dropped;
            return losses(states, &self.wanted, &self.next);
        }
        let (mut memory, mut found) = (None, Vec::with_capacity(self.next.len()));
        for (part, ids) in self.sequences.ids().chunks(BATCH_TOKENS).enumerate() {
            let output = model.forward(&[ids].into_iter().collect(), memory, device);
            let (start, end) = ((part * BATCH_TOKENS) as i32, (part * BATCH_TOKENS + ids.len()) as i32);
            let rest = &self.wanted[found.len()..];
            let wanted: Vec<i32> = rest.iter().take_while(|at| **at < end).map(|at| at - start).collect();
            if !wanted.is_empty() {
                let next = &self.next[found.len()..found.len() + wanted.len()];
                found.extend(losses(output.dropped, &wanted, next));
            }
            memory = Some(output.last);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_model::ParamInit;
    use cloze_model::awd_lstm::AwdLstmConfig;

    #[test]
    fn a_long_text_is_read_in_parts() {
        let device = Device::flex();
        let config = AwdLstmConfig { d_embedding: 4, d_hidden: 5, n_layers: 2, ..AwdLstmConfig::new(11) };
        let model = config.init(&mut ParamInit::new(&device, 3));
        let text: Vec<i32> = (0..2 * BATCH_TOKENS as i32 + 40).map(|i| (i * i / 7) % 11).collect();
        for done in [1, BATCH_TOKENS + 9] {
            let losses = |texts: &[&[i32]]| {
                let mut windows = Windows::default();
                texts.iter().for_each(|text| windows.push(text, done.min(text.len() - 1)));
                windows.recurrent_losses(&model, &device)
            };
            // Beside another, it is read at once.
            let (alone, beside) = (losses(&[&text]), losses(&[&text, &[1, 2]]));
            assert_eq!(alone.len() + 1, beside.len());
            assert!(alone.iter().zip(&beside).all(|(a, b)| (a - b).abs() < 1e-5));
        }
    }
}
