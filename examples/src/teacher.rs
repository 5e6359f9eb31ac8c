//! A teacher put round any task: a term of the loss draws the scores of the model towards those of another one (Hinton,
//! Vinyals & Dean 2015, §2).
//!
//! ```text
//! loss = (1 − λ) · loss of the task + λ · T² · Σ_rows KL(softmax(t / T) ‖ softmax(s / T))
//! ```
//!
//! A row of one number, as that of a regression, has the square of the difference in place of the divergence. A config's
//! `[distillation]` does the same without any code; this is how a task is put round another one, and a term added to its
//! loss.

use crate::own_task::{bench, config};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use cloze_data::labelled::LabelSet;
use cloze_evaluation::report::Predictions;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::distillation::{soft_targets, squared_distance};
use cloze_model::huggingface::{Architecture, LoadReport, PretrainedFolder, ProblemType};
use cloze_model::tasks::DropoutOverrides;
use cloze_tokenizer::Tokenizer;
use cloze_trainer::engine::optimizer::ParamGroup;
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::finetune::{
    FineTuneConfig, PretrainedTask, ScoreRows, Task, TaskData, TextTask, fine_tune, fine_tune_task,
};
use cloze_trainer::metrics::progress::{RunProgress, Silent};
use cloze_trainer::{Place, Result};
use std::path::Path;

/// A task with a teacher.
#[derive(Debug)]
pub struct Taught<T: Task> {
    /// The task.
    pub task: T,
    /// A model for it, without gradients. What is trained may be smaller.
    pub teacher: T::Model,
    /// What the teacher's term counts, `λ`.
    pub share: f64,
    /// What scores are divided by, `T`.
    pub temperature: f64,
}

impl<T: Task<Scores: ScoreRows>> Taught<T> {
    /// How far scores are from the teacher's, summed over the rows, `[1]`.
    fn distance(&self, taught: &Tensor<2>, of_teacher: Tensor<2>) -> Tensor<1> {
        let [_, width] = taught.dims();
        match width {
            1 => squared_distance(taught.clone(), of_teacher),
            _ => soft_targets(taught.clone(), of_teacher, self.temperature),
        }
    }
}

impl<T: Task<Scores: ScoreRows, Model: Sync>> Task for Taught<T> {
    type Model = T::Model;
    type Example = T::Example;
    type Features = T::Features;
    type Scores = T::Scores;
    type Output = T::Output;
    type Section = T::Section;

    fn weight(&self, batch: &[&T::Features]) -> f64 {
        self.task.weight(batch)
    }

    fn scores(&self, model: &T::Model, batch: &[&T::Features], device: &Device) -> T::Scores {
        self.task.scores(model, batch, device)
    }

    fn loss(&self, scores: T::Scores, batch: &[&T::Features]) -> Tensor<1> {
        let rows = scores.rows();
        let device = rows[0].clone().inner().device();
        let of_teacher = self.task.scores(&self.teacher, batch, &device).rows();
        let far =
            rows.iter().zip(of_teacher).map(|(row, teacher)| self.distance(row, Tensor::from_inner(teacher)));
        let far = far.reduce(|sum, one| sum + one).expect("every task has scores");
        self.task.loss(scores, batch) * (1.0 - self.share) + far * self.share
    }

    fn mixes_lengths(&self) -> bool {
        self.task.mixes_lengths()
    }

    fn keys(&self, features: &[T::Features]) -> Option<Vec<Vec<u64>>> {
        self.task.keys(features)
    }

    fn is_finite(output: &T::Output) -> bool {
        T::is_finite(output)
    }

    fn outputs(&self, model: &T::Model, batch: &[&T::Features], device: &Device) -> Vec<T::Output> {
        self.task.outputs(model, batch, device)
    }

    fn predictions(
        &self,
        examples: &[T::Example],
        features: &[T::Features],
        outputs: &[T::Output],
    ) -> Box<dyn Predictions> {
        self.task.predictions(examples, features, outputs)
    }

    fn section(&self) -> T::Section {
        self.task.section()
    }

    fn pairs(&self) -> Option<bool> {
        self.task.pairs()
    }

    fn has_pairs(&self) -> bool {
        self.task.has_pairs()
    }

    fn labels(&self) -> Option<&LabelSet> {
        self.task.labels()
    }

    fn class_counts(&self, examples: &[T::Example]) -> Vec<(String, u64)> {
        self.task.class_counts(examples)
    }

    fn parameter_groups(&self) -> Vec<ParamGroup> {
        self.task.parameter_groups()
    }
}

impl<T: PretrainedTask<Scores: ScoreRows, Model: Sync>> PretrainedTask for Taught<T> {
    fn saved_as(&self) -> (Architecture, Option<ProblemType>) {
        self.task.saved_as()
    }

    fn model(
        &self,
        pretrained: PretrainedFolder,
        dropout: &DropoutOverrides,
        init: &mut ParamInit,
    ) -> Result<(BertConfig, T::Model, LoadReport)> {
        self.task.model(pretrained, dropout, init)
    }

    fn without_training_parts(&self, model: T::Model) -> T::Model {
        self.task.without_training_parts(model)
    }

    fn save_more(&self, encoder: &BertConfig, max_len: usize, folder: &Path) -> Result<()> {
        self.task.save_more(encoder, max_len, folder)
    }
}

/// Fine-tunes a teacher, and then, as its student, a model that begins where it began.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    let folder = options.cache.join("teacher");
    let files = bench(&folder, &options.device)?;
    let text = config(&files, "{ kind = \"classification\" }", "good", steps);
    let place = Place::file(Path::new("taught.toml"));
    let config = FineTuneConfig::parse(&text, "taught", &place, &[])?;
    let taught = folder.join("run");
    if !taught.join("model").exists() {
        let whole = RunOptions::new(options.device.clone(), taught.clone());
        fine_tune(&config, &whole, &mut Silent)?;
    }
    let (task, train) = TextTask::read(&config.task, &config.data.train)?;
    let pretrained = PretrainedFolder::open(&taught.join("model"))?;
    let init = &mut ParamInit::new(&options.device, 0);
    let teacher = task.model(pretrained, &DropoutOverrides::default(), init)?.1.valid();

    let tokenizer = Tokenizer::load(&files[0])?;
    let encode = |examples| TextTask::encode(&tokenizer, examples, config.data.max_len);
    let dev = task.read_more(&config.data.train.with_files([files[2].display().to_string()]))?.examples;
    let data = TaskData {
        train: encode(train.examples)?,
        dev: Some(encode(dev)?),
        dev_names: Vec::new(),
        test: None,
        test_names: Vec::new(),
    };
    let taught = Taught { task, teacher, share: 0.5, temperature: 2.0 };
    fine_tune_task(&taught, data, &tokenizer, &config, options, progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_trainer::finetune::{AnswerTask, ChoiceTask, PromptTask, TagTask};

    #[test]
    fn any_task_takes_a_teacher() {
        fn takes<T: PretrainedTask>() {}
        takes::<Taught<TextTask>>();
        takes::<Taught<TagTask>>();
        takes::<Taught<AnswerTask>>();
        takes::<Taught<ChoiceTask>>();
        takes::<Taught<PromptTask>>();
    }
}
