//! `[distillation]`: a trained model of the same task, whose outputs are a second target.

use super::config::{Tuning, is_false};
use super::model_folder::TaskFile;
use super::predictor::kind_of;
use super::reading::TaskData;
use super::start::fingerprint;
use super::stored_scores::StoredScores;
use super::task::{PretrainedTask, RowKind, ScoreRows, Task, bad_setting};
use crate::config::validate::{Check, ensure, not_negative, positive};
use crate::engine::origin::{Input, model_files};
use crate::engine::{RunOptions, watched};
use crate::fit::check_fit;
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Int, Tensor};
use cloze_data::labelled::LabelSet;
use cloze_model::blocks::pack_weights;
use cloze_model::distillation::{soft_labels, soft_targets, squared_distance};
use cloze_model::huggingface::PretrainedFolder;
use cloze_model::tasks::DropoutOverrides;
use cloze_model::{HasBackbone, ParamInit};
use cloze_ops::on_awake_cores;
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// `[distillation]`: a teacher, and how much its outputs count beside the labels (Hinton, Vinyals & Dean 2015).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DistillationSection {
    /// The teacher: the folder of a model that is fine-tuned for the same task. It may have another vocabulary
    /// (not for answers) and its labels in another order. It has no dropout and is not trained.
    pub teacher: PathBuf,
    /// What the distance to the teacher's outputs counts in the loss: `T²·KL(softmax(t/T) ‖ softmax(s/T))` of
    /// classes, tags, choices, and begins and ends of answers; the same of each label's two sides; the squared
    /// difference of numbers. Default 0.5.
    #[serde(default = "half")]
    pub soft: f64,
    /// What the task's own loss counts. 0 trains from the teacher alone. Default: 1 − `soft`, at least 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard: Option<f64>,
    /// The temperature T that both models' outputs are divided by. Default 2.
    #[serde(default = "two")]
    pub temperature: f64,
    /// Whether the teacher's outputs are computed once, before training, and kept in the cache folder for further
    /// runs with the same teacher and the same data. Default false: in every step.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cache: bool,
}

fn half() -> f64 {
    0.5
}

fn two() -> f64 {
    2.0
}

impl DistillationSection {
    /// What the task's own loss counts.
    pub fn hard(&self) -> f64 {
        self.hard.unwrap_or((1.0 - self.soft).max(0.0))
    }

    pub(super) fn check(&self) -> Check {
        positive("distillation.temperature", self.temperature)?;
        for (key, weight) in [("distillation.soft", self.soft), ("distillation.hard", self.hard())] {
            not_negative(key, weight)?;
        }
        let counts = self.soft + self.hard() > 0.0;
        ensure(counts, "distillation.hard", self.hard(), "more than 0 where `distillation.soft` is 0")
    }
}

/// A teacher of some training examples.
pub(super) trait Teacher: Sync {
    /// Its rows of scores for these examples of the training data, without gradient, as wide as the student's.
    fn rows(&self, examples: &[usize], widths: &[usize]) -> Vec<Tensor<2>>;
}

/// A run's teacher, and what it counts.
pub(super) struct Distillation<'a> {
    pub section: &'a DistillationSection,
    /// What the teacher's folder is said to be.
    pub origin: String,
    kind: RowKind,
    teacher: Box<dyn Teacher + 'a>,
}

impl<'a> Distillation<'a> {
    /// Opens the configured teacher, a model of the task `T`, of a student with the task `S`; none if there is none.
    ///
    /// # Errors
    /// A folder that cannot be read; a model of another task, with other labels, without a trained head, or whose
    /// tokens do not match the student's where outputs are of tokens.
    pub fn open<S, T>(
        student: &S,
        data: &TaskData<S>,
        config: Tuning<'a>,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<Option<Self>>
    where
        S: Task,
        T: PretrainedTask<Example = S::Example, Features = S::Features> + 'a,
    {
        let Some(section) = config.distillation else { return Ok(None) };
        let (folder, device) = (&section.teacher, &options.device);
        let max_len = config.data.max_len;
        let refused = |expected: String| {
            bad_setting("distillation.teacher", format!("\"{}\"", folder.display()), expected)
        };
        let tokenizer = Tokenizer::load(folder)?;
        let pretrained = PretrainedFolder::open(folder)?;
        let file = TaskFile::of_folder(folder, &pretrained.config, &tokenizer)?;
        let (taught, teaches) = (kind_of(&student.section()), kind_of(&file.task));
        if taught != teaches {
            return Err(refused(format!("a model for the task `{taught}`: this one is for `{teaches}`")));
        }
        let task = T::of_saved(&file.task, file.pairs)?;
        let columns = columns(student.labels(), task.labels()).map_err(refused)?;
        let (encoder, mut model, report) =
            task.model(pretrained, &DropoutOverrides::default(), &mut ParamInit::new(device, 0))?;
        if let Some(missing) = report.missing.into_iter().next() {
            return Err(TrainerError::NoTaskHead { folder: folder.clone(), missing });
        }
        check_fit(&tokenizer, &encoder, folder, student.has_pairs())?;
        pack_weights(model.backbone_mut());
        let features =
            student.encode_again(&tokenizer, &data.train.examples, max_len.min(encoder.max_positions))?;
        let own = &data.train.features;
        let rows = |features: &S::Features| student.n_rows(&[features]);
        if features.len() != own.len() || features.iter().zip(own).any(|(a, b)| rows(a) != rows(b)) {
            let cut = "a teacher that reads as many words of each example: raise `data.max_len`";
            return Err(refused(cut.into()));
        }
        if student.rows_are_of_tokens() && fingerprint(&features) != fingerprint(own) {
            let same = "a teacher with the student's tokenizer: its outputs are of single tokens";
            return Err(refused(same.into()));
        }
        let origin =
            format!("{}, {} layers of width {}", folder.display(), encoder.n_layers, encoder.d_model);
        let columns = columns.map(|columns| Tensor::<1, Int>::from_data(&columns[..], device));
        let source = Source::Model(model);
        let mut teacher = Taught { task, source, features, columns, device: device.clone() };
        if section.cache {
            let files = Input::of(model_files(folder)?)?;
            let name = format!("teacher-{}.scores", teacher.key(&files));
            teacher.store(&options.cache.join(name), config.eval.batch_tokens, progress)?;
        }
        let teacher = Box::new(teacher);
        Ok(Some(Self { section, origin, kind: student.row_kind(), teacher }))
    }

    /// How far a batch's scores are from the teacher's, summed over its rows, `[1]`.
    pub fn distance(&self, scores: &impl ScoreRows, examples: &[usize]) -> Tensor<1> {
        let rows = scores.rows();
        let share = 1.0 / rows.len().max(1) as f64;
        let widths: Vec<usize> = rows.iter().map(|rows| rows.dims()[1]).collect();
        let of_teacher = self.teacher.rows(examples, &widths);
        let pairs = rows.into_iter().zip(of_teacher);
        let distances = pairs.map(|(student, teacher)| {
            let (teacher, temperature) = (Tensor::from_inner(teacher), self.section.temperature);
            match self.kind {
                RowKind::Classes => soft_targets(student, teacher, temperature),
                RowKind::Labels => soft_labels(student, teacher, temperature),
                RowKind::Values => squared_distance(student, teacher),
            }
        });
        distances.reduce(|sum, one| sum + one).expect("a task has rows of scores") * share
    }
}

/// For each of the student's labels the teacher's column; none if they are in the same order.
fn columns(
    student: Option<&LabelSet>,
    teacher: Option<&LabelSet>,
) -> std::result::Result<Option<Vec<i32>>, String> {
    let names = |set: Option<&LabelSet>| set.map_or(Vec::new(), |set| set.names().to_vec());
    let (student, teacher) = (names(student), names(teacher));
    let place = |name: &String| teacher.iter().position(|known| known == name).map(|place| place as i32);
    if let Some(unknown) = student.iter().find(|name| place(name).is_none()) {
        return Err(format!("a model with the label {unknown:?}: its labels are {}", teacher.join(", ")));
    }
    if let Some(unknown) = teacher.iter().find(|name| !student.contains(name)) {
        return Err(format!(
            "a model without the label {unknown:?}: the data's labels are {}",
            student.join(", ")
        ));
    }
    Ok((student != teacher).then(|| student.iter().filter_map(place).collect()))
}

/// A task's model as a teacher.
struct Taught<T: Task> {
    task: T,
    source: Source<T::Model>,
    /// The training examples, with the teacher's own tokens.
    features: Vec<T::Features>,
    /// The columns of its scores in the student's order, if that differs.
    columns: Option<Tensor<1, Int>>,
    device: Device,
}

/// Where a teacher's scores come from.
enum Source<M> {
    /// Computed in each step.
    Model(M),
    /// Computed before the first step.
    Stored(StoredScores),
}

impl<T: Task> Taught<T> {
    /// What the scores depend on: the teacher's files, its task, and its tokens.
    fn key(&self, files: &[Input]) -> String {
        let mut hasher = blake3::Hasher::new();
        let section = serde_json::to_string(&self.task.section()).expect("strings and numbers");
        files.iter().for_each(|file| {
            hasher.update(file.blake3.as_bytes());
        });
        hasher.update(section.as_bytes());
        hasher.update(fingerprint(&self.features).as_bytes());
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// Reads the scores of all examples from a file, or computes them and writes it; the model is then dropped.
    fn store(&mut self, path: &Path, batch_tokens: usize, progress: &mut dyn RunProgress) -> Result<()> {
        let Source::Model(model) = &self.source else { return Ok(()) };
        let found = StoredScores::read(path)?.filter(|stored| stored.len() == self.features.len());
        let stored = match found {
            Some(stored) => {
                progress.note(&format!("the teacher's outputs are those of {}", path.display()));
                stored
            }
            None => {
                let advanced = &mut watched("asking the teacher", progress);
                let (task, features) = (&self.task, &self.features);
                let stored =
                    StoredScores::compute(task, model, features, batch_tokens, &self.device, advanced);
                stored.write(path)?;
                stored
            }
        };
        self.source = Source::Stored(stored);
        Ok(())
    }
}

impl<T: Task> Teacher for Taught<T> {
    fn rows(&self, examples: &[usize], widths: &[usize]) -> Vec<Tensor<2>> {
        let rows = match &self.source {
            Source::Stored(stored) => stored.rows(examples, widths, &self.device),
            Source::Model(model) => {
                let batch: Vec<&T::Features> =
                    examples.iter().map(|example| &self.features[*example]).collect();
                on_awake_cores(&self.device, || self.task.scores(model, &batch, &self.device).rows())
            }
        };
        let ordered = |rows: Tensor<2>| match &self.columns {
            Some(columns) => rows.select(1, columns.clone()),
            None => rows,
        };
        rows.into_iter().map(ordered).collect()
    }
}
