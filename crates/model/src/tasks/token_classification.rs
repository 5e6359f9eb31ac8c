use super::{Crf, HeadTransform, classification_loss};
use crate::bert::{Bert, BertInput};
use crate::blocks::{Attention, LearnedPositions, Linear, MultiHeadAttention, Positions};
use crate::ops::{self, CrossEntropy};
use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};

/// An encoder that tags words: the state of each word's first piece is classified (Devlin et al. 2019, §5.3). With a
/// [`Crf`], all tags of a sentence are predicted jointly (Lample et al. 2016).
#[derive(Module, Debug)]
pub struct BertForTokenClassification<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    /// The encoder.
    pub bert: Bert<A, P>,
    /// The transform before the output, in families that have one.
    pub transform: Option<HeadTransform>,
    /// `[d_model, n_tags]`
    pub output: Linear,
    /// The conditional random field, whose emissions are the output's logits.
    pub crf: Option<Crf>,
    /// Dropout before the output.
    pub dropout: f64,
}

impl<A: Attention, P: Positions> BertForTokenClassification<A, P> {
    /// The logits, or emissions, of some tokens: one row for each word.
    ///
    /// # Shapes
    /// - `positions`: `[n_words]`, indices into the flattened batch: `row · len + column`, or the token's index in
    ///   packed sequences; returns `[n_words, n_tags]`
    pub fn forward(&self, input: BertInput, positions: Tensor<1, Int>) -> Tensor<2> {
        let hidden = self.bert.forward(input).last_hidden_state;
        let [batch, len, d_model] = hidden.dims();
        let states = hidden.reshape([batch * len, d_model]).select(0, positions);
        let states = HeadTransform::apply(self.transform.as_ref(), states);
        self.output.forward(ops::dropout(states, self.dropout))
    }

    /// The loss, in nats: of each sentence with a CRF, of each word without one. The CRF ignores class weights,
    /// smoothing and ignored labels.
    ///
    /// # Shapes
    /// - `logits`: `[n_words, n_tags]`, sentence after sentence; `tags`: `n_words` of them; `n_words`: the number of
    ///   words in each sentence; returns `[sentences]` or `[n_words]`
    ///
    /// # Panics
    /// If the numbers of words and rows of logits differ, or a tag is not below `n_tags`.
    pub fn loss(
        &self,
        logits: Tensor<2>,
        tags: &[usize],
        n_words: &[usize],
        loss: &CrossEntropy,
    ) -> Tensor<1> {
        tagging_loss(self.crf.as_ref(), logits, tags, n_words, loss)
    }

    /// The best tags of each sentence: jointly with a CRF, independently for each word without one.
    ///
    /// # Shapes
    /// - as [`loss`](Self::loss)
    ///
    /// # Panics
    /// If the numbers of words and rows of logits differ.
    pub fn decode(&self, logits: Tensor<2>, n_words: &[usize]) -> Vec<Vec<usize>> {
        decode_tags(self.crf.as_ref(), logits, n_words)
    }
}

/// The loss of words' tags, in nats: of each sentence with a CRF, of each word without one. The CRF ignores class
/// weights, smoothing and ignored labels.
///
/// # Shapes
/// - `logits`: `[n_words, n_tags]`, sentence after sentence; `tags`: `n_words` of them; `n_words`: the number of words
///   in each sentence; returns `[sentences]` or `[n_words]`
///
/// # Panics
/// If the numbers of words and rows of logits differ, or a tag is not below `n_tags`.
pub fn tagging_loss(
    crf: Option<&Crf>,
    logits: Tensor<2>,
    tags: &[usize],
    n_words: &[usize],
    loss: &CrossEntropy,
) -> Tensor<1> {
    match crf {
        Some(crf) => crf.loss(logits, tags, n_words),
        None => {
            let labels = tags.iter().map(|tag| *tag as i32).collect();
            let labels = TensorData::new::<i32, _>(labels, [tags.len()]);
            let labels = Tensor::from_data(labels, &logits.device());
            classification_loss(logits, labels, loss)
        }
    }
}

/// The best tags of each sentence: jointly with a CRF, independently for each word without one.
///
/// # Shapes
/// - as [`tagging_loss`]
///
/// # Panics
/// If the numbers of words and rows of logits differ.
pub fn decode_tags(crf: Option<&Crf>, logits: Tensor<2>, n_words: &[usize]) -> Vec<Vec<usize>> {
    match crf {
        Some(crf) => crf.decode(logits, n_words),
        None => {
            let [rows, _] = logits.dims();
            assert_eq!(n_words.iter().sum::<usize>(), rows, "one row of logits for each word");
            let best = logits.argmax(1).into_data();
            let mut best = best.iter::<i64>().map(|tag| tag as usize);
            n_words.iter().map(|n| best.by_ref().take(*n).collect()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bert, close, inputs};
    use super::*;
    use crate::ParamInit;
    use burn::tensor::Device;

    #[test]
    fn words_are_tagged_by_chosen_tokens() {
        let device = Device::flex();
        let init = &mut ParamInit::new(&device, 1).with_std(0.4);
        let output = Linear::new(8, 4, init);
        let bert = bert(&device);
        let model = BertForTokenClassification { bert, transform: None, output, crf: None, dropout: 0.1 };
        let [packed, padded] = inputs(&[6, 4], &device);
        // Words begin at tokens 1, 2 and 4 of the first sentence, and at 1 of the second.
        let n_words = [3, 1];
        let at = |positions: [i32; 4]| Tensor::<1, Int>::from_data(positions, &device);
        let logits = model.forward(packed, at([1, 2, 4, 7]));
        assert_eq!(logits.dims(), [4, 4]);
        close(model.forward(padded, at([1, 2, 4, 7])), logits.to_data());

        let tags = [0, 3, 1, 2];
        let plain = CrossEntropy::default();
        let losses = model.loss(logits.clone(), &tags, &n_words, &plain);
        close(losses, plain.forward(logits.clone(), at([0, 3, 1, 2])).into_data());
        let best: Vec<usize> =
            logits.clone().argmax(1).into_data().iter::<i64>().map(|tag| tag as usize).collect();
        assert_eq!(model.decode(logits.clone(), &n_words), [best[..3].to_vec(), best[3..].to_vec()]);

        let crf = Crf::new(4, init);
        let jointly = BertForTokenClassification { crf: Some(crf.clone()), ..model };
        let losses = jointly.loss(logits.clone(), &tags, &n_words, &plain);
        close(losses, crf.loss(logits.clone(), &tags, &n_words).into_data());
        assert_eq!(jointly.decode(logits.clone(), &n_words), crf.decode(logits, &n_words));
    }
}
