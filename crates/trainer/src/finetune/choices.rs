//! Multiple choice: choosing the right one of several texts.

use super::kind::{DataSize, TaskKind};
use super::saved_model::{OpenedModel, SavedModel};
use super::section::TaskSection;
use super::task::{
    Encoded, PretrainedTask, Task, TokenFeatures, argmax, input, labels, pretrained_encoder, sequences,
    softmax,
};
use super::task_run::TaskRun;
use crate::Result;
use crate::engine::Outcome;
use crate::metrics::progress::RunProgress;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_data::labelled::{
    ChoiceExample, ChoiceFeatures, LabelledSource, Loaded, TokenSequence, choices, encode_choices,
};
use cloze_evaluation::report::{ChoiceExample as Predicted, ChoicePredictions, Predictions};
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, LoadReport, PretrainedFolder, ProblemType};
use cloze_model::ops::CrossEntropy;
use cloze_model::tasks::{BertForMultipleChoice, DropoutOverrides, classification_loss};
use cloze_model::{HasBackbone, ParamInit};
use cloze_tokenizer::Tokenizer;
use std::path::Path;

/// The score of a missing choice.
const ABSENT: f32 = -1e9;

/// Multiple choice (Devlin et al. 2019, §4.4); the number of choices may vary between examples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChoiceTask;

impl ChoiceTask {
    /// Reads examples.
    ///
    /// # Errors
    /// Those of reading the data.
    pub fn read(&self, source: &LabelledSource) -> Result<Loaded<ChoiceExample>> {
        Ok(choices(source, Path::new(""), true)?)
    }

    /// Examples with their tokens.
    ///
    /// # Errors
    /// A `max_len` too short for one token of each text.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        examples: Vec<ChoiceExample>,
        max_len: usize,
    ) -> Result<Encoded<ChoiceExample, ChoiceFeatures>> {
        let features = self.encode_again(tokenizer, &examples, max_len)?;
        Ok(Encoded { examples, features })
    }
}

/// Multiple choice.
pub(super) struct ChoiceKind;

impl TaskKind for ChoiceKind {
    fn tune(&self, run: TaskRun<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let (task, data, tokenizer) = (ChoiceTask, run.config.data, run.tokenizer()?);
        let train = task.read(&data.train)?;
        let data = run.reading(progress).data::<ChoiceTask>(
            train,
            |source| task.read(source),
            |examples| task.encode(&tokenizer, examples, data.max_len),
        )?;
        run.train(&task, data, &tokenizer, progress)
    }

    fn size(&self, data: &LabelledSource) -> Result<Option<DataSize>> {
        let loaded = choices(data, Path::new(""), true)?;
        Ok(Some(DataSize::of_rows(loaded.examples.len())))
    }

    fn open(&self, saved: SavedModel<'_>) -> Result<OpenedModel> {
        saved.open(ChoiceTask)
    }
}

impl TokenFeatures for ChoiceFeatures {
    fn sequences(&self) -> Vec<&TokenSequence> {
        self.choices.iter().collect()
    }
}

impl Task for ChoiceTask {
    type Model = BertForMultipleChoice;
    type Example = ChoiceExample;
    type Features = ChoiceFeatures;
    /// `[batch, most choices]`
    type Scores = Tensor<2>;
    /// A score for each choice.
    type Output = Vec<f32>;
    type Section = TaskSection;

    fn is_finite(output: &Vec<f32>) -> bool {
        output.iter().all(|score| score.is_finite())
    }

    fn has_pairs(&self) -> bool {
        true
    }

    fn weight(&self, batch: &[&ChoiceFeatures]) -> f64 {
        batch.len() as f64
    }

    fn scores(&self, model: &Self::Model, batch: &[&ChoiceFeatures], device: &Device) -> Tensor<2> {
        side_by_side(scores(model, batch, device), batch)
    }

    fn loss(&self, scores: Tensor<2>, batch: &[&ChoiceFeatures]) -> Tensor<1> {
        let right = batch.iter().map(|features| features.label.unwrap_or(0) as i32).collect();
        let right = labels(right, &scores.device());
        classification_loss(scores, right, &CrossEntropy::default()).sum()
    }

    fn encode_again(
        &self,
        tokenizer: &Tokenizer,
        examples: &[ChoiceExample],
        max_len: usize,
    ) -> Result<Vec<ChoiceFeatures>> {
        Ok(encode_choices(tokenizer, examples, max_len)?)
    }

    fn outputs(&self, model: &Self::Model, batch: &[&ChoiceFeatures], device: &Device) -> Vec<Vec<f32>> {
        let scores: Vec<f32> = scores(model, batch, device).into_data().iter::<f32>().collect();
        let mut scores = scores.into_iter();
        batch.iter().map(|features| scores.by_ref().take(features.choices.len()).collect()).collect()
    }

    fn predictions(
        &self,
        examples: &[ChoiceExample],
        _: &[ChoiceFeatures],
        outputs: &[Vec<f32>],
    ) -> Box<dyn Predictions> {
        let examples = examples.iter().zip(outputs).enumerate().map(|(i, (example, scores))| {
            let probabilities = softmax(scores);
            let (gold, predicted) = (example.label.unwrap_or(0), argmax(&probabilities));
            Predicted {
                id: (i + 1).to_string(),
                prompt: example.context.clone(),
                choices: example.choices.clone(),
                gold,
                predicted,
                score: probabilities[predicted],
                loss: -probabilities[gold].ln(),
            }
        });
        Box::new(ChoicePredictions { examples: examples.collect() })
    }

    fn section(&self) -> TaskSection {
        TaskSection::MultipleChoice {}
    }
}

impl PretrainedTask for ChoiceTask {
    fn saved_as(&self) -> (Architecture, Option<ProblemType>) {
        (Architecture::MultipleChoice, None)
    }

    fn of_saved(_: &TaskSection, _: Option<bool>) -> Result<Self> {
        Ok(Self)
    }

    fn model(
        &self,
        pretrained: PretrainedFolder,
        dropout: &DropoutOverrides,
        init: &mut ParamInit,
    ) -> Result<(BertConfig, BertForMultipleChoice, LoadReport)> {
        const ARCHITECTURE: Architecture = Architecture::MultipleChoice;
        let mut init = init.deferred();
        let (config, bert, of_head) = pretrained_encoder(&pretrained, ARCHITECTURE, dropout, &mut init)?;
        let family = pretrained.config.family;
        let head = ARCHITECTURE.sequence_head(family, &config, 1, of_head, &mut init);
        let model = BertForMultipleChoice { bert, head };
        let pooler = <BertForMultipleChoice>::path_of("pooler.*");
        let (model, report) = pretrained.load_into(model, ARCHITECTURE, &["head.*", &pooler])?;
        Ok((config, model, report))
    }
}

/// The scores of all choices of a batch, stacked, `[choices, 1]`.
fn scores(model: &BertForMultipleChoice, batch: &[&ChoiceFeatures], device: &Device) -> Tensor<2> {
    model.forward(input(&model.bert, &sequences(batch), device), 1)
}

/// `[choices, 1]` to `[batch, most choices]`. An example with fewer choices is padded with a score whose
/// softmax is 0.
fn side_by_side(scores: Tensor<2>, batch: &[&ChoiceFeatures]) -> Tensor<2> {
    let most = batch.iter().map(|features| features.choices.len()).max().unwrap_or(0);
    let shape = [batch.len(), most];
    if batch.iter().all(|features| features.choices.len() == most) {
        return scores.reshape(shape);
    }
    let device = scores.device();
    let (mut from, mut absent) = (Vec::new(), Vec::new());
    let mut first = 0;
    for features in batch {
        let n = features.choices.len();
        // A place without a choice takes the first one's score, and is masked.
        from.extend((0..most).map(|choice| if choice < n { first + choice as i32 } else { first }));
        absent.extend((0..most).map(|choice| choice >= n));
        first += n as i32;
    }
    let from = Tensor::<1, Int>::from_data(from.as_slice(), &device);
    let absent = Tensor::<2, Bool>::from_data(TensorData::new(absent, shape), &device);
    scores.select(0, from).reshape(shape).mask_fill(absent, ABSENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_with_fewer_choices_are_filled_up() {
        let device = Device::flex();
        let features = |n: usize| {
            let choice = TokenSequence { input_ids: vec![1], token_type_ids: vec![0] };
            ChoiceFeatures { choices: vec![choice; n], label: Some(1), truncated: 0 }
        };
        let (two, three) = (features(2), features(3));
        let scores = |n: usize| {
            let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
            Tensor::<2>::from_data(TensorData::new(values, [n, 1]), &device)
        };
        let table = |n, batch: &[&ChoiceFeatures]| side_by_side(scores(n), batch).into_data();
        let mixed = table(5, &[&two, &three]);
        mixed.assert_eq(&TensorData::from([[0f32, 1.0, ABSENT], [2.0, 3.0, 4.0]]), true);
        let even = table(4, &[&two, &two]);
        even.assert_eq(&TensorData::from([[0f32, 1.0], [2.0, 3.0]]), true);
    }
}
