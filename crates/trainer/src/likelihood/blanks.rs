//! Texts whose pieces are predicted one at a time, each in a copy of the text that hides it, and batches of such copies.

use crate::{Result, TrainerError};
use burn::tensor::Tensor;
use std::ops::Range;

/// A text and the pieces of it that are predicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlankText {
    /// `[len]`: the ids, special pieces included.
    pub ids: Vec<i32>,
    /// `[len]`: the segment of each.
    pub types: Vec<i32>,
    /// The predicted pieces, each in a copy of its own.
    pub blanks: Vec<Blank>,
}

/// A copy of a text: the pieces that it hides, of which the first is predicted.
pub(crate) type Blank = Range<usize>;

/// A blank by its numbers: the text's, and the blank's within it.
pub(crate) type Place = (usize, usize);

/// Batches of copies: texts of similar length together, and at most `batch_tokens` tokens, padding included, but at least one
/// copy.
///
/// Many copies of one text and copies of several short ones fill a batch alike.
pub(crate) fn batches(texts: &[BlankText], batch_tokens: usize) -> Vec<Vec<Place>> {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|text| texts[*text].ids.len());
    let mut batches: Vec<Vec<Place>> = Vec::new();
    for place in
        order.into_iter().flat_map(|text| (0..texts[text].blanks.len()).map(move |blank| (text, blank)))
    {
        // Lengths ascend, so that the newest text is the longest.
        let len = texts[place.0].ids.len();
        match batches.last_mut() {
            Some(batch) if (batch.len() + 1) * len <= batch_tokens => batch.push(place),
            _ => batches.push(vec![place]),
        }
    }
    batches
}

/// A number for each blank of each text, all 0.
pub(crate) fn zeros(texts: &[BlankText]) -> Vec<Vec<f64>> {
    texts.iter().map(|text| vec![0.0; text.blanks.len()]).collect()
}

/// Keeps the log-probability of each blank of a batch: its cross-entropy, of which `losses` has one per blank, negated.
///
/// # Errors
/// [`TrainerError::OutputNotFinite`].
pub(super) fn keep(batch: &[Place], losses: Tensor<1>, found: &mut [Vec<f64>]) -> Result<()> {
    for ((text, blank), loss) in batch.iter().zip(losses.into_data().iter::<f64>()) {
        if !loss.is_finite() {
            return Err(TrainerError::OutputNotFinite);
        }
        found[*text][*blank] = -loss;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(len: usize, blanks: usize) -> BlankText {
        let blanks = (0..blanks).map(|place| place..place + 1).collect();
        BlankText { ids: vec![0; len], types: vec![0; len], blanks }
    }

    #[test]
    fn copies_of_similar_length_share_a_batch() {
        let texts = [text(6, 2), text(3, 3), text(4, 0), text(9, 1)];
        let found = batches(&texts, 12);
        assert_eq!(found, [vec![(1, 0), (1, 1), (1, 2)], vec![(0, 0), (0, 1)], vec![(3, 0)]]);
        // One copy at least, however long it is.
        assert_eq!(batches(&texts, 1).len(), 6);
        assert!(batches(&[], 12).is_empty());
    }
}
