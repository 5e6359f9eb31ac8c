//! The arguments of commands that a configuration file describes.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use cloze_trainer::config::ConfigFile;

use crate::compute::DeviceArgs;
use crate::failure::WrongUsage;

/// The default parent of run folders.
const RUNS: &str = "runs";

/// A configuration file, and changes of its keys.
#[derive(clap::Args)]
pub struct ConfigArgs {
    /// The configuration, a TOML file.
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Override a key of the configuration, such as run.seed=7; may be repeated. A table value, such as
    /// data.train.columns={text="review"}, replaces the configuration's whole table.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

/// A run that a configuration describes: where it computes, and where its results go.
#[derive(clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub file: ConfigArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// The run folder (default: runs/ and the run's name).
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// The command that a configuration is for.
#[derive(Clone, Copy, PartialEq)]
pub enum For {
    Train,
    Probe,
}

impl ConfigArgs {
    /// Reads the file.
    ///
    /// # Errors
    /// [`WrongUsage`] for a file that cannot be read, or that is for the other command.
    pub fn open(&self, command: For) -> Result<ConfigFile> {
        let file = ConfigFile::open(&self.config).map_err(WrongUsage::new)?;
        let found = if file.has("probe") { For::Probe } else { For::Train };
        if found == command {
            return Ok(file);
        }
        let path = self.config.display();
        let error = match found {
            For::Probe => {
                anyhow!("{path}: a configuration with [probe] is for `cloze probe`, not `cloze train`")
            }
            For::Train => {
                anyhow!("{path}: a configuration without [probe] is for `cloze train`, not `cloze probe`")
            }
        };
        Err(WrongUsage::new(error).into())
    }
}

impl RunArgs {
    /// The run folder of a run with this name.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| Path::new(RUNS).join(name))
    }
}
