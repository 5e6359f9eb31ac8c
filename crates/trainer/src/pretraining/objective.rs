//! BERT's pretraining objective, masked pieces and sentence pairs (Devlin et al. 2019, §3.1), and SpanBERT's,
//! which also predicts the pieces of masked spans from their boundaries (Joshi et al. 2020, §3.2).

use super::encoder_objective::EncoderObjective;
use super::tables;
use super::teacher::Teacher;
use crate::config::{ObjectiveSection, RunConfig};
use crate::engine::{Objective, Term, load_parameters, save_parameters};
use crate::metrics::curve::Panel;
use crate::{Result, input};
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::{PretrainingBatch, UnigramCounts};
use cloze_evaluation::figures::Figures;
use cloze_model::bert::{Bert, BertConfig, BertForPreTraining, BertInput, PreTrainingLogits, SpanBoundaries};
use cloze_model::blocks::{Attention, LearnedPositions, MultiHeadAttention, Positions};
use cloze_model::huggingface::{PretrainedFolder, SaveConfig, SentenceConfig, save_pretrained};
use cloze_model::ops;
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use std::ops::AddAssign;
use std::path::Path;
use std::sync::Arc;

/// The mean cross-entropy of the masked pieces plus, if there are pairs and a head for them, that of the
/// sentence pairs; for SpanBERT, also that of the masked spans from their boundaries.
#[derive(Debug, Clone)]
pub struct BertPretraining<A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    terms: Terms,
    /// The encoder and its format, if it is saved in a published one.
    published: Option<(BertConfig, SaveConfig)>,
    /// How sentences are pooled, if the checkpoint makes embeddings of sentences.
    sentence: Option<SentenceConfig>,
    teacher: Option<Arc<Teacher>>,
    parts: PhantomData<fn() -> (A, P)>,
}

/// BERT's: masked pieces and sentence pairs.
impl<A: Attention, P: Positions> Default for BertPretraining<A, P> {
    fn default() -> Self {
        Self { terms: Terms::BERT, published: None, sentence: None, teacher: None, parts: PhantomData }
    }
}

impl<A: Attention, P: Positions> BertPretraining<A, P> {
    /// The configured terms. The model is saved with its own parameter paths.
    pub fn new(config: &RunConfig) -> Self {
        let boundaries = config.objective == ObjectiveSection::SpanBoundary {};
        let terms = Terms { boundaries, pairs: config.examples.has_pairs() };
        Self { terms, ..Self::default() }
    }

    /// Saves the model as a Hugging Face folder.
    pub(super) fn published(self, bert: BertConfig, save: SaveConfig) -> Self {
        Self { published: Some((bert, save)), ..self }
    }

    /// Saves these sentence-transformers modules in the folder.
    pub(super) fn of_sentences(self, sentence: Option<SentenceConfig>) -> Self {
        Self { sentence, ..self }
    }

    /// Adds the terms of a teacher, and weighs that of masked pieces.
    pub(super) fn taught_by(self, teacher: Option<Teacher>) -> Self {
        Self { teacher: teacher.map(Arc::new), ..self }
    }
}

impl<A: Attention, P: Positions> Objective for BertPretraining<A, P> {
    type Model = BertForPreTraining<A, P>;
    type Batch = PretrainingBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        let mut terms = self.terms.named();
        if let Some(teacher) = &self.teacher {
            // The first one is that of masked pieces.
            terms[0].weight = teacher.section.hard();
            terms.extend(teacher.terms());
        }
        terms
    }

    fn counts(&self, batch: &PretrainingBatch) -> Vec<f64> {
        let mut counts = self.terms.counts(batch);
        counts.extend(self.teacher.iter().flat_map(|teacher| teacher.counts(batch)));
        counts
    }

    fn sums(
        &self,
        model: &BertForPreTraining<A, P>,
        batch: &PretrainingBatch,
        device: &Device,
    ) -> Vec<Tensor<1>> {
        let Some(teacher) = &self.teacher else {
            return self.terms.sums(losses(model, batch, device), device);
        };
        let (losses, pass) = teacher.watch(|| losses(model, batch, device));
        let logits = losses.logits.mlm.clone();
        let mut sums = self.terms.sums(losses, device);
        sums.extend(teacher.sums(batch, &logits, pass, device));
        sums
    }
}

impl<A: Attention, P: Positions> EncoderObjective for BertPretraining<A, P> {
    type Sums = HeldOutSums;

    fn measure(
        &self,
        model: &BertForPreTraining<A, P>,
        batch: &PretrainingBatch,
        unigram: &UnigramCounts,
        device: &Device,
    ) -> HeldOutSums {
        let mut sums = HeldOutSums::default();
        sums.add(model, batch, unigram, device);
        sums
    }

    fn figures(&self, sums: &HeldOutSums) -> Figures {
        sums.figures()
    }

    fn has_pairs(&self) -> bool {
        self.terms.pairs
    }

    fn line(&self, step: u64, figures: &Figures) -> String {
        tables::line(step, figures)
    }

    /// The masked-token loss in training and held out, and held-out accuracies, each with the unigram
    /// baseline's.
    fn panels(&self, split: &str) -> Vec<Panel> {
        let mut losses = tables::loss_panel(split);
        losses
            .lines
            .insert(2, tables::held_out(split, "from spans' boundaries, held out", figure::BOUNDARY_LOSS));
        let mut accuracies = tables::accuracy_panel(split);
        let more = [
            tables::held_out(split, "from spans' boundaries, held out", figure::BOUNDARY_ACCURACY),
            tables::held_out(split, "sentence pairs, held out", figure::PAIR_ACCURACY),
        ];
        accuracies.lines.splice(1..1, more);
        vec![losses, accuracies]
    }

    fn results(&self, step: u64, figures: &Figures) -> String {
        tables::results(step, figures)
    }

    fn save(
        &self,
        model: &BertForPreTraining<A, P>,
        folder: &Path,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<()> {
        let mut model = model.clone();
        model.bert.teacher_maps = None;
        let Some((bert, save)) = &self.published else { return save_parameters(&model, folder) };
        save_pretrained(folder, &model, bert, save)?;
        if let Some(sentence) = &self.sentence {
            sentence.save(folder, bert.d_model)?;
        }
        save_tokenizer(tokenizer, folder)
    }

    fn load(&self, mut model: BertForPreTraining<A, P>, folder: &Path) -> Result<BertForPreTraining<A, P>> {
        model.bert.teacher_maps = None;
        match &self.published {
            Some((_, save)) => {
                Ok(PretrainedFolder::open(folder)?.load_into(model, save.architecture, &[])?.0)
            }
            None => load_parameters(model, folder),
        }
    }
}

/// Saves a published model's tokenizer next to its existing `config.json`.
pub(super) fn save_tokenizer(tokenizer: Option<&Tokenizer>, folder: &Path) -> Result<()> {
    Ok(tokenizer.map_or(Ok(()), |tokenizer| tokenizer.save(folder))?)
}

/// The terms of a loss: the masked pieces, and optional ones.
#[derive(Debug, Clone, Copy)]
struct Terms {
    /// The pieces of masked spans, from their boundaries.
    boundaries: bool,
    /// The sentence pairs.
    pairs: bool,
}

impl Terms {
    const BERT: Self = Self { boundaries: false, pairs: true };

    fn named(self) -> Vec<Term> {
        let pairs = || Term::new(figure::PAIR_LOSS);
        self.of(Term::new(figure::MASKED_LOSS), || Term::new(figure::BOUNDARY_LOSS), pairs)
    }

    /// The values of the active terms.
    fn of<T>(self, masked: T, boundaries: impl FnOnce() -> T, pairs: impl FnOnce() -> T) -> Vec<T> {
        let mut terms = vec![masked];
        terms.extend(self.boundaries.then(boundaries));
        terms.extend(self.pairs.then(pairs));
        terms
    }

    fn counts(self, batch: &PretrainingBatch) -> Vec<f64> {
        let masked = batch.masked_labels.len() as f64;
        self.of(masked, || masked, || batch.pair_labels.len() as f64)
    }

    /// The sums of the losses; 0 for terms that a batch does not have.
    fn sums(self, losses: Losses, device: &Device) -> Vec<Tensor<1>> {
        let Losses { masked, boundaries, pairs, .. } = losses;
        let sum = |loss: Option<Tensor<1>>| loss.map_or_else(|| Tensor::zeros([1], device), Tensor::sum);
        self.of(masked.sum(), || sum(boundaries), || sum(pairs))
    }
}

/// The batch's individual cross-entropies, and their logits.
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
    let (input, positions) = masked_input(&model.bert, batch, device);
    let spans = model.span_boundary.as_ref().map(|_| boundaries(batch, &positions));
    let mut logits = model.forward_with_spans(input, vector(&positions, device), spans.as_ref());
    let masked = ops::cross_entropy(logits.mlm.clone(), vector(&batch.masked_labels, device));
    // The spans' tokens are the masked ones, in the same order.
    let boundaries = logits.span_boundary.clone();
    let boundaries =
        boundaries.map(|logits| ops::cross_entropy(logits, vector(&batch.masked_labels, device)));
    logits.next_sentence = logits.next_sentence.filter(|_| !batch.pair_labels.is_empty()).map(|logits| {
        // Not all sequences have a label where some tokens do not see the second segment.
        match batch.pair_labels.len() == batch.tokens.n_sequences() {
            true => logits,
            false => logits.select(0, vector(&batch.paired(), device)),
        }
    });
    let pairs = logits
        .next_sentence
        .clone()
        .map(|logits| ops::cross_entropy(logits, vector(&batch.pair_labels, device)));
    Losses { logits, masked, boundaries, pairs }
}

/// The batch's tokens in the model's fastest form, and the masked positions in that form, `[masked]`. Packing a
/// batch without padding would gain nothing.
pub(super) fn masked_input<A: Attention, P: Positions>(
    bert: &Bert<A, P>,
    batch: &PretrainingBatch,
    device: &Device,
) -> (BertInput, Vec<i32>) {
    let tokens = &batch.tokens;
    match bert.takes_packed() && tokens.n_padding() > 0 {
        true => (input::packed(tokens, device), batch.masked_positions.clone()),
        false => (input::padded(tokens, device), tokens.padded_places(&batch.masked_positions)),
    }
}

/// The masked spans, whose tokens are at these `positions`, span by span.
fn boundaries(batch: &PretrainingBatch, positions: &[i32]) -> SpanBoundaries {
    let ends = batch.masked_spans.iter().scan(0, |end, span| {
        *end += span.len();
        Some(*end)
    });
    let places = ends.zip(&batch.masked_spans).map(|(end, span)| {
        let start = positions[end - span.len()];
        start..start + span.len() as i32
    });
    SpanBoundaries::new(&places.collect::<Vec<_>>())
}

pub(super) fn vector(values: &[i32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

/// Sums over the masked tokens of held-out batches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct MaskedSums {
    masked: u64,
    loss: f64,
    right: u64,
    unigram_loss: f64,
    unigram_right: u64,
}

impl AddAssign for MaskedSums {
    fn add_assign(&mut self, more: Self) {
        let Self { masked, loss, right, unigram_loss, unigram_right } = more;
        self.masked += masked;
        self.loss += loss;
        self.right += right;
        self.unigram_loss += unigram_loss;
        self.unigram_right += unigram_right;
    }
}

impl MaskedSums {
    /// Adds the masked tokens of a batch.
    pub fn add(&mut self, logits: Tensor<2>, losses: Tensor<1>, labels: &[i32], unigram: &UnigramCounts) {
        self.masked += labels.len() as u64;
        self.loss += sum(losses);
        self.right += right(logits, labels);
        for label in labels {
            self.unigram_loss -= unigram.log_prob(*label as u32);
            self.unigram_right += u64::from(*label as u32 == unigram.most_frequent());
        }
    }

    /// Number of masked tokens, or 1 if there are none.
    fn n(&self) -> f64 {
        self.masked.max(1) as f64
    }

    pub fn figures(&self) -> [(&'static str, f64); 6] {
        let masked = self.n();
        let loss = self.loss / masked;
        [
            (figure::MASKED_LOSS, loss),
            (figure::PERPLEXITY, loss.exp()),
            (figure::MASKED_ACCURACY, self.right as f64 / masked),
            (figure::MASKED_TOKENS, self.masked as f64),
            (figure::UNIGRAM_LOSS, self.unigram_loss / masked),
            (figure::UNIGRAM_ACCURACY, self.unigram_right as f64 / masked),
        ]
    }
}

/// Sums over held-out batches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldOutSums {
    examples: usize,
    masked: MaskedSums,
    boundary_loss: Option<f64>,
    boundary_right: u64,
    pairs: u64,
    pair_loss: f64,
    pair_right: u64,
}

impl AddAssign for HeldOutSums {
    fn add_assign(&mut self, more: Self) {
        let Self { examples, masked, boundary_loss, boundary_right, pairs, pair_loss, pair_right } = more;
        self.examples += examples;
        self.masked += masked;
        if let Some(loss) = boundary_loss {
            *self.boundary_loss.get_or_insert_default() += loss;
        }
        self.boundary_right += boundary_right;
        self.pairs += pairs;
        self.pair_loss += pair_loss;
        self.pair_right += pair_right;
    }
}

impl HeldOutSums {
    /// Adds one batch; `model` is on an inference device.
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
        self.masked.add(mlm, masked, &batch.masked_labels, unigram);
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
        let of_boundaries = self.boundary_loss.into_iter().flat_map(|loss| {
            let (masked, right) = (self.masked.n(), self.boundary_right as f64);
            [(figure::BOUNDARY_LOSS, loss / masked), (figure::BOUNDARY_ACCURACY, right / masked)]
        });
        let per_pair = |name, sum: f64| (self.pairs > 0).then(|| (name, sum / self.pairs as f64));
        let of_pairs = [
            per_pair(figure::PAIR_LOSS, self.pair_loss),
            per_pair(figure::PAIR_ACCURACY, self.pair_right as f64),
        ];
        let of_masked = self.masked.figures();
        Figures::new(
            self.examples,
            of_masked.into_iter().chain(of_boundaries).chain(of_pairs.into_iter().flatten()),
        )
    }
}

/// The names of pretraining metrics. Losses are means in nats, accuracies fractions from 0 to 1.
pub mod figure {
    /// Cross-entropy of the masked tokens: the main metric, and a term of the loss.
    pub const MASKED_LOSS: &str = "masked_loss";
    /// Its exponential: the effective number of choices.
    pub const PERPLEXITY: &str = "perplexity";
    /// Fraction of the masked tokens that are ranked first.
    pub const MASKED_ACCURACY: &str = "masked_accuracy";
    /// Number of masked tokens evaluated.
    pub const MASKED_TOKENS: &str = "masked_tokens";
    /// Cross-entropy of the same tokens under their frequencies in the training documents.
    pub const UNIGRAM_LOSS: &str = "unigram_loss";
    /// Fraction of the same tokens that equal the most frequent one.
    pub const UNIGRAM_ACCURACY: &str = "unigram_accuracy";
    /// Cross-entropy of the masked tokens from their span's boundaries, if predicted.
    pub const BOUNDARY_LOSS: &str = "boundary_loss";
    /// Fraction of the masked tokens that are ranked first from their span's boundaries.
    pub const BOUNDARY_ACCURACY: &str = "boundary_accuracy";
    /// Cross-entropy of the sentence pairs, if there are any.
    pub const PAIR_LOSS: &str = "pair_loss";
    /// Fraction of the sentence pairs classified correctly, if there are any.
    pub const PAIR_ACCURACY: &str = "pair_accuracy";
    /// Binary cross-entropy of replaced versus original tokens, if a discriminator is trained.
    pub const REPLACED_LOSS: &str = "replaced_loss";
    /// Fraction of the tokens classified correctly as replaced or original.
    pub const REPLACED_ACCURACY: &str = "replaced_accuracy";
    /// Precision of tokens classified as replaced; 0 if there are none.
    pub const REPLACED_PRECISION: &str = "replaced_precision";
    /// Recall of the replaced tokens.
    pub const REPLACED_RECALL: &str = "replaced_recall";
    /// Fraction of the tokens that a generator replaced by another one.
    pub const REPLACED_SHARE: &str = "replaced_share";
}

pub(super) fn sum(values: Tensor<1>) -> f64 {
    values.into_data().iter::<f64>().sum()
}

/// Number of rows of `logits` whose maximum is at the label.
fn right(logits: Tensor<2>, labels: &[i32]) -> u64 {
    let predicted = logits.argmax(1).into_data();
    predicted.iter::<i32>().zip(labels).filter(|(predicted, label)| predicted == *label).count() as u64
}
