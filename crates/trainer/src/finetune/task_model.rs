//! A task with its model, type-erased: lines of JSON and labelled data in, answers and metrics out.

use super::config::Tuning;
use super::evaluate::{figures, outputs, outputs_of};
use super::held_out::held_out;
use super::predict::{InputKey, PredictTask};
use super::task::{Encoded, Features, Task, bad_setting};
use crate::engine::Advance;
use crate::memory::n_parameters;
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_data::labelled::{LabelledSource, Loaded};
use cloze_data::{DataError, SkipReport};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::Predictions;
use cloze_tokenizer::Tokenizer;
use serde_json::Value;
use std::any::Any;
use std::fmt::Debug;
use std::iter::repeat_n;
use std::time::Instant;

/// Tokens per prediction batch.
const BATCH_TOKENS: usize = 2_048;

/// A model's answers to input lines.
#[derive(Debug)]
pub struct Predicted {
    /// A JSON value for each line before the first invalid one; `null` for an empty line.
    ///
    /// | task | line | value |
    /// | --- | --- | --- |
    /// | classes | `{"text": …}`, `{"text": …, "pair": …}`, `"…"` | `{"label": …, "score": …, "scores": {…}}` |
    /// | several labels | the same | `{"labels": […], "scores": {…}}` |
    /// | numbers | the same | `{"value": …}` |
    /// | tags | `{"words": […]}`, `{"text": …}`, `"…"` | `{"words": […], "tags": […], "entities": […]}` |
    /// | answers | `{"question": …, "context": …}` | `{"answer": …, "start": …, "end": …, "score": …}` |
    /// | choices | `{"text": …, "choices": […]}`, `context` for `text` | `{"choice": …, "score": …, "scores": […]}` |
    pub values: Vec<Value>,
    /// The number of lines truncated to [`Predictor::max_len`](super::Predictor::max_len) tokens.
    pub truncated: usize,
    /// The error of the line after those, if it is invalid: [`TrainerError::BadInput`].
    pub refused: Option<TrainerError>,
}

/// The answer to a line of JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The value, as in [`Predicted::values`].
    pub value: Value,
    /// Whether the line was truncated to [`Predictor::max_len`](super::Predictor::max_len) tokens.
    pub truncated: bool,
}

/// A model's evaluation on a split of labelled data.
pub struct Measurement {
    /// The metrics.
    pub figures: Figures,
    /// Every example's prediction.
    pub predictions: Box<dyn Predictions>,
    /// Skipped rows.
    pub skipped: SkipReport,
    /// The number of examples truncated to the config's `data.max_len` tokens.
    pub truncated: usize,
    /// What that took.
    pub cost: Cost,
}

/// What a model's answers to labelled examples take, without reading and encoding them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Cost {
    /// The numbers that the model has.
    pub parameters: u64,
    /// Examples, or windows of long ones.
    pub examples: usize,
    /// The tokens of each sequence of theirs.
    pub lengths: Vec<usize>,
    /// Seconds for all of them, in batches.
    pub seconds: f64,
    /// Seconds for each of some examples by itself.
    pub latencies: Vec<f64>,
    /// Operations for all of them in an encoder's layers, see
    /// [`BertConfig::flops`](cloze_model::bert::BertConfig::flops); none for another kind of model.
    pub flops: Option<f64>,
}

/// An evaluation request.
pub(super) struct Asked<'a> {
    pub config: Tuning<'a>,
    /// The config's task, of the same type as the model's.
    pub section: &'a dyn Any,
    pub source: &'a LabelledSource,
    /// The held-out fraction of the source's examples, if only that is evaluated.
    pub share: Option<f64>,
    /// How many examples to answer by themselves as well, for their latency.
    pub singly: usize,
}

/// Settings common to all models.
#[derive(Debug)]
pub(super) struct Setup {
    pub tokenizer: Tokenizer,
    pub max_len: usize,
    pub device: Device,
}

/// A task and its model, type-erased.
pub trait AnyTaskModel: Debug + Send + Sync {
    fn input(&self) -> &'static str;

    fn input_keys(&self) -> &'static [InputKey];

    fn answer_keys(&self) -> Vec<&'static str>;

    fn list(&mut self, n: usize) -> bool;

    fn predict_above(&mut self, threshold: f64) -> bool;

    fn has_pairs(&self) -> bool;

    fn predict(&self, lines: &[&str], setup: &Setup, progress: &mut dyn FnMut(Advance)) -> Result<Predicted>;

    /// See [`Respond`](crate::requests::Respond); units have [`TaskModel`]'s type.
    fn encode(&self, line: Value, setup: &Setup) -> Result<Box<dyn Any + Send>>;

    fn cost(&self, unit: &dyn Any) -> usize;

    fn answer(&self, units: &[&dyn Any], setup: &Setup) -> Vec<Result<Answered>>;

    fn evaluate(
        &self,
        asked: Asked<'_>,
        setup: &Setup,
        progress: &mut dyn FnMut(Advance),
    ) -> Result<Measurement>;
}

/// A task and its model.
#[derive(Debug)]
pub(super) struct TaskModel<T: PredictTask> {
    pub task: T,
    pub model: T::Model,
}

/// An encoded line: one example.
struct TaskUnit<T: PredictTask> {
    origin: T::Origin,
    data: Encoded<T::Example, T::Features>,
    truncated: bool,
}

impl<T: PredictTask> TaskUnit<T> {
    fn of(unit: &dyn Any) -> &Self
    where
        T: 'static,
    {
        unit.downcast_ref().expect("a unit is asked of the model that encoded it")
    }
}

/// A model's outputs in the order of the features.
///
/// # Errors
/// [`TrainerError::OutputNotFinite`].
fn finite_outputs<T: Task>(
    task: &T,
    model: &T::Model,
    features: &[T::Features],
    batch_tokens: usize,
    device: &Device,
    progress: &mut dyn FnMut(Advance),
) -> Result<Vec<T::Output>> {
    let outputs = outputs(task, model, features, batch_tokens, device, progress);
    match outputs.iter().all(T::is_finite) {
        true => Ok(outputs),
        false => Err(TrainerError::OutputNotFinite),
    }
}

impl<T: PredictTask<Model: Sync> + Send + Sync + 'static> AnyTaskModel for TaskModel<T> {
    fn input(&self) -> &'static str {
        self.task.input()
    }

    fn input_keys(&self) -> &'static [InputKey] {
        self.task.input_keys()
    }

    fn answer_keys(&self) -> Vec<&'static str> {
        self.task.answer_keys()
    }

    fn list(&mut self, n: usize) -> bool {
        self.task.list(n)
    }

    fn predict_above(&mut self, threshold: f64) -> bool {
        self.task.predict_above(threshold)
    }

    fn has_pairs(&self) -> bool {
        self.task.has_pairs()
    }

    fn predict(&self, lines: &[&str], setup: &Setup, progress: &mut dyn FnMut(Advance)) -> Result<Predicted> {
        let Self { task, model } = self;
        let (mut values, mut refused) = (Vec::with_capacity(lines.len()), None);
        let (mut places, mut examples, mut origins) = (Vec::new(), Vec::new(), Vec::new());
        for line in lines {
            if !line.trim().is_empty() {
                let value = serde_json::from_str(line).map_err(|error| format!("not JSON ({error})"));
                match value.and_then(|value| task.read_line(value)) {
                    Ok((example, origin)) => {
                        places.push(values.len());
                        examples.push(example);
                        origins.push(origin);
                    }
                    Err(found) => {
                        refused = Some(bad_input(task, &found));
                        break;
                    }
                }
            }
            values.push(Value::Null);
        }
        let (data, truncated) = match task.tokens(&setup.tokenizer, examples, setup.max_len) {
            Err(TrainerError::Data(DataError::Example { number, source })) => {
                // The lines before it have their values.
                let predicted = self.predict(&lines[..places[number - 1]], setup, progress)?;
                return Ok(Predicted { refused: Some(source.into()), ..predicted });
            }
            tokens => tokens?,
        };
        let outputs = finite_outputs(task, model, &data.features, BATCH_TOKENS, &setup.device, progress)?;
        for (place, value) in places.into_iter().zip(task.answer(&origins, &data, &outputs)) {
            values[place] = value;
        }
        Ok(Predicted { values, truncated, refused })
    }

    fn encode(&self, line: Value, setup: &Setup) -> Result<Box<dyn Any + Send>> {
        let task = &self.task;
        let (example, origin) = task.read_line(line).map_err(|found| bad_input(task, &found))?;
        match task.tokens(&setup.tokenizer, vec![example], setup.max_len) {
            Ok((data, cut)) => Ok(Box::new(TaskUnit::<T> { origin, data, truncated: cut > 0 })),
            Err(TrainerError::Data(DataError::Example { source, .. })) => Err(source.into()),
            Err(error) => Err(error),
        }
    }

    fn cost(&self, unit: &dyn Any) -> usize {
        TaskUnit::<T>::of(unit).data.features.iter().map(Features::cost).sum()
    }

    fn answer(&self, units: &[&dyn Any], setup: &Setup) -> Vec<Result<Answered>> {
        let units: Vec<&TaskUnit<T>> = units.iter().map(|unit| TaskUnit::of(*unit)).collect();
        let features: Vec<&T::Features> = units.iter().flat_map(|unit| &unit.data.features).collect();
        let outputs =
            outputs_of(&self.task, &self.model, &features, BATCH_TOKENS, &setup.device, &mut |_| {});
        let mut outputs = outputs.into_iter();
        let answer = |unit: &TaskUnit<T>| {
            let of_unit: Vec<T::Output> = outputs.by_ref().take(unit.data.features.len()).collect();
            if !of_unit.iter().all(T::is_finite) {
                return Err(TrainerError::OutputNotFinite);
            }
            let value = self.task.answer(std::slice::from_ref(&unit.origin), &unit.data, &of_unit).remove(0);
            Ok(Answered { value, truncated: unit.truncated })
        };
        units.into_iter().map(answer).collect()
    }

    fn evaluate(
        &self,
        Asked { config, section, source, share, singly }: Asked<'_>,
        setup: &Setup,
        progress: &mut dyn FnMut(Advance),
    ) -> Result<Measurement> {
        let section = section.downcast_ref().ok_or_else(|| {
            bad_setting(
                "task.kind",
                "of another crate's type",
                "the type that the model was loaded with".into(),
            )
        })?;
        let (task, Loaded { mut examples, mut places, skipped }) = self.task.labelled(section, source)?;
        if let Some(share) = share {
            let held = held_out(examples.len(), share, config.common.run.seed);
            places.retain(|index| held[index]);
            let mut held = held.into_iter();
            examples.retain(|_| held.next() == Some(true));
        }
        let (data, truncated) = task.tokens(&setup.tokenizer, examples, config.data.max_len)?;
        let batch_tokens = config.eval.batch_tokens;
        let device = &setup.device;
        let begun = Instant::now();
        let outputs = finite_outputs(&task, &self.model, &data.features, batch_tokens, device, progress)?;
        let seconds = begun.elapsed().as_secs_f64();
        let latencies = latencies(&task, &self.model, &data.features, singly, device);
        let mut predictions = task.predictions(&data.examples, &data.features, &outputs);
        predictions.set_names(&places.names());
        if predictions.is_empty() {
            return Err(TrainerError::NoExamples { split: "evaluation" });
        }
        let figures = figures(&*predictions, config.eval.metric.as_deref())?;
        let lengths = data.features.iter().flat_map(|one| {
            let n = one.n_sequences().max(1);
            repeat_n(one.cost() / n, n)
        });
        let cost = Cost {
            parameters: n_parameters(&self.model),
            examples: data.features.len(),
            lengths: lengths.collect(),
            seconds,
            latencies,
            flops: None,
        };
        Ok(Measurement { figures, predictions, skipped, truncated, cost })
    }
}

/// Examples that warm the caches before latencies are taken.
const WARM_UP: usize = 5;

/// The seconds that each of `n` examples, evenly spread, takes by itself.
fn latencies<T: Task>(
    task: &T,
    model: &T::Model,
    features: &[T::Features],
    n: usize,
    device: &Device,
) -> Vec<f64> {
    let n = n.min(features.len());
    let one = |place: usize| {
        let begun = Instant::now();
        outputs_of(task, model, &[&features[place]], BATCH_TOKENS, device, &mut |_| {});
        begun.elapsed().as_secs_f64()
    };
    let place = |i: usize| i * features.len() / n.max(1);
    (0..n.min(WARM_UP)).for_each(|i| {
        one(place(i));
    });
    (0..n).map(|i| one(place(i))).collect()
}

/// The error for a line that a task cannot parse.
fn bad_input<T: PredictTask>(task: &T, found: &str) -> TrainerError {
    TrainerError::BadInput { problem: format!("{found}; expected {}", task.input()) }
}
