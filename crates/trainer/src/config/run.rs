//! What the config of every run has.

use super::layered::{self, ConfigFile};
use super::layers::Node;
use super::sections::RunSection;
use super::strict::{Fault, FromNode, Source};
use super::validate::{self, Check, Complaint};
use crate::engine::schedule::Schedule;
use crate::engine::{
    Averaging, Cadence, CheckpointSection, Export, LogSection, NonFinite, OptimizerSection, Precision,
    RunSettings,
};
use crate::{Result, TrainerError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};

/// The config of a run: what all runs are told, and the sections of its kind `K`, such as the model and the data.
///
/// A file has both side by side. The kind's sections are fields of this too, by [`Deref`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run<K> {
    /// What all runs are told.
    #[serde(flatten)]
    pub common: Common,
    /// The sections of the kind.
    #[serde(flatten)]
    pub kind: K,
}

/// When and how a run in steps makes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Steps of the run.
    pub steps: u64,
    /// Of the matrix products.
    pub precision: Precision,
    /// What a loss that is not finite does.
    pub non_finite: NonFinite,
    /// Steps between evaluations.
    pub evaluate_every: u64,
    /// Whether the model is measured before the first step too.
    pub evaluate_untrained: bool,
    /// After how many evaluations without a better figure the run ends. With patience the best model is the result.
    pub patience: Option<u64>,
}

/// What all runs are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Common {
    /// `[run]`: name and seed.
    pub run: RunSection,
    /// `[optimizer]`: the rule by which weights move.
    pub optimizer: OptimizerSection,
    /// `[schedule]`: the learning rate over the steps.
    pub schedule: Schedule,
    /// `[average]`: the mean of the weights that is the result. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<Averaging>,
    /// `[checkpoint]`: what is kept to resume from.
    #[serde(default)]
    pub checkpoint: CheckpointSection,
    /// `[log]`: how often metrics are written.
    #[serde(default)]
    pub log: LogSection,
}

impl Common {
    /// The sections.
    const KEYS: [&str; 6] = ["run", "optimizer", "schedule", "average", "checkpoint", "log"];

    /// Checks every value, of a run of this many steps.
    ///
    /// # Errors
    /// [`TrainerError::Setting`] for the first that is invalid.
    pub fn validate(&self, steps: u64) -> Result<()> {
        self.check(steps).map_err(|Complaint { key, found, expected }| TrainerError::Setting {
            key,
            found,
            expected,
        })
    }

    /// As [`validate`](Self::validate).
    pub(crate) fn check(&self, steps: u64) -> Check {
        validate::optimizer(&self.optimizer)?;
        validate::schedule(&self.schedule, steps)?;
        validate::averaging(self.average.as_ref(), true)?;
        validate::records(&self.checkpoint, &self.log)
    }
}

impl<K: DeserializeOwned> Run<K> {
    /// Reads a config file with the `sets` (`section.key=value`) laid over it, strictly: every key is one of the common
    /// sections' or of the kind's.
    ///
    /// # Errors
    /// [`TrainerError::UnknownKey`], [`TrainerError::MissingKey`] and [`TrainerError::BadValue`] with the file and line, or the
    /// argument, at fault.
    pub fn resolve(file: &ConfigFile, sets: &[String]) -> Result<Self> {
        layered::read(file, sets, |_| Ok(()))
    }
}

impl<K> Run<K> {
    /// What the engine needs to know of a run in steps.
    pub fn settings_of(&self, pace: Pace) -> RunSettings {
        let Common { run, optimizer, schedule, average, checkpoint, log } = &self.common;
        let mut settings = RunSettings::new(&run.name, pace.steps, optimizer.lr);
        settings.seed = run.seed;
        settings.non_finite = pace.non_finite;
        settings.precision = pace.precision;
        settings.evaluate = Cadence::Every(pace.evaluate_every);
        settings.evaluate_untrained = pace.evaluate_untrained;
        settings.patience = pace.patience;
        settings.export = if pace.patience.is_some() { Export::Best } else { Export::Last };
        settings.optimizer = optimizer.clone();
        settings.schedule = schedule.clone();
        settings.average = average.clone();
        settings.checkpoint = checkpoint.clone();
        settings.log = log.clone();
        settings
    }
}

impl<K> Deref for Run<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.kind
    }
}

impl<K> DerefMut for Run<K> {
    fn deref_mut(&mut self) -> &mut K {
        &mut self.kind
    }
}

/// serde's `flatten` knows no unknown fields, so the table is parted before serde sees it.
impl<K: DeserializeOwned> FromNode for Run<K> {
    fn from_node(root: &Node) -> std::result::Result<Self, Fault> {
        let (common, rest) = root.parted(&Common::KEYS);
        let kind = K::deserialize(Source(&rest)).map_err(|fault| fault.with_known(&Common::KEYS))?;
        Ok(Self { common: Common::deserialize(Source(&common))?, kind })
    }
}
