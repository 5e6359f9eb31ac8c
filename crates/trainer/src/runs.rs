//! The kinds of runs: which one a config file describes, and how to run it.
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
//! Another crate adds a kind by implementing [`RunKind`] for its config sections, and adds [`Kind::of`] them to
//! the table.

use crate::captions::{CaptionRun, CaptionTaskSection};
use crate::config::{
    Averaging, AwdLstmRun, ConfigFile, DenoisingRun, ElmoRun, FolderConfig, LanguageModelRun,
    ObjectiveSection, Pace, PermutationRun, Pretraining, Run,
};
use crate::engine::origin::Input;
use crate::engine::shared_state::check_same;
use crate::engine::{Outcome, OverSeeds, Plan, RunOptions, RunSettings, train_seeds};
use crate::finetune::{FineTuneRun, TaskSection};
use crate::images::{
    ContrastiveViewsRun, ContrastiveViewsSection, ImageRun, ImageTaskSection, MaskedPatchesRun,
    MaskedPatchesSection,
};
use crate::metrics::progress::RunProgress;
use crate::translation::TranslationRun;
use crate::{Place, Result, TrainerError};
use cloze_model::nearest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// A kind of run: its config sections besides the [common ones](crate::config::Common), and how to run them. A
/// [`Run`] of it is a [`Plan`].
pub trait RunKind: Clone + Serialize + DeserializeOwned {
    /// Keys or key prefixes that do not affect the weights: a run may be resumed with other values of them.
    const FREE_KEYS: &'static [&'static str];

    /// Whether a config file describes such a run.
    fn is_of(file: &ConfigFile) -> bool;

    /// Reads a config file overridden by the `sets`; by default only [resolves](Run::resolve) it, without
    /// checking values.
    ///
    /// # Errors
    /// Those of reading a config.
    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        Run::resolve(file, sets)
    }

    /// Steps and evaluation settings, if the run has steps. If evaluations affect the result, no key of `eval`
    /// is free.
    fn pace(&self) -> Option<Pace> {
        None
    }

    /// See [`Plan::checkpoint_mut`]; by default a run has no initial model.
    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        None
    }

    /// See [`Plan::inputs`].
    ///
    /// # Errors
    /// A missing or unreadable file.
    fn inputs(&self) -> Result<Vec<Input>>;

    /// Runs it.
    ///
    /// # Errors
    /// Those of [`Plan::run`].
    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome>;
}

impl<K: RunKind> Run<K> {
    /// Resolves the config file at `path`, overridden by the `sets` (`section.key=value`).
    ///
    /// # Errors
    /// [`TrainerError::Io`] for an unreadable file; [`TrainerError::ConfigSyntax`],
    /// [`TrainerError::UnknownKey`], [`TrainerError::MissingKey`] and [`TrainerError::BadValue`] with the
    /// offending file and line, or argument.
    pub fn load(path: impl AsRef<Path>, sets: &[String]) -> Result<Self> {
        K::read(&ConfigFile::open(path)?, sets)
    }

    /// Resolves a config's `text`, which comes from `file`, overridden by the `sets`; `name` is the run's if
    /// the text gives none.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn parse(text: &str, name: &str, file: &Place, sets: &[String]) -> Result<Self> {
        K::read(&ConfigFile::parse(text, name, file)?, sets)
    }

    /// The engine's settings for the run.
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
        // Before replicas prepare their data together.
        check_same(&*options.replicas, &[("configuration", self.to_toml())])?;
        K::train(self, options, progress)
    }
}

/// An entry in a table of kinds.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    is_of: fn(&ConfigFile) -> bool,
    read: fn(&ConfigFile, &[String]) -> Result<AnyPlan>,
}

impl Kind {
    /// The entry of a kind.
    pub const fn of<K: RunKind + 'static>() -> Self {
        Self { is_of: K::is_of, read: |file, sets| Ok(AnyPlan(Box::new(K::read(file, sets)?))) }
    }
}

/// All kinds of this crate. Their order only matters for a file that mixes sections of several kinds, which all
/// of them reject.
pub const KINDS: [Kind; 12] = [
    Kind::of::<Pretraining>(),
    Kind::of::<LanguageModelRun>(),
    Kind::of::<AwdLstmRun>(),
    Kind::of::<ElmoRun>(),
    Kind::of::<PermutationRun>(),
    Kind::of::<DenoisingRun>(),
    Kind::of::<MaskedPatchesRun>(),
    Kind::of::<ContrastiveViewsRun>(),
    Kind::of::<ImageRun>(),
    Kind::of::<CaptionRun>(),
    Kind::of::<FineTuneRun>(),
    Kind::of::<TranslationRun>(),
];

/// The run described by a config file overridden by the `sets`: of the first of `kinds` that matches.
///
/// # Errors
/// Those of reading a config; an unknown task or objective.
pub fn plan_of(file: &ConfigFile, sets: &[String], kinds: &[Kind]) -> Result<AnyPlan> {
    if let Some(kind) = kinds.iter().find(|kind| (kind.is_of)(file)) {
        return (kind.read)(file, sets);
    }
    let (table, known) = match file.kind_of("task") {
        Some(_) => {
            ("task", [&TaskSection::KINDS[..], &[ImageTaskSection::KIND, CaptionTaskSection::KIND]].concat())
        }
        // Pretraining takes a file without an objective.
        None => {
            let of_images = [MaskedPatchesSection::KIND, ContrastiveViewsSection::KIND];
            ("objective", [&ObjectiveSection::KINDS[..], &of_images].concat())
        }
    };
    let (key, found) = (format!("{table}.kind"), file.kind_of(table).unwrap_or_default());
    let hint = nearest(found, known.iter().copied());
    let hint = hint.map_or(String::new(), |kind| format!("; did you mean \"{kind}\"?"));
    let listed: Vec<String> = known.iter().map(|kind| format!("\"{kind}\"")).collect();
    Err(TrainerError::BadValue {
        place: file.place_of(&key),
        key,
        found: format!("\"{found}\""),
        expected: format!("one of {}{hint}", listed.join(", ")),
    })
}

/// A plan of any kind.
pub struct AnyPlan(Box<dyn Erased>);

impl AnyPlan {
    /// The run's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// See [`Plan::checkpoint_mut`].
    pub fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        self.0.checkpoint_mut()
    }

    /// Runs it.
    ///
    /// # Errors
    /// Those of [`Plan::run`].
    pub fn run(&self, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        self.0.run(options, progress)
    }

    /// Runs it once per seed.
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

/// [`Plan`], type-erased.
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
