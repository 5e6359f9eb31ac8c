//! A run's reporting: metrics records, their files, and plots and tables.
//!
//! [`MetricsLog`] writes a run's [`Record`]s to `metrics.jsonl` (for programs, and continued by a resumed run)
//! and to TensorBoard event files (a view of the same).

pub mod curve;
pub(crate) mod held_out;
pub mod jsonl;
pub(crate) mod loss_course;
mod printable;
pub mod progress;
pub mod standard_error;
pub mod tensorboard;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use cloze_evaluation::figures::{Figures, in_order};
use jsonl::JsonLines;
pub use printable::printable;
use tensorboard::EventFile;

/// The name of the JSON-lines file in a run folder.
pub const METRICS_FILE: &str = "metrics.jsonl";

/// The folder of TensorBoard event files in a run folder.
pub const TENSORBOARD_FOLDER: &str = "tensorboard";

/// One line of the metrics: `{"event":"train","step":100,…}` or `{"event":"evaluation","step":100,…}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Record {
    /// Training since the last such record.
    Train(TrainRecord),
    /// One evaluation.
    Evaluation(EvaluationRecord),
}

impl Record {
    /// The step (from 1) after which the record was written.
    pub fn step(&self) -> u64 {
        match self {
            Self::Train(record) => record.step,
            Self::Evaluation(record) => record.step,
        }
    }

    /// The record without timings: identical between runs of the same config.
    pub fn without_timing(&self) -> Self {
        let mut record = self.clone();
        match &mut record {
            Self::Train(record) => record.timing = Timing::default(),
            Self::Evaluation(record) => record.seconds = 0.0,
        }
        record
    }

    /// The scalars to plot: TensorBoard tags and values.
    pub fn scalars(&self) -> Vec<(String, f64)> {
        match self {
            Self::Evaluation(record) => {
                let tag = |name: &str| format!("{}/{name}", record.split);
                record.figures.iter().map(|(name, value)| (tag(name), value)).collect()
            }
            Self::Train(record) => {
                let named = record.losses.iter().filter(|(name, _)| name != "loss");
                let losses = named.map(|(name, loss)| (format!("train/{name}"), *loss));
                let rest = [
                    ("train/learning_rate", record.learning_rate),
                    ("train/grad_norm", record.grad_norm),
                    ("speed/tokens_per_second", record.timing.tokens_per_second),
                    ("speed/waiting", record.timing.waiting),
                ];
                std::iter::once(("train/loss".to_owned(), record.loss))
                    .chain(losses)
                    .chain(rest.map(|(tag, value)| (tag.to_owned(), value)))
                    .collect()
            }
        }
    }
}

/// Training over the steps since the last record. Losses are means over those steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainRecord {
    /// The last step (from 1).
    pub step: u64,
    /// The total loss that was minimised.
    #[serde(with = "number")]
    pub loss: f64,
    /// Each term of the loss, by name.
    #[serde(with = "in_order")]
    pub losses: Vec<(String, f64)>,
    /// The learning rate of the last step.
    pub learning_rate: f64,
    /// The global gradient norm before clipping, averaged over the steps.
    #[serde(with = "number")]
    pub grad_norm: f64,
    /// Tokens trained on since step 1, without padding.
    pub tokens: u64,
    /// Steps since step 1 that were skipped for a non-finite loss.
    #[serde(default)]
    pub skipped_steps: u64,
    /// Timings; the only values that differ between two runs of the same config.
    #[serde(flatten)]
    pub timing: Timing,
}

/// An evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRecord {
    /// The step (from 1) after which the model was evaluated; 0 for the untrained one.
    pub step: u64,
    /// The split, such as `dev` or `test`.
    pub split: String,
    /// The metrics.
    pub figures: Figures,
    /// Duration of the evaluation in seconds.
    pub seconds: f64,
}

/// Timings of training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Seconds of training in this process.
    pub seconds: f64,
    /// Tokens (without padding) per second since the last record.
    pub tokens_per_second: f64,
    /// Fraction of the time since the last record spent waiting for data, from 0 to 1.
    pub waiting: f64,
}

/// Losses in JSON, which has no NaN or infinity: both are written as null, which is read as NaN.
mod number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(*value).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
    }
}

/// A run's metrics files.
pub struct MetricsLog {
    json: JsonLines,
    events: EventFile,
}

impl MetricsLog {
    /// Starts the log of a new run in the existing `folder`; existing metrics are discarded.
    ///
    /// # Errors
    /// [`TrainerError::Io`](crate::TrainerError::Io) if a file cannot be written.
    pub fn create(folder: &Path) -> Result<Self> {
        let events = folder.join(TENSORBOARD_FOLDER);
        tensorboard::clear(&events)?;
        Ok(Self {
            json: JsonLines::create(&folder.join(METRICS_FILE))?,
            events: EventFile::create(&events, None)?,
        })
    }

    /// Continues the log in `folder` for a run resumed after `step`: drops records of later steps, so that the
    /// log equals an uninterrupted run's (except for timings).
    ///
    /// A step's records must be written before its checkpoint, or a kill in between loses them.
    ///
    /// # Errors
    /// [`TrainerError::Io`](crate::TrainerError::Io), and
    /// [`TrainerError::BadMetrics`](crate::TrainerError::BadMetrics) for an invalid log.
    pub fn resume(folder: &Path, step: u64) -> Result<Self> {
        Ok(Self {
            json: JsonLines::resume(&folder.join(METRICS_FILE), step)?,
            events: EventFile::create(&folder.join(TENSORBOARD_FOLDER), Some(step))?,
        })
    }

    /// Writes a record and passes it to the system at once.
    ///
    /// # Errors
    /// [`TrainerError::Io`](crate::TrainerError::Io).
    pub fn write(&mut self, record: &Record) -> Result<()> {
        self.json.write(record)?;
        self.events.write(record.step(), &record.scalars())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_records_and_a_resumed_one_equals_an_uninterrupted_one() {
        let record = |step| Record::Train(TrainRecord { step, loss: step as f64, ..Default::default() });
        let eval = |step| {
            let figures = Figures::new(4, [("loss", 2.0)]);
            Record::Evaluation(EvaluationRecord { step, split: "dev".into(), figures, seconds: 0.5 })
        };
        let folder = tempfile::tempdir().unwrap();
        let read = || jsonl::read(&folder.path().join(METRICS_FILE)).unwrap();
        let event_files = || std::fs::read_dir(folder.path().join(TENSORBOARD_FOLDER)).unwrap().count();

        let mut log = MetricsLog::create(folder.path()).unwrap();
        for record in [record(1), record(2), eval(2), record(3)] {
            log.write(&record).unwrap();
        }
        drop(log);
        let mut log = MetricsLog::resume(folder.path(), 2).unwrap();
        log.write(&record(3)).unwrap();
        assert_eq!(read(), [record(1), record(2), eval(2), record(3)]);
        assert_eq!(event_files(), 2);

        // A new run in the same folder starts over.
        drop(log);
        MetricsLog::create(folder.path()).unwrap();
        assert_eq!(read(), []);
        assert_eq!(event_files(), 1);
    }

    #[test]
    fn timing_can_be_taken_off() {
        let timing = Timing { seconds: 1.0, tokens_per_second: 2.0, waiting: 0.5 };
        let timed = Record::Train(TrainRecord { step: 1, timing, ..Default::default() });
        let untimed = Record::Train(TrainRecord { step: 1, ..Default::default() });
        assert_ne!(timed, untimed);
        assert_eq!(timed.without_timing(), untimed);
    }
}
