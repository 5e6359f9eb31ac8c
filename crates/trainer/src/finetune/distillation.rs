//! A trained model of the same task, whose outputs are a second target.

use super::config::Tuning;
use super::model_folder::TaskFile;
use super::predictor::kind_of;
use super::reading::TaskData;
use super::start::fingerprint;
use super::stored_scores::StoredScores;
use super::task::{PretrainedTask, RowKind, ScoreRows, Task, bad_setting};
use crate::distillation::{CommonParts, DistillationSection, Inner, Side};
use crate::engine::origin::{Input, model_files};
use crate::engine::{RunOptions, Term, watched};
use crate::fit::check_fit;
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Int, Tensor};
use cloze_data::labelled::LabelSet;
use cloze_model::bert::BertConfig;
use cloze_model::blocks::{Pass, pack_weights, record_pass};
use cloze_model::distillation::{soft_labels, soft_targets, squared_distance};
use cloze_model::huggingface::PretrainedFolder;
use cloze_model::tasks::DropoutOverrides;
use cloze_model::{HasBackbone, ParamInit};
use cloze_ops::on_awake_cores;
use cloze_tokenizer::Tokenizer;
use std::iter::repeat_n;
use std::path::Path;

/// A teacher of some training examples.
pub(super) trait Teacher: Sync {
    /// Its rows of scores for these examples of the training data, without gradient, as wide as the student's.
    fn rows(&self, examples: &[usize], widths: &[usize]) -> Vec<Tensor<2>>;

    /// What happens inside while it computes its [rows](Self::rows), if it computes them.
    fn recorded(&self, examples: &[usize], widths: &[usize]) -> (Vec<Tensor<2>>, Pass) {
        record_pass(|| self.rows(examples, widths))
    }
}

/// A run's teacher, and what it counts.
pub(super) struct Distillation<'a> {
    pub section: &'a DistillationSection,
    /// What the teacher's folder is said to be.
    pub origin: String,
    /// What is compared inside of both models.
    pub inner: Option<Inner>,
    /// The parts of each training example that both models' tokens have in common, if their tokens differ and what is inside is
    /// compared.
    parts: Option<Vec<CommonParts>>,
    kind: RowKind,
    teacher: Box<dyn Teacher + 'a>,
}

impl<'a> Distillation<'a> {
    /// Opens the configured teacher, a model of the task `T`, of a student with the task `S`; none if there is none.
    /// `encoder_student`, its encoder and tokenizer, is none of a recurrent student.
    ///
    /// # Errors
    /// A folder that cannot be read; a model of another task, with other labels, without a trained head, or whose
    /// tokens do not match the student's where outputs are of tokens; inner layers that cannot be compared.
    pub fn open<S, T>(
        student: &S,
        data: &TaskData<S>,
        encoder_student: Option<(&BertConfig, &Tokenizer)>,
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
        let same_tokens = fingerprint(&features) == fingerprint(own);
        if student.rows_are_of_tokens() && !same_tokens {
            let same = "a teacher with the student's tokenizer: its outputs are of single tokens";
            return Err(refused(same.into()));
        }
        let inner = match (&section.inner, encoder_student) {
            (None, _) => None,
            (Some(_), None) => {
                let expected = "none for a recurrent student, which has other layers than its teacher".into();
                return Err(bad_setting("distillation.inner", "given", expected));
            }
            (Some(_), Some(_)) if !model.backbone().can_be_recorded() => {
                return Err(refused("a teacher in floats: one of integers alone shows no layers".into()));
            }
            (Some(_), Some((student, _))) => {
                let student = Side { encoder: student, name: "the student".into() };
                Inner::plan(section, &student, &Side { encoder: &encoder, name: "the teacher".into() })?
            }
        };
        let parts = match (&inner, encoder_student) {
            (Some(inner), Some((_, own))) if !same_tokens => {
                if let Some(term) = inner.of_tokens() {
                    let same = format!(
                        "a teacher with the student's tokenizer: `distillation.inner.{term}` compares single tokens"
                    );
                    return Err(refused(same));
                }
                let places =
                    |tokenizer: &Tokenizer, max_len| student.places(tokenizer, &data.train.examples, max_len);
                let theirs = places(&tokenizer, max_len.min(encoder.max_positions))?;
                let (Some(ours), Some(theirs)) = (places(own, max_len)?, theirs) else {
                    let same =
                        "a teacher with the student's tokenizer, for this task with `[distillation.inner]`";
                    return Err(refused(same.into()));
                };
                let pairs = ours.iter().zip(&theirs);
                Some(pairs.map(|(ours, theirs)| CommonParts::of(ours, theirs)).collect())
            }
            _ => None,
        };
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
        Ok(Some(Self { section, origin, inner, parts, kind: student.row_kind(), teacher }))
    }

    /// The terms of the loss: the labels', the teacher's outputs', and those of what is inside.
    pub fn terms(&self) -> Vec<Term> {
        let outputs = [
            Term::new("labels").with_weight(self.section.hard()),
            Term::new("teacher").with_weight(self.section.soft),
        ];
        outputs.into_iter().chain(self.inner.iter().flat_map(Inner::terms)).collect()
    }

    /// For each term but the labels' the number of items that it averages over, in a batch of these examples with so many rows
    /// and tokens: rows, and tokens or the parts that both models have in common.
    pub fn counts(&self, examples: &[usize], n_rows: usize, n_tokens: u64) -> impl Iterator<Item = f64> {
        let n_inner = self.inner.as_ref().map_or(0, Inner::n_terms);
        let n_inside = match &self.parts {
            None => n_tokens as f64,
            Some(parts) => examples.iter().map(|example| parts[*example].n).sum::<usize>() as f64,
        };
        std::iter::once(n_rows as f64).chain(repeat_n(n_inside, n_inner))
    }

    /// The student's scores of a batch, and for each term but the labels' its sum: how far they are from the teacher's,
    /// summed over the rows, and how far what is inside is, summed over the tokens.
    pub fn sums<S: ScoreRows>(
        &self,
        examples: &[usize],
        device: &Device,
        scores: impl FnOnce() -> S,
    ) -> (S, Vec<Tensor<1>>) {
        let Some(inner) = &self.inner else {
            let scores = scores();
            let rows = scores.rows();
            let of_teacher = self.teacher.rows(examples, &widths(&rows));
            return (scores, vec![self.distance(rows, of_teacher)]);
        };
        let (scores, student) = record_pass(scores);
        let rows = scores.rows();
        let (of_teacher, teacher) = self.teacher.recorded(examples, &widths(&rows));
        let mut sums = vec![self.distance(rows, of_teacher)];
        let (student, teacher) = self.compared(examples, student, teacher.from_inner());
        sums.extend(inner.sums(&student, &teacher, device));
        (scores, sums)
    }

    /// What of both passes is compared: their tokens, or the means of the parts that both have in common.
    fn compared(&self, examples: &[usize], student: Pass, teacher: Pass) -> (Pass, Pass) {
        let Some(parts) = &self.parts else { return (student, teacher) };
        let of = |tokens: fn(&CommonParts) -> &[Option<u32>]| -> Vec<(&[Option<u32>], usize)> {
            examples.iter().map(|example| (tokens(&parts[*example]), parts[*example].n)).collect()
        };
        (student.by_parts(&of(|parts| &parts.student)), teacher.by_parts(&of(|parts| &parts.teacher)))
    }

    fn distance(&self, student: Vec<Tensor<2>>, teacher: Vec<Tensor<2>>) -> Tensor<1> {
        let share = 1.0 / student.len().max(1) as f64;
        let distances = student.into_iter().zip(teacher).map(|(student, teacher)| {
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

/// The columns of each tensor of rows.
fn widths(rows: &[Tensor<2>]) -> Vec<usize> {
    rows.iter().map(|rows| rows.dims()[1]).collect()
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
