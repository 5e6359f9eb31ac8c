//! BERT's pretraining as a recipe of the engine: examples made from a prepared corpus, masked pieces and sentence pairs.

use super::objective::{HeldOutSums, Terms, figure};
use super::tables;
use crate::config::{ObjectiveSection, RunConfig, TrainSection};
use crate::engine::run_folder::RunFolder;
use crate::engine::{
    Advance, Cadence, Export, Exported, Objective, Position, Recipe, RunSettings, SplitFigures, StepBatches,
    load_parameters, save_parameters,
};
use crate::metrics::Record;
use crate::metrics::curve::{Line, Panel, Source};
use crate::metrics::progress::RunProgress;
use crate::periodic_notes::PeriodicNotes;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::{
    BatchStats, Documents, Loader, PreparedCorpus, PretrainingBatch, PretrainingData, Split, UnigramCounts,
    derive_seed,
};
use cloze_evaluation::figures::Figures;
use cloze_model::bert::{BertConfig, BertForPreTraining};
use cloze_model::blocks::{Attention, LearnedPositions, MultiHeadAttention, Positions};
use cloze_model::huggingface::{PretrainedFolder, SaveConfig, save_pretrained};
use cloze_tokenizer::Tokenizer;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Tells the held-out examples' random numbers from all others that a seed gives.
const HELD_OUT_STREAM: u64 = 0x4E1D;

/// What the data is called that the model is measured on.
const HELD_OUT: &str = "heldout";

/// The two parts of a prepared corpus, as examples.
#[derive(Debug)]
pub struct PretrainingSplits {
    train: Arc<PretrainingData>,
    held_out: Vec<PretrainingBatch>,
    unigram: Arc<UnigramCounts>,
    /// Which texts, and which tokenizer.
    key: String,
}

impl PretrainingSplits {
    /// Prepares the config's corpus, and makes its examples as the config says.
    ///
    /// # Errors
    /// Whatever is wrong with the corpus; examples that cannot be made with this tokenizer.
    pub fn prepare(
        config: &RunConfig,
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        Self::prepare_with(config, tokenizer, cache, progress, |documents, unigram, seed| {
            let (config, unigram, cache) = (config.examples.clone(), unigram.clone(), cache.to_owned());
            PretrainingData::new(documents, config, tokenizer, unigram, seed, cache)
        })
    }

    /// The same with custom examples: `examples` is given the documents of a part, how often each piece occurs in
    /// training, and a seed. It is asked for the held-out part first.
    ///
    /// # Errors
    /// Those of the corpus and of `examples`.
    pub fn prepare_with(
        config: &RunConfig,
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &mut dyn RunProgress,
        examples: impl Fn(Documents, &Arc<UnigramCounts>, u64) -> cloze_data::Result<PretrainingData>,
    ) -> Result<Self> {
        let (corpus, report) = {
            let notes = PeriodicNotes::new(progress);
            PreparedCorpus::prepare(&config.corpus, Path::new(""), tokenizer, cache, &notes)?
        };
        let corpus = Arc::new(corpus);
        let seed = config.run.seed;
        let part = |split| Documents::new(corpus.clone(), split, config.eval.heldout_fraction, seed);
        let (train, held_out) = (part(Split::Train)?, part(Split::HeldOut)?);
        progress.note(&tables::corpus(&report, train.count(), held_out.count()));

        let unigram = Arc::new(UnigramCounts::new(&train, tokenizer.vocab_size()));
        let held_out = examples(held_out, &unigram, derive_seed(seed, &[HELD_OUT_STREAM]))?;
        Ok(Self {
            train: Arc::new(examples(train, &unigram, seed)?),
            held_out: Loader::new(Arc::new(held_out), config.eval.batch_size)
                .one_pass(config.eval.max_examples as u64)?,
            unigram,
            key: corpus.key().to_string(),
        })
    }

    /// Tokens of a held-out example on average, without padding.
    pub(super) fn mean_len(&self) -> f64 {
        tokens(&self.held_out) as f64 / self.n_held_out().max(1) as f64
    }

    /// Held-out examples.
    fn n_held_out(&self) -> usize {
        self.held_out.iter().map(|batch| batch.tokens.n_sequences()).sum()
    }
}

fn tokens(batches: &[PretrainingBatch]) -> u64 {
    batches.iter().map(|batch| batch.tokens.n_tokens() as u64).sum()
}

impl RunConfig {
    /// What the engine is told of the run. With patience the best model is the result.
    pub fn run_settings(&self) -> RunSettings {
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
        settings
    }
}

/// A BERT's pretraining: masked pieces and, where there are any, sentence pairs (Devlin et al. 2019, §3.1). The
/// attention may be your own.
#[derive(Debug)]
pub struct PretrainingRecipe<'a, A: Attention = MultiHeadAttention, P: Positions = LearnedPositions> {
    splits: PretrainingSplits,
    train: &'a TrainSection,
    terms: Terms,
    published: Option<Published<'a>>,
    /// What this process has trained on.
    stats: Mutex<BatchStats>,
    attention: PhantomData<fn() -> (A, P)>,
}

/// A model that is saved as a Hugging Face folder.
#[derive(Debug)]
struct Published<'a> {
    bert: BertConfig,
    save: SaveConfig,
    tokenizer: &'a Tokenizer,
    /// Where the tokenizer lies.
    tokenizer_path: PathBuf,
}

impl<'a, A: Attention, P: Positions> PretrainingRecipe<'a, A, P> {
    /// On these examples, in the batches that the config says. The model is saved with its own paths as names.
    pub fn new(config: &'a RunConfig, splits: PretrainingSplits) -> Self {
        let boundaries = config.objective == ObjectiveSection::SpanBoundary {};
        let terms = Terms { boundaries, pairs: config.examples.has_pairs() };
        let stats = Mutex::new(BatchStats::default());
        Self { splits, train: &config.train, terms, published: None, stats, attention: PhantomData }
    }

    /// Saves the model as a Hugging Face folder, with its tokenizer, which lies in the run's `folder`.
    pub(super) fn published(
        self,
        bert: BertConfig,
        save: SaveConfig,
        tokenizer: &'a Tokenizer,
        folder: &RunFolder,
    ) -> Self {
        let tokenizer_path = folder.tokenizer();
        Self { published: Some(Published { bert, save, tokenizer, tokenizer_path }), ..self }
    }
}

impl<A: Attention, P: Positions> Objective for PretrainingRecipe<'_, A, P> {
    type Model = BertForPreTraining<A, P>;
    type Batch = PretrainingBatch;

    fn terms(&self) -> &'static [&'static str] {
        self.terms.names()
    }

    fn counts(&self, batch: &PretrainingBatch) -> Vec<f64> {
        self.terms.counts(batch)
    }

    fn sums(
        &self,
        model: &BertForPreTraining<A, P>,
        batch: &PretrainingBatch,
        device: &Device,
    ) -> Vec<Tensor<1>> {
        self.terms.sums(model, batch, device)
    }
}

impl<A: Attention, P: Positions> Recipe for PretrainingRecipe<'_, A, P> {
    fn data(&self) -> String {
        self.splits.key.clone()
    }

    fn data_changed(&self, checkpoint: PathBuf) -> TrainerError {
        match &self.published {
            Some(Published { tokenizer_path, .. }) => {
                TrainerError::CorpusChanged { checkpoint, tokenizer: tokenizer_path.clone() }
            }
            None => TrainerError::ExamplesChanged { checkpoint },
        }
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<PretrainingBatch>>> + '_> {
        let train = self.train;
        let loader = Loader::new(self.splits.train.clone(), train.batch_size)
            .with_workers(train.workers)
            .with_ahead(train.prefetch);
        StepBatches::from_loader(&loader, from, train.accumulate, |batch: &PretrainingBatch| {
            *self.stats.lock().unwrap_or_else(PoisonError::into_inner) += &batch.stats;
            batch.tokens.n_tokens() as u64
        })
    }

    fn split(&self) -> Option<&str> {
        Some(HELD_OUT)
    }

    fn evaluate(
        &self,
        model: &BertForPreTraining<A, P>,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let mut evaluation = HeldOutSums::default();
        let (mut done, all) = (0, self.splits.n_held_out());
        for batch in &self.splits.held_out {
            evaluation.add(model, batch, &self.splits.unigram, device);
            done += batch.tokens.n_sequences();
            advanced(Advance { done, share: done as f64 / all as f64 });
        }
        Ok(evaluation.figures())
    }

    fn evaluation_line(&self, step: u64, figures: &Figures) -> String {
        tables::line(step, figures)
    }

    /// The masked-token loss in training and held out, and held-out accuracies, each beside the unigram baseline's.
    fn panels(&self, _: &[Record]) -> Vec<Panel> {
        let line = |label: &str, source| Line { label: label.into(), source };
        let split = || HELD_OUT.to_owned();
        let held_out = |figure: &str| Source::Figure { split: split(), figure: figure.into() };
        let unigram = |figure: &str| Source::Baseline { split: split(), figure: figure.into() };
        let losses = vec![
            line("training (smoothed)", Source::LossTerm(figure::MASKED_LOSS.into())),
            line("held out", held_out(figure::MASKED_LOSS)),
            line("from spans' boundaries, held out", held_out(figure::BOUNDARY_LOSS)),
            line("unigram baseline", unigram(figure::UNIGRAM_LOSS)),
        ];
        let accuracies = vec![
            line("masked tokens, held out", held_out(figure::MASKED_ACCURACY)),
            line("from spans' boundaries, held out", held_out(figure::BOUNDARY_ACCURACY)),
            line("sentence pairs, held out", held_out(figure::PAIR_ACCURACY)),
            line("unigram baseline", unigram(figure::UNIGRAM_ACCURACY)),
        ];
        vec![
            Panel { axis: "masked-token loss (nats)".into(), lines: losses },
            Panel { axis: "accuracy".into(), lines: accuracies },
        ]
    }

    fn save(&self, model: &BertForPreTraining<A, P>, folder: &Path) -> Result<()> {
        let Some(Published { bert, save, tokenizer, .. }) = &self.published else {
            return save_parameters(model, folder);
        };
        save_pretrained(folder, model, bert, save)?;
        Ok(tokenizer.save(folder.join("tokenizer.json"))?)
    }

    fn load(&self, model: BertForPreTraining<A, P>, folder: &Path) -> Result<BertForPreTraining<A, P>> {
        match &self.published {
            Some(Published { save, .. }) => {
                Ok(PretrainedFolder::open(folder)?.load_into(model, save.architecture, &[])?.0)
            }
            None => load_parameters(model, folder),
        }
    }

    fn report(
        &self,
        exported: &Exported<'_, BertForPreTraining<A, P>>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        progress.note(&tables::examples(&stats, self.terms.pairs));
        let Some(figures) = exported.figures else { return Ok(Vec::new()) };
        progress.note(&tables::results(exported.step, figures));
        exported.page(HELD_OUT, figures, None)?;
        Ok(vec![SplitFigures { split: HELD_OUT.into(), figures: figures.clone(), seconds: 0.0 }])
    }
}
