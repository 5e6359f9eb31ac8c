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
//! Another crate adds a kind by the sections that its config has, which are a [`RunKind`], and puts [`Kind::of`] them beside
//! the others.

use crate::config::{
    Averaging, AwdLstmRun, ConfigFile, DenoisingRun, ElmoRun, FolderConfig, LanguageModelRun,
    ObjectiveSection, Pace, PermutationRun, Pretraining, Run,
};
use crate::engine::origin::Input;
use crate::engine::{Outcome, OverSeeds, Plan, RunOptions, RunSettings, train_seeds};
use crate::finetune::FineTuneRun;
use crate::metrics::progress::RunProgress;
use crate::translation::TranslationRun;
use crate::{Place, Result, TrainerError};
use cloze_model::nearest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// A kind of run: the sections that its config has beside the [common ones](crate::config::Common), and what is done with
/// them. A [`Run`] of it is a [`Plan`].
pub trait RunKind: Clone + Serialize + DeserializeOwned {
    /// Keys, or starts of keys, that change no weight: a run may be resumed with other values of them.
    const FREE_KEYS: &'static [&'static str];

    /// Whether a config file describes such a run.
    fn is_of(file: &ConfigFile) -> bool;

    /// Reads a config file with the `sets` laid over it; by default [as it stands](Run::resolve), without a check of values.
    ///
    /// # Errors
    /// Those of reading a config.
    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        Run::resolve(file, sets)
    }

    /// What the sections say of the steps, where they do. If evaluations decide the result, no key of `eval` is free.
    fn pace(&self) -> Option<Pace> {
        None
    }

    /// As [`Plan::checkpoint_mut`]; by default a run begins with no model.
    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        None
    }

    /// As [`Plan::inputs`].
    ///
    /// # Errors
    /// A file that is not there or cannot be read.
    fn inputs(&self) -> Result<Vec<Input>>;

    /// Carries a run out.
    ///
    /// # Errors
    /// As [`Plan::run`].
    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome>;
}

impl<K: RunKind> Run<K> {
    /// Resolves the config file at `path` with the `sets` (`section.key=value`) laid over it.
    ///
    /// # Errors
    /// [`TrainerError::Io`] for an unreadable file; [`TrainerError::ConfigSyntax`], [`TrainerError::UnknownKey`],
    /// [`TrainerError::MissingKey`] and [`TrainerError::BadValue`] with the file and line, or the argument, at fault.
    pub fn load(path: impl AsRef<Path>, sets: &[String]) -> Result<Self> {
        K::read(&ConfigFile::open(path)?, sets)
    }

    /// Resolves a config's `text`, which stands in `file`, with the `sets` laid over it; `name` is the run's if the text
    /// gives none.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn parse(text: &str, name: &str, file: &Place, sets: &[String]) -> Result<Self> {
        K::read(&ConfigFile::parse(text, name, file)?, sets)
    }

    /// What the engine needs to know of the run.
    ///
    /// # Panics
    /// If the kind has no [`pace`](RunKind::pace).
    pub fn run_settings(&self) -> RunSettings {
        self.settings_of(self.kind.pace().expect("a kind of runs in steps"))
    }
}

impl<K: RunKind> FolderConfig for Run<K> {
    const FREE_KEYS: &[&str] = K::FREE_KEYS;

    fn load(path: &Path) -> Result<Self> {
        Self::load(path, &[])
    }

    fn evaluations_decide(&self) -> bool {
        let keeps_best = matches!(self.common.average, Some(Averaging::Best { .. }));
        self.kind.pace().is_some_and(|pace| pace.patience.is_some() || keeps_best)
    }
}

impl<K: RunKind> Plan for Run<K> {
    fn name(&self) -> &str {
        &self.common.run.name
    }

    fn with_seed(mut self, seed: u64) -> Self {
        self.common.run.seed = seed;
        self
    }

    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        self.kind.checkpoint_mut()
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        self.kind.inputs()
    }

    fn run(&self, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        K::train(self, options, progress)
    }
}

/// A kind in a table of them.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    is_of: fn(&ConfigFile) -> bool,
    read: fn(&ConfigFile, &[String]) -> Result<AnyPlan>,
}

impl Kind {
    /// The kind of such runs.
    pub const fn of<K: RunKind + 'static>() -> Self {
        Self { is_of: K::is_of, read: |file, sets| Ok(AnyPlan(Box::new(K::read(file, sets)?))) }
    }
}

/// All kinds of this crate. Their order decides only for a file that mixes the sections of several, which each of them refuses.
pub const KINDS: [Kind; 8] = [
    Kind::of::<Pretraining>(),
    Kind::of::<LanguageModelRun>(),
    Kind::of::<AwdLstmRun>(),
    Kind::of::<ElmoRun>(),
    Kind::of::<PermutationRun>(),
    Kind::of::<DenoisingRun>(),
    Kind::of::<FineTuneRun>(),
    Kind::of::<TranslationRun>(),
];

/// The run that a config file describes with the `sets` laid over it: the first of `kinds` that takes it.
///
/// # Errors
/// Those of reading a config; an objective that no kind has.
pub fn plan_of(file: &ConfigFile, sets: &[String], kinds: &[Kind]) -> Result<AnyPlan> {
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
