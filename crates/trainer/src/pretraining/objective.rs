//! BERT's pretraining objective, masked pieces and sentence pairs (Devlin et al. 2019, §3.1), and SpanBERT's, which adds
//! the pieces of masked spans from their boundaries (Joshi et al. 2020, §3.2).

use crate::engine::Objective;
use crate::input;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::{PretrainingBatch, UnigramCounts};
use cloze_evaluation::figures::Figures;
use cloze_model::bert::{BertForPreTraining, BertInput, PreTrainingLogits, SpanBoundaries};
use cloze_model::blocks::{Attention, Positions};
use cloze_model::ops;

/// The mean cross-entropy of the masked pieces plus, where there are pairs and a head for them, that of the
/// sentence pairs.
#[derive(Debug, Clone, Copy, Default)]
pub struct BertPretraining;

impl Objective for BertPretraining {
    type Model = BertForPreTraining;
    type Batch = PretrainingBatch;

    fn terms(&self) -> &'static [&'static str] {
        Terms::BERT.names()
    }

    fn counts(&self, batch: &PretrainingBatch) -> Vec<f64> {
        Terms::BERT.counts(batch)
    }

    fn sums(&self, model: &BertForPreTraining, batch: &PretrainingBatch, device: &Device) -> Vec<Tensor<1>> {
        Terms::BERT.sums(model, batch, device)
    }
}

/// The terms of a loss: the masked pieces, and what is added to them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// The pieces of masked spans, from their boundaries.
    pub boundaries: bool,
    /// The sentence pairs.
    pub pairs: bool,
}

impl Terms {
    const BERT: Self = Self { boundaries: false, pairs: true };

    pub fn names(self) -> &'static [&'static str] {
        use figure::{BOUNDARY_LOSS, MASKED_LOSS, PAIR_LOSS};
        match (self.boundaries, self.pairs) {
            (false, false) => &[MASKED_LOSS],
            (false, true) => &[MASKED_LOSS, PAIR_LOSS],
            (true, false) => &[MASKED_LOSS, BOUNDARY_LOSS],
            (true, true) => &[MASKED_LOSS, BOUNDARY_LOSS, PAIR_LOSS],
        }
    }

    /// Those of the three that there are.
    fn of<T>(self, masked: T, boundaries: impl FnOnce() -> T, pairs: impl FnOnce() -> T) -> Vec<T> {
        let mut terms = vec![masked];
        terms.extend(self.boundaries.then(boundaries));
        terms.extend(self.pairs.then(pairs));
        terms
    }

    pub fn counts(self, batch: &PretrainingBatch) -> Vec<f64> {
        let masked = batch.masked_labels.len() as f64;
        self.of(masked, || masked, || batch.pair_labels.len() as f64)
    }

    /// The sums of the losses; 0 where a batch has nothing of the kind.
    pub fn sums<A: Attention, P: Positions>(
        self,
        model: &BertForPreTraining<A, P>,
        batch: &PretrainingBatch,
        device: &Device,
    ) -> Vec<Tensor<1>> {
        let Losses { masked, boundaries, pairs, .. } = losses(model, batch, device);
        let sum = |loss: Option<Tensor<1>>| loss.map_or_else(|| Tensor::zeros([1], device), Tensor::sum);
        self.of(masked.sum(), || sum(boundaries), || sum(pairs))
    }
}

/// The batch's cross-entropies one by one, and the logits they are of.
struct Losses {
    logits: PreTrainingLogits,
    masked: Tensor<1>,
    boundaries: Option<Tensor<1>>,
    pairs: Option<Tensor<1>>,
}

fn losses<A: Attention, P: Positions>(
    model: &BertForPreTraining<A, P>,
    batch: &PretrainingBatch,
    device: &Device,
) -> Losses {
    let Input { input, positions, spans } = input(model, batch, device);
    let logits = model.forward_with_spans(input, vector(&positions, device), spans.as_ref());
    let masked = ops::cross_entropy(logits.mlm.clone(), vector(&batch.masked_labels, device));
    // The spans' tokens are the masked ones, in the same order.
    let boundaries = logits.span_boundary.clone();
    let boundaries =
        boundaries.map(|logits| ops::cross_entropy(logits, vector(&batch.masked_labels, device)));
    let pairs = logits.next_sentence.clone().filter(|_| !batch.pair_labels.is_empty());
    let pairs = pairs.map(|logits| ops::cross_entropy(logits, vector(&batch.pair_labels, device)));
    Losses { logits, masked, boundaries, pairs }
}

/// A batch as a model takes it.
struct Input {
    input: BertInput,
    /// `[masked]`: the masked tokens, as they are counted in the input.
    positions: Vec<i32>,
    /// The masked spans, if the model has a head for them.
    spans: Option<SpanBoundaries>,
}

/// The batch's tokens as the model takes them fastest. Packing a batch without padding would gain nothing.
fn input<A: Attention, P: Positions>(
    model: &BertForPreTraining<A, P>,
    batch: &PretrainingBatch,
    device: &Device,
) -> Input {
    let tokens = &batch.tokens;
    let (input, positions) = match model.bert.takes_packed() && tokens.n_padding() > 0 {
        true => (input::packed(tokens, device), batch.masked_positions.clone()),
        false => (input::padded(tokens, device), tokens.padded_places(&batch.masked_positions)),
    };
    let spans = model.span_boundary.as_ref().map(|_| {
        // The masked tokens are those of the spans, one span after another.
        let ends = batch.masked_spans.iter().scan(0, |end, span| {
            *end += span.len();
            Some(*end)
        });
        let places = ends.zip(&batch.masked_spans).map(|(end, span)| {
            let start = positions[end - span.len()];
            start..start + span.len() as i32
        });
        SpanBoundaries::new(&places.collect::<Vec<_>>())
    });
    Input { input, positions, spans }
}

fn vector(values: &[i32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

/// Sums over held-out batches; see the methods for what they make.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeldOutSums {
    examples: usize,
    masked: u64,
    masked_loss: f64,
    masked_right: u64,
    boundary_loss: Option<f64>,
    boundary_right: u64,
    unigram_loss: f64,
    unigram_right: u64,
    pairs: u64,
    pair_loss: f64,
    pair_right: u64,
}

impl HeldOutSums {
    /// Takes in one batch; `model` is on an inference device.
    pub fn add<A: Attention, P: Positions>(
        &mut self,
        model: &BertForPreTraining<A, P>,
        batch: &PretrainingBatch,
        unigram: &UnigramCounts,
        device: &Device,
    ) {
        let Losses { logits, masked, boundaries, pairs } =
            ops::on_awake_cores(device, || losses(model, batch, device));
        let PreTrainingLogits { mlm, next_sentence, span_boundary } = logits;
        self.examples += batch.tokens.n_sequences();
        self.masked += batch.masked_labels.len() as u64;
        self.masked_loss += sum(masked);
        self.masked_right += right(mlm, &batch.masked_labels);
        for label in &batch.masked_labels {
            self.unigram_loss -= unigram.log_prob(*label as u32);
            self.unigram_right += u64::from(*label as u32 == unigram.most_frequent());
        }
        if let (Some(boundaries), Some(logits)) = (boundaries, span_boundary) {
            *self.boundary_loss.get_or_insert_default() += sum(boundaries);
            self.boundary_right += right(logits, &batch.masked_labels);
        }
        if let (Some(pairs), Some(logits)) = (pairs, next_sentence) {
            self.pairs += batch.pair_labels.len() as u64;
            self.pair_loss += sum(pairs);
            self.pair_right += right(logits, &batch.pair_labels);
        }
    }

    /// The means, under the names of [`figure`].
    pub fn figures(&self) -> Figures {
        let masked = self.masked.max(1) as f64;
        let loss = self.masked_loss / masked;
        let of_masked = [
            (figure::MASKED_LOSS, loss),
            (figure::PERPLEXITY, loss.exp()),
            (figure::MASKED_ACCURACY, self.masked_right as f64 / masked),
            (figure::MASKED_TOKENS, self.masked as f64),
            (figure::UNIGRAM_LOSS, self.unigram_loss / masked),
            (figure::UNIGRAM_ACCURACY, self.unigram_right as f64 / masked),
        ];
        let of_boundaries = self.boundary_loss.into_iter().flat_map(|loss| {
            let right = self.boundary_right as f64;
            [(figure::BOUNDARY_LOSS, loss / masked), (figure::BOUNDARY_ACCURACY, right / masked)]
        });
        let per_pair = |name, sum: f64| (self.pairs > 0).then(|| (name, sum / self.pairs as f64));
        let of_pairs = [
            per_pair(figure::PAIR_LOSS, self.pair_loss),
            per_pair(figure::PAIR_ACCURACY, self.pair_right as f64),
        ];
        Figures::new(
            self.examples,
            of_masked.into_iter().chain(of_boundaries).chain(of_pairs.into_iter().flatten()),
        )
    }
}

/// The names of the figures of pretraining. Losses are means in nats, accuracies shares from 0 to 1.
pub mod figure {
    /// Cross-entropy of the masked tokens: the main figure, and a term of the loss.
    pub const MASKED_LOSS: &str = "masked_loss";
    /// Its exponential: among how many tokens the model wavers.
    pub const PERPLEXITY: &str = "perplexity";
    /// Share of the masked tokens that are predicted first.
    pub const MASKED_ACCURACY: &str = "masked_accuracy";
    /// Masked tokens evaluated.
    pub const MASKED_TOKENS: &str = "masked_tokens";
    /// Cross-entropy of the same tokens under their frequencies in the training documents.
    pub const UNIGRAM_LOSS: &str = "unigram_loss";
    /// Share of the same tokens that are the most frequent one.
    pub const UNIGRAM_ACCURACY: &str = "unigram_accuracy";
    /// Cross-entropy of the masked tokens from their span's boundaries, where there is such an objective.
    pub const BOUNDARY_LOSS: &str = "boundary_loss";
    /// Share of the masked tokens that are predicted first from their span's boundaries.
    pub const BOUNDARY_ACCURACY: &str = "boundary_accuracy";
    /// Cross-entropy of the sentence pairs, where there are any.
    pub const PAIR_LOSS: &str = "pair_loss";
    /// Share of the sentence pairs classified rightly, where there are any.
    pub const PAIR_ACCURACY: &str = "pair_accuracy";
}

fn sum(values: Tensor<1>) -> f64 {
    values.into_data().iter::<f64>().sum()
}

/// How many rows of `logits` have their greatest value at the label.
fn right(logits: Tensor<2>, labels: &[i32]) -> u64 {
    let predicted = logits.argmax(1).into_data();
    predicted.iter::<i32>().zip(labels).filter(|(predicted, label)| predicted == *label).count() as u64
}
