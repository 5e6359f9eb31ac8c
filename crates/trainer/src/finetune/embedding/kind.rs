//! Sentence encoders as a kind of task: checks for each loss, and the run from its data on.

use super::super::config::Tuning;
use super::super::kind::{DataSize, TaskKind};
use super::super::model_folder::TASK_FILE;
use super::super::saved_model::{OpenedModel, SavedModel};
use super::super::task::{Encoded, bad_setting};
use super::super::task_run::TaskRun;
use super::section::{EmbeddingSection, LABEL, LossSection, MatryoshkaSection, NEGATIVES, PAIR};
use super::{EmbeddingFeatures, EmbeddingTask};
use crate::config::shards::check_parts;
use crate::config::validate::{Check, at_least, ensure, not_negative};
use crate::embed::{EmbedConfig, Embedder};
use crate::engine::Outcome;
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_data::labelled::{LabelledSource, Loaded, SentenceExample, classified_sentences, sentences};
use cloze_evaluation::embeddings::Vectors;
use cloze_evaluation::report::SimilarityKind;
use cloze_evaluation::table::percent;
use cloze_evaluation::vectors::principal_components;
use cloze_model::huggingface::{PretrainedFolder, SentenceConfig};
use std::path::Path;

/// Embeddings, configured by a section.
pub(in crate::finetune) struct EmbeddingKind<'a>(pub &'a EmbeddingSection);

impl TaskKind for EmbeddingKind<'_> {
    /// Checks the values, and that the data has what the loss needs.
    fn check(&self, config: Tuning<'_>) -> Check {
        let section = self.0;
        section.loss.check()?;
        let head = config.model.dropout.head;
        ensure(head.is_none(), "model.dropout.head", head.unwrap_or(0.0), "none: an embedding has no head")?;
        let expected =
            "none: a teacher of embeddings is `task.loss = { kind = \"distillation\", teacher = … }`";
        ensure(config.distillation.is_none(), "distillation", "given", expected)?;
        let columns = &config.data.train.columns;
        let has = |key: &str| columns.contains_key(key.rsplit('.').next().unwrap_or(key));
        for key in section.loss.needs() {
            ensure(has(key), key, "missing", "the column that has it, which `task.loss` requires")?;
        }
        for (key, who) in section.loss.ignores() {
            let expected = format!("none with `task.loss.kind` = \"{}\": {who}", section.loss.kind());
            ensure(!has(key), key, "given", expected)?;
        }
        if let (LossSection::Simcse { .. }, Some(prompts)) = (&section.loss, &section.prompts) {
            let expected =
                "that of `task.prompts.text`: with \"simcse\" each sentence is the first text of an example";
            ensure(
                prompts.pair == prompts.text,
                "task.prompts.pair",
                format!("{:?}", prompts.pair),
                expected,
            )?;
        }
        // To SimCSE a negative is one more example of its own.
        let compares_with_rows = matches!(section.loss, LossSection::Simcse { .. }) || !has(NEGATIVES);
        if section.loss.is_contrastive() && compares_with_rows {
            let expected = format!(
                "2 or more: what `task.loss.kind` = \"{}\" compares with are the other rows of a batch",
                section.loss.kind()
            );
            ensure(config.train.batch_size != 1, "train.batch_size", 1, expected)?;
        }
        check_parts(("task.chunk", section.chunk), ("task.shards", section.shards))?;
        if let Some(score) = section.min_score {
            let is_usable = score.is_finite() && has(LABEL);
            ensure(is_usable, "task.min_score", score, "a number, and scores (`data.train.columns.label`)")?;
        }
        let has_dev = !config.data.dev.is_empty() || config.data.dev_fraction.is_some();
        if has_dev || !config.data.test.is_empty() {
            let expected = "the second text of each row: single sentences cannot be measured";
            ensure(has(PAIR), PAIR, "missing", expected)?;
            let is_measured = has(LABEL) || section.loss != LossSection::Softmax {};
            let expected =
                "the scores that `data.dev` and `data.test` are measured by: classes say nothing of cosines";
            ensure(is_measured, LABEL, "missing", expected)?;
        }
        let Some(MatryoshkaSection { dims, weights }) = &section.matryoshka else { return Ok(()) };
        let distils = matches!(section.loss, LossSection::Distillation { .. });
        ensure(!distils, "task.matryoshka", "given", "none with a teacher, which has one width")?;
        let classifies = section.loss == LossSection::Softmax {};
        ensure(!classifies, "task.matryoshka", "given", "none with a classifier, which has one width")?;
        ensure(!dims.is_empty(), "task.matryoshka.dims", "[]", "one number of features or more")?;
        for dim in dims {
            at_least(1, "task.matryoshka.dims", *dim)?;
        }
        let fits = weights.is_empty() || weights.len() == dims.len();
        ensure(fits, "task.matryoshka.weights", format!("{weights:?}"), "one for each of the dims")?;
        weights.iter().try_for_each(|weight| not_negative("task.matryoshka.weights", *weight))
    }

    fn models(&self) -> Vec<&Path> {
        self.0.loss.reference().into_iter().collect()
    }

    fn size(&self, data: &LabelledSource) -> Result<Option<DataSize>> {
        let loss = &self.0.loss;
        let examples = match loss {
            LossSection::Softmax {} => classified_sentences(data, Path::new(""))?.0.examples,
            _ => sentences(data, Path::new(""))?.examples,
        };
        let compares = loss.is_contrastive() || loss.orders_examples();
        let rows = select(self.0, examples)?.len();
        Ok(Some(DataSize { compares, ..DataSize::of_rows(rows) }))
    }

    fn tune(&self, run: TaskRun<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let (section, config, tokenizer) = (self.0, run.config, run.tokenizer()?);
        let columns = &config.data.train.columns;
        let kind = match (columns.contains_key("label"), columns.contains_key("negatives")) {
            (true, _) => SimilarityKind::Scored,
            (false, true) => SimilarityKind::Triplets,
            (false, false) => SimilarityKind::Pairs,
        };
        let sentence = SentenceConfig::load(&config.model.path)?.unwrap_or_default();
        let mut task = EmbeddingTask::new(section.clone(), section.loss(), sentence, kind)?;
        let read = |source: &_| Ok(sentences(source, Path::new(""))?);
        let train = match section.loss {
            LossSection::Softmax {} => {
                let (loaded, n) = read_classes(&config.data.train)?;
                task = task.with_classes(n);
                loaded
            }
            _ => read(&config.data.train)?,
        };
        let mut data = run.reading(progress).selected::<EmbeddingTask>(
            train,
            read,
            |examples| task.encode(&tokenizer, examples, config.data.max_len),
            |examples| select(section, examples),
        )?;
        if let Some(path) = section.loss.reference() {
            let mut width = refer(&mut data.train, path, &run.options.device)?;
            let distils = matches!(section.loss, LossSection::Distillation { .. });
            let own = task.pooling.width(PretrainedFolder::open(&config.model.path)?.config.encoder.d_model);
            if distils && width > own {
                let kept = narrow(&mut data.train.features, own)?;
                progress.note(&format!(
                    "teacher: embeddings of {width} features, of which {own} principal components keep {} of the variance",
                    percent(kept)
                ));
                width = own;
            }
            task.teacher_width = distils.then_some(width);
        }
        run.train(&task, data, &tokenizer, progress)
    }

    fn open(&self, saved: SavedModel<'_>) -> Result<OpenedModel> {
        Err(TrainerError::BadTaskFile {
            path: saved.folder.join(TASK_FILE),
            reason: "the model embeds sentences, which `cloze embed` does; expected a task with predictions"
                .into(),
        })
    }
}

/// The training examples with their classes, and the number of classes.
fn read_classes(source: &LabelledSource) -> Result<(Loaded<SentenceExample>, usize)> {
    let (loaded, set) = classified_sentences(source, Path::new(""))?;
    if let [class] = set.names() {
        let found = format!("pairs of the single class {class:?}");
        let expected = "two classes or more (`data.train.columns.class`: the column that has them)";
        return Err(bad_setting("data.train.files", found, expected.into()));
    }
    Ok((loaded, set.len()))
}

/// The training examples selected by a section.
fn select(section: &EmbeddingSection, mut examples: Vec<SentenceExample>) -> Result<Vec<SentenceExample>> {
    if let Some(least) = section.min_score {
        examples.retain(|example| example.score.is_some_and(|score| score >= least));
    }
    if let LossSection::Cosine { max_score } = section.loss {
        let beyond = |score: &f64| score.abs() > max_score;
        if let Some(score) = examples.iter().filter_map(|example| example.score).find(beyond) {
            let expected = format!("the greatest score or more: there is one of {score}");
            return Err(bad_setting("task.loss.max_score", max_score, expected));
        }
    }
    match section.loss {
        LossSection::Simcse { .. } => Ok(single_sentences(examples)),
        _ => Ok(examples),
    }
}

/// Embeds the training sentences with the model of a folder; returns the embeddings' width.
fn refer(
    train: &mut Encoded<SentenceExample, EmbeddingFeatures>,
    folder: &Path,
    device: &Device,
) -> Result<usize> {
    let embedder = Embedder::load(folder, EmbedConfig::default(), device)?;
    let texts: Vec<&String> = train.examples.iter().flat_map(SentenceExample::texts).collect();
    let embeddings = embedder.embed(&texts)?;
    let mut rows = embeddings.values.chunks_exact(embedder.width()).map(<[f32]>::to_vec);
    for features in &mut train.features {
        features.reference = rows.by_ref().take(features.sequences.len()).collect();
    }
    Ok(embedder.width())
}

/// Replaces the references, embeddings of a wider teacher, by their coordinates along the first `width` principal
/// components, as sentence-transformers does it; returns the share of the variance that these keep.
///
/// # Errors
/// An embedding that is not finite.
fn narrow(features: &mut [EmbeddingFeatures], width: usize) -> Result<f64> {
    let rows: Vec<f32> = features.iter().flat_map(|one| one.reference.iter().flatten().copied()).collect();
    let wide = features.iter().flat_map(|one| &one.reference).map(Vec::len).next().unwrap_or(width);
    let components = principal_components(Vectors::new(&rows, wide)?, width);
    let mut places = components.positions.chunks_exact(width);
    for reference in features.iter_mut().flat_map(|one| &mut one.reference) {
        let place = places.next().expect("a place for each vector");
        *reference = place.iter().zip(&components.centre).map(|(a, b)| (a + b) as f32).collect();
    }
    Ok(components.shares.iter().sum())
}

/// Each sentence of training rows as its own example.
fn single_sentences(examples: Vec<SentenceExample>) -> Vec<SentenceExample> {
    let single =
        |text: String| SentenceExample { text, pair: None, negatives: Vec::new(), score: None, class: None };
    let each = examples
        .into_iter()
        .flat_map(|example| std::iter::once(example.text).chain(example.pair).chain(example.negatives));
    each.map(single).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(reference: Vec<Vec<f32>>) -> EmbeddingFeatures {
        EmbeddingFeatures {
            sequences: Vec::new(),
            has_pair: false,
            score: None,
            class: None,
            keys: Vec::new(),
            reference,
            truncated: false,
        }
    }

    #[test]
    fn vectors_of_a_plane_keep_their_products_in_two_components() {
        // Four numbers each, of the plane of (1, 2, 0, −1) and (0, 1, 1, 3); their mean is not 0.
        let of = |a: f32, b: f32| vec![a, 2.0 * a + b, b, 3.0 * b - a];
        let wide = [of(1.0, 0.5), of(-2.0, 1.5), of(0.5, 3.0), of(4.0, -1.0)];
        let mut narrowed = [features(wide[..2].to_vec()), features(wide[2..].to_vec())];
        let kept = narrow(&mut narrowed, 2).unwrap();
        assert!((kept - 1.0).abs() < 1e-9, "{kept}");
        let narrowed: Vec<&Vec<f32>> = narrowed.iter().flat_map(|one| &one.reference).collect();
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))) {
            assert_eq!(narrowed[i].len(), 2);
            let (exact, found) = (dot(&wide[i], &wide[j]), dot(narrowed[i], narrowed[j]));
            assert!((exact - found).abs() < 1e-4, "{i}, {j}: {exact} {found}");
        }
        assert!(narrow(&mut [features(vec![vec![f32::NAN; 4]])], 2).is_err());
    }
}
