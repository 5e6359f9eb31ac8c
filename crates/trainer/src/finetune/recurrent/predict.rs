//! Asking recurrent models: lines are read and answered as those for a checkpoint's encoder.

use super::super::config::TaskSection;
use super::super::predict::{Cut, PredictTask, Read};
use super::super::predictor::InputKey;
use super::super::tags::TagTask;
use super::super::task::Encoded;
use super::super::texts::TextTask;
use super::tags::{RecurrentTags, Tagger};
use super::texts::{RecurrentTexts, TextClassifier};
use crate::Result;
use cloze_data::SkipReport;
use cloze_data::labelled::LabelledSource;
use cloze_tokenizer::Tokenizer;
use serde_json::Value;

/// [`PredictTask`] of a task that has another's examples, features and outputs.
macro_rules! predicts_as {
    ($([$($generics:tt)*] $task:ty as $inner:ident),+ $(,)?) => {$(
        impl<$($generics)*> PredictTask for $task {
            type Origin = <$inner as PredictTask>::Origin;

            fn input(&self) -> &'static str {
                self.0.input()
            }

            fn input_keys(&self) -> &'static [InputKey] {
                self.0.input_keys()
            }

            fn answer_keys(&self) -> Vec<&'static str> {
                self.0.answer_keys()
            }

            fn read_line(&self, line: Value) -> Read<(Self::Example, Self::Origin)> {
                self.0.read_line(line)
            }

            fn tokens(
                &self,
                tokenizer: &Tokenizer,
                examples: Vec<Self::Example>,
                max_len: usize,
            ) -> Result<Cut<Self>> {
                self.0.tokens(tokenizer, examples, max_len)
            }

            fn answer(
                &self,
                origins: &[Self::Origin],
                data: &Encoded<Self::Example, Self::Features>,
                outputs: &[Self::Output],
            ) -> Vec<Value> {
                self.0.answer(origins, data, outputs)
            }

            fn predict_above(&mut self, threshold: f64) -> bool {
                self.0.predict_above(threshold)
            }

            fn labelled(
                &self,
                section: &TaskSection,
                source: &LabelledSource,
            ) -> Result<(Self, Vec<Self::Example>, SkipReport)> {
                let (task, examples, skipped) = self.0.labelled(section, source)?;
                Ok((task.into(), examples, skipped))
            }
        }
    )+};
}

predicts_as!([M: TextClassifier] RecurrentTexts<M> as TextTask, [M: Tagger] RecurrentTags<M> as TagTask);
