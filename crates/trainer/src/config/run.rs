//! The config sections common to all runs.

use super::layered::{self, ConfigFile};
use super::layers::Node;
use super::sections::RunSection;
use super::strict::{Fault, FromNode, Source};
use super::validate::{self, Check};
use crate::Result;
use crate::engine::schedule::Schedule;
use crate::engine::{
    Averaging, Cadence, CheckpointSection, Export, LogSection, NonFinite, OptimizerSection, Precision,
    RanksSection, RunSettings,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};

/// The config of a run: the common sections, and those of its kind `K`, such as model and data.
///
/// In a file they are side by side. The kind's sections are accessible as fields of this struct, by [`Deref`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run<K> {
    /// The sections common to all runs.
    #[serde(flatten)]
    pub common: Common,
    /// The sections of the kind.
    #[serde(flatten)]
    pub kind: K,
}

/// Steps, evaluation and stopping of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Total training steps.
    pub steps: u64,
    /// Precision of the matrix products.
    pub precision: Precision,
    /// What to do on a non-finite loss.
    pub non_finite: NonFinite,
    /// Steps between evaluations.
    pub evaluate_every: u64,
    /// Whether to evaluate before the first step too.
    pub evaluate_untrained: bool,
    /// Number of evaluations without improvement after which the run stops. With patience the result is the
    /// best model.
    pub patience: Option<u64>,
}

/// The sections common to all runs that train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Common {
    /// `[run]`: name and seed.
    pub run: RunSection,
    /// `[optimizer]`: the update rule.
    pub optimizer: OptimizerSection,
    /// `[schedule]`: the learning rate over the steps. For fine-tuning a checkpoint, `cloze train` takes a linear one with a
    /// warm-up over a tenth of the steps if it is absent.
    pub schedule: Schedule,
    /// `[average]`: weight averaging for the result. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<Averaging>,
    /// `[checkpoint]`: what is kept for resuming.
    #[serde(default)]
    pub checkpoint: CheckpointSection,
    /// `[log]`: how often metrics are written.
    #[serde(default)]
    pub log: LogSection,
    /// `[ranks]`: several processes that train together.
    #[serde(default)]
    pub ranks: RanksSection,
}

impl Common {
    /// The sections.
    const KEYS: [&str; 7] = ["run", "optimizer", "schedule", "average", "checkpoint", "log", "ranks"];

    /// Checks every value, for a run of this many steps.
    ///
    /// # Errors
    /// [`TrainerError::Setting`](crate::TrainerError::Setting) for the first invalid one.
    pub fn validate(&self, steps: u64) -> Result<()> {
        Ok(self.check(steps)?)
    }

    /// Same as [`validate`](Self::validate).
    pub(crate) fn check(&self, steps: u64) -> Check {
        validate::optimizer(&self.optimizer)?;
        validate::schedule(&self.schedule, steps)?;
        validate::averaging(self.average.as_ref(), true)?;
        validate::records(&self.checkpoint, &self.log)?;
        validate::at_least(1, "ranks.timeout", self.ranks.timeout)
    }
}

impl<K: DeserializeOwned> Run<K> {
    /// Reads a config file overridden by the `sets` (`section.key=value`), strictly: every key must belong to a
    /// common section or to the kind.
    ///
    /// # Errors
    /// [`TrainerError::UnknownKey`](crate::TrainerError::UnknownKey),
    /// [`TrainerError::MissingKey`](crate::TrainerError::MissingKey) and
    /// [`TrainerError::BadValue`](crate::TrainerError::BadValue) with the offending file and line, or argument; several
    /// at once.
    pub fn resolve(file: &ConfigFile, sets: &[String]) -> Result<Self> {
        layered::read(file, sets, |_| Ok(()))
    }
}

impl<K> Run<K> {
    /// The engine's settings for a run in steps.
    pub fn settings_of(&self, pace: Pace) -> RunSettings {
        let Common { run, optimizer, schedule, average, checkpoint, log, ranks } = &self.common;
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
        settings.ranks = ranks.clone();
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

/// serde's `flatten` cannot reject unknown fields, so the table is split before serde sees it.
impl<K: DeserializeOwned> FromNode for Run<K> {
    fn from_node(root: &Node) -> std::result::Result<Self, Fault> {
        let (common, rest) = root.parted(&Common::KEYS);
        let kind = K::deserialize(Source(&rest)).map_err(|fault| fault.with_known(&Common::KEYS))?;
        Ok(Self { common: Common::deserialize(Source(&common))?, kind })
    }
}
