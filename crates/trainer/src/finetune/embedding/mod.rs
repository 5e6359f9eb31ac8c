//! Sentence encoders: similar sentences get similar embeddings (Reimers & Gurevych 2019).
//!
//! A loss depends only on a batch's embeddings, so an [`EmbeddingTask`] may be computed [in parts](ByRows).

pub(super) mod kind;
mod losses;
mod model;
pub(super) mod section;
#[cfg(test)]
mod tests;

use super::section::TaskSection;
use super::task::{
    ByRowsOf, Encoded, PretrainedTask, ScoreRows, Task, TokenFeatures, bad_setting, input,
    pretrained_encoder, rows, sequences,
};
use crate::Result;
use crate::engine::ByRows;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_data::labelled::{SentenceExample, Target, TextExample, TokenSequence, encode_texts};
use cloze_evaluation::embeddings::Similarity;
use cloze_evaluation::report::{Predictions, SimilarityExample, SimilarityKind, SimilarityPredictions};
use cloze_model::bert::{BertConfig, SentencePooling};
use cloze_model::blocks::Linear;
use cloze_model::huggingface::{Architecture, LoadReport, PretrainedFolder, ProblemType, SentenceConfig};
use cloze_model::tasks::DropoutOverrides;
use cloze_model::{ModelError, ParamInit};
use cloze_tokenizer::Tokenizer;
use std::fmt;
use std::ops::Range;
use std::path::Path;

pub use losses::{EmbeddingBatch, EmbeddingLoss, TripletDistance, pair_features};
pub use model::SentenceEncoder;
pub use section::{EmbeddingSection, LossSection, MatryoshkaSection, PromptsSection};

/// Number of candidates in which a second sentence is searched, in the metrics of pairs without scores and
/// negatives.
const CANDIDATES: usize = 256;

/// The model's input for an example.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbeddingFeatures {
    /// The tokens of the first sentence, of the second, and of each negative.
    sequences: Vec<TokenSequence>,
    has_pair: bool,
    score: Option<f64>,
    class: Option<usize>,
    /// A key for each sentence, equal for equal texts.
    keys: Vec<u64>,
    /// A reference model's embedding of each sentence, if the loss needs them.
    reference: Vec<Vec<f32>>,
    truncated: bool,
}

/// Sentence embeddings, trained with any loss of embeddings.
pub struct EmbeddingTask {
    section: EmbeddingSection,
    loss: Box<dyn EmbeddingLoss>,
    sentence: SentenceConfig,
    pooling: SentencePooling,
    kind: SimilarityKind,
    /// The width of a teacher's embeddings, if the loss has one.
    teacher_width: Option<usize>,
    /// The number of pair classes, if the loss uses classes.
    n_classes: Option<usize>,
}

impl fmt::Debug for EmbeddingTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddingTask").field("section", &self.section).field("kind", &self.kind).finish()
    }
}

impl EmbeddingTask {
    /// A task with a custom loss in place of the section's, for a checkpoint with these sentence-transformers
    /// modules. `kind` describes the development data.
    ///
    /// # Errors
    /// Modules with an unknown pooling, with `Dense` layers, or with a pooling that excludes prompts while the
    /// section sets prompts.
    pub fn new(
        section: EmbeddingSection,
        loss: Box<dyn EmbeddingLoss>,
        mut sentence: SentenceConfig,
        kind: SimilarityKind,
    ) -> Result<Self> {
        sentence.check_trained()?;
        if let Some(pooling) = section.pooling {
            let name = SentenceConfig::mode(pooling);
            sentence.pooling_modes = vec![name.to_owned()];
        }
        sentence.normalize = section.normalize.unwrap_or(sentence.normalize);
        sentence.similarity.get_or_insert_with(|| "cosine".into());
        if let Some(prompts) = &section.prompts {
            if sentence.excludes_prompt && !(prompts.text.is_empty() && prompts.pair.is_empty()) {
                let message = "pooling without the prompt (`include_prompt`: false) cannot be trained with `task.prompts`; \
                               expected none";
                return Err(ModelError::Config(message.into()).into());
            }
            let names = [("query", &prompts.text), ("document", &prompts.pair)];
            sentence.prompts.extend(names.map(|(name, prompt)| (name.to_owned(), prompt.clone())));
        }
        let pooling = sentence.pooling()?;
        Ok(Self { section, loss, sentence, pooling, kind, teacher_width: None, n_classes: None })
    }

    /// The task with this many pair classes, for losses on classes: the model gets a classifier.
    pub fn with_classes(self, n: usize) -> Self {
        Self { n_classes: Some(n), ..self }
    }

    /// Examples with their tokens, each sentence after its prompt.
    ///
    /// # Errors
    /// A `max_len` too short for a token.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        examples: Vec<SentenceExample>,
        max_len: usize,
    ) -> Result<Encoded<SentenceExample, EmbeddingFeatures>> {
        let in_case = |text: String| match self.sentence.lowercase {
            true => text.to_lowercase(),
            false => text,
        };
        let prompts = self.section.prompts.clone().unwrap_or_default();
        let behind = |(place, text): (usize, &String)| {
            let prompt = if place == 0 { &prompts.text } else { &prompts.pair };
            TextExample { text: in_case(format!("{prompt}{text}")), pair: None, target: Target::None }
        };
        let of_example = |example: &SentenceExample| -> Vec<TextExample> {
            example.texts().enumerate().map(behind).collect()
        };
        let texts: Vec<TextExample> = examples.iter().flat_map(of_example).collect();
        let mut encoded = encode_texts(tokenizer, &texts, max_len)?.into_iter();
        let features = examples.iter().map(|example| {
            let n = example.texts().count();
            let (mut sequences, mut truncated) = (Vec::with_capacity(n), false);
            for features in encoded.by_ref().take(n) {
                truncated |= features.truncated;
                sequences.push(features.sequence);
            }
            let mut keys: Vec<u64> = example.texts().map(|text| key(text)).collect();
            keys.sort_unstable();
            keys.dedup();
            EmbeddingFeatures {
                sequences,
                has_pair: example.pair.is_some(),
                score: example.score,
                class: example.class,
                keys,
                reference: Vec::new(),
                truncated,
            }
        });
        Ok(Encoded { features: features.collect(), examples })
    }

    /// The embeddings of sequences, `[sequences, width]`.
    fn embed(&self, model: &SentenceEncoder, sequences: &[&TokenSequence], device: &Device) -> Tensor<2> {
        let embeddings = self.pooling.forward(&model.bert, input(&model.bert, sequences, device));
        if self.sentence.normalize { losses::unit(embeddings) } else { embeddings }
    }

    /// The loss's batch, from its sentences' embeddings.
    fn mean_loss(&self, scores: EmbeddingScores, batch: &[&EmbeddingFeatures]) -> Tensor<1> {
        let EmbeddingScores { rows, classifier } = scores;
        let (n, pairs) = (batch.len(), self.has_second(batch));
        let first_negative = |features: &EmbeddingFeatures| 1 + usize::from(features.has_pair);
        let owners: Vec<usize> = batch
            .iter()
            .enumerate()
            .flat_map(|(i, features)| vec![i; features.sequences.len() - first_negative(features)])
            .collect();
        let scores: Vec<f64> = batch.iter().filter_map(|features| features.score).collect();
        let classes: Vec<usize> = batch.iter().filter_map(|features| features.class).collect();
        let references: Vec<&[f32]> = order(batch, self.is_simcse(), |features, i| features.reference.get(i))
            .map(Vec::as_slice)
            .collect();
        let device = rows.device();
        let [n_rows, _] = rows.dims();
        let mut seen = EmbeddingBatch::of_rows(rows, n, pairs, &owners, &scores);
        (seen.classes, seen.classifier) = (&classes, classifier.as_ref());
        if references.len() == n_rows && n_rows > 0 {
            let shape = [n_rows, references[0].len()];
            let reference = Tensor::from_data(TensorData::new(references.concat(), shape), &device);
            seen.reference = Some(Box::new(EmbeddingBatch::of_rows(reference, n, pairs, &owners, &scores)));
        }
        self.loss.mean(&seen)
    }

    fn is_simcse(&self) -> bool {
        matches!(self.section.loss, LossSection::Simcse { .. })
    }

    fn has_second(&self, batch: &[&EmbeddingFeatures]) -> bool {
        self.is_simcse() || batch.iter().all(|features| features.has_pair)
    }

    /// The sequences of a batch in the order of [`EmbeddingBatch::of_rows`]. SimCSE has a single sentence
    /// twice.
    fn ordered<'a>(&self, batch: &[&'a EmbeddingFeatures]) -> Vec<&'a TokenSequence> {
        order(batch, self.is_simcse(), |features, i| features.sequences.get(i)).collect()
    }
}

/// The items in `of` of a batch's first sentences, then of the second ones, then of the negatives.
fn order<'a, T: 'a>(
    batch: &[&'a EmbeddingFeatures],
    twice: bool,
    of: impl Fn(&'a EmbeddingFeatures, usize) -> Option<&'a T> + Copy,
) -> impl Iterator<Item = &'a T> {
    let first = batch.iter().filter_map(move |features| of(features, 0));
    let second = batch.iter().filter_map(move |features| match (twice, features.has_pair) {
        (true, _) => of(features, 0),
        (false, true) => of(features, 1),
        (false, false) => None,
    });
    let negatives = batch.iter().flat_map(move |features| {
        let from = 1 + usize::from(features.has_pair);
        (from..features.sequences.len()).filter_map(move |i| of(features, i))
    });
    let all: Vec<&T> = first.chain(second).chain(negatives).collect();
    all.into_iter()
}

/// A text's key.
fn key(text: &str) -> u64 {
    let hash = blake3::hash(text.trim().to_lowercase().as_bytes());
    u64::from_le_bytes(std::array::from_fn(|i| hash.as_bytes()[i]))
}

impl TokenFeatures for EmbeddingFeatures {
    fn sequences(&self) -> Vec<&TokenSequence> {
        self.sequences.iter().collect()
    }

    fn is_cut(&self) -> bool {
        self.truncated
    }
}

/// A batch's embeddings, and the classifier of its pairs.
#[derive(Debug, Clone)]
pub struct EmbeddingScores {
    /// The first sentences, then the second ones, then the negatives, `[sentences, width]`.
    pub rows: Tensor<2>,
    /// The model's classifier of pairs.
    pub classifier: Option<Linear>,
}

impl ScoreRows for EmbeddingScores {
    fn rows(&self) -> Vec<Tensor<2>> {
        vec![self.rows.clone()]
    }
}

impl Task for EmbeddingTask {
    type Model = SentenceEncoder;
    type Example = SentenceExample;
    type Features = EmbeddingFeatures;
    type Scores = EmbeddingScores;
    /// The embedding of each sentence.
    type Output = Vec<Vec<f32>>;
    type Section = TaskSection;

    fn is_finite(output: &Vec<Vec<f32>>) -> bool {
        output.iter().flatten().all(|value| value.is_finite())
    }

    fn weight(&self, batch: &[&EmbeddingFeatures]) -> f64 {
        batch.len() as f64
    }

    fn scores(
        &self,
        model: &SentenceEncoder,
        batch: &[&EmbeddingFeatures],
        device: &Device,
    ) -> EmbeddingScores {
        let rows = self.embed(model, &self.ordered(batch), device);
        EmbeddingScores { rows, classifier: model.classifier.clone() }
    }

    fn loss(&self, scores: EmbeddingScores, batch: &[&EmbeddingFeatures]) -> Tensor<1> {
        self.mean_loss(scores, batch) * batch.len() as f64
    }

    fn by_rows(&self) -> Option<&ByRowsOf<'_, Self>> {
        let is_cut = self.section.chunk.is_some() || self.section.shards.is_some();
        if is_cut { Some(self) } else { None }
    }

    fn mixes_lengths(&self) -> bool {
        self.section.loss.orders_examples()
    }

    fn keys(&self, features: &[EmbeddingFeatures]) -> Option<Vec<Vec<u64>>> {
        self.section.loss.is_contrastive().then(|| features.iter().map(|one| one.keys.clone()).collect())
    }

    fn outputs(
        &self,
        model: &SentenceEncoder,
        batch: &[&EmbeddingFeatures],
        device: &Device,
    ) -> Vec<Vec<Vec<f32>>> {
        let mut embeddings = rows(self.embed(model, &sequences(batch), device)).into_iter();
        batch.iter().map(|one| embeddings.by_ref().take(one.sequences.len()).collect()).collect()
    }

    fn predictions(
        &self,
        examples: &[SentenceExample],
        _: &[EmbeddingFeatures],
        outputs: &[Vec<Vec<f32>>],
    ) -> Box<dyn Predictions> {
        let second = |output: &'_ [Vec<f32>]| output.get(1).cloned().unwrap_or_default();
        // A row without negatives asks nothing of a triplet.
        let asks = |example: &SentenceExample| {
            self.kind != SimilarityKind::Triplets || !example.negatives.is_empty()
        };
        let all = examples.iter().zip(outputs).enumerate().filter(|(_, (example, _))| asks(example));
        let all = all.map(|(i, (example, output))| {
            let similarity = Similarity::Cosine.of(&output[0], &second(output));
            let better = |other: &[f32]| Similarity::Cosine.of(&output[0], other) >= similarity;
            let before = match self.kind {
                SimilarityKind::Scored => 0,
                SimilarityKind::Triplets => output.iter().skip(2).filter(|other| better(other)).count(),
                SimilarityKind::Pairs => {
                    let first = i - i % CANDIDATES;
                    let among = outputs.iter().enumerate().skip(first).take(CANDIDATES);
                    // The second text of a pair that shares a text with this one is no wrong answer.
                    let is_other = |j: usize| !shares_text(example, &examples[j]);
                    among.filter(|(j, other)| is_other(*j) && better(&second(other))).count()
                }
            };
            SimilarityExample {
                id: (i + 1).to_string(),
                texts: example.texts().cloned().collect(),
                gold: example.score.unwrap_or(f64::NAN),
                similarity,
                rank: before + 1,
            }
        });
        Box::new(SimilarityPredictions { kind: self.kind, examples: all.collect() })
    }

    fn section(&self) -> TaskSection {
        TaskSection::Embedding(self.section.clone())
    }
}

/// The rows are embeddings of sentences.
impl ByRows<SentenceEncoder, [&EmbeddingFeatures]> for EmbeddingTask {
    fn parts(&self, batch: &[&EmbeddingFeatures]) -> Vec<Range<usize>> {
        self.section.parts(self.ordered(batch).len())
    }

    fn rows(
        &self,
        model: &SentenceEncoder,
        batch: &[&EmbeddingFeatures],
        items: Range<usize>,
        device: &Device,
    ) -> Tensor<2> {
        self.embed(model, &self.ordered(batch)[items], device)
    }

    fn sums(&self, model: &SentenceEncoder, batch: &[&EmbeddingFeatures], rows: Tensor<2>) -> Vec<Tensor<1>> {
        vec![self.loss(EmbeddingScores { rows, classifier: model.classifier.clone() }, batch)]
    }
}

impl PretrainedTask for EmbeddingTask {
    fn saved_as(&self) -> (Architecture, Option<ProblemType>) {
        (Architecture::Encoder, None)
    }

    fn model(
        &self,
        pretrained: PretrainedFolder,
        dropout: &DropoutOverrides,
        init: &mut ParamInit,
    ) -> Result<(BertConfig, SentenceEncoder, LoadReport)> {
        const ARCHITECTURE: Architecture = Architecture::Encoder;
        let mut deferred = init.deferred();
        let (config, bert, _) = pretrained_encoder(&pretrained, ARCHITECTURE, dropout, &mut deferred)?;
        self.pooling.check(config.n_layers)?;
        let width = self.pooling.width(config.d_model);
        let dims = self.section.matryoshka.iter().flat_map(|section| &section.dims);
        if let Some(dim) = dims.copied().find(|dim| *dim > width) {
            let expected = format!("at most {width}, the width of the model's embeddings");
            return Err(bad_setting("task.matryoshka.dims", dim, expected));
        }
        if let Some(found) = self.teacher_width.filter(|found| *found != width) {
            let expected = format!("embeddings of {width} features, as the model's");
            return Err(bad_setting("task.loss.teacher", format!("a model of {found} features"), expected));
        }
        let (bert, mut report) = pretrained.load_into(bert, ARCHITECTURE, &[])?;
        let mut model = SentenceEncoder::from(bert);
        if let Some(n) = self.n_classes {
            model.classifier = Some(Linear::uniform(3 * width, n, init));
            report.missing.push("classifier".into());
        }
        Ok((config, model, report))
    }

    fn without_training_parts(&self, model: SentenceEncoder) -> SentenceEncoder {
        SentenceEncoder { classifier: None, ..model }
    }

    fn save_more(&self, encoder: &BertConfig, max_len: usize, folder: &Path) -> Result<()> {
        let sentence = SentenceConfig { max_len: Some(max_len), ..self.sentence.clone() };
        Ok(sentence.save(folder, encoder.d_model)?)
    }
}

/// Whether two pairs share a text, so that the second text of one is not a wrong answer to the first of the
/// other.
fn shares_text(a: &SentenceExample, b: &SentenceExample) -> bool {
    a.texts().any(|text| b.texts().any(|other| other == text))
}
