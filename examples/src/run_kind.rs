//! A kind of run: the [neural language model](crate::neural_lm) from a config file, beside the kinds that there are. A custom
//! program trains it as `cloze train` trains the others: with every section that all runs have, `--set`, a resolved config in
//! the run's folder, `--resume` that compares configs, and several seeds.

use crate::neural_lm;
use cloze_trainer::config::{ConfigFile, NonFinite, Pace, Precision, Run};
use cloze_trainer::engine::origin::Input;
use cloze_trainer::engine::run_folder::RunFolder;
use cloze_trainer::engine::{Outcome, RunOptions, train_in};
use cloze_trainer::metrics::progress::RunProgress;
use cloze_trainer::runs::{KINDS, Kind, RunKind, plan_of};
use cloze_trainer::{Place, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The sections of its config beside those that all runs have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeuralLmRun {
    /// `[neural_lm]`: the model.
    pub neural_lm: Model,
    /// `[train]`: the steps.
    pub train: Train,
}

/// `[neural_lm]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Features of a word.
    pub d: usize,
    /// Features of the hidden layer.
    pub hidden: usize,
}

/// `[train]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Steps of the run.
    pub steps: u64,
    /// Blocks of text in a batch.
    pub batch_size: usize,
}

impl RunKind for NeuralLmRun {
    const FREE_KEYS: &'static [&'static str] = &["run.name", "checkpoint.", "log."];

    fn is_of(file: &ConfigFile) -> bool {
        file.has("neural_lm")
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        let run: Run<Self> = Run::resolve(file, sets)?;
        run.common.validate(run.train.steps)?;
        Ok(run)
    }

    fn pace(&self) -> Option<Pace> {
        Some(Pace {
            steps: self.train.steps,
            precision: Precision::F32,
            non_finite: NonFinite::Stop,
            evaluate_every: 50,
            evaluate_untrained: true,
            patience: None,
        })
    }

    fn inputs(&self) -> Result<Vec<Input>> {
        Input::of([crate::sample()])
    }

    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let folder = RunFolder::open(&options.folder, run, options.resume)?;
        let Model { d, hidden } = run.neural_lm;
        let (recipe, model) =
            neural_lm::prepare([d, hidden], run.train.batch_size, 1, run.common.run.seed, &options.device)?;
        train_in(&folder, &recipe, model, &run.run_settings(), options, progress)
    }
}

/// What a file would say.
const CONFIG: &str = r#"
[neural_lm]
d = 64
hidden = 128

[train]
steps = 300
batch_size = 32

[optimizer]
lr = 2e-3

[schedule]
kind = "linear"
warmup_steps = 5

[checkpoint]
every = 50
"#;

/// Trains it, as any run that one of the kinds describes.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    let file = ConfigFile::parse(CONFIG, "run-kind", &Place::file(Path::new("neural-lm.toml")))?;
    let kinds = [&[Kind::of::<NeuralLmRun>()][..], &KINDS].concat();
    plan_of(&file, &[format!("train.steps={steps}")], &kinds)?.run(options, progress)
}
