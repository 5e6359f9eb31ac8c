//! The interface between fine-tuning and a kind of task.

use super::section::TaskSection;
use crate::engine::optimizer::ParamGroup;
use crate::engine::{Advance, ByRows};
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::labelled::{LabelSet, TokenPlace, TokenSequence};
use cloze_evaluation::report::{Predictions, Targets};
use cloze_model::bert::{Bert, BertConfig, BertInput};
use cloze_model::huggingface::{Architecture, LoadReport, PretrainedFolder, ProblemType};
use cloze_model::tasks::DropoutOverrides;
use cloze_model::{HasBackbone, ParamInit};
use cloze_tokenizer::Tokenizer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// A task's loss [by rows](ByRows).
pub type ByRowsOf<'a, T> = dyn for<'b> ByRows<<T as Task>::Model, [&'b <T as Task>::Features]> + 'a;

/// A kind of task: how examples are encoded, what a model computes from them, and how that is reported.
///
/// An example has one or more sequences: a long text has windows, and a question has choices.
pub trait Task: Sync {
    /// An encoder with a head.
    type Model: Module + Send + Sync;
    /// An example as read.
    type Example: Sync;
    /// The unit of model input: in most tasks an example's tokens.
    type Features: Features;
    /// The model's result for a batch, on the device: logits, embeddings.
    type Scores: Clone + ScoreRows;
    /// The model's output for one item of a batch, on the host.
    type Output: Send + Serialize + DeserializeOwned;
    /// The task's section in a config and in a model folder.
    type Section: Serialize + Send + Sync + 'static;

    /// The denominator of the batch's mean loss.
    fn weight(&self, batch: &[&Self::Features]) -> f64;

    /// The scores of a batch, as input of the [loss](Self::loss). They can be paired with a teacher's scores.
    fn scores(&self, model: &Self::Model, batch: &[&Self::Features], device: &Device) -> Self::Scores;

    /// The loss of a batch's scores, summed, `[1]`.
    fn loss(&self, scores: Self::Scores, batch: &[&Self::Features]) -> Tensor<1>;

    /// The loss by rows, if the task compares the examples of a batch and computes it in parts; see
    /// [`Objective::by_rows`](crate::engine::Objective::by_rows).
    fn by_rows(&self) -> Option<&ByRowsOf<'_, Self>> {
        None
    }

    /// The summed loss of a batch and its gradients times `factor`, if the task computes them in parts; see
    /// [`Objective::gradients`](crate::engine::Objective::gradients).
    fn gradients(
        &self,
        _model: &Self::Model,
        _batch: &[&Self::Features],
        _factor: f64,
        _seed: u64,
        _device: &Device,
    ) -> Option<(f64, GradientsParams)> {
        None
    }

    /// What a row of the [scores](Self::scores) is, which decides how a student is drawn to a teacher.
    fn row_kind(&self) -> RowKind {
        RowKind::Classes
    }

    /// The number of rows in a batch's scores.
    fn n_rows(&self, batch: &[&Self::Features]) -> usize {
        batch.len()
    }

    /// Whether rows are of single tokens, so that only a teacher with the same tokenizer has the same.
    fn rows_are_of_tokens(&self) -> bool {
        false
    }

    /// Examples with a teacher's tokens, at most `max_len` of them in a sequence.
    ///
    /// # Errors
    /// Lengths too short for a token; a task that takes no teacher, which is the default.
    fn encode_again(
        &self,
        _tokenizer: &Tokenizer,
        _examples: &[Self::Example],
        _max_len: usize,
    ) -> Result<Vec<Self::Features>> {
        Err(no_teacher())
    }

    /// Where the tokens of examples come from, one sequence each, as [`encode_again`](Self::encode_again) makes them; none if
    /// the task does not know, which is the default.
    ///
    /// # Errors
    /// Those of [`encode_again`](Self::encode_again).
    fn places(
        &self,
        _tokenizer: &Tokenizer,
        _examples: &[Self::Example],
        _max_len: usize,
    ) -> Result<Option<Vec<Vec<TokenPlace>>>> {
        Ok(None)
    }

    /// Whether batches mix lengths, as in [`Buckets::mixed`](cloze_data::labelled::Buckets::mixed), instead of
    /// grouping similar lengths to save padding.
    fn mixes_lengths(&self) -> bool {
        false
    }

    /// Keys that no two examples of a batch may share, for
    /// [`Buckets::with_keys`](cloze_data::labelled::Buckets::with_keys); none if examples can be combined
    /// freely.
    fn keys(&self, _: &[Self::Features]) -> Option<Vec<Vec<u64>>> {
        None
    }

    /// Stores the encoder's outputs with the features, for a run that does not change the encoder, so that only
    /// the head is computed afterwards. Batches have about this many tokens. `model` and `device` are without
    /// autodiff. Returns whether the task supports this.
    fn summarise(
        &self,
        _: &Self::Model,
        _: &mut [Self::Features],
        _batch_tokens: usize,
        _: &Device,
        _progress: &mut dyn FnMut(Advance),
    ) -> bool {
        false
    }

    /// Whether an output is finite, as that of an intact model is. An output without numbers is.
    fn is_finite(_: &Self::Output) -> bool {
        true
    }

    /// The model's output for each item of a batch.
    fn outputs(&self, model: &Self::Model, batch: &[&Self::Features], device: &Device) -> Vec<Self::Output>;

    /// The outputs of all features paired with the expected values.
    fn predictions(
        &self,
        examples: &[Self::Example],
        features: &[Self::Features],
        outputs: &[Self::Output],
    ) -> Box<dyn Predictions>;

    /// The task's section with explicit labels, as stored in a model folder.
    fn section(&self) -> Self::Section;

    /// Whether examples are pairs of texts or single texts, if the task allows both.
    fn pairs(&self) -> Option<bool> {
        None
    }

    /// Whether sequences contain two texts, or may.
    fn has_pairs(&self) -> bool {
        self.pairs() == Some(true)
    }

    /// The head's classes, for `config.json`.
    fn labels(&self) -> Option<&LabelSet> {
        None
    }

    /// How often each class occurs in examples, by its name and in a fixed order: for texts how many have it, for words how
    /// many entities, or words, are of it. Empty if the task has no classes, which is the default.
    fn class_counts(&self, _: &[Self::Example]) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// What the task's baselines go by in training examples: by default the classes, if it has any.
    fn targets(&self, examples: &[Self::Example]) -> Option<Targets> {
        let counts = self.class_counts(examples);
        (!counts.is_empty()).then_some(Targets::Classes(counts))
    }

    /// Parameter groups of the head with their own settings.
    fn parameter_groups(&self) -> Vec<ParamGroup> {
        Vec::new()
    }
}

/// A unit of model input.
pub trait Features: Sync {
    /// Its computational cost, in tokens. Batches group features of similar cost.
    fn cost(&self) -> usize;

    /// Its number of encoder sequences.
    fn n_sequences(&self) -> usize {
        1
    }

    /// Whether it was truncated to the maximum length, if that is reported.
    fn is_cut(&self) -> bool {
        false
    }

    /// Passes `update` the bytes that identify these features. A run is resumed only with the examples it
    /// started with.
    fn hash(&self, update: &mut dyn FnMut(&[u8]));
}

/// Features made of token sequences.
pub trait TokenFeatures: Sync {
    /// The encoder sequences of an example.
    fn sequences(&self) -> Vec<&TokenSequence>;

    /// Same as [`Features::is_cut`].
    fn is_cut(&self) -> bool {
        false
    }
}

impl<T: TokenFeatures> Features for T {
    fn cost(&self) -> usize {
        self.sequences().iter().map(|sequence| sequence.len()).sum()
    }

    fn n_sequences(&self) -> usize {
        self.sequences().len()
    }

    fn is_cut(&self) -> bool {
        TokenFeatures::is_cut(self)
    }

    fn hash(&self, update: &mut dyn FnMut(&[u8])) {
        for sequence in self.sequences() {
            update(&(sequence.len() as u64).to_le_bytes());
            sequence.input_ids.iter().for_each(|id| update(&id.to_le_bytes()));
        }
    }
}

/// A task whose models are a checkpoint's encoder with a head.
pub trait PretrainedTask: Task<Model: HasBackbone<Backbone = Bert>> {
    /// The transformers class that models are saved as.
    fn saved_as(&self) -> (Architecture, Option<ProblemType>);

    /// The checkpoint's encoder with a head. The head is new if the checkpoint has none.
    ///
    /// # Errors
    /// Those of the checkpoint; an invalid dropout probability.
    fn model(
        &self,
        pretrained: PretrainedFolder,
        dropout: &DropoutOverrides,
        init: &mut ParamInit,
    ) -> Result<(BertConfig, Self::Model, LoadReport)>;

    /// The task of a saved model, as its `task.json` or its other files describe it: that of a teacher.
    ///
    /// # Errors
    /// Another kind of task; a task that takes no teacher, which is the default.
    fn of_saved(_section: &TaskSection, _pairs: Option<bool>) -> Result<Self>
    where
        Self: Sized,
    {
        Err(no_teacher())
    }

    /// The model to save: without training-only parts.
    fn without_training_parts(&self, model: Self::Model) -> Self::Model {
        model
    }

    /// Writes additional files besides those of transformers.
    ///
    /// # Errors
    /// A file that cannot be written.
    fn save_more(&self, _encoder: &BertConfig, _max_len: usize, _folder: &Path) -> Result<()> {
        Ok(())
    }

    /// The model with a changed encoder.
    ///
    /// # Errors
    /// Those of `change`.
    fn map_encoder(
        &self,
        mut model: Self::Model,
        change: impl FnOnce(Bert) -> Result<Bert>,
    ) -> Result<Self::Model> {
        let encoder = model.backbone_mut();
        *encoder = change(encoder.clone())?;
        Ok(model)
    }
}

/// What a row of scores is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// Logits of classes that exclude each other.
    Classes,
    /// Logits of labels, each of which applies or not.
    Labels,
    /// Numbers.
    Values,
}

/// The error of a task without support for teachers.
pub(super) fn no_teacher() -> TrainerError {
    let expected = "no such section: this kind of task takes no teacher";
    bad_setting("distillation", "given", expected.into())
}

/// Scores that are rows of numbers, which can be paired with another model's scores of the same batch.
pub trait ScoreRows {
    /// Logits, with a row for each softmax or single number.
    fn rows(&self) -> Vec<Tensor<2>>;
}

impl ScoreRows for Tensor<2> {
    fn rows(&self) -> Vec<Tensor<2>> {
        vec![self.clone()]
    }
}

/// Examples and their features.
#[derive(Debug, Clone)]
pub struct Encoded<E, F> {
    /// The examples.
    pub examples: Vec<E>,
    /// Their features, in order.
    pub features: Vec<F>,
}

/// The number of truncated features.
pub(super) fn n_cut<F: Features>(features: &[F]) -> usize {
    features.iter().filter(|features| features.is_cut()).count()
}

/// A checkpoint's encoder for an architecture, with deferred parameters, and the dropout of its head.
///
/// # Errors
/// An invalid dropout probability, or one that the family does not support.
pub(super) fn pretrained_encoder(
    pretrained: &PretrainedFolder,
    architecture: Architecture,
    dropout: &DropoutOverrides,
    init: &mut ParamInit,
) -> Result<(BertConfig, Bert, f64)> {
    let mut config = pretrained.encoder(architecture);
    dropout.apply(&mut config)?;
    let family = pretrained.config.family;
    config = family.adapted(config);
    if let Some(p) = dropout.attention.filter(|p| *p != config.attention_dropout) {
        let expected = format!("none: {family} has one dropout for all, `model.dropout.hidden`");
        return Err(bad_setting("model.dropout.attention", p, expected));
    }
    let of_head = dropout.head(pretrained.config.head_dropout(architecture), &config);
    let bert = config.init_encoder(init);
    Ok((config, bert, of_head))
}

/// All sequences of a batch, in order.
pub(super) fn sequences<'a, F: TokenFeatures>(batch: &[&'a F]) -> Vec<&'a TokenSequence> {
    batch.iter().flat_map(|features| features.sequences()).collect()
}

/// The encoder's input on the device.
pub fn input(bert: &Bert, sequences: &[&TokenSequence], device: &Device) -> BertInput {
    crate::input::input(bert, &sequences.iter().copied().collect(), device)
}

/// Labels on the device.
pub(super) fn labels(labels: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let n = labels.len();
    Tensor::from_data(TensorData::new(labels, [n]), device)
}

/// A tensor's rows on the host.
pub(super) fn rows(values: Tensor<2>) -> Vec<Vec<f32>> {
    let [_, width] = values.dims();
    let values: Vec<f32> = values.into_data().iter::<f32>().collect();
    values.chunks_exact(width.max(1)).map(<[f32]>::to_vec).collect()
}

/// Softmax in 64 bits.
pub(crate) fn softmax(logits: &[f32]) -> Vec<f64> {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f64> = logits.iter().map(|x| f64::from(x - greatest).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(|e| e / sum).collect()
}

/// The index of the maximum, the first one on ties.
pub(crate) fn argmax(values: &[f64]) -> usize {
    let mut best = 0;
    for (i, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = i;
        }
    }
    best
}

/// The error of a config key that is only wrong for this data.
pub(super) fn bad_setting(key: &str, found: impl std::fmt::Display, expected: String) -> TrainerError {
    TrainerError::Setting { key: key.into(), found: found.to_string(), expected }
}
