//! Pseudo-log-likelihood with a masked language model.

use super::blanks::{BlankText, Place, batches, keep, zeros};
use crate::fill_mask::FillMask;
use crate::{Result, TrainerError, input};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};
use cloze_data::TokenBatch;

impl FillMask {
    /// A text in parts that the model takes, where each piece but the special ones is a blank by itself: one part, unless the
    /// text is too long.
    ///
    /// # Errors
    /// A text that the tokenizer rejects.
    pub(crate) fn blank_parts(&self, text: &str) -> Result<Vec<BlankText>> {
        let ids = self.tokenizer.encode_ids(text, false)?;
        let special = self.tokenizer.special_ids();
        let [begin, end] = [special.cls, special.sep].map(|id| id.map(|id| id as i32));
        let first = usize::from(begin.is_some());
        let around = first + usize::from(end.is_some());
        let part = |part: &[u32]| {
            let inner = part.iter().map(|id| *id as i32);
            let ids: Vec<i32> = begin.into_iter().chain(inner).chain(end).collect();
            let blanks = (first..first + part.len()).map(|place| place..place + 1).collect();
            BlankText { types: vec![0; ids.len()], ids, blanks }
        };
        Ok(ids.chunks(self.max_len().saturating_sub(around).max(1)).map(part).collect())
    }

    /// `log P` of each blank of each text, given the pieces that its copy does not hide, in nats. `done` hears the number of
    /// copies after each batch.
    ///
    /// # Errors
    /// [`TrainerError::OutputNotFinite`].
    pub(crate) fn blank_log_probs(
        &self,
        texts: &[BlankText],
        batch_tokens: usize,
        done: &mut dyn FnMut(usize),
    ) -> Result<Vec<Vec<f64>>> {
        let mut found = zeros(texts);
        for batch in batches(texts, batch_tokens) {
            let logits = self.blank_logits(texts, &batch);
            let labels: Vec<i32> = batch
                .iter()
                .map(|(text, blank)| texts[*text].ids[texts[*text].blanks[*blank].start])
                .collect();
            let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [batch.len()]), &self.device);
            let losses = cloze_ops::cross_entropy(logits, labels);
            keep(&batch, losses, &mut found)?;
            done(batch.len());
        }
        Ok(found)
    }

    /// `log P` of all pieces of the vocabulary at each blank of each text, passed to `answer` with the blank's numbers, in
    /// nats. Blanks come in batches of similar length.
    ///
    /// # Errors
    /// [`TrainerError::OutputNotFinite`].
    pub(crate) fn blank_distributions(
        &self,
        texts: &[BlankText],
        batch_tokens: usize,
        answer: &mut dyn FnMut(Place, &[f32]),
    ) -> Result<()> {
        for batch in batches(texts, batch_tokens) {
            let logits = self.blank_logits(texts, &batch);
            let [_, vocab_size] = logits.dims();
            let log_probs: Vec<f32> = log_softmax(logits, 1).into_data().iter::<f32>().collect();
            for (place, row) in batch.into_iter().zip(log_probs.chunks(vocab_size)) {
                if row.iter().any(|log_prob| log_prob.is_nan()) {
                    return Err(TrainerError::OutputNotFinite);
                }
                answer(place, row);
            }
        }
        Ok(())
    }

    /// The logits at the blanks of a batch, `[copies, vocab_size]`.
    fn blank_logits(&self, texts: &[BlankText], batch: &[Place]) -> Tensor<2> {
        let longest = batch.iter().map(|(text, _)| texts[*text].ids.len()).max().unwrap_or_default();
        let mut tokens = TokenBatch::new().with_max_len(longest);
        let mut copy = Vec::new();
        for (text, blank) in batch {
            let text = &texts[*text];
            copy.clone_from(&text.ids);
            copy[text.blanks[*blank].clone()].fill(self.mask as i32);
            tokens.push(&copy, &text.types);
        }
        let input = input::input(&self.model.bert, &tokens, &self.device);
        let places = input.starts().into_iter().zip(batch);
        let places: Vec<i32> =
            places.map(|(start, (text, blank))| (start + texts[*text].blanks[*blank].start) as i32).collect();
        self.model.forward(input, Tensor::from_data(places.as_slice(), &self.device))
    }
}
