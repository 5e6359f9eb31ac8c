use super::super::config::TaskSection;
use super::super::tags::{SentenceFeatures, SentenceTags, TagTask, windows};
use super::super::task::Task;
use super::sequences;
use burn::tensor::{Device, Tensor};
use cloze_data::labelled::{LabelSet, TagFeatures, TaggedSentence, TokenSequence};
use cloze_evaluation::report::Predictions;
use cloze_model::tasks::RecurrentForTokenClassification;

/// Tags of words by a recurrent encoder.
#[derive(Debug, Clone)]
pub(super) struct RecurrentTags(pub TagTask);

impl From<TagTask> for RecurrentTags {
    fn from(task: TagTask) -> Self {
        Self(task)
    }
}

impl RecurrentTags {
    /// The model, whose field keeps to the rules of the tags' scheme.
    pub fn with_rules(&self, model: RecurrentForTokenClassification) -> RecurrentForTokenClassification {
        let crf = model.crf.clone().map(|crf| crf.with_rules(self.0.rules().clone()));
        RecurrentForTokenClassification { crf, ..model }
    }

    /// Logits of all words of the windows, one after the other.
    fn forward(
        &self,
        model: &RecurrentForTokenClassification,
        windows: &[&TagFeatures],
        device: &Device,
    ) -> Tensor<2> {
        let (mut positions, mut start) = (Vec::new(), 0);
        for window in windows {
            positions.extend(window.positions.iter().map(|position| (start + position) as i32));
            start += window.sequence.len();
        }
        model.forward(&sequences(windows.iter().map(|window| &window.sequence)), &positions, device)
    }
}

impl Task for RecurrentTags {
    type Model = RecurrentForTokenClassification;
    type Example = TaggedSentence;
    type Features = SentenceFeatures;
    type Output = SentenceTags;

    fn sequences<'a>(&self, features: &'a SentenceFeatures) -> Vec<&'a TokenSequence> {
        self.0.sequences(features)
    }

    fn weight(&self, batch: &[&SentenceFeatures]) -> f64 {
        self.0.weight(batch)
    }

    fn loss(&self, model: &Self::Model, batch: &[&SentenceFeatures], device: &Device) -> Tensor<1> {
        let logits = self.forward(model, &windows(batch), device);
        self.0.loss_of(model.crf.as_ref(), logits, batch)
    }

    fn outputs(
        &self,
        model: &Self::Model,
        batch: &[&SentenceFeatures],
        device: &Device,
    ) -> Vec<SentenceTags> {
        self.0.outputs_of(model.crf.as_ref(), batch, |windows| self.forward(model, windows, device))
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
