//! A run's settings besides its recipe.

use super::average::Averaging;
use super::folder_config::FolderConfig;
use super::optimizer::{Algorithm, OptimizerConfig, ParamGroup};
use super::schedule::Schedule;
use crate::error::{Place, Result, TrainerError};
use crate::metrics::progress::SpeedUnit;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// All settings of a run besides its recipe. Every field is public; [`RunSettings::new`] has the defaults.
///
/// ```
/// use cloze_trainer::engine::{Cadence, RunSettings};
///
/// let mut settings = RunSettings::new("first", 1_000, 3e-4);
/// settings.evaluate = Cadence::Every(100);
/// assert_eq!(settings.learning_rate(1_000), 3e-4);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RunSettings {
    /// The run's name, shown in its plots and pages.
    pub name: String,
    /// What a run's speed counts.
    #[serde(default)]
    pub unit: SpeedUnit,
    /// Random seed of the steps.
    pub seed: u64,
    /// Training steps.
    pub steps: u64,
    /// What to do on a non-finite loss or gradient.
    pub non_finite: NonFinite,
    /// Precision of matrix products.
    pub precision: Precision,
    /// Whether to evaluate before the first step too.
    pub evaluate_untrained: bool,
    /// Number of evaluations in a row without improvement after which the run stops; without it, it never stops
    /// early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// Which model is the result.
    pub export: Export,
    /// After which steps the model is evaluated.
    pub evaluate: Cadence,
    /// The update rule.
    pub optimizer: OptimizerSection,
    /// Groups of parameters that training adds to the model; they come before the optimiser's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added_groups: Vec<ParamGroup>,
    /// The learning rate over the steps.
    pub schedule: Schedule,
    /// What is kept for resuming.
    pub checkpoint: CheckpointSection,
    /// How often metrics are written.
    pub log: LogSection,
    /// Several processes that train together.
    #[serde(default)]
    pub ranks: RanksSection,
    /// Rounds, in each of which the learning rate begins again; without them, the run is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<Rounds>,
    /// The first step whose model may be the best, and count for patience. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_from: Option<u64>,
    /// Weight averaging for the result; without it, the result is the weights themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<Averaging>,
}

impl RunSettings {
    /// Whether the result is the best model as exported, not a mean computed at the end.
    pub(crate) fn ends_with_best(&self) -> bool {
        self.export == Export::Best && !matches!(self.average, Some(Averaging::Best { .. }))
    }

    /// A run of this many `steps` with a constant learning rate: AdamW with BERT's constants, evaluated every
    /// hundredth of the run, with the last model as the result.
    pub fn new(name: impl Into<String>, steps: u64, learning_rate: f64) -> Self {
        Self {
            name: name.into(),
            unit: SpeedUnit::default(),
            seed: 42,
            steps,
            non_finite: NonFinite::default(),
            precision: Precision::default(),
            evaluate_untrained: true,
            evaluate: Cadence::Every(steps.div_ceil(100)),
            patience: None,
            export: Export::default(),
            optimizer: OptimizerSection::adamw(learning_rate),
            added_groups: Vec::new(),
            schedule: Schedule::Constant { warmup_steps: 0, warmup_fraction: None },
            checkpoint: CheckpointSection::default(),
            log: LogSection::default(),
            ranks: RanksSection::default(),
            rounds: None,
            best_from: None,
            average: None,
        }
    }

    /// Checks that the warm-up is no longer than the run, or its first round.
    ///
    /// # Errors
    /// [`TrainerError::Setting`].
    pub(crate) fn check_warmup(&self) -> Result<()> {
        let steps = self.rounds.map_or(self.steps, |rounds| rounds.steps);
        Ok(self.schedule.check_warmup(steps)?)
    }

    /// The learning rate of a step, counted from 1.
    pub fn learning_rate(&self, step: u64) -> f64 {
        let (step, steps) = match self.rounds {
            Some(rounds) => (rounds.within(step), rounds.steps),
            None => (step, self.steps),
        };
        self.schedule.learning_rate(self.optimizer.lr, step, steps)
    }

    /// Number of evaluations after steps 1 to `step`; the last step is always evaluated.
    pub(crate) fn evaluations(&self, step: u64) -> u64 {
        match &self.evaluate {
            Cadence::Every(n) => {
                let n = (*n).max(1);
                step / n + u64::from(step == self.steps && !step.is_multiple_of(n))
            }
            Cadence::OfEpoch { epochs, parts } => epochs.parts_done(step, *parts),
        }
    }

    /// Whether the model is evaluated after a step.
    pub(crate) fn is_evaluated_after(&self, step: u64) -> bool {
        step > 0 && self.evaluations(step) > self.evaluations(step - 1)
    }
}

impl FolderConfig for RunSettings {
    const FREE_KEYS: &[&str] = &["name", "checkpoint.", "log."];

    fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(TrainerError::io("read config", path))?;
        toml::from_str(&text).map_err(|error| TrainerError::ConfigSyntax {
            place: Place::file(path),
            message: error.message().to_owned(),
        })
    }
}

/// Rounds of training that begin again at the same step of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rounds {
    /// The steps of the first round, and of its schedule.
    pub steps: u64,
    /// The step that the others begin after, less than `steps`.
    pub rewind: u64,
}

impl Rounds {
    /// The steps of `n` rounds.
    pub fn all_steps(self, n: u64) -> u64 {
        self.steps + n.saturating_sub(1) * self.later()
    }

    /// The steps of a later round, at least 1.
    fn later(self) -> u64 {
        self.steps.saturating_sub(self.rewind).max(1)
    }

    /// A step of the run as a step of the schedule, both from 1.
    pub fn within(self, step: u64) -> u64 {
        match step.checked_sub(self.steps + 1) {
            None => step,
            Some(past) => self.rewind + 1 + past % self.later(),
        }
    }

    /// The round, from 1, that begins again with this step; none for other steps.
    pub fn begins(self, step: u64) -> Option<u64> {
        let past = step.checked_sub(self.steps + 1)?;
        past.is_multiple_of(self.later()).then(|| past / self.later() + 1)
    }
}

/// When a model is evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cadence {
    /// After every N steps, and after the last one.
    Every(u64),
    /// This many times per epoch, evenly spaced, the last at its end; after each step if the epoch has fewer.
    OfEpoch {
        /// Where the epochs end.
        epochs: Epochs,
        /// Evaluations per epoch.
        parts: u64,
    },
}

/// Where a run's epochs end, in steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Epochs {
    /// Every epoch has this many steps.
    Even(u64),
    /// The last step of each epoch, ascending.
    Ends(Vec<u64>),
}

impl Epochs {
    /// The epoch of a step (both from 0), the steps before the epoch, and its number of steps. Step 0 is the
    /// first. After the last end, the last epoch continues.
    pub fn of(&self, step: u64) -> (u64, u64, u64) {
        match self {
            Self::Even(steps) => {
                let steps = (*steps).max(1);
                (step / steps, step / steps * steps, steps)
            }
            Self::Ends(ends) => {
                let epoch = ends.partition_point(|end| *end <= step).min(ends.len().saturating_sub(1));
                let before = epoch.checked_sub(1).map_or(0, |last| ends[last]);
                let end = ends.get(epoch).copied().unwrap_or(u64::MAX);
                (epoch as u64, before, (end - before).max(1))
            }
        }
    }

    /// The steps of the first `epochs` epochs; more than any run has if there are fewer.
    pub fn steps_of(&self, epochs: u64) -> u64 {
        match (self, epochs) {
            (_, 0) => 0,
            (Self::Even(steps), epochs) => (*steps).max(1).saturating_mul(epochs),
            (Self::Ends(ends), epochs) => ends.get(epochs as usize - 1).copied().unwrap_or(u64::MAX),
        }
    }

    /// The number of parts of epochs completed in the first `steps` steps, with `parts` per epoch.
    fn parts_done(&self, steps: u64, parts: u64) -> u64 {
        let Some(last) = steps.checked_sub(1) else { return 0 };
        let (epoch, before, length) = self.of(last);
        let in_epochs = match self {
            Self::Even(length) => epoch * parts.min((*length).max(1)),
            Self::Ends(ends) => {
                let starts = std::iter::once(0).chain(ends.iter().copied());
                starts.zip(ends).take(epoch as usize).map(|(start, end)| parts.min(end - start)).sum()
            }
        };
        in_epochs + (steps - before).min(length) * parts.min(length) / length
    }
}

/// Which model is a run's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Export {
    /// The model of the last step.
    #[default]
    Last,
    /// The model with the best evaluation, saved as soon as it is evaluated; the model of the last step if
    /// there are no evaluations.
    Best,
}

/// What to do on a non-finite loss or gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NonFinite {
    /// Stop with an error that names step and batch.
    #[default]
    Stop,
    /// Skip the update, but count the step.
    Skip,
}

/// Precision of matrix products in training. Parameters, gradients and everything else are always in 32 bits;
/// so are evaluations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Precision {
    /// 32-bit floats.
    #[default]
    F32,
    /// bfloat16 factors, with sums and weights in 32 bits.
    Bf16,
    /// FP16 factors, with a [scale](super::loss_scale::LossScale) of the loss: for GPUs without bfloat16, and
    /// only for GPUs.
    F16,
}

impl From<Precision> for cloze_ops::Precision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::Fp32,
            Precision::Bf16 => Self::Bf16,
            Precision::F16 => Self::Fp16,
        }
    }
}

/// `[optimizer]`: the update rule, without weight decay on biases and norms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OptimizerSection {
    /// The update rule. Default `"adamw"`.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Peak learning rate; `[schedule]` sets the rate relative to it. For fine-tuning a checkpoint, `cloze train` chooses
    /// it by the number of training examples and the checkpoint's width if it is absent.
    pub lr: f64,
    /// Decay of the first moment. Default 0.9.
    #[serde(default = "defaults::beta1")]
    pub beta1: f64,
    /// Decay of the second moment. Default 0.999.
    #[serde(default = "defaults::beta2")]
    pub beta2: f64,
    /// Added to the root of the second moment. Default 1e-6, as in BERT.
    #[serde(default = "defaults::eps")]
    pub eps: f64,
    /// Decoupled weight decay: the fraction subtracted from each weight per step, times the learning rate.
    /// Biases and norms have none. Default 0.01.
    #[serde(default = "defaults::weight_decay")]
    pub weight_decay: f64,
    /// Maximum global norm of the gradients; 0 disables clipping. Default 1.
    #[serde(default = "defaults::clip_norm")]
    pub clip_norm: f64,
    /// Parameter groups with their own learning rate or weight decay. A parameter belongs to the first group
    /// that matches. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ParamGroup>,
}

impl OptimizerSection {
    /// AdamW with BERT's constants and this peak learning rate.
    pub fn adamw(lr: f64) -> Self {
        Self {
            algorithm: Algorithm::default(),
            lr,
            beta1: defaults::beta1(),
            beta2: defaults::beta2(),
            eps: defaults::eps(),
            weight_decay: defaults::weight_decay(),
            clip_norm: defaults::clip_norm(),
            groups: Vec::new(),
        }
    }

    /// The optimiser's constants.
    pub fn constants(&self) -> OptimizerConfig {
        OptimizerConfig {
            algorithm: self.algorithm,
            beta1: self.beta1,
            beta2: self.beta2,
            eps: self.eps,
            weight_decay: self.weight_decay,
            groups: self.groups.clone(),
            added: Vec::new(),
        }
    }
}

/// `[checkpoint]`: what is kept for resuming.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CheckpointSection {
    /// Steps between checkpoints; the last step always has one, and the end of each epoch of fine-tuning.
    /// Default 1,000.
    pub every: u64,
    /// Number of latest checkpoints to keep. Default 2.
    pub keep_last: usize,
    /// Whether to keep the one with the best evaluation too. Default true.
    pub keep_best: bool,
}

impl Default for CheckpointSection {
    fn default() -> Self {
        Self { every: 1_000, keep_last: 2, keep_best: true }
    }
}

/// `[log]`: what is logged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LogSection {
    /// Steps between training records; each is the mean over those steps. Default 50.
    pub every: u64,
}

impl Default for LogSection {
    fn default() -> Self {
        Self { every: 50 }
    }
}

/// `[ranks]`: several processes that train together. The weights do not depend on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RanksSection {
    /// Seconds for which a process may give no sign of life while others wait for it. One that computes gives signs of
    /// life. Default 300.
    pub timeout: u64,
    /// Whether processes may compute with different kernels, such as on processors with and without AVX-512: their sums
    /// differ in the last bits, and so would the weights of another division of the work. Default `"same"`.
    pub kernels: RankKernels,
    /// The format in which gradients are added over the shards of a step: `"f32"` or `"bf16"`, which halves the bytes that
    /// processes send, and rounds each partial sum, in one process too. Default `"f32"`.
    pub exchange: Exchange,
}

/// The format of gradients, and of partial sums of them, before they are added to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exchange {
    /// As they are.
    #[default]
    F32,
    /// Rounded to bf16, to nearest, ties to even; sums are computed in FP32.
    Bf16,
}

/// Which kernels processes that train together may compute with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankKernels {
    /// All the same.
    #[default]
    Same,
    /// Each its own.
    Any,
}

impl Default for RanksSection {
    fn default() -> Self {
        Self { timeout: 300, kernels: RankKernels::default(), exchange: Exchange::default() }
    }
}

/// The defaults of a section that also has required keys.
mod defaults {
    pub fn beta1() -> f64 {
        0.9
    }

    pub fn beta2() -> f64 {
        0.999
    }

    pub fn eps() -> f64 {
        1e-6
    }

    pub fn weight_decay() -> f64 {
        0.01
    }

    pub fn clip_norm() -> f64 {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(settings: &RunSettings) -> Vec<u64> {
        (0..=settings.steps).filter(|step| settings.is_evaluated_after(*step)).collect()
    }

    #[test]
    fn rounds_begin_again_where_they_rewind_to() {
        let rounds = Rounds { steps: 10, rewind: 3 };
        assert_eq!([1, 2, 3].map(|n| rounds.all_steps(n)), [10, 17, 24]);
        assert_eq!([1, 10, 11, 17, 18, 24].map(|step| rounds.within(step)), [1, 10, 4, 10, 4, 10]);
        let begins: Vec<(u64, u64)> =
            (1..25).filter_map(|step| rounds.begins(step).map(|round| (step, round))).collect();
        assert_eq!(begins, [(11, 1), (18, 2)]);
        let settings = |rounds| RunSettings {
            rounds,
            schedule: Schedule::Linear { warmup_steps: 2, warmup_fraction: None, final_fraction: 0.0 },
            ..RunSettings::new("rounds", 24, 1.0)
        };
        let (again, once) = (settings(Some(rounds)), settings(None));
        assert_eq!(again.learning_rate(12), again.learning_rate(5));
        assert_eq!(again.learning_rate(10), again.learning_rate(24));
        assert_ne!(once.learning_rate(12), once.learning_rate(5));
    }

    #[test]
    fn evaluations_fall_where_the_cadence_says() {
        let mut settings = RunSettings::new("test", 10, 1e-3);
        settings.evaluate = Cadence::Every(4);
        assert_eq!(evaluated(&settings), [4, 8, 10]);
        settings.evaluate = Cadence::OfEpoch { epochs: Epochs::Even(5), parts: 2 };
        assert_eq!(evaluated(&settings), [3, 5, 8, 10]);
        settings.evaluate = Cadence::OfEpoch { epochs: Epochs::Even(2), parts: 7 };
        assert_eq!(evaluated(&settings), (1..=10).collect::<Vec<_>>());
        settings.evaluate = Cadence::OfEpoch { epochs: Epochs::Ends(vec![3, 7, 10]), parts: 2 };
        assert_eq!(evaluated(&settings), [2, 3, 5, 7, 9, 10]);
        assert_eq!((0..=10).map(|step| settings.evaluations(step)).max(), Some(6));
    }

    #[test]
    fn epochs_have_a_place_for_each_step() {
        let uneven = Epochs::Ends(vec![3, 7]);
        assert_eq!([0, 2, 3, 6, 7].map(|step| uneven.of(step).0), [0, 0, 1, 1, 1]);
        assert_eq!(uneven.of(4), (1, 3, 4));
        assert_eq!([0, 1, 2, 3].map(|epochs| uneven.steps_of(epochs)), [0, 3, 7, u64::MAX]);
        assert_eq!([0, 1, 2].map(|epochs| Epochs::Even(4).steps_of(epochs)), [0, 4, 8]);
        assert_eq!(Epochs::Even(4).of(9), (2, 8, 4));
    }

    #[test]
    fn settings_are_a_run_s_config() {
        let settings = RunSettings::new("first", 100, 1e-3);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, settings.to_toml()).unwrap();
        let read = <RunSettings as FolderConfig>::load(&path).unwrap();
        assert_eq!(read, settings);
        let other = RunSettings { seed: 7, log: LogSection { every: 1 }, ..settings.clone() };
        let differences: Vec<String> = read.differences(&other).iter().map(ToString::to_string).collect();
        assert_eq!(differences, ["seed: 42 became 7"]);
    }
}
