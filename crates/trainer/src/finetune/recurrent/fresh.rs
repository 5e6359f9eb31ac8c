//! Classifiers and taggers that are trained from scratch.

use super::super::kinds::RecurrentTask;
use super::super::run::TaskRun;
use super::super::start::new_parameters;
use super::super::tags::Tags;
use super::super::task::bad_setting;
use super::super::texts::Texts;
use super::form::RecurrentForm;
use super::section::RecurrentSection;
use crate::Result;
use crate::engine::Outcome;
use crate::metrics::progress::RunProgress;
use cloze_data::labelled::{TaggedSentence, TextExample};
use cloze_model::tasks::{RecurrentForSequenceClassification, RecurrentForTokenClassification};

/// Trains such a model.
///
/// # Errors
/// Those of reading the data and the tokenizer; of the run.
pub(super) fn fine_tune(
    section: &RecurrentSection,
    run: TaskRun<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let config = run.config;
    let max_len = config.data.max_len;
    let init = &mut new_parameters(config, &run.options.device.clone().autodiff());
    match config.task.recurrent() {
        Some(RecurrentTask::Texts(of)) => {
            let (task, examples, skipped) =
                Texts::<RecurrentForSequenceClassification>::read(of, &config.data.train)?;
            let texts = |example: &TextExample| [Some(example.text.clone()), example.pair.clone()];
            let tokenizer = section.tokenizer(examples.iter().flat_map(texts).flatten(), progress)?;
            let shape = section.classifier(tokenizer.vocab_size(), task.n_outputs());
            let data = task.data((examples, skipped), &tokenizer, &run, progress)?;
            let model = shape.init(init);
            let form = RecurrentForm::of(shape, &tokenizer, &task, max_len);
            run.train_new(&task, data, model, form, progress)
        }
        Some(RecurrentTask::Tags(of)) => {
            let (task, examples, skipped) =
                Tags::<RecurrentForTokenClassification>::read(of, &config.data.train)?;
            let texts = |sentence: &TaggedSentence| sentence.words.join(" ");
            let tokenizer = section.tokenizer(examples.iter().map(texts), progress)?;
            let shape = section.tagger(tokenizer.vocab_size(), task.labels.len(), of.crf);
            let data = task.data((examples, skipped), &tokenizer, &run, progress)?;
            let model = task.with_rules(shape.init(init));
            let form = RecurrentForm::of(shape, &tokenizer, &task, max_len);
            run.train_new(&task, data, model, form, progress)
        }
        None => Err(bad_setting("task.kind", "another", super::section::TASKS.into())),
    }
}
