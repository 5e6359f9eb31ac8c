use super::SequenceHead;
use crate::bert::{Bert, BertInput, Pooling, SentencePooling, integer_only};
use crate::blocks::{Attention, LearnedPositions, MultiHeadAttention, Positions};
use crate::ops::CrossEntropy;
use burn::module::Module;
use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Int, Tensor};

/// An encoder that classifies sequences or pairs (Devlin et al. 2019, §4.1) or, with one output, predicts a
/// number for each.
#[derive(Module, Debug)]
pub struct BertForSequenceClassification<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    /// The encoder.
    pub bert: Bert<A, P>,
    /// The head on one vector for each sequence.
    pub head: SequenceHead,
    /// How that vector is made; none: the pooler's output, or the encoder's own [pooling](Bert::pooling) if it has no
    /// pooler.
    #[module(skip)]
    pub pooling: Option<Pooling>,
}

impl<A: Attention, P: Positions> BertForSequenceClassification<A, P> {
    /// A model whose head is on the pooler's output, or on states pooled as the [encoder's family](Bert::pooling) does.
    pub fn new(bert: Bert<A, P>, head: SequenceHead) -> Self {
        Self { bert, head, pooling: None }
    }

    /// Puts the head on states pooled in this way instead, without the pooler.
    pub fn with_pooling(mut self, pooling: Pooling) -> Self {
        self.pooling = Some(pooling);
        self
    }

    /// The logits of each sequence, or its one number.
    ///
    /// # Shapes
    /// - returns `[sequences, n_outputs]`
    pub fn forward(&self, input: BertInput) -> Tensor<2> {
        let in_integers = || integer_only::logits(self.bert.integer_only.as_deref()?, &input);
        match self.pooling.map_or_else(in_integers, |_| None) {
            Some(logits) => logits,
            None => self.head.forward(self.summaries(input)),
        }
    }

    /// The head's input for each sequence.
    ///
    /// # Shapes
    /// - returns `[sequences, d_model]`
    pub fn summaries(&self, input: BertInput) -> Tensor<2> {
        summaries(&self.bert, input, self.pooling)
    }
}

/// One vector for each sequence, `[sequences, d_model]`, from padded or packed input.
pub(super) fn summaries<A: Attention, P: Positions>(
    bert: &Bert<A, P>,
    input: BertInput,
    pooling: Option<Pooling>,
) -> Tensor<2> {
    match (pooling, &bert.pooler) {
        (None, Some(pooler)) => pooler.forward(bert.first_states(input)),
        (pooling, _) => SentencePooling::from(pooling.unwrap_or(bert.pooling)).forward(bert, input),
    }
}

/// The cross-entropy of each row of logits, in nats: of sequences' classes, of choices, or of tokens' tags.
///
/// For their mean, divide the sum by the labels' [`CrossEntropy::total_weight`].
///
/// # Shapes
/// - `logits`: `[n, n_classes]`; `labels`: `[n]`; returns `[n]`
pub fn classification_loss(logits: Tensor<2>, labels: Tensor<1, Int>, loss: &CrossEntropy) -> Tensor<1> {
    loss.forward(logits, labels)
}

/// The squared error of each sequence's number.
///
/// # Shapes
/// - `predictions`: `[n, 1]`; `targets`: `[n]`; returns `[n]`
pub fn regression_loss(predictions: Tensor<2>, targets: Tensor<1>) -> Tensor<1> {
    (predictions.squeeze_dim::<1>(1) - targets).powi_scalar(2)
}

/// The binary cross-entropy of each sequence's numbers by targets from 0 to 1, in nats: the mean over its
/// outputs of `−t·log σ(x) − (1 − t)·log(1 − σ(x))`. It equals PyTorch's `BCEWithLogitsLoss`, which
/// transformers uses for multi-label classification, and is finite for any `x`.
///
/// # Shapes
/// - `logits`, `targets`: `[n, n_outputs]`; returns `[n]`
pub fn binary_loss(logits: Tensor<2>, targets: Tensor<2>) -> Tensor<1> {
    // log(1 − σ(x)) is log σ(−x), which is log σ(x) − x.
    let losses = log_sigmoid(logits.clone().neg()).neg() - logits * targets;
    losses.mean_dim(1).squeeze_dim(1)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bert, close, inputs};
    use super::*;
    use crate::ParamInit;
    use burn::tensor::Device;

    #[test]
    fn packed_and_padded_have_the_same_logits_whatever_the_pooling() {
        let device = Device::flex();
        let head = SequenceHead::new(8, 3, 0.1, &mut ParamInit::new(&device, 1).with_std(0.4));
        let model = BertForSequenceClassification::new(bert(&device), head);
        let lengths = [4, 1, 7];
        let [packed, padded] = inputs(&lengths, &device);
        let of = |model: &BertForSequenceClassification| {
            let logits = model.forward(packed.clone());
            assert_eq!(logits.dims(), [3, 3]);
            close(model.forward(padded.clone()), logits.to_data());
            logits
        };
        let pooled = of(&model);
        let states = model.bert.forward(packed.clone()).last_hidden_state;
        let pooler = model.bert.pooler.as_ref();
        let starts = states.clone().squeeze_dim::<2>(0).select(0, Tensor::from_data([0, 4, 5], &device));
        let expected = pooler.unwrap().forward(starts.clone());
        close(pooled, model.head.forward(expected).into_data());
        let first = of(&model.clone().with_pooling(Pooling::Cls));
        close(first, model.head.forward(starts).into_data());
        let mean = of(&model.clone().with_pooling(Pooling::Mean));
        let last = states.narrow(1, 5, 7).mean_dim(1).squeeze_dim::<2>(1);
        close(mean.narrow(0, 2, 1), model.head.forward(last).into_data());
    }

    #[test]
    fn squared_errors_are_torchs() {
        // torch 2.9: p = tensor([[.5], [-1.], [2.]]), t = tensor([1., .25, 2.]); mse_loss(p.squeeze(), t),
        // with reduction="none", and its gradient with the mean.
        let device = Device::flex().autodiff();
        let predictions = Tensor::<2>::from_data([[0.5], [-1.0], [2.0]], &device).require_grad();
        let loss = regression_loss(predictions.clone(), Tensor::from_data([1.0, 0.25, 2.0], &device));
        close(loss.clone(), [0.25f32, 1.5625, 0.0]);
        let gradients = loss.mean().backward();
        close(predictions.grad(&gradients).unwrap(), [[-0.333_333_3f32], [-0.833_333_3], [0.0]]);
    }

    #[test]
    fn binary_cross_entropies_are_torchs() {
        // torch 2.9: x = tensor([[.5], [-1.], [2.], [-90.], [90.]]), t = tensor([1., .25, 0., 1., .5]);
        // binary_cross_entropy_with_logits(x.squeeze(1), t), with reduction="none", and its gradient with the mean.
        let device = Device::flex().autodiff();
        let logits = Tensor::<2>::from_data([[0.5], [-1.0], [2.0], [-90.0], [90.0]], &device).require_grad();
        let loss =
            binary_loss(logits.clone(), Tensor::from_data([[1.0], [0.25], [0.0], [1.0], [0.5]], &device));
        close(loss.clone(), [0.474_077_f32, 0.563_261_7, 2.126_928, 90.0, 45.0]);
        let gradients = loss.mean().backward();
        let expected = [[-0.075_508_13_f32], [0.003_788_28], [0.176_159_42], [-0.2], [0.1]];
        close(logits.grad(&gradients).unwrap(), expected);
    }

    #[test]
    fn the_loss_of_several_labels_is_that_of_transformers() {
        // transformers 4.57.6 and 5.24.0, BertForSequenceClassification with `problem_type` "multi_label_classification": x as
        // below from its classifier, labels tensor([[1., 0., 1.], [0., 0., 0.]]); the loss and its gradient by the logits.
        let device = Device::flex().autodiff();
        let logits = Tensor::<2>::from_data([[0.5, -1.0, 2.0], [0.0, 3.0, -4.0]], &device).require_grad();
        let targets = Tensor::from_data([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]], &device);
        let loss = binary_loss(logits.clone(), targets).mean();
        close(loss.clone().reshape([1]), [0.779_025_26_f32]);
        let gradients = loss.backward();
        close(
            logits.grad(&gradients).unwrap(),
            [[-0.062_923_44_f32, 0.044_823_57, -0.019_867_16], [0.083_333_34, 0.158_762_35, 0.002_997_7]],
        );
    }
}
