use super::SequenceHead;
use super::sequence_classification::summaries;
use crate::bert::{Bert, BertInput};
use crate::blocks::{Attention, LearnedPositions, MultiHeadAttention, Positions};
use burn::module::Module;
use burn::tensor::Tensor;

/// An encoder that chooses one of several continuations or answers. Each choice is a sequence with its context and gets
/// a score; the softmax is over a question's choices (Devlin et al. 2019, §4.4).
///
/// Its loss is [`classification_loss`](super::classification_loss) of the scores and the index of the right choice.
#[derive(Module, Debug)]
pub struct BertForMultipleChoice<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    /// The encoder.
    pub bert: Bert<A, P>,
    /// Gives each sequence one number.
    pub head: SequenceHead,
}

impl<A: Attention, P: Positions> BertForMultipleChoice<A, P> {
    /// The choices' scores. `input` holds the choices question by question, with the same number for each
    /// question.
    ///
    /// # Shapes
    /// - `input`: `batch · n_choices` sequences; returns `[batch, n_choices]`
    ///
    /// # Panics
    /// If the number of sequences is not a multiple of `n_choices`.
    pub fn forward(&self, input: BertInput, n_choices: usize) -> Tensor<2> {
        let scores = self.head.forward(summaries(&self.bert, input, None));
        let [sequences, _] = scores.dims();
        assert!(
            n_choices > 0 && sequences.is_multiple_of(n_choices),
            "{sequences} sequences are not a number of questions with {n_choices} choices"
        );
        scores.reshape([sequences / n_choices, n_choices])
    }
}

#[cfg(test)]
mod tests {
    use super::super::BertForSequenceClassification;
    use super::super::testing::{bert, close, inputs};
    use super::*;
    use crate::ParamInit;
    use burn::tensor::Device;

    fn model(device: &Device) -> BertForMultipleChoice {
        let head = SequenceHead::new(8, 1, 0.1, &mut ParamInit::new(device, 1));
        BertForMultipleChoice { bert: bert(device), head }
    }

    #[test]
    fn a_question_has_a_row() {
        let device = Device::flex();
        let model = model(&device);
        let [packed, padded] = inputs(&[3, 5, 2, 2, 6, 4], &device);
        let BertForMultipleChoice { bert, head } = model.clone();
        let each = BertForSequenceClassification::new(bert, head).forward(packed.clone());
        for input in [packed, padded] {
            close(model.forward(input, 3), each.clone().reshape([2, 3]).into_data());
        }
    }

    #[test]
    #[should_panic(expected = "3 sequences are not a number of questions with 2 choices")]
    fn choices_must_fit() {
        let device = Device::flex();
        let [packed, _] = inputs(&[3, 5, 2], &device);
        model(&device).forward(packed, 2);
    }
}
