use super::super::config::TaskSection;
use super::super::task::{Task, rows};
use super::super::texts::{TextInput, TextTask};
use super::sequences;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use cloze_data::labelled::{LabelSet, TextExample, TokenSequence};
use cloze_evaluation::report::Predictions;
use cloze_model::Sequences;
use cloze_model::awd_lstm::AwdLstmForSequenceClassification;
use cloze_model::elmo::ElmoForSequenceClassification;
use cloze_model::tasks::RecurrentForSequenceClassification;
use std::marker::PhantomData;

/// A recurrent model that classifies texts.
pub(super) trait TextClassifier: Module + Send + Sync {
    /// A row of logits for each text.
    fn logits(&self, texts: &Sequences, device: &Device) -> Tensor<2>;
}

impl TextClassifier for RecurrentForSequenceClassification {
    fn logits(&self, texts: &Sequences, device: &Device) -> Tensor<2> {
        self.forward(texts, device)
    }
}

impl TextClassifier for AwdLstmForSequenceClassification {
    fn logits(&self, texts: &Sequences, device: &Device) -> Tensor<2> {
        self.forward(texts, device)
    }
}

impl TextClassifier for ElmoForSequenceClassification {
    fn logits(&self, texts: &Sequences, device: &Device) -> Tensor<2> {
        self.forward(texts, device)
    }
}

/// Classes of texts, or numbers for them, by a recurrent encoder.
#[derive(Debug, Clone)]
pub(super) struct RecurrentTexts<M>(pub TextTask, PhantomData<fn() -> M>);

impl<M> From<TextTask> for RecurrentTexts<M> {
    fn from(task: TextTask) -> Self {
        Self(task, PhantomData)
    }
}

impl<M: TextClassifier> RecurrentTexts<M> {
    fn forward(&self, model: &M, batch: &[&TextInput], device: &Device) -> Tensor<2> {
        model.logits(&sequences(batch.iter().map(|input| &input.features.sequence)), device)
    }
}

impl<M: TextClassifier> Task for RecurrentTexts<M> {
    type Model = M;
    type Example = TextExample;
    type Features = TextInput;
    type Output = Vec<f32>;

    fn is_finite(output: &Vec<f32>) -> bool {
        TextTask::is_finite(output)
    }

    fn sequences<'a>(&self, input: &'a TextInput) -> Vec<&'a TokenSequence> {
        self.0.sequences(input)
    }

    fn is_cut(&self, input: &TextInput) -> bool {
        self.0.is_cut(input)
    }

    fn weight(&self, batch: &[&TextInput]) -> f64 {
        self.0.weight(batch)
    }

    fn loss(&self, model: &Self::Model, batch: &[&TextInput], device: &Device) -> Tensor<1> {
        self.0.loss_of(self.forward(model, batch, device), batch, device)
    }

    fn outputs(&self, model: &Self::Model, batch: &[&TextInput], device: &Device) -> Vec<Vec<f32>> {
        rows(self.forward(model, batch, device))
    }

    fn predictions(
        &self,
        examples: &[TextExample],
        features: &[TextInput],
        outputs: &[Vec<f32>],
    ) -> Box<dyn Predictions> {
        self.0.predictions(examples, features, outputs)
    }

    fn section(&self) -> TaskSection {
        self.0.section()
    }

    fn pairs(&self) -> Option<bool> {
        self.0.pairs()
    }

    fn has_pairs(&self) -> bool {
        self.0.has_pairs()
    }

    fn labels(&self) -> Option<&LabelSet> {
        Task::labels(&self.0)
    }
}
