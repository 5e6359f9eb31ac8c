//! Adapts recurrent models to the text and tagging tasks.

use super::super::tags::Tagger;
use super::super::texts::TextClassifier;
use burn::tensor::{Device, Tensor};
use cloze_data::labelled::{TagFeatures, TokenSequence};
use cloze_model::Sequences;
use cloze_model::awd_lstm::AwdLstmForSequenceClassification;
use cloze_model::elmo::{ElmoForSequenceClassification, ElmoForTokenClassification};
use cloze_model::tasks::{Crf, RecurrentForSequenceClassification, RecurrentForTokenClassification};

macro_rules! classifiers {
    ($($model:ty),+ $(,)?) => {$(
        impl TextClassifier for $model {
            fn logits(&self, texts: &[&TokenSequence], device: &Device) -> Tensor<2> {
                self.forward(&sequences(texts.iter().copied()), device)
            }
        }
    )+};
}

macro_rules! taggers {
    ($($model:ty),+ $(,)?) => {$(
        impl Tagger for $model {
            fn logits(&self, windows: &[&TagFeatures], device: &Device) -> Tensor<2> {
                let (mut positions, mut start) = (Vec::new(), 0);
                for window in windows {
                    positions.extend(window.positions.iter().map(|position| (start + position) as i32));
                    start += window.sequence.len();
                }
                self.forward(&sequences(windows.iter().map(|window| &window.sequence)), &positions, device)
            }

            fn crf(&self) -> &Option<Crf> {
                &self.crf
            }

            fn crf_mut(&mut self) -> &mut Option<Crf> {
                &mut self.crf
            }
        }
    )+};
}

classifiers!(
    RecurrentForSequenceClassification,
    AwdLstmForSequenceClassification,
    ElmoForSequenceClassification
);
taggers!(RecurrentForTokenClassification, ElmoForTokenClassification);

/// The encoder's input.
fn sequences<'a>(all: impl IntoIterator<Item = &'a TokenSequence>) -> Sequences {
    all.into_iter().map(|sequence| sequence.input_ids.as_slice()).collect()
}
