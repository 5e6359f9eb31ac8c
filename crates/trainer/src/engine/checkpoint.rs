//! Checkpoints: everything needed to resume a run, written to disk atomically.
//!
//! ```text
//! checkpoints/step-00001000/model.safetensors      parameters by path
//!                           optimizer.safetensors  the optimiser's moments by path
//!                           average.safetensors    the averaged weights, if the run averages
//!                           extensions.safetensors the extensions' tensors, if any
//!                           state.json             RunState: step, data position, best so far
//!                           checksums.json         BLAKE3 of the others
//! ```
//!
//! A checkpoint is written into a temporary folder next to its final path, flushed to disk, and renamed: a
//! reader finds it complete or not at all, whenever the writer was killed.

use crate::engine::average;
use crate::engine::best_model::{BestModel, Checksums};
use crate::engine::loss_scale::LossScale;
use crate::engine::optimizer::OptimizerState;
use crate::engine::step::StepReport;
use crate::{Result, TrainerError};
use burn::module::Module;
use cloze_data::{Cursor, file_checksum};
use cloze_files::flush;
use cloze_model::huggingface::{read_tensors, write_from_device, write_tensors};
use cloze_model::weights::{self, NamedTensors, TensorsOnDevice};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const AVERAGE: &str = "average.safetensors";
const EXTENSIONS: &str = "extensions.safetensors";
const STATE: &str = "state.json";
const CHECKSUMS: &str = "checksums.json";
const PREFIX: &str = "step-";
const PARTIAL: &str = ".partial-";
const DAMAGED: &str = "damaged-";

/// A run's state besides its tensors. Random states are not included: they are functions of the seed in the
/// config and the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Identifies the training data: a key or hash that changes with the data.
    #[serde(alias = "corpus")]
    pub data: String,
    /// Steps so far.
    pub step: u64,
    /// Updates so far: steps minus those skipped for a non-finite loss or for FP16 overflow of gradients.
    pub updates: u64,
    /// The updates that the optimiser no longer counts, because an extension [returned](super::Rewind) to an earlier
    /// state.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub forgotten_updates: u64,
    /// Where the next batch starts.
    pub cursor: CursorState,
    /// Tokens trained on, without padding.
    pub tokens: u64,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// The checksums of the best model's files, if that model is the result; empty in checkpoints from versions
    /// without them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub best_model: Checksums,
    /// Losses since the last log record.
    pub window: Window,
    /// The matrix kernel in the run's precision on the machine of the last step, human-readable; empty in
    /// checkpoints from versions without it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// The averaged weights, the earliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub average: Vec<Averaged>,
    /// The loss scale of the next step, for runs in FP16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// The extensions' state besides tensors, by extension name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, Value>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Weights that are part of an average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Averaged {
    /// The step of these weights.
    pub step: u64,
    /// Their metric, if they were chosen by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<f64>,
}

impl RunState {
    /// The state before the first step.
    pub fn new(data: String) -> Self {
        let (cursor, window, kernel) = (CursorState::default(), Window::default(), String::new());
        let (average, loss_scale) = (Vec::new(), None);
        Self {
            data,
            step: 0,
            updates: 0,
            forgotten_updates: 0,
            cursor,
            tokens: 0,
            best: None,
            best_model: Checksums::new(),
            window,
            kernel,
            average,
            loss_scale,
            extensions: BTreeMap::new(),
        }
    }
}

/// [`Cursor`] on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorState {
    /// Completed passes over the data.
    pub epoch: u64,
    /// Examples of this pass already used.
    pub example: u64,
}

impl From<Cursor> for CursorState {
    fn from(cursor: Cursor) -> Self {
        Self { epoch: cursor.epoch, example: cursor.example }
    }
}

impl From<CursorState> for Cursor {
    fn from(state: CursorState) -> Self {
        Self { epoch: state.epoch, example: state.example }
    }
}

/// The best evaluation of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Its step.
    pub step: u64,
    /// The evaluation's main metric.
    #[serde(alias = "loss")]
    pub figure: f64,
    /// The loss, to break ties if another metric is the main one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tie: Option<f64>,
}

/// Sums over the updates since the last log record, kept in checkpoints so that a resumed run logs the same as
/// an uninterrupted one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Updates in the sums.
    pub updates: u64,
    /// For each term of the loss, the sum of its per-step means.
    pub losses: Vec<f64>,
    /// Sum of the gradients' global norms before clipping.
    pub grad_norm: f64,
}

impl Window {
    /// Adds one step; skips a step without an update, whose values are not finite.
    pub fn add(&mut self, report: &StepReport) {
        if !report.updated {
            return;
        }
        self.updates += 1;
        self.grad_norm += report.grad_norm;
        self.losses.resize(report.losses.len(), 0.0);
        for (sum, loss) in self.losses.iter_mut().zip(&report.losses) {
            *sum += loss;
        }
    }
}

/// A checkpoint in memory.
#[derive(Debug)]
pub struct Checkpoint {
    /// Everything but the tensors.
    pub state: RunState,
    /// The parameters.
    pub model: NamedTensors,
    /// The optimiser's moments.
    pub optimizer: OptimizerState,
    /// The averaged weights; empty if there are none.
    pub average: NamedTensors,
    /// The extensions' tensors.
    pub extensions: NamedTensors,
}

impl Checkpoint {
    /// Checks that a run resumed from here can end with its best model: it has none yet, it is in place or in
    /// the checkpoint itself, or it will be recreated.
    fn check_best(&self, place: &BestModel) -> std::result::Result<(), String> {
        let Some(best) = self.state.best else { return Ok(()) };
        let step = self.state.step;
        if best.step == step || place.is(&self.state.best_model) || place.is_later_than(step) {
            return Ok(());
        }
        let (model, best) = (place.path().display(), best.step);
        Err(format!("the best model before it, of step {best}, was changed in {model} or removed from there"))
    }

    /// Checks that it belongs to a model with these parameter paths and shapes; returns the mismatch if not.
    fn check(&self, shapes: &[(String, Vec<usize>)]) -> std::result::Result<(), String> {
        let Self { state, model, optimizer, average, .. } = self;
        if state.updates > state.step {
            return Err(format!("{STATE}: {} updates in {} steps", state.updates, state.step));
        }
        check_parameters(model, shapes).map_err(|reason| format!("{MODEL}: {reason}"))?;
        average::check(average, &state.average, shapes).map_err(|reason| format!("{AVERAGE}: {reason}"))?;
        for (path, shape) in shapes {
            let length: usize = shape.iter().product();
            let moments = ["first", "second"].map(|part| optimizer.get(&format!("{path}.{part}")));
            let fits = moments.iter().flatten().all(|moment| moment.shape().to_vec() == [length]);
            if !fits || moments.iter().flatten().count() == 1 {
                return Err(format!(
                    "{OPTIMIZER}: the moments of `{path}` are not two of {length} numbers each"
                ));
            }
        }
        Ok(())
    }
}

/// Checks that there is a tensor for each parameter with these paths and shapes; returns the mismatch if not.
pub(crate) fn check_parameters(
    tensors: &NamedTensors,
    shapes: &[(String, Vec<usize>)],
) -> std::result::Result<(), String> {
    for (path, shape) in shapes {
        let Some(tensor) = tensors.get(path) else {
            return Err(format!("the parameter `{path}` is missing"));
        };
        let found = tensor.shape().to_vec();
        if found != *shape {
            return Err(format!("`{path}` has the shape {found:?}, the model's has {shape:?}"));
        }
    }
    Ok(())
}

/// A checkpoint whose tensors are still on the device.
#[derive(Debug)]
pub struct Snapshot<'a> {
    /// Everything but the tensors.
    pub state: &'a RunState,
    /// The parameters.
    pub model: TensorsOnDevice,
    /// The optimiser's moments.
    pub optimizer: TensorsOnDevice,
    /// The averaged weights; empty if there are none.
    pub average: TensorsOnDevice,
    /// The extensions' tensors.
    pub extensions: TensorsOnDevice,
}

/// The folder of a run's checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
}

/// A damaged checkpoint that was skipped.
#[derive(Debug)]
pub struct Refused {
    /// Its folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl Checkpoints {
    /// Opens the folder, creating it if needed, and cleans up after a killed writer.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(TrainerError::io("make", &folder))?;
        let entries = fs::read_dir(&folder).map_err(TrainerError::io("read", &folder))?;
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PARTIAL) {
                let path = entry.path();
                fs::remove_dir_all(&path).map_err(TrainerError::io("remove", &path))?;
            }
        }
        Ok(Self { folder })
    }

    /// The folder of the checkpoint of `step`.
    pub fn path(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{step:08}"))
    }

    /// The steps with a checkpoint, ascending; none is opened.
    pub fn steps(&self) -> Result<Vec<u64>> {
        let entries = fs::read_dir(&self.folder).map_err(TrainerError::io("read", &self.folder))?;
        let mut steps: Vec<u64> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok())
            .collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// Writes a checkpoint atomically and returns its folder.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        let Checkpoint { state, model, optimizer, average, extensions } = checkpoint;
        self.write(state, |folder| {
            write_tensors(&folder.join(MODEL), model, &[])?;
            for (name, tensors) in [(AVERAGE, average), (EXTENSIONS, extensions)] {
                if !tensors.is_empty() {
                    write_tensors(&folder.join(name), tensors, &[])?;
                }
            }
            Ok(write_tensors(&folder.join(OPTIMIZER), optimizer, &[])?)
        })
    }

    /// [`save`](Self::save) that copies one tensor at a time.
    pub fn save_snapshot(&self, snapshot: &Snapshot<'_>) -> Result<PathBuf> {
        let Snapshot { state, model, optimizer, average, extensions } = snapshot;
        self.write(state, |folder| {
            write_from_device(&folder.join(MODEL), model, &[])?;
            for (name, tensors) in [(AVERAGE, average), (EXTENSIONS, extensions)] {
                if !tensors.is_empty() {
                    write_from_device(&folder.join(name), tensors, &[])?;
                }
            }
            Ok(write_from_device(&folder.join(OPTIMIZER), optimizer, &[])?)
        })
    }

    fn write(&self, state: &RunState, tensors: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let path = self.path(state.step);
        let partial = self.folder.join(format!("{PARTIAL}{:08}", state.step));
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(TrainerError::io("remove", &partial))?;
        }
        if let Err(error) = write(state, tensors, &partial) {
            // On a full disk it would take the room that whoever makes room has made.
            let _ = fs::remove_dir_all(&partial);
            return Err(error);
        }
        if path.exists() {
            fs::remove_dir_all(&path).map_err(TrainerError::io("replace", &path))?;
        }
        fs::rename(&partial, &path).map_err(TrainerError::io("write", &path))?;
        flush(&self.folder)?;
        Ok(path)
    }

    /// The newest complete checkpoint, and the newer damaged ones.
    pub fn latest(&self) -> Result<(Option<Checkpoint>, Vec<Refused>)> {
        self.latest_that(|_| Ok(()))
    }

    /// The newest complete checkpoint of a model like this one, and the newer skipped ones. A checkpoint made
    /// with other data than `data` may be of any model.
    pub fn latest_of<M: Module>(&self, model: &M, data: &str) -> Result<(Option<Checkpoint>, Vec<Refused>)> {
        self.latest_with_best(model, data, None)
    }

    /// Same as [`latest_of`](Self::latest_of), for a run whose result is its best model, which must be in place
    /// or be the checkpoint's own.
    pub(crate) fn latest_with_best<M: Module>(
        &self,
        model: &M,
        data: &str,
        best: Option<&BestModel>,
    ) -> Result<(Option<Checkpoint>, Vec<Refused>)> {
        let shapes = weights::shapes(model);
        self.latest_that(|checkpoint| {
            if checkpoint.state.data != data {
                return Ok(());
            }
            checkpoint.check(&shapes)?;
            best.map_or(Ok(()), |best| checkpoint.check_best(best))
        })
    }

    /// The newest complete checkpoint that passes a test; the test returns what is wrong.
    fn latest_that(
        &self,
        test: impl Fn(&Checkpoint) -> std::result::Result<(), String>,
    ) -> Result<(Option<Checkpoint>, Vec<Refused>)> {
        let mut refused = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            let path = self.path(step);
            match load(&path).and_then(|checkpoint| test(&checkpoint).map(|()| checkpoint)) {
                Ok(checkpoint) => return Ok((Some(checkpoint), refused)),
                Err(reason) => refused.push(Refused { path, reason }),
            }
        }
        Ok((None, refused))
    }

    /// Renames a damaged checkpoint to `damaged-step-…` and returns its new folder. Under its old name it would
    /// count among the last ones and evict good ones.
    pub fn set_aside(&self, refused: &Refused) -> Result<PathBuf> {
        let name = refused.path.file_name().unwrap_or_default().to_string_lossy();
        let aside = self.folder.join(format!("{DAMAGED}{name}"));
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(TrainerError::io("remove", &aside))?;
        }
        fs::rename(&refused.path, &aside).map_err(TrainerError::io("set aside", &refused.path))?;
        Ok(aside)
    }

    /// Removes all but the last `keep_last` checkpoints and the one of step `best`.
    pub fn prune(&self, keep_last: usize, best: Option<u64>) -> Result<()> {
        let steps = self.steps()?;
        let surplus = steps.len().saturating_sub(keep_last.max(1));
        for step in &steps[..surplus] {
            if Some(*step) == best {
                continue;
            }
            // Renamed first: a kill in the middle of the removal leaves no half checkpoint behind.
            let path = self.path(*step);
            let partial = self.folder.join(format!("{PARTIAL}remove-{step:08}"));
            fs::rename(&path, &partial).map_err(TrainerError::io("remove", &path))?;
            fs::remove_dir_all(&partial).map_err(TrainerError::io("remove", &partial))?;
        }
        Ok(())
    }
}

/// Writes a checkpoint's files to a folder, flushed to disk.
fn write(state: &RunState, tensors: impl FnOnce(&Path) -> Result<()>, folder: &Path) -> Result<()> {
    fs::create_dir(folder).map_err(TrainerError::io("make", folder))?;
    tensors(folder)?;
    write_json(&folder.join(STATE), state)?;
    let files = files(|name| folder.join(name).exists());
    write_json(&folder.join(CHECKSUMS), &checksums(folder, &files)?)?;
    for name in files.into_iter().chain([CHECKSUMS]) {
        flush(&folder.join(name))?;
    }
    Ok(flush(folder)?)
}

fn load(path: &Path) -> std::result::Result<Checkpoint, String> {
    let json = |name: &str| fs::read(path.join(name)).map_err(|error| format!("{name}: {error}"));
    let recorded: BTreeMap<String, String> =
        serde_json::from_slice(&json(CHECKSUMS)?).map_err(|error| format!("{CHECKSUMS}: {error}"))?;
    let found =
        checksums(path, &files(|name| recorded.contains_key(name))).map_err(|error| describe(&error))?;
    for (name, sum) in &found {
        if recorded.get(name) != Some(sum) {
            return Err(format!("{name} is damaged: its checksum differs"));
        }
    }
    let state = serde_json::from_slice(&json(STATE)?).map_err(|error| format!("{STATE}: {error}"))?;
    let tensors = |name: &str| {
        let tensors = read_tensors(&path.join(name)).map_err(|error| describe(&error))?;
        Ok::<NamedTensors, String>(
            tensors.into_iter().map(|(path, data)| (without_variants(&path), data)).collect(),
        )
    };
    let if_there =
        |name: &str| if recorded.contains_key(name) { tensors(name) } else { Ok(NamedTensors::new()) };
    Ok(Checkpoint {
        state,
        model: tensors(MODEL)?,
        optimizer: tensors(OPTIMIZER)?,
        average: if_there(AVERAGE)?,
        extensions: if_there(EXTENSIONS)?,
    })
}

/// A path without names of enum variants, such as `Transformer.`, which checkpoints of earlier versions have.
fn without_variants(path: &str) -> String {
    let parts = path.split_inclusive(['.', '/']);
    parts.filter(|part| !part.starts_with(|start: char| start.is_ascii_uppercase())).collect()
}

/// An error and its causes on one line.
fn describe(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        // Some messages end with their cause.
        if !line.ends_with(&message) {
            line += &format!(": {message}");
        }
        source = cause.source();
    }
    line
}

/// The files of a checkpoint with these optional files.
fn files(has: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let optional = [AVERAGE, EXTENSIONS].into_iter().filter(|name| has(name));
    [MODEL, OPTIMIZER, STATE].into_iter().chain(optional).collect()
}

fn checksums(folder: &Path, files: &[&str]) -> Result<BTreeMap<String, String>> {
    files
        .iter()
        .map(|name| {
            // Read and not mapped, which would count as memory in use.
            Ok((name.to_string(), file_checksum(&folder.join(name))?))
        })
        .collect()
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut json = serde_json::to_vec_pretty(value).expect("plain values serialise");
    json.push(b'\n');
    fs::write(path, json).map_err(TrainerError::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;

    fn checkpoint(step: u64) -> Checkpoint {
        let tensor = TensorData::from([step as f32, -0.1, f32::MIN_POSITIVE]);
        Checkpoint {
            state: RunState {
                data: "key".into(),
                step,
                updates: step,
                forgotten_updates: 0,
                cursor: CursorState { epoch: 1, example: 2 * step },
                tokens: 64 * step,
                best: Some(Best { step: 1, figure: 0.1 + 0.2, tie: Some(0.1) }),
                best_model: [("model.safetensors".to_owned(), "00ff".to_owned())].into(),
                window: Window { updates: 1, losses: vec![1.0 / 3.0], grad_norm: 0.7 },
                kernel: "an abacus".into(),
                average: vec![Averaged { step, figure: Some(0.1 + 0.7) }],
                loss_scale: Some(LossScale { scale: 4096.0, steps: step }),
                extensions: [("mask".to_owned(), step.into())].into(),
            },
            model: [("w".to_string(), tensor.clone())].into(),
            optimizer: [("w.first".to_string(), tensor.clone())].into(),
            average: [(format!("{step}/w"), tensor.clone())].into(),
            extensions: [("mask/w".to_string(), tensor)].into(),
        }
    }

    #[test]
    fn what_is_saved_is_loaded_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path()).unwrap();
        checkpoints.save(&checkpoint(7)).unwrap();
        let (loaded, refused) = checkpoints.latest().unwrap();
        let loaded = loaded.unwrap();
        assert!(refused.is_empty());
        assert_eq!(loaded.state, checkpoint(7).state);
        assert_eq!(loaded.model, checkpoint(7).model);
        assert_eq!(loaded.extensions, checkpoint(7).extensions);
        assert_eq!(loaded.optimizer, checkpoint(7).optimizer);
        assert_eq!(loaded.average, checkpoint(7).average);
    }

    #[test]
    fn a_checkpoint_of_before_kernels_were_recorded_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path()).unwrap();
        let path = checkpoints.save(&checkpoint(7)).unwrap();
        let mut state: Value = serde_json::from_slice(&fs::read(path.join(STATE)).unwrap()).unwrap();
        assert_eq!(state.as_object_mut().unwrap().remove("kernel"), Some("an abacus".into()));
        // Nor were means, scales and extensions.
        for later in ["average", "loss_scale", "extensions"] {
            assert!(state.as_object_mut().unwrap().remove(later).is_some());
        }
        write_json(&path.join(STATE), &state).unwrap();
        for file in [AVERAGE, EXTENSIONS] {
            fs::remove_file(path.join(file)).unwrap();
        }
        write_json(&path.join(CHECKSUMS), &checksums(&path, &files(|_| false)).unwrap()).unwrap();
        let loaded = checkpoints.latest().unwrap().0.unwrap();
        let (kernel, average, loss_scale) = (String::new(), Vec::new(), None);
        let extensions = BTreeMap::new();
        let before = RunState { kernel, average, loss_scale, extensions, ..checkpoint(7).state };
        assert_eq!(loaded.state, before);
        assert!(loaded.average.is_empty());
    }

    #[test]
    fn paths_with_variants_of_enums_are_those_without() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path()).unwrap();
        let mut old = checkpoint(7);
        let with_variant = |tensors: NamedTensors, start: &str| -> NamedTensors {
            let path = |path: String| format!("{start}Transformer.{}", path.trim_start_matches(start));
            tensors.into_iter().map(|(key, data)| (path(key), data)).collect()
        };
        old.model = with_variant(old.model, "");
        old.optimizer = with_variant(old.optimizer, "");
        old.average = with_variant(old.average, "7/");
        assert_eq!(old.average.keys().next().unwrap(), "7/Transformer.w");
        checkpoints.save(&old).unwrap();
        let loaded = checkpoints.latest().unwrap().0.unwrap();
        assert_eq!(loaded.model, checkpoint(7).model);
        assert_eq!(loaded.optimizer, checkpoint(7).optimizer);
        assert_eq!(loaded.average, checkpoint(7).average);
    }

    #[test]
    fn a_checkpoint_of_another_model_is_refused() {
        let model = burn::nn::LinearConfig::new(2, 3).init(&burn::tensor::Device::flex());
        let numbers = |shape: Vec<usize>| TensorData::new(vec![0.5f32; shape.iter().product()], shape);
        let good = Checkpoint {
            state: RunState { average: vec![Averaged { step: 1, figure: None }], ..checkpoint(1).state },
            average: weights::collect(&model)
                .into_iter()
                .flat_map(|(path, data)| ["ema", "1"].map(|of| (format!("{of}/{path}"), data.clone())))
                .collect(),
            model: weights::collect(&model),
            optimizer: ["first", "second"].map(|part| (format!("weight.{part}"), numbers(vec![6]))).into(),
            extensions: NamedTensors::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path()).unwrap();
        let save = |step, change: &dyn Fn(&mut Checkpoint)| {
            let mut changed = Checkpoint {
                state: RunState { step, ..good.state.clone() },
                model: good.model.clone(),
                optimizer: good.optimizer.clone(),
                average: good.average.clone(),
                extensions: NamedTensors::new(),
            };
            change(&mut changed);
            checkpoints.save(&changed).unwrap();
        };
        save(1, &|_| ());
        save(2, &|changed| drop(changed.model.insert("weight".into(), numbers(vec![6]))));
        save(3, &|changed| drop(changed.model.remove("bias")));
        save(4, &|changed| drop(changed.optimizer.remove("weight.second")));
        save(5, &|changed| drop(changed.optimizer.insert("weight.first".into(), numbers(vec![2, 3]))));
        save(6, &|changed| changed.state.updates = 7);
        save(7, &|changed| drop(changed.average.remove("ema/bias")));
        save(8, &|changed| drop(changed.average.insert("1/weight".into(), numbers(vec![6]))));
        let (found, refused) = checkpoints.latest_of(&model, "key").unwrap();
        assert_eq!(found.unwrap().state.step, 1);
        let reasons: Vec<&str> = refused.iter().map(|refused| &*refused.reason).collect();
        assert_eq!(
            reasons,
            [
                "average.safetensors: `1/weight` has the shape [6], the model's has [2, 3]",
                "average.safetensors: `ema/bias` is missing",
                "state.json: 7 updates in 6 steps",
                "optimizer.safetensors: the moments of `weight` are not two of 6 numbers each",
                "optimizer.safetensors: the moments of `weight` are not two of 6 numbers each",
                "model.safetensors: the parameter `bias` is missing",
                "model.safetensors: `weight` has the shape [6], the model's has [2, 3]",
            ]
        );
    }

    #[test]
    fn a_damaged_checkpoint_is_refused_by_name_and_the_one_before_used() {
        for (file, damage) in [
            (MODEL, "flip"),
            (OPTIMIZER, "truncate"),
            (AVERAGE, "flip"),
            (AVERAGE, "remove"),
            (STATE, "flip"),
            (CHECKSUMS, "remove"),
            (MODEL, "remove"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let checkpoints = Checkpoints::open(folder.path()).unwrap();
            checkpoints.save(&checkpoint(1)).unwrap();
            let newest = checkpoints.save(&checkpoint(2)).unwrap();
            let path = newest.join(file);
            let mut bytes = fs::read(&path).unwrap();
            match damage {
                "flip" => *bytes.last_mut().unwrap() ^= 1,
                "truncate" => bytes.truncate(bytes.len() / 2),
                _ => fs::remove_file(&path).unwrap(),
            }
            if damage != "remove" {
                fs::write(&path, bytes).unwrap();
            }
            let (loaded, refused) = checkpoints.latest().unwrap();
            assert_eq!(loaded.unwrap().state.step, 1, "{damage} {file}");
            assert_eq!(refused.len(), 1);
            assert_eq!(refused[0].path, newest);
            assert!(refused[0].reason.contains(file), "{}", refused[0].reason);
        }
    }

    #[test]
    fn what_a_killed_writer_leaves_is_no_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path()).unwrap();
        checkpoints.save(&checkpoint(1)).unwrap();
        let partial = folder.path().join(".partial-00000002");
        fs::create_dir(&partial).unwrap();
        fs::write(partial.join(MODEL), b"half").unwrap();
        let checkpoints = Checkpoints::open(folder.path()).unwrap();
        assert_eq!(checkpoints.steps().unwrap(), [1]);
        assert!(!partial.exists());
    }

    #[test]
    fn the_last_and_the_best_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path()).unwrap();
        for step in 1..=5 {
            checkpoints.save(&checkpoint(step)).unwrap();
            checkpoints.prune(2, Some(1)).unwrap();
        }
        assert_eq!(checkpoints.steps().unwrap(), [1, 4, 5]);
    }
}
