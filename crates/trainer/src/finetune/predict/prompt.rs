//! Text classification with the masked-LM head.

use super::super::prompt::PromptTask;
use super::super::section::{PromptSection, TaskSection};
use super::super::task::{Encoded, n_cut};
use super::super::template::PromptFeatures;
use super::texts::{CLASS, TEXT_AND_PAIR, classes, text};
use super::{Cut, InputKey, PredictTask, Read};
use crate::Result;
use cloze_data::labelled::{LabelledSource, Loaded, TextExample};
use cloze_tokenizer::Tokenizer;
use serde_json::Value;

/// Same as for texts: `{"label": …, "score": …, "scores": {…}}`.
impl PredictTask for PromptTask {
    type Origin = ();

    fn input(&self) -> &'static str {
        match self.template().has_pair() {
            true => r#"{"text": "…", "pair": "…"}"#,
            false => r#"{"text": "…"} or "…""#,
        }
    }

    fn input_keys(&self) -> &'static [InputKey] {
        &TEXT_AND_PAIR
    }

    fn answer_keys(&self) -> Vec<&'static str> {
        CLASS.into()
    }

    fn read_line(&self, line: Value) -> Read<(TextExample, ())> {
        let example = text(line)?;
        match self.template().misfit(&example) {
            None => Ok((example, ())),
            Some(_) if example.pair.is_some() => Err("the model's template has no place for `pair`".into()),
            Some(_) => Err("`pair` is missing, which the model's template has a place for".into()),
        }
    }

    fn tokens(&self, tokenizer: &Tokenizer, examples: Vec<TextExample>, max_len: usize) -> Result<Cut<Self>> {
        let data = self.encode(tokenizer, examples, max_len)?;
        let cut = n_cut(&data.features);
        Ok((data, cut))
    }

    fn answer(&self, _: &[()], _: &Encoded<TextExample, PromptFeatures>, outputs: &[Vec<f32>]) -> Vec<Value> {
        classes(&self.labels, outputs)
    }

    fn labelled(
        &self,
        section: &TaskSection,
        source: &LabelledSource,
    ) -> Result<(Self, Loaded<TextExample>)> {
        let mut task = self.clone();
        if let TaskSection::Prompt(PromptSection { positive: Some(name), .. }) = section {
            task = task.with_positive(name)?;
        }
        let loaded = task.read(source)?;
        Ok((task, loaded))
    }
}
