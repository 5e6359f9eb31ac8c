//! The seam between fine-tuning and a kind of task.

use crate::engine::Advance;
use crate::engine::optimizer::ParamGroup;
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::labelled::{LabelSet, TokenSequence};
use cloze_evaluation::report::Predictions;
use cloze_model::bert::{Bert, BertConfig, BertInput};
use cloze_model::huggingface::{Architecture, LoadReport, PretrainedFolder, ProblemType};
use cloze_model::tasks::DropoutOverrides;
use cloze_model::{HasBackbone, ParamInit};
use serde::Serialize;
use std::path::Path;

/// A kind of task: what its examples become, what a model makes of them, and how that is shown.
///
/// An example has one sequence of features or several, as a long text has windows and a question has choices.
pub trait Task: Sync {
    /// An encoder with a head.
    type Model: Module + Send + Sync;
    /// An example as it was read.
    type Example: Sync;
    /// What the model takes at once: in most tasks an example's tokens.
    type Features: Features;
    /// What the model makes of a batch, on the device: logits, embeddings.
    type Scores: Clone;
    /// What the model says of one of a batch, on the host.
    type Output: Send;
    /// What the task is in a config and in a model's folder.
    type Section: Serialize + Send + Sync + 'static;

    /// The denominator of the batch's mean loss.
    fn weight(&self, batch: &[&Self::Features]) -> f64;

    /// What the model makes of a batch to be [trained](Self::loss) by. A teacher's scores stand beside it.
    fn scores(&self, model: &Self::Model, batch: &[&Self::Features], device: &Device) -> Self::Scores;

    /// The loss of a batch's scores, summed, `[1]`.
    fn loss(&self, scores: Self::Scores, batch: &[&Self::Features]) -> Tensor<1>;

    /// The loss summed over a batch and its gradients times `factor`, if the task computes them part by part; see
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

    /// Whether batches have examples of any lengths, as [`Buckets::mixed`](cloze_data::labelled::Buckets::mixed) makes them,
    /// and not those of about one length, which need less padding.
    fn mixes_lengths(&self) -> bool {
        false
    }

    /// What no two examples of a batch may have in common, as [`Buckets::with_keys`](cloze_data::labelled::Buckets::with_keys)
    /// takes it; none in a task whose examples go with any others.
    fn keys(&self, _: &[Self::Features]) -> Option<Vec<Vec<u64>>> {
        None
    }

    /// Stores the encoder's outputs with the features, for a run that does not change the encoder: only the head is
    /// computed after that. Batches have about this many tokens. `model` and `device` are without autodiff. Returns
    /// whether the task supports this.
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

    /// Whether an output's numbers are finite, as those of a sound model are. One without numbers is.
    fn is_finite(_: &Self::Output) -> bool {
        true
    }

    /// What the model says of each of a batch.
    fn outputs(&self, model: &Self::Model, batch: &[&Self::Features], device: &Device) -> Vec<Self::Output>;

    /// The outputs of all features beside the expected values.
    fn predictions(
        &self,
        examples: &[Self::Example],
        features: &[Self::Features],
        outputs: &[Self::Output],
    ) -> Box<dyn Predictions>;

    /// The task as a model's folder keeps it: labels spelt out.
    fn section(&self) -> Self::Section;

    /// Whether its examples are pairs of texts, or single ones, where the task could be of both.
    fn pairs(&self) -> Option<bool> {
        None
    }

    /// Whether sequences are of two texts, or may be.
    fn has_pairs(&self) -> bool {
        self.pairs() == Some(true)
    }

    /// The classes that the head tells apart, for `config.json`.
    fn labels(&self) -> Option<&LabelSet> {
        None
    }

    /// Parameters of the head with settings of their own.
    fn parameter_groups(&self) -> Vec<ParamGroup> {
        Vec::new()
    }
}

/// What a model takes of an example.
pub trait Features: Sync {
    /// What it costs to compute: its tokens. Batches are made of features that cost about the same.
    fn cost(&self) -> usize;

    /// How many sequences the encoder sees of it.
    fn n_sequences(&self) -> usize {
        1
    }

    /// Whether it was cut to the greatest length, if the user is to be told so.
    fn is_cut(&self) -> bool {
        false
    }

    /// Gives `update` the bytes that tell these features from others. A run is resumed only with the examples it began with.
    fn hash(&self, update: &mut dyn FnMut(&[u8]));
}

/// Features that are sequences of tokens.
pub trait TokenFeatures: Sync {
    /// The sequences that the encoder sees of an example.
    fn sequences(&self) -> Vec<&TokenSequence>;

    /// As [`Features::is_cut`].
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
    /// The class of transformers that models are saved as.
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

    /// The model as a folder keeps it: without what only its training needs.
    fn without_training_parts(&self, model: Self::Model) -> Self::Model {
        model
    }

    /// Writes files of its own beside those of transformers.
    ///
    /// # Errors
    /// A file that cannot be written.
    fn save_more(&self, _encoder: &BertConfig, _max_len: usize, _folder: &Path) -> Result<()> {
        Ok(())
    }

    /// The model with another encoder in its place.
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

/// Scores that are rows of numbers, so that another model's of the same batch can stand beside them.
pub trait ScoreRows {
    /// Logits, a row for each place that has a softmax or a number of its own.
    fn rows(&self) -> Vec<Tensor<2>>;
}

impl ScoreRows for Tensor<2> {
    fn rows(&self) -> Vec<Tensor<2>> {
        vec![self.clone()]
    }
}

/// Examples and what they became.
#[derive(Debug, Clone)]
pub struct Encoded<E, F> {
    /// The examples.
    pub examples: Vec<E>,
    /// Their features, in order.
    pub features: Vec<F>,
}

/// How many features lost tokens.
pub(super) fn n_cut<F: Features>(features: &[F]) -> usize {
    features.iter().filter(|features| features.is_cut()).count()
}

/// The encoder that a checkpoint has for an architecture, its parameters deferred, and the dropout of a head on it.
///
/// # Errors
/// An invalid dropout probability, and one that the family has no place for.
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

/// Sequences on the device, as the encoder takes them.
pub fn input(bert: &Bert, sequences: &[&TokenSequence], device: &Device) -> BertInput {
    crate::input::input(bert, &sequences.iter().copied().collect(), device)
}

/// Labels on the device.
pub(super) fn labels(labels: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let n = labels.len();
    Tensor::from_data(TensorData::new(labels, [n]), device)
}

/// A tensor's numbers on the host, row by row.
pub(super) fn rows(values: Tensor<2>) -> Vec<Vec<f32>> {
    let [_, width] = values.dims();
    let values: Vec<f32> = values.into_data().iter::<f32>().collect();
    values.chunks_exact(width.max(1)).map(<[f32]>::to_vec).collect()
}

/// Softmax in 64 bits.
pub(super) fn softmax(logits: &[f32]) -> Vec<f64> {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f64> = logits.iter().map(|x| f64::from(x - greatest).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(|e| e / sum).collect()
}

/// The place of the greatest, the first of equals.
pub(super) fn argmax(values: &[f64]) -> usize {
    let mut best = 0;
    for (i, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = i;
        }
    }
    best
}

/// What is wrong with a key of the config that only the data shows.
pub(super) fn bad_setting(key: &str, found: impl std::fmt::Display, expected: String) -> TrainerError {
    TrainerError::Setting { key: key.into(), found: found.to_string(), expected }
}
