//! What configs of runs have in common. Those of runs in steps have the sections `[run]`, `[train]`, `[optimizer]`, `[schedule]`,
//! `[average]`, `[eval]`, `[checkpoint]` and `[log]`, by these names.

/// Gives a config that has `read` also `load` and `parse`.
macro_rules! from_file {
    ($config:ty) => {
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
                Self::read(&crate::config::ConfigFile::open(path)?, sets)
            }

            /// Resolves a config's `text`, which stands in `file`, with the `sets` laid over it; `name` is the run's if the
            /// text gives none.
            ///
            /// # Errors
            /// Those of [`load`](Self::load).
            pub fn parse(
                text: &str,
                name: &str,
                file: &crate::Place,
                sets: &[String],
            ) -> crate::Result<Self> {
                Self::read(&crate::config::ConfigFile::parse(text, name, file)?, sets)
            }
        }
    };
}
pub(crate) use from_file;

/// Gives a config that has `read` also `load`, `parse`, `run_settings` and [`FolderConfig`](super::FolderConfig). `free` are
/// its keys, or starts of keys, that change no weight; other settings of its own may follow.
macro_rules! run_in_steps {
    ($config:ty, free: $free:expr $(, $setting:ident: $value:expr)*) => {
        crate::config::from_file!($config);

        impl $config {
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

/// Makes a config with `read` and a section `[run]` a [`Plan`](crate::engine::Plan) that files describe. `of` tells them, `run` carries it out;
/// `checkpoint` and `inputs` are the trait's `checkpoint_mut` and `inputs` of it.
macro_rules! plan {
    ($config:ty, of: $of:expr, run: $run:path, checkpoint: $checkpoint:expr, inputs: $inputs:expr) => {
        impl crate::runs::FromConfigFile for $config {
            fn is_of(file: &crate::config::ConfigFile) -> bool {
                let of: fn(&crate::config::ConfigFile) -> bool = $of;
                of(file)
            }

            fn read(file: &crate::config::ConfigFile, sets: &[String]) -> crate::Result<Self> {
                <$config>::read(file, sets)
            }
        }

        impl crate::engine::Plan for $config {
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
