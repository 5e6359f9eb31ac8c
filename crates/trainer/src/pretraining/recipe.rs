//! Encoder pretraining as an engine recipe: examples from a prepared corpus, and an objective over them.

use super::encoder_objective::EncoderObjective;
use super::languages;
use super::objective::{BertPretraining, figure};
use super::tables;
use crate::config::{RunConfig, TrainSection};
use crate::engine::run_folder::RunFolder;
use crate::engine::share_out;
use crate::engine::{
    Advance, Exported, Objective, Position, Recipe, RunOptions, SplitFigures, StepBatches, Term,
};
use crate::metrics::Record;
use crate::metrics::curve::Panel;
use crate::metrics::progress::RunProgress;
use crate::periodic_notes::PeriodicNotes;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::{
    Assemble, BatchStats, Documents, Loader, MultilingualData, Preparation, PretrainingBatch,
    PretrainingData, Split, UnigramCounts, derive_seed,
};
use cloze_evaluation::figures::Figures;
use cloze_model::blocks::{Attention, Positions};
use cloze_tokenizer::Tokenizer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Separates the random stream of the held-out examples from all others of a seed.
pub(super) const HELD_OUT_STREAM: u64 = 0x4E1D;

/// The name of the evaluation data.
const HELD_OUT: &str = "heldout";

/// The two parts of a prepared corpus, as examples.
#[derive(Debug)]
pub struct PretrainingSplits {
    pub(super) train: Training,
    pub(super) held_out: Vec<PretrainingBatch>,
    pub(super) unigram: Arc<UnigramCounts>,
    /// Identifies the texts and the tokenizer.
    pub(super) key: String,
}

/// The training data.
#[derive(Debug)]
pub(super) enum Training {
    /// The documents of one corpus.
    One(Arc<PretrainingData>),
    /// Those of several languages, and translations.
    Several(Arc<MultilingualData>),
}

impl PretrainingSplits {
    /// Prepares the config's corpus, or those of its languages and the translations, and builds examples as
    /// configured.
    ///
    /// # Errors
    /// Corpus errors; examples that cannot be built with this tokenizer.
    pub fn prepare(
        config: &RunConfig,
        tokenizer: &Tokenizer,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        if !config.corpus.languages.is_empty() {
            return languages::prepare(config, tokenizer, options, progress);
        }
        Self::prepare_with(config, tokenizer, options, progress, |documents, unigram, seed| {
            let (config, unigram, cache) = (config.examples.clone(), unigram.clone(), options.cache.clone());
            PretrainingData::new(documents, config, tokenizer, unigram, seed, cache)
        })
    }

    /// The same with custom examples: `examples` gets the documents of a part, the training counts of each
    /// piece, and a seed. It is called for the held-out part first.
    ///
    /// # Errors
    /// Those of the corpus and of `examples`.
    pub fn prepare_with(
        config: &RunConfig,
        tokenizer: &Tokenizer,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
        examples: impl Fn(Documents, &Arc<UnigramCounts>, u64) -> cloze_data::Result<PretrainingData>,
    ) -> Result<Self> {
        let (corpus, report) = {
            let (notes, crew) = (PeriodicNotes::new(progress), options.crew());
            let preparation = Preparation::new(&config.corpus, Path::new(""), tokenizer, &options.cache);
            preparation.tells(&notes).with(&crew).sentences()?
        };
        let corpus = Arc::new(corpus);
        let seed = config.common.run.seed;
        let part = |split| Documents::new(corpus.clone(), split, config.eval.heldout_fraction, seed);
        let (train, held_out) = (part(Split::Train)?, part(Split::HeldOut)?);
        progress.note(&tables::corpus(&report, train.count(), held_out.count()));

        let unigram = Arc::new(UnigramCounts::new(&train, tokenizer.vocab_size()));
        let held_out = examples(held_out, &unigram, derive_seed(seed, &[HELD_OUT_STREAM]))?;
        Ok(Self {
            train: Training::One(Arc::new(examples(train, &unigram, seed)?)),
            held_out: Loader::new(Arc::new(held_out), config.eval.batch_size)
                .one_pass(config.eval.max_examples as u64)?,
            unigram,
            key: corpus.key().to_string(),
        })
    }

    /// Mean tokens of a held-out example, without padding.
    pub(super) fn mean_len(&self) -> f64 {
        tokens(&self.held_out) as f64 / self.n_held_out().max(1) as f64
    }

    /// Number of held-out examples.
    fn n_held_out(&self) -> usize {
        self.held_out.iter().map(|batch| batch.tokens.n_sequences()).sum()
    }
}

fn tokens(batches: &[PretrainingBatch]) -> u64 {
    batches.iter().map(|batch| batch.tokens.n_tokens() as u64).sum()
}

/// An encoder's pretraining on masked examples, with any [objective](EncoderObjective); by default BERT's, with
/// customisable attention and positions.
#[derive(Debug)]
pub struct PretrainingRecipe<'a, O: EncoderObjective = BertPretraining> {
    objective: O,
    splits: PretrainingSplits,
    train: &'a TrainSection,
    published: Option<Published<'a>>,
    /// Statistics of this process's training data.
    stats: Mutex<TrainedOn>,
}

/// Counts over batches.
#[derive(Debug, Default)]
struct TrainedOn {
    all: BatchStats,
    /// Per source, if there are several.
    sources: BTreeMap<usize, BatchStats>,
}

impl TrainedOn {
    fn add(&mut self, batch: &PretrainingBatch) {
        self.all += &batch.stats;
        if let Some(source) = batch.source {
            *self.sources.entry(source).or_default() += &batch.stats;
        }
    }
}

/// What is needed to save a model as a Hugging Face folder.
#[derive(Debug)]
struct Published<'a> {
    tokenizer: &'a Tokenizer,
    /// Path of the tokenizer.
    path: PathBuf,
}

impl<'a, A: Attention, P: Positions> PretrainingRecipe<'a, BertPretraining<A, P>> {
    /// BERT's objective, with the configured terms, on these examples, in the config's batches. The model is
    /// saved with its own parameter paths.
    pub fn new(config: &'a RunConfig, splits: PretrainingSplits) -> Self {
        Self::with_objective(config, splits, BertPretraining::new(config))
    }
}

impl<'a, O: EncoderObjective> PretrainingRecipe<'a, O> {
    /// An objective on these examples, in the config's batches.
    pub fn with_objective(config: &'a RunConfig, splits: PretrainingSplits, objective: O) -> Self {
        let stats = Mutex::default();
        Self { objective, splits, train: &config.train, published: None, stats }
    }

    fn loaded<D: Assemble<Batch = PretrainingBatch>>(
        &self,
        data: &Arc<D>,
        batch_size: usize,
        from: Position,
    ) -> Box<dyn Iterator<Item = Result<StepBatches<PretrainingBatch>>> + '_> {
        let train = self.train;
        let loader =
            Loader::new(data.clone(), batch_size).with_workers(train.workers).with_ahead(train.prefetch);
        StepBatches::from_loader(&loader, from, train.accumulate, |batch: &PretrainingBatch| {
            self.stats.lock().unwrap_or_else(PoisonError::into_inner).add(batch);
            batch.tokens.n_tokens() as u64
        })
    }

    /// Saves the tokenizer from the run's `folder` with the model.
    pub(super) fn published(self, tokenizer: &'a Tokenizer, folder: &RunFolder) -> Self {
        Self { published: Some(Published { tokenizer, path: folder.tokenizer() }), ..self }
    }
}

impl<O: EncoderObjective> Objective for PretrainingRecipe<'_, O> {
    type Model = O::Model;
    type Batch = PretrainingBatch;

    fn terms(&self, step: u64) -> Vec<Term> {
        self.objective.terms(step)
    }

    fn counts(&self, batch: &PretrainingBatch) -> Vec<f64> {
        self.objective.counts(batch)
    }

    fn sums(&self, model: &O::Model, batch: &PretrainingBatch, device: &Device) -> Vec<Tensor<1>> {
        self.objective.sums(model, batch, device)
    }
}

impl<O: EncoderObjective> Recipe for PretrainingRecipe<'_, O> {
    fn data(&self) -> String {
        self.splits.key.clone()
    }

    fn data_changed(&self, checkpoint: PathBuf) -> TrainerError {
        match &self.published {
            Some(Published { path, .. }) => {
                TrainerError::CorpusChanged { checkpoint, tokenizer: path.clone() }
            }
            None => TrainerError::ExamplesChanged { checkpoint },
        }
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<PretrainingBatch>>> + '_> {
        match &self.splits.train {
            Training::One(data) => self.loaded(data, self.train.batch_size, from),
            // Its examples are whole batches.
            Training::Several(data) => self.loaded(data, 1, from),
        }
    }

    fn split(&self) -> Option<&str> {
        Some(HELD_OUT)
    }

    fn evaluate(
        &self,
        model: &O::Model,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let batches = &self.splits.held_out;
        let of_batches = share_out(batches.len(), |own| {
            let own = &batches[own];
            let (mut done, all) = (0, own.iter().map(|batch| batch.tokens.n_sequences()).sum::<usize>());
            let sums = own.iter().map(|batch| {
                let sums = self.objective.measure(model, batch, &self.splits.unigram, device);
                done += batch.tokens.n_sequences();
                advanced(Advance { done, share: done as f64 / all as f64 });
                sums
            });
            Ok(sums.collect())
        })?;
        let sums = of_batches.into_iter().fold(O::Sums::default(), |mut all, sums| {
            all += sums;
            all
        });
        Ok(self.objective.figures(&sums))
    }

    fn evaluation_line(&self, step: u64, figures: &Figures) -> String {
        self.objective.line(step, figures)
    }

    fn panels(&self, _: &[Record]) -> Vec<Panel> {
        self.objective.panels(HELD_OUT)
    }

    fn save(&self, model: &O::Model, folder: &Path) -> Result<()> {
        self.objective.save(model, folder, self.published.as_ref().map(|published| published.tokenizer))
    }

    fn load(&self, model: O::Model, folder: &Path) -> Result<O::Model> {
        self.objective.load(model, folder)
    }

    fn report(
        &self,
        exported: &Exported<'_, O::Model>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        progress.note(&tables::examples(&stats.all, self.objective.has_pairs()));
        if let Training::Several(data) = &self.splits.train {
            progress.note(&tables::drawn(&data.sources(), &stats.sources));
        }
        let Some(figures) = exported.figures else { return Ok(Vec::new()) };
        progress.note(&self.objective.results(exported.step, figures));
        let baseline = tables::unigram(figures);
        exported.page_with(HELD_OUT, figures, None, baseline.as_ref(), &[])?;
        exported.tell_loss(figures, figure::MASKED_LOSS, baseline.as_ref(), progress)?;
        Ok(vec![SplitFigures { split: HELD_OUT.into(), figures: figures.clone(), seconds: 0.0, baseline }])
    }
}
