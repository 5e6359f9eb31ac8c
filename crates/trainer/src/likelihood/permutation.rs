//! Pseudo-log-likelihood with XLNet.

use super::blanks::{BlankText, batches, keep, zeros};
use crate::Result;
use burn::tensor::Device;
use cloze_model::xlnet::{XlnetInput, XlnetLanguageModel};

/// `log P` of each blank of each text, in nats: the query stream's prediction at the blank's first piece, while no other
/// token sees the pieces that the blank hides (transformers' `perm_mask`; Yang et al. 2019, §2.3). Shorter texts of a batch
/// are padded at the left.
///
/// # Errors
/// [`TrainerError::OutputNotFinite`].
pub(super) fn blank_log_probs(
    model: &XlnetLanguageModel,
    texts: &[BlankText],
    batch_tokens: usize,
    device: &Device,
    done: &mut dyn FnMut(usize),
) -> Result<Vec<Vec<f64>>> {
    let mut found = zeros(texts);
    for batch in batches(texts, batch_tokens) {
        let len = batch.iter().map(|(text, _)| texts[*text].ids.len()).max().unwrap_or_default();
        let n = batch.len() * len;
        let (mut ids, mut types, mut ignored) =
            (Vec::with_capacity(n), Vec::with_capacity(n), Vec::with_capacity(n));
        let (mut hidden, mut targets) = (Vec::with_capacity(n * len), Vec::with_capacity(batch.len()));
        for (text, blank) in &batch {
            let text = &texts[*text];
            let padding = len - text.ids.len();
            ids.resize(ids.len() + padding, 0);
            ids.extend(&text.ids);
            types.resize(types.len() + padding, 0);
            types.extend(&text.types);
            ignored.extend((0..len).map(|place| place < padding));
            let blank = &text.blanks[*blank];
            let blank = blank.start + padding..blank.end + padding;
            targets.push(blank.start as i32);
            for _ in 0..len {
                hidden.extend((0..len).map(|place| blank.contains(&place)));
            }
        }
        let mut input = XlnetInput::new(ids, batch.len()).with_token_types(types).with_hidden(hidden);
        if ignored.contains(&true) {
            input = input.with_pad_mask(ignored);
        }
        let (losses, _) = model.losses(&input.with_targets(targets), None, device);
        keep(&batch, losses, &mut found)?;
        done(batch.len());
    }
    Ok(found)
}
