//! What configs of runs have in common. Those of runs in steps have the sections `[run]`, `[train]`, `[optimizer]`, `[schedule]`,
//! `[average]`, `[eval]`, `[checkpoint]` and `[log]`, by these names.

/// Gives a config that has `parse` also `load`, `run_settings` and [`FolderConfig`](super::FolderConfig). `free` are its
/// keys, or starts of keys, that change no weight; other settings of its own may follow.
macro_rules! run_in_steps {
    ($config:ty, free: $free:expr $(, $setting:ident: $value:expr)*) => {
        impl $config {
            /// Resolves the config file at `path` with the `sets` (`section.key=value`) laid over it.
            ///
            /// # Errors
            /// [`TrainerError::Io`](crate::TrainerError::Io) for an unreadable file;
            /// [`TrainerError::ConfigSyntax`](crate::TrainerError::ConfigSyntax),
            /// [`TrainerError::UnknownKey`](crate::TrainerError::UnknownKey),
            /// [`TrainerError::MissingKey`](crate::TrainerError::MissingKey) and
            /// [`TrainerError::BadValue`](crate::TrainerError::BadValue) with the file and line, or the argument, at fault.
            pub fn load(path: impl AsRef<std::path::Path>, sets: &[String]) -> crate::Result<Self> {
                use crate::config::layered;
                let path = path.as_ref();
                Self::parse(&layered::text(path)?, &layered::stem(path), &crate::Place::file(path), sets)
            }

            /// What the engine is told of the run. With patience the best model is the result.
            pub fn run_settings(&self) -> crate::engine::RunSettings {
                use crate::engine::{Cadence, Export, RunSettings};
                let mut settings = RunSettings::new(&self.run.name, self.train.steps, self.optimizer.lr);
                settings.seed = self.run.seed;
                settings.non_finite = self.train.non_finite;
                settings.precision = self.train.precision;
                settings.evaluate = Cadence::Every(self.eval.every);
                settings.patience = self.eval.patience;
                settings.export = if self.eval.patience.is_some() { Export::Best } else { Export::Last };
                settings.optimizer = self.optimizer.clone();
                settings.schedule = self.schedule.clone();
                settings.average = self.average.clone();
                settings.checkpoint = self.checkpoint.clone();
                settings.log = self.log.clone();
                $(settings.$setting = $value;)*
                settings
            }
        }

        impl crate::engine::FolderConfig for $config {
            const FREE_KEYS: &[&str] = $free;

            fn load(path: &std::path::Path) -> crate::Result<Self> {
                Self::load(path, &[])
            }

            fn evaluations_decide(&self) -> bool {
                let is_best = matches!(self.average, Some(crate::engine::Averaging::Best { .. }));
                self.eval.patience.is_some() || is_best
            }
        }
    };
}
pub(crate) use run_in_steps;

/// Makes a config with `load` and a section `[run]` a [`Plan`](crate::engine::Plan). `run` carries it out; `checkpoint` and
/// `inputs` are the trait's `checkpoint_mut` and `inputs` of it.
macro_rules! plan {
    ($config:ty, run: $run:path, checkpoint: $checkpoint:expr, inputs: $inputs:expr) => {
        impl crate::engine::Plan for $config {
            fn resolve(path: &std::path::Path, sets: &[String]) -> crate::Result<Self> {
                Self::load(path, sets)
            }

            fn name(&self) -> &str {
                &self.run.name
            }

            fn with_seed(mut self, seed: u64) -> Self {
                self.run.seed = seed;
                self
            }

            fn checkpoint_mut(&mut self) -> Option<&mut std::path::PathBuf> {
                let of: fn(&mut Self) -> Option<&mut std::path::PathBuf> = $checkpoint;
                of(self)
            }

            fn inputs(&self) -> crate::Result<Vec<crate::engine::origin::Input>> {
                let of: fn(&Self) -> crate::Result<Vec<crate::engine::origin::Input>> = $inputs;
                of(self)
            }

            fn run(
                &self,
                options: &crate::engine::RunOptions<'_>,
                progress: &mut dyn crate::metrics::progress::RunProgress,
            ) -> crate::Result<crate::engine::Outcome> {
                $run(self, options, progress)
            }
        }
    };
}
pub(crate) use plan;
