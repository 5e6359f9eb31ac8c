//! The kinds of runs: which one a config file describes, and how it is carried out.
//!
//! ```no_run
//! use cloze_trainer::config::ConfigFile;
//! use cloze_trainer::runs::{KINDS, plan_of};
//!
//! let file = ConfigFile::open("configs/bert-tiny-sample.toml")?;
//! let run = plan_of(&file, &["train.steps=100".into()], &KINDS)?;
//! println!("{}", run.name());
//! # Ok::<_, cloze_trainer::TrainerError>(())
//! ```
//!
//! A crate of its own adds a kind by a config that is a [`Plan`] and [`FromConfigFile`], and puts
//! [`RunKind::of`] it before the others.

use crate::config::{
    AwdLstmRunConfig, ConfigFile, DenoisingRunConfig, ElmoRunConfig, LanguageModelConfig, ObjectiveSection,
    PermutationConfig, RunConfig,
};
use crate::engine::{Outcome, OverSeeds, Plan, RunOptions, train_seeds};
use crate::finetune::FineTuneConfig;
use crate::metrics::progress::RunProgress;
use crate::translation::TranslationConfig;
use crate::{Result, TrainerError};
use cloze_model::nearest;
use std::path::PathBuf;

/// A plan that a config file describes.
pub trait FromConfigFile: Plan {
    /// Whether a file describes such a run.
    fn is_of(file: &ConfigFile) -> bool;

    /// Resolves a file with the `sets` (`section.key=value`) laid over it.
    ///
    /// # Errors
    /// Those of reading a config.
    fn read(file: &ConfigFile, sets: &[String]) -> Result<Self>;
}

/// A kind of run.
#[derive(Debug, Clone, Copy)]
pub struct RunKind {
    is_of: fn(&ConfigFile) -> bool,
    read: fn(&ConfigFile, &[String]) -> Result<AnyPlan>,
}

impl RunKind {
    /// The kind of such configs.
    pub const fn of<P: FromConfigFile + 'static>() -> Self {
        Self { is_of: P::is_of, read: |file, sets| Ok(AnyPlan(Box::new(P::read(file, sets)?))) }
    }
}

/// All kinds of this crate.
pub const KINDS: [RunKind; 8] = [
    RunKind::of::<FineTuneConfig>(),
    RunKind::of::<TranslationConfig>(),
    RunKind::of::<AwdLstmRunConfig>(),
    RunKind::of::<LanguageModelConfig>(),
    RunKind::of::<ElmoRunConfig>(),
    RunKind::of::<PermutationConfig>(),
    RunKind::of::<DenoisingRunConfig>(),
    RunKind::of::<RunConfig>(),
];

/// The run that a config file describes with the `sets` laid over it: the first of `kinds` that takes it.
///
/// # Errors
/// Those of reading a config; an objective that no kind has.
pub fn plan_of(file: &ConfigFile, sets: &[String], kinds: &[RunKind]) -> Result<AnyPlan> {
    if let Some(kind) = kinds.iter().find(|kind| (kind.is_of)(file)) {
        return (kind.read)(file, sets);
    }
    // Pretraining takes a file without an objective.
    let known = ObjectiveSection::KINDS;
    let found = file.kind_of("objective").unwrap_or_default();
    let hint = nearest(found, known.into_iter());
    let hint = hint.map_or(String::new(), |kind| format!("; did you mean \"{kind}\"?"));
    Err(TrainerError::BadValue {
        place: file.place_of("objective.kind"),
        key: "objective.kind".into(),
        found: format!("\"{found}\""),
        expected: format!("one of {}{hint}", known.map(|kind| format!("\"{kind}\"")).join(", ")),
    })
}

/// A plan of any kind.
pub struct AnyPlan(Box<dyn Erased>);

impl AnyPlan {
    /// The run's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// As [`Plan::checkpoint_mut`].
    pub fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        self.0.checkpoint_mut()
    }

    /// Carries it out.
    ///
    /// # Errors
    /// Those of [`Plan::run`].
    pub fn run(&self, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        self.0.run(options, progress)
    }

    /// Carries it out once for each seed.
    ///
    /// # Errors
    /// Those of [`train_seeds`].
    pub fn train_seeds(
        &self,
        seeds: &[u64],
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<OverSeeds> {
        self.0.train_seeds(seeds, options, progress)
    }
}

/// [`Plan`] without its type.
trait Erased {
    fn name(&self) -> &str;
    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf>;
    fn run(&self, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome>;
    fn train_seeds(&self, _: &[u64], _: &RunOptions<'_>, _: &mut dyn RunProgress) -> Result<OverSeeds>;
}

impl<P: Plan> Erased for P {
    fn name(&self) -> &str {
        Plan::name(self)
    }

    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        Plan::checkpoint_mut(self)
    }

    fn run(&self, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        Plan::run(self, options, progress)
    }

    fn train_seeds(
        &self,
        seeds: &[u64],
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<OverSeeds> {
        train_seeds(self, seeds, options, progress)
    }
}
