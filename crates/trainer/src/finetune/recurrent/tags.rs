use super::super::config::TaskSection;
use super::super::tags::{SentenceFeatures, SentenceTags, TagTask, windows};
use super::super::task::Task;
use super::sequences;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use cloze_data::labelled::{LabelSet, TagFeatures, TaggedSentence, TokenSequence};
use cloze_evaluation::report::Predictions;
use cloze_model::Sequences;
use cloze_model::elmo::ElmoForTokenClassification;
use cloze_model::tasks::{Crf, RecurrentForTokenClassification};
use std::marker::PhantomData;

/// A recurrent model that tags words.
pub(super) trait Tagger: Module + Send + Sync {
    /// A row of logits for each of some tokens.
    fn logits(&self, sentences: &Sequences, positions: &[i32], device: &Device) -> Tensor<2>;

    /// Its conditional random field.
    fn crf(&self) -> &Option<Crf>;

    /// The field, to change it.
    fn crf_mut(&mut self) -> &mut Option<Crf>;
}

impl Tagger for RecurrentForTokenClassification {
    fn logits(&self, sentences: &Sequences, positions: &[i32], device: &Device) -> Tensor<2> {
        self.forward(sentences, positions, device)
    }

    fn crf(&self) -> &Option<Crf> {
        &self.crf
    }

    fn crf_mut(&mut self) -> &mut Option<Crf> {
        &mut self.crf
    }
}

impl Tagger for ElmoForTokenClassification {
    fn logits(&self, sentences: &Sequences, positions: &[i32], device: &Device) -> Tensor<2> {
        self.forward(sentences, positions, device)
    }

    fn crf(&self) -> &Option<Crf> {
        &self.crf
    }

    fn crf_mut(&mut self) -> &mut Option<Crf> {
        &mut self.crf
    }
}

/// Tags of words by a recurrent encoder.
#[derive(Debug, Clone)]
pub(super) struct RecurrentTags<M>(pub TagTask, PhantomData<fn() -> M>);

impl<M> From<TagTask> for RecurrentTags<M> {
    fn from(task: TagTask) -> Self {
        Self(task, PhantomData)
    }
}

impl<M: Tagger> RecurrentTags<M> {
    /// The model, whose field keeps to the rules of the tags' scheme.
    pub fn with_rules(&self, mut model: M) -> M {
        let field = model.crf_mut();
        *field = field.take().map(|crf| crf.with_rules(self.0.rules().clone()));
        model
    }

    /// Logits of all words of the windows, one after the other.
    fn forward(&self, model: &M, windows: &[&TagFeatures], device: &Device) -> Tensor<2> {
        let (mut positions, mut start) = (Vec::new(), 0);
        for window in windows {
            positions.extend(window.positions.iter().map(|position| (start + position) as i32));
            start += window.sequence.len();
        }
        model.logits(&sequences(windows.iter().map(|window| &window.sequence)), &positions, device)
    }
}

impl<M: Tagger> Task for RecurrentTags<M> {
    type Model = M;
    type Example = TaggedSentence;
    type Features = SentenceFeatures;
    type Output = SentenceTags;

    fn is_finite(output: &SentenceTags) -> bool {
        TagTask::is_finite(output)
    }

    fn sequences<'a>(&self, features: &'a SentenceFeatures) -> Vec<&'a TokenSequence> {
        self.0.sequences(features)
    }

    fn weight(&self, batch: &[&SentenceFeatures]) -> f64 {
        self.0.weight(batch)
    }

    fn loss(&self, model: &Self::Model, batch: &[&SentenceFeatures], device: &Device) -> Tensor<1> {
        let logits = self.forward(model, &windows(batch), device);
        self.0.loss_of(model.crf().as_ref(), logits, batch)
    }

    fn outputs(
        &self,
        model: &Self::Model,
        batch: &[&SentenceFeatures],
        device: &Device,
    ) -> Vec<SentenceTags> {
        self.0.outputs_of(model.crf().as_ref(), batch, |windows| self.forward(model, windows, device))
    }

    fn predictions(
        &self,
        examples: &[TaggedSentence],
        features: &[SentenceFeatures],
        outputs: &[SentenceTags],
    ) -> Box<dyn Predictions> {
        self.0.predictions(examples, features, outputs)
    }

    fn section(&self) -> TaskSection {
        self.0.section()
    }

    fn labels(&self) -> Option<&LabelSet> {
        Task::labels(&self.0)
    }
}
