//! Classification of texts and text pairs, and regression.

use super::config::Tuning;
use super::cross_encoder;
use super::evaluate::in_batches;
use super::kind::{DataSize, RecurrentTask, TaskKind};
use super::reading::{TaskData, draw_shots};
use super::saved_model::{OpenedModel, SavedModel};
use super::section::{TaskSection, ValueLoss, check_loss};
use super::task::{
    Encoded, PretrainedTask, RowKind, Task, TokenFeatures, argmax, bad_setting, input, labels,
    pretrained_encoder, rows, sequences, softmax,
};
use super::task_run::TaskRun;
use crate::Result;
use crate::config::validate::{Check, ensure};
use crate::engine::Advance;
use crate::engine::Outcome;
use crate::metrics::progress::RunProgress;
use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_data::labelled::{
    LabelSet, LabelledSource, Labels, Loaded, Named, Target, TextExample, TextFeatures, TokenPlace,
    TokenSequence, encode_texts, text_places, texts,
};
use cloze_evaluation::report::{
    ClassExample, ClassPredictions, LabelExample, LabelPredictions, Predictions, Targets, ValueExample,
    ValuePredictions,
};
use cloze_model::bert::{BertConfig, Pooling};
use cloze_model::huggingface::{Architecture, LoadReport, PretrainedFolder, ProblemType};
use cloze_model::ops::CrossEntropy;
use cloze_model::tasks::{
    BertForSequenceClassification, DropoutOverrides, binary_loss, classification_loss, regression_loss,
};
use cloze_model::{HasBackbone, ParamInit};
use cloze_tokenizer::Tokenizer;
use std::marker::PhantomData;
use std::path::Path;

/// The model's input for a text or a pair of texts.
#[derive(Debug, Clone)]
pub struct TextInput {
    pub(super) features: TextFeatures,
    /// The encoder's output for it, if known.
    summary: Option<Vec<f32>>,
}

impl TextInput {
    /// Its tokens.
    pub fn sequence(&self) -> &TokenSequence {
        &self.features.sequence
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.features.target
    }
}

impl From<TextFeatures> for TextInput {
    fn from(features: TextFeatures) -> Self {
        Self { features, summary: None }
    }
}

impl TokenFeatures for TextInput {
    fn sequences(&self) -> Vec<&TokenSequence> {
        vec![&self.features.sequence]
    }

    fn is_cut(&self) -> bool {
        self.features.truncated
    }
}

/// A model that classifies texts.
pub trait TextClassifier: Module + Send + Sync {
    /// Logits of each text.
    fn logits(&self, texts: &[&TokenSequence], device: &Device) -> Tensor<2>;

    /// The model, if its head can be computed from stored encoder outputs.
    fn with_summaries(&self) -> Option<&BertForSequenceClassification> {
        None
    }
}

impl TextClassifier for BertForSequenceClassification {
    fn logits(&self, texts: &[&TokenSequence], device: &Device) -> Tensor<2> {
        self.forward(input(&self.bert, texts, device))
    }

    fn with_summaries(&self) -> Option<&BertForSequenceClassification> {
        Some(self)
    }
}

/// [`Texts`] with a checkpoint's encoder.
pub type TextTask = Texts<BertForSequenceClassification>;

/// Sequence classification with one class or any number of labels per text, or regression without labels.
#[derive(Debug, Clone)]
pub struct Texts<M> {
    /// The classes; none for regression.
    pub labels: Option<LabelSet>,
    positive: Option<usize>,
    loss: CrossEntropy,
    /// The loss of a regression.
    value_loss: ValueLoss,
    pooling: Option<Pooling>,
    /// The probability above which a label is predicted, for multi-label tasks.
    threshold: Option<f64>,
    /// Whether all examples are pairs, or none; unknown for models saved by other tools.
    pairs: Option<bool>,
    model: PhantomData<fn() -> M>,
}

impl<M: TextClassifier> Texts<M> {
    /// The configured task and its training examples.
    ///
    /// # Errors
    /// Those of reading the data; settings inconsistent with its labels.
    pub fn read(section: &TaskSection, source: &LabelledSource) -> Result<(Self, Loaded<TextExample>)> {
        let base = Path::new("");
        match section {
            TaskSection::Regression { pooling, loss } => {
                let (loaded, _) = texts(source, base, Labels::Values)?;
                let beyond = |value: &f64| !(0.0..=1.0).contains(value);
                let mut values = loaded.examples.iter().map(|example| value(&example.target));
                if let Some(value) = values.find(beyond).filter(|_| *loss == ValueLoss::BinaryCrossEntropy) {
                    let expected = format!("labels from 0 to 1 with that loss: there is one of {value}");
                    return Err(bad_setting("task.loss", "\"binary-cross-entropy\"", expected));
                }
                let task = Self::new(None, *pooling).with_value_loss(*loss).of_kind(&loaded.examples);
                Ok((task, loaded))
            }
            TaskSection::MultiLabel { labels, threshold, pooling } => {
                let given = given(labels)?;
                let (loaded, set) = texts(source, base, Labels::Several(given.as_ref()))?;
                let task = Self::new(set, *pooling).with_threshold(*threshold).of_kind(&loaded.examples);
                Ok((task, loaded))
            }
            TaskSection::Classification { labels, class_weights, label_smoothing, positive, pooling } => {
                let given = given(labels)?;
                let (loaded, set) = texts(source, base, given.as_ref().map_or(Labels::Found, Labels::Of))?;
                let set = set.expect("classes are read with their set");
                if let [label] = set.names() {
                    let found = format!("examples of the single label {label:?}");
                    let expected =
                        "two labels or more (`data.train.columns.label`: the column that has them)";
                    return Err(bad_setting("data.train.files", found, expected.into()));
                }
                let mut task = Self::new(Some(set), *pooling).of_kind(&loaded.examples);
                let set = task.labels.as_ref().expect("just put there");
                if !class_weights.is_empty() && class_weights.len() != set.len() {
                    let expected = format!("{}: one for each of {}", set.len(), set.names().join(", "));
                    return Err(bad_setting(
                        "task.class_weights",
                        format!("{} numbers", class_weights.len()),
                        expected,
                    ));
                }
                if let Some(name) = positive {
                    task = task.with_positive(name)?;
                }
                task.loss.label_smoothing = *label_smoothing;
                task.loss.class_weights =
                    (!class_weights.is_empty()).then(|| class_weights.as_slice().into());
                Ok((task, loaded))
            }
            _ => Err(bad_setting("task.kind", "another", KINDS.into())),
        }
    }

    /// A task with these classes, or a regression.
    pub fn new(labels: Option<LabelSet>, pooling: Option<Pooling>) -> Self {
        let positive = labels.as_ref().filter(|set| set.len() == 2).map(|_| 1);
        let (loss, value_loss) = (CrossEntropy::default(), ValueLoss::default());
        Self { labels, positive, loss, value_loss, pooling, threshold: None, pairs: None, model: PhantomData }
    }

    /// The task as a multi-label one, with this probability threshold.
    pub fn with_threshold(self, threshold: f64) -> Self {
        Self { threshold: Some(threshold), positive: None, ..self }
    }

    /// The probability above which a label is predicted, for multi-label tasks.
    pub(super) fn threshold(&self) -> Option<f64> {
        self.threshold
    }

    /// The task with another loss, if it is a regression.
    pub fn with_value_loss(self, value_loss: ValueLoss) -> Self {
        Self { value_loss, ..self }
    }

    /// The task of a saved model with explicit labels, for `pairs` or single texts if known.
    ///
    /// # Errors
    /// Invalid or duplicate labels; an unknown positive class.
    pub fn saved(section: &TaskSection, pairs: Option<bool>) -> Result<Self> {
        let task = match section {
            TaskSection::Classification { labels, positive, pooling, .. } => {
                let task = Self::new(Some(LabelSet::given(labels.iter().cloned())?), *pooling);
                match positive {
                    Some(name) => task.with_positive(name)?,
                    None => task,
                }
            }
            TaskSection::MultiLabel { labels, threshold, pooling } => {
                let set = LabelSet::given(labels.iter().cloned())?;
                Self::new(Some(set), *pooling).with_threshold(*threshold)
            }
            TaskSection::Regression { pooling, loss } => Self::new(None, *pooling).with_value_loss(*loss),
            _ => return Err(bad_setting("task.kind", "another", KINDS.into())),
        };
        Ok(Self { pairs, ..task })
    }

    /// The task with this positive class for precision, recall and F1.
    ///
    /// # Errors
    /// A name that is not one of the classes.
    pub fn with_positive(mut self, name: &str) -> Result<Self> {
        let names = self.labels.as_ref().map_or(&[][..], LabelSet::names);
        let Some(id) = names.iter().position(|known| known == name) else {
            let expected = format!("one of {}", names.join(", "));
            return Err(bad_setting("task.positive", format!("{name:?}"), expected));
        };
        self.positive = Some(id);
        Ok(self)
    }

    /// Reads examples of another split.
    ///
    /// # Errors
    /// Those of reading the data, including an unknown label; single texts if training had pairs, or the
    /// reverse.
    pub fn read_more(&self, source: &LabelledSource) -> Result<Loaded<TextExample>> {
        let labels = match &self.labels {
            None => Labels::Values,
            Some(_) if self.threshold.is_some() => Labels::Several(self.labels.as_ref()),
            Some(set) => Labels::Of(set),
        };
        let (loaded, _) = texts(source, Path::new(""), labels)?;
        if loaded.examples.iter().any(|example| self.misfit(example)) {
            let (does, expected) = match self.pairs {
                Some(true) => ("lack", "the second text of each row: the model is trained with pairs"),
                _ => ("have", "none: the model is trained with single texts"),
            };
            let found = format!("a field that rows of {} {does}", source.files.join(", "));
            let key = match source.named {
                Named::CommandLine | Named::FixedColumns => "--columns pair=COLUMN",
                Named::Config | Named::TrainingData => "data.train.columns.pair",
            };
            return Err(bad_setting(key, found, expected.into()));
        }
        Ok(loaded)
    }

    /// A run's splits; `train` is already read.
    ///
    /// # Errors
    /// Those of [`read_more`](Self::read_more) and of [`encode`](Self::encode); classes with fewer examples
    /// than drawn.
    pub(super) fn data(
        &self,
        train: Loaded<TextExample>,
        tokenizer: &Tokenizer,
        run: &TaskRun<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<TaskData<Self>> {
        let config = run.config;
        run.reading(progress).selected::<Self>(
            train,
            |source| self.read_more(source),
            |examples| Self::encode(tokenizer, examples, config.data.max_len),
            |examples| draw_shots(config, self.labels.as_ref(), examples),
        )
    }

    /// Examples with their tokens.
    ///
    /// # Errors
    /// A `max_len` too short for a token of each text.
    pub fn encode(
        tokenizer: &Tokenizer,
        examples: Vec<TextExample>,
        max_len: usize,
    ) -> Result<Encoded<TextExample, TextInput>> {
        let features = encode_texts(tokenizer, &examples, max_len)?;
        Ok(Encoded { examples, features: features.into_iter().map(TextInput::from).collect() })
    }

    /// The task for pairs if all of these are pairs, for single texts if none is.
    pub(super) fn of_kind(mut self, examples: &[TextExample]) -> Self {
        let pairs = examples.first().is_some_and(|example| example.pair.is_some());
        let alike = !examples.is_empty() && examples.iter().all(|example| example.pair.is_some() == pairs);
        self.pairs = alike.then_some(pairs);
        self
    }

    /// Whether an example is a single text and the model expects pairs, or the reverse.
    pub(super) fn misfit(&self, example: &TextExample) -> bool {
        self.pairs.is_some_and(|pairs| pairs != example.pair.is_some())
    }

    /// The value of the head's single output.
    pub(super) fn value(&self, output: f32) -> f64 {
        let output = f64::from(output);
        match self.value_loss {
            ValueLoss::SquaredError => output,
            ValueLoss::BinaryCrossEntropy => 1.0 / (1.0 + (-output).exp()),
        }
    }

    /// The head's number of outputs.
    pub fn n_outputs(&self) -> usize {
        self.labels.as_ref().map_or(1, LabelSet::len)
    }
}

/// How many texts have each label.
pub(super) fn text_counts(labels: &LabelSet, examples: &[TextExample]) -> Vec<(String, u64)> {
    let mut counts: Vec<(String, u64)> = labels.names().iter().map(|name| (name.clone(), 0)).collect();
    for example in examples {
        match &example.target {
            Target::Class(class) => counts[*class].1 += 1,
            Target::Labels(labels) => labels.iter().for_each(|label| counts[*label].1 += 1),
            Target::Value(_) | Target::None => {}
        }
    }
    counts
}

/// Text classification and regression, configured by a section.
pub(super) struct TextKind<'a>(pub &'a TaskSection);

impl TaskKind for TextKind<'_> {
    fn check(&self, _: Tuning<'_>) -> Check {
        match self.0 {
            TaskSection::Classification { label_smoothing, class_weights, .. } => {
                check_loss(*label_smoothing, class_weights)
            }
            TaskSection::MultiLabel { threshold, .. } => {
                let is_share = *threshold > 0.0 && *threshold < 1.0;
                ensure(is_share, "task.threshold", threshold, "a number above 0 and below 1")
            }
            _ => Ok(()),
        }
    }

    fn tune(&self, run: TaskRun<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let tokenizer = run.tokenizer()?;
        let (task, train) = TextTask::read(self.0, &run.config.data.train)?;
        let data = task.data(train, &tokenizer, &run, progress)?;
        run.train(&task, data, &tokenizer, progress)
    }

    fn size(&self, data: &LabelledSource) -> Result<Option<DataSize>> {
        let of = |labels| texts(data, Path::new(""), labels);
        let (loaded, set) = match self.0 {
            TaskSection::Regression { .. } => of(Labels::Values),
            TaskSection::MultiLabel { labels, .. } => of(Labels::Several(given(labels)?.as_ref())),
            TaskSection::Classification { labels, .. } => {
                of(given(labels)?.as_ref().map_or(Labels::Found, Labels::Of))
            }
            _ => return Ok(None),
        }?;
        let classes = set.filter(|_| self.has_classes()).map(|labels| labels.len());
        Ok(Some(DataSize { classes, ..DataSize::of_rows(loaded.examples.len()) }))
    }

    fn has_classes(&self) -> bool {
        matches!(self.0, TaskSection::Classification { .. })
    }

    fn recurrent(&self) -> Option<RecurrentTask<'_>> {
        Some(RecurrentTask::Texts(self.0))
    }

    fn open(&self, saved: SavedModel<'_>) -> Result<OpenedModel> {
        // A model saved elsewhere does not say whether it knows pairs; it cannot if no pair fits it.
        let config = saved.pretrained.encoder(Architecture::SequenceClassification);
        let takes_pairs =
            || saved.tokenizer.check_inputs(config.vocab_size, config.n_token_types, true).is_ok();
        let pairs = saved.pairs.or_else(|| (!takes_pairs()).then_some(false));
        saved.open(TextTask::saved(self.0, pairs)?)
    }
}

impl<M: TextClassifier> Task for Texts<M> {
    type Model = M;
    type Example = TextExample;
    type Features = TextInput;
    /// The head's outputs, `[batch, outputs]`.
    type Scores = Tensor<2>;
    /// The head's outputs.
    type Output = Vec<f32>;
    type Section = TaskSection;

    fn is_finite(output: &Vec<f32>) -> bool {
        output.iter().all(|score| score.is_finite())
    }

    fn weight(&self, batch: &[&TextInput]) -> f64 {
        match self.labels {
            Some(_) if self.threshold.is_none() => self.loss.total_weight(classes(batch).map(i64::from)),
            _ => batch.len() as f64,
        }
    }

    fn scores(&self, model: &M, batch: &[&TextInput], device: &Device) -> Tensor<2> {
        let known: Option<Vec<&[f32]>> = batch.iter().map(|input| input.summary.as_deref()).collect();
        match (known, model.with_summaries()) {
            (Some(summaries), Some(model)) => {
                let shape = [summaries.len(), summaries.first().map_or(0, |summary| summary.len())];
                let summaries = TensorData::new(summaries.concat(), shape);
                model.head.forward(Tensor::from_data(summaries, device))
            }
            _ => model.logits(&sequences(batch), device),
        }
    }

    fn row_kind(&self) -> RowKind {
        match (&self.labels, self.threshold, self.value_loss) {
            (Some(_), None, _) => RowKind::Classes,
            (None, _, ValueLoss::SquaredError) => RowKind::Values,
            (Some(_), Some(_), _) | (None, _, ValueLoss::BinaryCrossEntropy) => RowKind::Labels,
        }
    }

    fn encode_again(
        &self,
        tokenizer: &Tokenizer,
        examples: &[TextExample],
        max_len: usize,
    ) -> Result<Vec<TextInput>> {
        Ok(encode_texts(tokenizer, examples, max_len)?.into_iter().map(TextInput::from).collect())
    }

    fn places(
        &self,
        tokenizer: &Tokenizer,
        examples: &[TextExample],
        max_len: usize,
    ) -> Result<Option<Vec<Vec<TokenPlace>>>> {
        Ok(Some(text_places(tokenizer, examples, max_len)?))
    }

    fn loss(&self, logits: Tensor<2>, batch: &[&TextInput]) -> Tensor<1> {
        let device = &logits.device();
        let targets = |values: Vec<f32>| {
            let shape = [batch.len(), values.len() / batch.len().max(1)];
            Tensor::<2>::from_data(TensorData::new(values, shape), device)
        };
        let values = || batch.iter().map(|input| value(&input.features.target) as f32).collect();
        let losses = match (&self.labels, self.threshold, self.value_loss) {
            (Some(set), Some(_), _) => {
                let mut given = vec![0.0; batch.len() * set.len()];
                for (input, row) in batch.iter().zip(given.chunks_exact_mut(set.len())) {
                    several(&input.features.target).iter().for_each(|label| row[*label] = 1.0);
                }
                binary_loss(logits, targets(given))
            }
            (Some(_), None, _) => {
                classification_loss(logits, labels(classes(batch).collect(), device), &self.loss)
            }
            (None, _, ValueLoss::SquaredError) => regression_loss(logits, targets(values()).squeeze_dim(1)),
            (None, _, ValueLoss::BinaryCrossEntropy) => binary_loss(logits, targets(values())),
        };
        losses.sum()
    }

    fn summarise(
        &self,
        model: &M,
        inputs: &mut [TextInput],
        batch_tokens: usize,
        device: &Device,
        progress: &mut dyn FnMut(Advance),
    ) -> bool {
        let Some(model) = model.with_summaries() else {
            return false;
        };
        let work =
            |batch: &[&TextInput]| rows(model.summaries(input(&model.bert, &sequences(batch), device)));
        let all: Vec<&TextInput> = inputs.iter().collect();
        let summaries = in_batches(&all, batch_tokens, work, progress);
        for (input, summary) in inputs.iter_mut().zip(summaries) {
            input.summary = Some(summary);
        }
        true
    }

    fn outputs(&self, model: &M, batch: &[&TextInput], device: &Device) -> Vec<Vec<f32>> {
        rows(self.scores(model, batch, device))
    }

    fn predictions(
        &self,
        examples: &[TextExample],
        _: &[TextInput],
        outputs: &[Vec<f32>],
    ) -> Box<dyn Predictions> {
        match (&self.labels, self.threshold) {
            (Some(set), Some(threshold)) => Box::new(label_predictions(set, threshold, examples, outputs)),
            (Some(set), None) => Box::new(class_predictions(set, self.positive, examples, outputs)),
            (None, _) => {
                let all = examples.iter().zip(outputs).enumerate();
                let examples = all.map(|(i, (example, outputs))| ValueExample {
                    id: (i + 1).to_string(),
                    texts: both(example),
                    gold: value(&example.target),
                    predicted: self.value(outputs[0]),
                });
                Box::new(ValuePredictions { examples: examples.collect() })
            }
        }
    }

    fn labels(&self) -> Option<&LabelSet> {
        self.labels.as_ref()
    }

    fn class_counts(&self, examples: &[TextExample]) -> Vec<(String, u64)> {
        self.labels.as_ref().map_or_else(Vec::new, |labels| text_counts(labels, examples))
    }

    fn targets(&self, examples: &[TextExample]) -> Option<Targets> {
        if self.labels.is_some() {
            return Some(Targets::Classes(self.class_counts(examples)));
        }
        let sum: f64 = examples.iter().map(|example| value(&example.target)).sum();
        (!examples.is_empty()).then(|| Targets::Mean(sum / examples.len() as f64))
    }

    fn section(&self) -> TaskSection {
        let pooling = self.pooling;
        match (&self.labels, self.threshold) {
            (None, _) => TaskSection::Regression { pooling, loss: self.value_loss },
            (Some(set), Some(threshold)) => {
                TaskSection::MultiLabel { labels: set.names().to_vec(), threshold, pooling }
            }
            (Some(set), None) => TaskSection::Classification {
                labels: set.names().to_vec(),
                class_weights: Vec::new(),
                label_smoothing: 0.0,
                positive: self.positive.and_then(|id| set.name(id)).map(str::to_owned),
                pooling,
            },
        }
    }

    fn pairs(&self) -> Option<bool> {
        self.pairs
    }

    fn has_pairs(&self) -> bool {
        self.pairs != Some(false)
    }
}

impl PretrainedTask for TextTask {
    fn saved_as(&self) -> (Architecture, Option<ProblemType>) {
        let problem = match (&self.labels, self.threshold) {
            (None, _) => ProblemType::Regression,
            (Some(_), Some(_)) => ProblemType::MultiLabel,
            (Some(_), None) => ProblemType::SingleLabel,
        };
        (Architecture::SequenceClassification, Some(problem))
    }

    fn model(
        &self,
        pretrained: PretrainedFolder,
        dropout: &DropoutOverrides,
        init: &mut ParamInit,
    ) -> Result<(BertConfig, BertForSequenceClassification, LoadReport)> {
        const ARCHITECTURE: Architecture = Architecture::SequenceClassification;
        let mut init = init.deferred();
        let (config, bert, of_head) = pretrained_encoder(&pretrained, ARCHITECTURE, dropout, &mut init)?;
        let family = pretrained.config.family;
        let head = ARCHITECTURE.sequence_head(family, &config, self.n_outputs(), of_head, &mut init);
        let mut model = BertForSequenceClassification::new(bert, head);
        if let Some(pooling) = self.pooling {
            model = model.with_pooling(pooling);
        }
        let pooler = <BertForSequenceClassification>::path_of("pooler.*");
        let (model, report) = pretrained.load_into(model, ARCHITECTURE, &["head.*", &pooler])?;
        Ok((config, model, report))
    }

    fn of_saved(section: &TaskSection, pairs: Option<bool>) -> Result<Self> {
        Self::saved(section, pairs)
    }

    fn save_more(&self, _: &BertConfig, _: usize, folder: &Path) -> Result<()> {
        match self.labels {
            None => cross_encoder::write_activation(folder, self.value_loss),
            Some(_) => Ok(()),
        }
    }
}

fn classes<'a>(batch: &'a [&TextInput]) -> impl Iterator<Item = i32> + 'a {
    batch.iter().map(|input| class(&input.features.target) as i32)
}

/// The most likely classes of texts from their scores, paired with gold.
pub(super) fn class_predictions(
    labels: &LabelSet,
    positive: Option<usize>,
    examples: &[TextExample],
    outputs: &[Vec<f32>],
) -> ClassPredictions {
    let examples = examples.iter().zip(outputs).enumerate().map(|(i, (example, logits))| {
        let probabilities = softmax(logits);
        let (gold, predicted) = (class(&example.target), argmax(&probabilities));
        ClassExample {
            id: (i + 1).to_string(),
            texts: both(example),
            gold,
            predicted,
            score: probabilities[predicted],
            loss: -probabilities[gold].ln(),
        }
    });
    ClassPredictions { labels: labels.names().to_vec(), positive, examples: examples.collect() }
}

/// The labels with probabilities above the threshold, paired with gold.
fn label_predictions(
    labels: &LabelSet,
    threshold: f64,
    examples: &[TextExample],
    outputs: &[Vec<f32>],
) -> LabelPredictions {
    let examples = examples.iter().zip(outputs).enumerate().map(|(i, (example, logits))| {
        let gold = several(&example.target);
        let loss = |(label, logit): (usize, &f32)| {
            // −log σ(x) where the label is there, −log σ(−x) where it is not.
            let x = f64::from(*logit) * if gold.contains(&label) { -1.0 } else { 1.0 };
            x.max(0.0) + (-x.abs()).exp().ln_1p()
        };
        LabelExample {
            id: (i + 1).to_string(),
            texts: both(example),
            gold: gold.to_vec(),
            scores: logits.iter().map(|logit| sigmoid(*logit)).collect(),
            loss: logits.iter().enumerate().map(loss).sum::<f64>() / logits.len() as f64,
        }
    });
    LabelPredictions { labels: labels.names().to_vec(), threshold, examples: examples.collect() }
}

pub(super) fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(logit)).exp())
}

/// The labels set in a config, if any.
fn given(labels: &[String]) -> Result<Option<LabelSet>> {
    (!labels.is_empty()).then(|| LabelSet::given(labels.to_vec())).transpose().map_err(Into::into)
}

/// The kinds of this task.
const KINDS: &str = "classification, multi-label or regression";

pub(super) fn class(target: &Target) -> usize {
    match target {
        Target::Class(class) => *class,
        Target::Labels(_) | Target::Value(_) | Target::None => 0,
    }
}

fn several(target: &Target) -> &[usize] {
    match target {
        Target::Labels(labels) => labels,
        Target::Class(_) | Target::Value(_) | Target::None => &[],
    }
}

fn value(target: &Target) -> f64 {
    match target {
        Target::Value(value) => *value,
        Target::Class(_) | Target::Labels(_) | Target::None => f64::NAN,
    }
}

fn both(example: &TextExample) -> Vec<String> {
    std::iter::once(&example.text).chain(&example.pair).cloned().collect()
}
